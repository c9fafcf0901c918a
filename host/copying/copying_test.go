package copying

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// bench is a source and receivers around a hub.
type bench struct {
	t       *testing.T
	hub     *hub
	source  *Source
	dial    func(ctx context.Context, address string) (net.Conn, error)
	mu      sync.Mutex
	events  []Event // of the source
	happens func(Event)
}

func newBench(t *testing.T, receivers int, paths ...string) *bench {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, hub: newHub(), dial: dial}
	b.source = &Source{
		Sender: b.hub, Listener: l, Address: l.Addr().String(), Receivers: receivers, Paths: paths, Patience: 20 * time.Second,
		Events: func(e Event) {
			b.mu.Lock()
			b.events = append(b.events, e)
			b.mu.Unlock()
			if b.happens != nil {
				b.happens(e)
			}
		},
	}
	return b
}

// host is a receiver of a test.
type host struct {
	*member
	dir  string
	got  Received
	err  error
	ends chan struct{}
	stop context.CancelFunc
	*Receiver
	t      *testing.T
	events []Event // of other receivers
}

func (b *bench) receiver(dir string, resume bool) *host {
	b.t.Helper()
	target, err := OpenTarget(dir, resume)
	if err != nil {
		b.t.Fatal(err)
	}
	target.flush = func(int) error { return nil } // whatever else the machine writes
	h := &host{member: b.hub.join(), dir: dir, ends: make(chan struct{})}
	h.Receiver = &Receiver{Inbox: h.member, Target: target, Host: filepath.Base(dir), Dial: b.dial}
	return h
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func (h *host) start(ctx context.Context) *host {
	ctx, h.stop = context.WithCancel(ctx)
	go func() {
		defer close(h.ends)
		h.got, h.err = h.Run(ctx)
		h.leave()
		if h.Target != nil {
			h.err = errors.Join(h.err, h.Target.Close())
		}
	}()
	return h
}

// run sends, and waits for the receivers.
func (b *bench) run(hosts ...*host) (Sent, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	sent, err := b.source.Run(ctx)
	for _, h := range hosts {
		select {
		case <-h.ends:
		case <-ctx.Done():
			b.t.Fatalf("%s does not end", h.dir)
		}
	}
	return sent, err
}

// complete is run where everything has to arrive everywhere.
func (b *bench) complete(tree string, hosts ...*host) {
	b.t.Helper()
	sent, err := b.run(hosts...)
	if err != nil || len(sent.Gone) > 0 || len(sent.LeftOut) > 0 || len(sent.Complete) != len(hosts) {
		b.t.Fatalf("%+v, %v", sent, err)
	}
	want := look(b.t, tree)
	for _, h := range hosts {
		if h.err != nil {
			b.t.Errorf("%s: %v", h.dir, h.err)
		}
		if diff := cmp.Diff(want, look(b.t, filepath.Join(h.dir, filepath.Base(tree)))); diff != "" {
			b.t.Errorf("%s: %s", h.dir, diff)
		}
		if h.got.Bytes != sent.Bytes {
			b.t.Errorf("%s has counted %d bytes of %d", h.dir, h.got.Bytes, sent.Bytes)
		}
	}
}

// look describes a tree: one line for each name.
func look(t *testing.T, root string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		line := fmt.Sprintf("%q %v %d", name, info.Mode(), info.ModTime().UnixNano())
		switch info.Mode().Type() {
		case 0:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

var seed atomic.Uint64

func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed.Add(1))}).Read(b)
	return b
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// makeTree makes a tree with everything that is copied.
func makeTree(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "tree")
	sizes := []int{0, 1, BlockBytes - 1, BlockBytes, BlockBytes + 1, 2 * BlockBytes, (2*hubBuffers+1)*BlockBytes + 7}
	for _, n := range sizes {
		write(t, filepath.Join(root, "sizes", fmt.Sprint(n)), random(n))
	}
	for i := range 300 {
		write(t, filepath.Join(root, fmt.Sprint("many/", i%7, "/", i)), random(i))
	}
	write(t, filepath.Join(root, "name with \xff and\nnewline"), []byte("x"))
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "empty/within"), 0o755),
		os.Symlink("sizes/1", filepath.Join(root, "link")),
		os.Symlink("/nowhere", filepath.Join(root, "dangling")),
		os.Chmod(filepath.Join(root, "sizes/1"), 0o400),
		os.Chmod(filepath.Join(root, "sizes/0"), 0o755|os.ModeSetuid),
		os.Chmod(filepath.Join(root, "empty"), 0o555),
		os.Chtimes(filepath.Join(root, "sizes/1"), time.Now(), time.Unix(1e9, 123456789)),
		os.Chtimes(filepath.Join(root, "many"), time.Now(), time.Unix(1e8, 1)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, "empty"), 0o755) })
	return root
}

func (b *bench) hosts(n int) (list []*host) {
	for i := range n {
		list = append(list, b.receiver(filepath.Join(b.t.TempDir(), fmt.Sprint("r", i)), false).start(b.t.Context()))
	}
	return list
}

func TestATreeArrivesEverywhere(t *testing.T) {
	tree := makeTree(t)
	b := newBench(t, 3, tree)
	b.complete(tree, b.hosts(3)...)
}

// What is sent does not grow with the number of receivers.
func TestAFileIsSentOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, random(8*BlockBytes))
	b := newBench(t, 4, file)
	b.complete(file, b.hosts(4)...)
	if most := int64(9 * BlockBytes); b.hub.sent > most {
		t.Errorf("%d bytes were sent", b.hub.sent)
	}
}

func TestASparseFileKeepsItsHoles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	_, first := f.WriteAt([]byte("begin"), 0)
	_, second := f.WriteAt(random(10), 64<<20)
	if err := errors.Join(first, second, f.Truncate(100<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, 1, file)
	h := b.hosts(1)[0]
	b.complete(file, h)
	if n := allocated(t, filepath.Join(h.dir, "sparse")); n > 4<<20 {
		t.Errorf("%d bytes are allocated", n)
	}
	if b.hub.sent > 4<<20 {
		t.Errorf("%d bytes were sent", b.hub.sent)
	}
}

func allocated(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

func TestTheStandardInputArrives(t *testing.T) {
	data := random(3*BlockBytes + 5)
	b := newBench(t, 2)
	b.source.Input = bytes.NewReader(data)
	var outputs [2]bytes.Buffer
	var hosts []*host
	for i := range outputs {
		h := &host{member: b.hub.join(), dir: fmt.Sprint(i), ends: make(chan struct{})}
		h.Receiver = &Receiver{Inbox: h.member, Output: &outputs[i], Host: h.dir, Dial: dial}
		hosts = append(hosts, h.start(t.Context()))
	}
	sent, err := b.run(hosts...)
	if err != nil || len(sent.Complete) != 2 || sent.Bytes != int64(len(data)) {
		t.Fatalf("%+v, %v", sent, err)
	}
	for i := range outputs {
		if hosts[i].err != nil || !bytes.Equal(outputs[i].Bytes(), data) {
			t.Errorf("receiver %d: %v", i, hosts[i].err)
		}
	}
}

func TestDirectoriesAndStreamsAreToldApart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, nil)
	b := newBench(t, 1, file)
	h := &host{member: b.hub.join(), ends: make(chan struct{})}
	h.Receiver = &Receiver{Inbox: h.member, Output: io.Discard, Dial: dial}
	if _, err := b.run(h.start(t.Context())); err == nil || h.err == nil || !strings.Contains(h.err.Error(), "name a directory") {
		t.Errorf("source %v, receiver %v", err, h.err)
	}
	b = newBench(t, 1)
	b.source.Input = strings.NewReader("x")
	h = b.hosts(1)[0]
	if _, err := b.run(h); err == nil || h.err == nil || !strings.Contains(h.err.Error(), "receive it with -") {
		t.Errorf("source %v, receiver %v", err, h.err)
	}
}

// A receiver that comes when half was sent gets the rest in the first pass, and what it lacks in
// the second.
func TestAReceiverComesLate(t *testing.T) {
	tree := makeTree(t)
	b := newBench(t, 1, tree)
	first := b.hosts(1)[0]
	late := b.receiver(filepath.Join(t.TempDir(), "late"), false)
	b.hub.mu.Lock()
	b.hub.members = b.hub.members[:1]
	b.hub.mu.Unlock()
	var messages, came int
	b.hub.fault = func() {
		if b.source.header.pass == 1 {
			messages++
		}
		if messages == 8 && came == 0 {
			came++
			b.hub.mu.Lock()
			b.hub.members = append(b.hub.members, late.member)
			b.hub.mu.Unlock()
			late.start(t.Context())
		}
	}
	b.complete(tree, first, late)
	if came != 1 || b.source.header.pass < 2 {
		t.Errorf("%d have come, pass %d", came, b.source.header.pass)
	}
}

func TestAReceiverThatComesLateForAStreamIsRefused(t *testing.T) {
	b := newBench(t, 1)
	var first, second bytes.Buffer
	early := &host{member: b.hub.join(), dir: "early", ends: make(chan struct{})}
	early.Receiver = &Receiver{Inbox: early.member, Output: &first, Host: "early", Dial: dial}
	early.start(t.Context())
	late := &host{dir: "late", ends: make(chan struct{})}
	data := random(4 * BlockBytes)
	reported := make(chan struct{})
	b.happens = func(e Event) {
		if e.Event == Joined && strings.Contains(e.Host, "late") {
			close(reported)
		}
	}
	b.source.Input = io.MultiReader(bytes.NewReader(data[:2*BlockBytes]), readerFunc(func([]byte) (int, error) {
		late.member = b.hub.join()
		late.Receiver = &Receiver{Inbox: late.member, Output: &second, Host: "late", Dial: dial}
		late.start(t.Context())
		return 0, io.EOF
	}), bytes.NewReader(data[2*BlockBytes:3*BlockBytes]), readerFunc(func([]byte) (int, error) {
		<-reported // the message before has brought it
		return 0, io.EOF
	}), bytes.NewReader(data[3*BlockBytes:]))
	sent, err := b.run(early, late)
	if err != nil || len(sent.Complete) != 1 || len(sent.Gone) != 1 || early.err != nil || !bytes.Equal(first.Bytes(), data) {
		t.Errorf("%+v, %v, %v", sent, err, early.err)
	}
	if late.err == nil || !strings.Contains(late.err.Error(), "the beginning") || second.Len() > 0 {
		t.Errorf("late: %v, %d bytes", late.err, second.Len())
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

const mortalFiles, mortalEach = 4, 8 * BlockBytes

// mortal is a bench with a receiver that lives and one that dies in the third file. then follows.
func mortal(t *testing.T, then func()) (b *bench, tree string, lives, dies *host) {
	t.Helper()
	tree = filepath.Join(t.TempDir(), "tree")
	for i := range mortalFiles {
		write(t, filepath.Join(tree, fmt.Sprint(i)), random(mortalEach))
	}
	b = newBench(t, 2, tree)
	lives = b.hosts(1)[0]
	dies = b.receiver(filepath.Join(t.TempDir(), "dies"), true).start(t.Context())
	messages := 0
	b.hub.fault = func() {
		if messages++; messages == 1+2*8+4 {
			dies.leave()
			dies.stop()
			<-dies.ends
			then()
		}
	}
	return b, tree, lives, dies
}

// The others go on, the source names the one that has died, and with --resume it gets what it
// lacks and nothing else.
func TestAReceiverDiesAndResumes(t *testing.T) {
	b, tree, lives, dies := mortal(t, func() {})
	sent, err := b.run(lives, dies)
	if err != nil || len(sent.Complete) != 1 || len(sent.Gone) != 1 || lives.err != nil || dies.err == nil {
		t.Fatalf("%+v, %v, %v, %v", sent, err, lives.err, dies.err)
	}
	for name := range sent.Gone {
		if !strings.Contains(name, "dies") {
			t.Errorf("gone: %s", name)
		}
	}
	b = newBench(t, 2, tree)
	b.complete(tree, b.receiver(dies.dir, true).start(t.Context()), b.receiver(lives.dir, true).start(t.Context()))
	if b.hub.sent > 3*mortalEach || b.hub.sent < mortalEach {
		t.Errorf("%d MiB of %d were sent once more", b.hub.sent>>20, mortalFiles*mortalEach>>20)
	}
}

// A receiver that dies and comes again during the copy gets what it lacks in a further pass, and is
// not named as one that lacks something.
func TestAReceiverDiesAndComesAgain(t *testing.T) {
	gone := make(chan struct{})
	var (
		b                  *bench
		tree               string
		lives, dies, again *host
	)
	b, tree, lives, dies = mortal(t, func() {
		<-gone
		again = b.receiver(dies.dir, true).start(t.Context())
	})
	b.happens = func(e Event) {
		if e.Event == Gone {
			close(gone)
		}
	}
	sent, err := b.run(lives)
	<-again.ends
	if err != nil || len(sent.Complete) != 2 || len(sent.Gone) != 0 || again.err != nil {
		t.Fatalf("%+v, %v, %v", sent, err, again.err)
	}
	if diff := cmp.Diff(look(t, tree), look(t, filepath.Join(dies.dir, "tree"))); diff != "" {
		t.Error(diff)
	}
}

// A receiver that ends without --resume leaves nothing that looks like a file.
func TestNothingHalfStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, random(8*BlockBytes))
	b := newBench(t, 1, file)
	h := b.hosts(1)[0]
	messages := 0
	b.hub.fault = func() {
		if messages++; messages == 6 {
			h.stop()
			<-h.ends
		}
	}
	if sent, err := b.run(h); !errors.Is(err, errNobody) || len(sent.Gone) != 1 {
		t.Errorf("%+v, %v", sent, err)
	}
	if list := listOf(t, h.dir); len(list) > 0 {
		t.Errorf("%q are left", list)
	}
}

func listOf(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// A file that was changed since the interruption is not mixed from two versions.
func TestAResumedFileHasChanged(t *testing.T) {
	dir, source := t.TempDir(), t.TempDir()
	file := filepath.Join(source, "f")
	write(t, file, random(6*BlockBytes))
	if err := os.Mkdir(filepath.Join(dir, "r"), 0o755); err != nil {
		t.Fatal(err)
	}
	stale := random(7 * BlockBytes)
	write(t, filepath.Join(dir, "r", partialName("f")), stale)
	write(t, filepath.Join(dir, "r", "f"), random(6*BlockBytes)) // as long, but another
	b := newBench(t, 1, file)
	b.complete(file, b.receiver(filepath.Join(dir, "r"), true).start(t.Context()))
}

// What was data in the version of the interruption is a hole now.
func TestAResumedFileHasHoles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, random(2*BlockBytes))
	if err := os.Truncate(file, 6*BlockBytes); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, partialName("f")), random(6*BlockBytes))
	b := newBench(t, 1, file)
	h := b.receiver(dir, true).start(t.Context())
	b.complete(file, h)
	if n := allocated(t, filepath.Join(dir, "f")); n > 3*BlockBytes {
		t.Errorf("%d bytes are allocated", n)
	}
	if b.hub.sent > 3*BlockBytes {
		t.Errorf("%d bytes were sent", b.hub.sent)
	}
}

// A message that was changed on its way is noticed, and the file sent again.
func TestAWrongBlockIsSentAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, random(3*BlockBytes))
	b := newBench(t, 2, file)
	hosts := b.hosts(2)
	spoiled := 0
	hosts[1].spoil = func(m []byte) {
		if len(m) > BlockBytes && spoiled == 0 {
			spoiled++
			m[len(m)-1] ^= 1
		}
	}
	b.complete(file, hosts...)
	if spoiled != 1 {
		t.Error("nothing was spoiled")
	}
}

// A receiver behind which every block is wrong takes no part after some attempts, and the file has
// its name nowhere there.
func TestAFileThatNeverArrives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, random(BlockBytes))
	b := newBench(t, 2, file)
	hosts := b.hosts(2)
	hosts[1].spoil = func(m []byte) {
		if len(m) > BlockBytes {
			m[len(m)-9000] ^= 1
		}
	}
	sent, err := b.run(hosts...)
	if err != nil || len(sent.Complete) != 1 || len(sent.Gone) != 1 || hosts[1].err == nil || !strings.Contains(hosts[1].err.Error(), "SHA-256") {
		t.Errorf("%+v, %v, %v", sent, err, hosts[1].err)
	}
	if list := listOf(t, hosts[1].dir); len(list) > 0 {
		t.Errorf("%q are there", list)
	}
}

func TestAReceiverWithoutSpaceIsNamed(t *testing.T) {
	tree := makeTree(t)
	b := newBench(t, 2, tree)
	hosts := b.hosts(1)
	full := b.receiver(filepath.Join(t.TempDir(), "full"), false)
	written := 0
	full.Target.write = func(f *os.File, p []byte, at int64) (int, error) {
		if written += len(p); written > 5*BlockBytes {
			return 0, &os.PathError{Op: "write", Path: f.Name(), Err: unix.ENOSPC}
		}
		return f.WriteAt(p, at)
	}
	full.start(t.Context())
	sent, err := b.run(hosts[0], full)
	if err != nil || len(sent.Complete) != 1 || len(sent.Gone) != 1 {
		t.Fatalf("%+v, %v", sent, err)
	}
	for name, why := range sent.Gone {
		if !strings.Contains(name, "full") || !strings.HasSuffix(why, "no space left on device") || strings.Contains(why, "\n") {
			t.Errorf("%s: %s", name, why)
		}
	}
	if err := filepath.WalkDir(full.dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), ".rocast-cp-") {
			t.Errorf("%s is left", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// What a receiver cannot write to is one sentence, there and at the source.
func TestNamesThatCannotBeWritten(t *testing.T) {
	source := filepath.Join(t.TempDir(), "d")
	write(t, filepath.Join(source, "f"), []byte("x"))
	for name, make := range map[string]func(dir string) error{
		"no directory":        func(dir string) error { return os.WriteFile(filepath.Join(dir, "d"), nil, 0o600) },
		"something else":      func(dir string) error { return os.Symlink(t.TempDir(), filepath.Join(dir, "d")) },
		"is a directory here": func(dir string) error { return os.MkdirAll(filepath.Join(dir, "d/f"), 0o755) },
	} {
		b := newBench(t, 1, source)
		h := b.receiver(filepath.Join(t.TempDir(), "r"), false)
		if err := make(h.dir); err != nil {
			t.Fatal(err)
		}
		sent, err := b.run(h.start(t.Context()))
		if err == nil || h.err == nil || len(sent.Gone) != 1 {
			t.Errorf("%s: %+v, %v, %v", name, sent, err, h.err)
			continue
		}
		for _, why := range sent.Gone {
			if strings.Contains(why, "\n") || why != strings.TrimSpace(h.err.Error()) {
				t.Errorf("%s: %q, %q", name, why, h.err)
			}
		}
	}
}

// A file that shrinks, grows or is replaced while it is read gets its name nowhere, and the others
// arrive.
func TestAFileThatChangesIsLeftOut(t *testing.T) {
	for name, change := range map[string]func(string) error{
		"shrinks":  func(f string) error { return os.Truncate(f, 3*BlockBytes) },
		"grows":    func(f string) error { return os.Truncate(f, 13*BlockBytes) },
		"replaced": func(f string) error { return errors.Join(os.Remove(f), os.WriteFile(f, nil, 0o600)) },
		"written": func(f string) error {
			h, err := os.OpenFile(f, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = h.WriteAt([]byte("other"), 0)
			return errors.Join(err, h.Close())
		},
	} {
		tree := filepath.Join(t.TempDir(), "tree")
		write(t, filepath.Join(tree, "a"), random(5))
		write(t, filepath.Join(tree, "b"), random(12*BlockBytes))
		write(t, filepath.Join(tree, "c"), random(5))
		b := newBench(t, 2, tree)
		hosts := b.hosts(2)
		messages := 0
		b.hub.fault = func() {
			if len(b.hub.members) == 2 && b.source.batches == 1 {
				messages++
			}
			if messages == 5 {
				if err := change(filepath.Join(tree, "b")); err != nil {
					t.Error(err)
				}
			}
		}
		sent, err := b.run(hosts...)
		if err != nil || len(sent.Complete) != 2 || !slices.Equal(slices.Collect(maps.Keys(sent.LeftOut)), []string{filepath.Join(tree, "b")}) {
			if name != "replaced" || err != nil { // the old file can still be read to its end
				t.Errorf("%s: %+v, %v", name, sent, err)
			}
		}
		for _, h := range hosts {
			list := listOf(t, filepath.Join(h.dir, "tree"))
			if want := []string{"a", "c"}; name != "replaced" && (!slices.Equal(list, want) || h.got.LeftOut != 1) {
				t.Errorf("%s: %q, %+v", name, list, h.got)
			}
		}
	}
}

// If the group breaks, the source goes on by single connections, and nobody gets a verified file
// twice.
func TestTheSourceFallsBack(t *testing.T) {
	tree := makeTree(t)
	b := newBench(t, 3, tree)
	hosts := b.hosts(3)
	messages := 0
	b.hub.fault = func() {
		if messages++; messages == 9 {
			b.hub.mu.Lock()
			b.hub.broken = errors.New("the box is gone")
			b.hub.mu.Unlock()
			hosts[0].leave() // it notices, the others do not
		}
	}
	b.complete(tree, hosts...)
	if !slices.ContainsFunc(b.events, func(e Event) bool { return e.Event == Way && strings.Contains(e.Reason, "the box is gone") }) {
		t.Errorf("%+v", b.events)
	}
}

// Who does not report is waited for, and then the others go on.
func TestTheSourceWaitsForItsReceivers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, random(10))
	b := newBench(t, 2, file)
	b.source.Patience = time.Second
	h := b.hosts(1)[0]
	sent, err := b.run(h)
	if err != nil || h.err != nil || len(sent.Complete) != 1 || !strings.HasPrefix(sent.Gone["1 of 2 receivers"], "not reported") {
		t.Errorf("%+v, %v, %v", sent, err, h.err)
	}
	b = newBench(t, 2, file)
	b.source.Patience = 100 * time.Millisecond
	if _, err := b.run(); err == nil || !strings.HasPrefix(err.Error(), "no receiver has reported") {
		t.Error(err)
	}
}

// Whoever finds the port but is not in the group learns nothing and counts for nothing.
func TestAStrangerIsNoReceiver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, random(10))
	b := newBench(t, 1, file)
	conn, err := dial(t.Context(), b.source.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, `{"hello":{"token":"","host":"x"}}`+"\n"+`{"done":true}`+"\n"); err != nil {
		t.Fatal(err)
	}
	b.complete(file, b.hosts(1)...)
}

func TestTwoPathsWithOneName(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "f"), filepath.Join(t.TempDir(), "f")
	b := newBench(t, 1, one, two)
	if _, err := b.run(); err == nil || !strings.Contains(err.Error(), "would both be f") {
		t.Error(err)
	}
}

// What is no file, and what is not there, is left out, and the rest is sent.
func TestWhatCannotBeReadIsLeftOut(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	write(t, filepath.Join(tree, "a"), random(5))
	if err := unix.Mkfifo(filepath.Join(tree, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, 1, tree, filepath.Join(tree, "absent"))
	h := b.hosts(1)[0]
	sent, err := b.run(h)
	if err != nil || len(sent.Complete) != 1 || len(sent.LeftOut) != 2 || !slices.Equal(listOf(t, filepath.Join(h.dir, "tree")), []string{"a"}) {
		t.Errorf("%+v, %v", sent, err)
	}
}

// Two receivers write to one directory: a file is never half there, and never that of the other.
func TestTwoReceiversOfOneDirectory(t *testing.T) {
	dir := t.TempDir()
	entry := func() *Entry { return &Entry{Kind: File, Mode: 0o600, Size: 100, Path: "f"} }
	receive := func(target *Target, text string, pause func()) error {
		e := entry()
		whole := bytes.Repeat([]byte(text), 100)
		if err := target.data(e, 0, whole[:50]); err != nil {
			return err
		}
		pause()
		if err := target.data(e, 50, whole[50:]); err != nil {
			return err
		}
		sum := sha256.Sum256(whole)
		_, err := target.complete(e, sum[:])
		return err
	}
	read := func() string {
		content, err := os.ReadFile(filepath.Join(dir, "f"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		return string(content)
	}
	open := func(resume bool) *Target {
		target, err := OpenTarget(dir, resume)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	for _, resume := range []bool{false, true} {
		first, second := open(resume), open(resume)
		err := receive(first, "a", func() {
			if err := receive(second, "b", func() {}); err == nil || !strings.Contains(err.Error(), `"f" is being written by another rocast-cp`) {
				t.Error(err)
			}
			if err := second.again(entry()); err != nil {
				t.Error(err)
			}
		})
		if err := errors.Join(err, first.Close(), second.Close()); err != nil {
			t.Error(err)
		}
		if got := read(); got != strings.Repeat("a", 100) {
			t.Errorf("%q", got)
		}
	}
	// The first one opens what the second one is about to rename.
	var both sync.WaitGroup
	for _, text := range []string{"a", "b"} {
		both.Go(func() {
			target := open(false)
			for done := 0; done < 300; {
				switch err := receive(target, text, func() {}); {
				case err == nil:
					done++
				case !strings.Contains(err.Error(), "another rocast-cp"):
					t.Error(err)
					return
				}
				if got := read(); got != strings.Repeat("a", 100) && got != strings.Repeat("b", 100) {
					t.Errorf("%q", got)
					return
				}
			}
			if err := target.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Error(left, err)
	}
}

// A file that somebody replaces while it is written gets no name.
func TestAPartIsReplaced(t *testing.T) {
	dir := t.TempDir()
	target, err := OpenTarget(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	e := &Entry{Kind: File, Mode: 0o600, Size: 1, Path: "f"}
	if err := target.data(e, 0, []byte("a")); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, partialName("f"))
	if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte("b"), 0o600)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("a"))
	if _, err := target.complete(e, sum[:]); err == nil || !strings.Contains(err.Error(), "replaced while it was written") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "f")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// What an earlier receiver has left is nothing without --resume, not even where holes come.
func TestWhatIsLeftIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, partialName("f")), []byte("left"), 0o600); err != nil {
		t.Fatal(err)
	}
	target, err := OpenTarget(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	e := &Entry{Kind: File, Mode: 0o600, Size: 4, Path: "f"}
	if err := target.data(e, 0, []byte("a")); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("a\x00\x00\x00"))
	if verified, err := target.complete(e, sum[:]); err != nil || !verified {
		t.Error(verified, err)
	}
}

// A file that has the name of another one's part would be lost when that one comes.
func TestPartsAreNotSent(t *testing.T) {
	dir := t.TempDir()
	part := filepath.Join(dir, partialName("f"))
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var left []string
	err := walk([]string{part, dir}, func(e *Entry) error {
		if e.Kind == File {
			t.Errorf("%q is sent", e.Path)
		}
		return nil
	}, func(path, _ string) { left = append(left, path) })
	if err != nil || !slices.Equal(left, []string{part, part}) {
		t.Error(left, err)
	}
}

// A list does not take more memory than its names may.
func TestANameIsBounded(t *testing.T) {
	for _, e := range []Entry{{Kind: File, Path: strings.Repeat("a", maxText+1)}, {Kind: Symlink, Path: "a", Target: strings.Repeat("a", maxText+1)}} {
		if err := new(Entry).decode(e.append(nil)); err == nil {
			t.Error("it is taken")
		}
	}
	e := Entry{Kind: File, Path: strings.Repeat("a", maxText)}
	if err := new(Entry).decode(e.append(nil)); err != nil {
		t.Error(err)
	}
}
