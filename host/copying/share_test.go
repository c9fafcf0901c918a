package copying

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// sharing is a receiver that gives and takes files.
func (b *bench) sharing(name string, resume bool) *host {
	b.t.Helper()
	h := b.receiver(filepath.Join(b.t.TempDir(), name), resume)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	h.Peers = l
	h.Events = func(e Event) {
		if e.Event == FromPeer {
			b.mu.Lock()
			h.events = append(h.events, e)
			b.mu.Unlock()
		}
	}
	return h
}

// comesLate starts a receiver when all others have everything of the first pass.
func (b *bench) comesLate(late *host) {
	b.hub.mu.Lock()
	b.hub.members = slices.DeleteFunc(b.hub.members, func(m *member) bool { return m == late.member })
	b.hub.mu.Unlock()
	var once sync.Once
	messages := 0
	b.hub.fault = func() {
		if messages++; messages < 20 {
			return
		}
		once.Do(func() {
			b.hub.mu.Lock()
			b.hub.members = append(b.hub.members, late.member)
			b.hub.mu.Unlock()
			late.start(b.t.Context())
		})
	}
}

// bigTree makes some files, of which one has a hole.
func bigTree(t *testing.T) (tree string, bytes int64) {
	t.Helper()
	tree = filepath.Join(t.TempDir(), "tree")
	for i := range 6 {
		write(t, filepath.Join(tree, fmt.Sprint("d", i%2), fmt.Sprint(i)), random(4*BlockBytes+i))
	}
	write(t, filepath.Join(tree, "empty"), nil)
	sparse(t, filepath.Join(tree, "sparse"), 40*BlockBytes)
	return tree, 6*4*BlockBytes + 2*BlockBytes
}

// A receiver that comes late gets everything from the others, and the source sends no file again.
// Holes stay.
func TestALateReceiverGetsFilesFromOthers(t *testing.T) {
	tree, once := bigTree(t)
	b := newBench(t, 2, tree)
	early := []*host{b.sharing("a", false), b.sharing("b", false)}
	late := b.sharing("late", false)
	b.comesLate(late)
	for _, h := range early {
		h.start(t.Context())
	}
	b.complete(tree, early[0], early[1], late)
	if b.hub.sent > once+BlockBytes {
		t.Errorf("the source has sent %d bytes of %d", b.hub.sent, once)
	}
	var files int64
	for _, e := range late.events {
		files += e.Files
	}
	if len(late.events) < 2 || files < 5 {
		t.Errorf("%+v", late.events)
	}
	if n := allocated(t, filepath.Join(late.dir, "tree", "sparse")); n > 4*BlockBytes {
		t.Errorf("%d bytes are allocated", n)
	}
	if len(early[0].events)+len(early[1].events) > 0 {
		t.Errorf("%+v, %+v", early[0].events, early[1].events)
	}
}

// A receiver that has lost its files gets them from one that has them with --resume, in the first
// pass. What is another version there comes from the source.
func TestAResumedFileComesFromOthers(t *testing.T) {
	tree, _ := bigTree(t)
	b := newBench(t, 2, tree)
	has, lacks := b.sharing("has", true), b.sharing("lacks", true)
	if err := os.CopyFS(filepath.Join(has.dir, "tree"), os.DirFS(tree)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(has.dir, "tree", "d0", "0"), random(4*BlockBytes))
	b.complete(tree, has.start(t.Context()), lacks.start(t.Context()))
	if len(lacks.events) != 1 || lacks.events[0].Files != 6 || len(has.events) > 0 {
		t.Errorf("%+v, %+v", lacks.events, has.events)
	}
	if b.hub.sent > 9*BlockBytes { // twice: to the one that lacks it, and when the other one has noticed
		t.Errorf("the source has sent %d bytes", b.hub.sent)
	}
}

// What others do not give, the source sends: nobody else shares, or more lack a file than have it.
func TestWhatTheSourceSendsItself(t *testing.T) {
	for name, c := range map[string]struct {
		shares func(h []*host)
	}{
		"nobody shares":       {func(h []*host) { h[0].Peers, h[1].Peers = nil, nil }},
		"who lacks is alone":  {func(h []*host) { h[2].Peers = nil }},
		"more lack than have": {func(h []*host) { h[1].dir = "" }},
	} {
		file := filepath.Join(t.TempDir(), "f")
		content := random(4 * BlockBytes)
		write(t, file, content)
		b := newBench(t, 3, file)
		hosts := []*host{b.sharing("a", true), b.sharing("b", true), b.sharing("c", true)}
		dirs := []string{hosts[0].dir, hosts[1].dir}
		for _, h := range hosts {
			h.t = t
		}
		c.shares(hosts)
		for i, d := range dirs {
			if hosts[i].dir == d {
				write(t, filepath.Join(d, "f"), content)
			}
			hosts[i].dir = d
		}
		for _, h := range hosts {
			h.start(t.Context())
		}
		b.complete(file, hosts...)
		if b.hub.sent < 4*BlockBytes || b.hub.sent > 5*BlockBytes || len(hosts[2].events) > 0 {
			t.Errorf("%s: %d bytes, %+v", name, b.hub.sent, hosts[2].events)
		}
	}
}

// faulty changes what another receiver gives.
type faulty struct {
	net.Conn
	read func(c net.Conn, b []byte) (int, error)
}

func (f *faulty) Read(b []byte) (int, error) { return f.read(f.Conn, b) }

// spoiled changes a byte of the first block's header.
func spoiled(come *atomic.Int64, at int, value byte) func(net.Conn, []byte) (int, error) {
	return func(c net.Conn, b []byte) (int, error) {
		n, err := c.Read(b)
		if before := come.Add(int64(n)) - int64(n); before == 0 && n > at {
			b[at] = value
		}
		return n, err
	}
}

// One that gives wrong bytes, dies in the middle, stands still or is slow does no harm: the source
// sends what did not come, and nobody asks that one again.
func TestOthersThatGiveNothingGood(t *testing.T) {
	var come atomic.Int64
	for name, c := range map[string]struct {
		read func(net.Conn, []byte) (int, error)
		why  string
	}{
		"lies": {func(c net.Conn, b []byte) (int, error) {
			n, err := c.Read(b)
			if come.Add(int64(n)) > BlockBytes && n > 0 {
				b[n-1] ^= 1
			}
			return n, err
		}, ""},
		"dies": {func(c net.Conn, b []byte) (int, error) {
			n, err := c.Read(b)
			if come.Add(int64(n)) > BlockBytes {
				return 0, errors.Join(errors.New("it has died"), c.Close())
			}
			return n, err
		}, "it has died"},
		"writes beyond the end":  {spoiled(&come, 1, 0x40), errForeign.Error()},
		"writes before the file": {spoiled(&come, 0, 0x80), errForeign.Error()},
		"sends a long block":     {spoiled(&come, 8, 0xFF), errForeign.Error()},
		"knows nothing":          {func(c net.Conn, b []byte) (int, error) { return 0, net.ErrClosed }, "closed"},
	} {
		come.Store(0)
		file := filepath.Join(t.TempDir(), "f")
		content := random(4 * BlockBytes)
		write(t, file, content)
		b := newBench(t, 2, file, filepath.Join(filepath.Dir(file), "g"))
		write(t, b.source.Paths[1], content)
		has, lacks := b.sharing("has", true), b.sharing("lacks", false)
		write(t, filepath.Join(has.dir, "f"), content)
		write(t, filepath.Join(has.dir, "g"), content)
		lacks.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dial(ctx, address)
			if address == b.source.Address || err != nil {
				return conn, err
			}
			return &faulty{conn, c.read}, nil
		}
		b.complete(file, has.start(t.Context()), lacks.start(t.Context()))
		if len(lacks.events) != 1 || lacks.events[0].Reason == "" || !strings.Contains(lacks.events[0].Reason, c.why) {
			t.Errorf("%s: %+v", name, lacks.events)
		}
		if b.hub.sent < 8*BlockBytes || b.hub.sent > 9*BlockBytes {
			t.Errorf("%s: the source has sent %d bytes", name, b.hub.sent)
		}
		// That one is left out, and nobody else.
		for _, p := range b.source.peers.all {
			if refused := slices.Equal(p.refuses, []string{has.Peers.Addr().String()}); p.shares == "" || refused != strings.Contains(p.name, "lacks") {
				t.Errorf("%s: %s at %q refuses %q", name, p.name, p.shares, p.refuses)
			}
		}
	}
}

// A file that one of the others has no more comes from the source, and that one gives its others.
func TestOneFileIsNotGiven(t *testing.T) {
	for name, change := range map[string]func(path string, was os.FileInfo) error{
		"it is gone": func(path string, _ os.FileInfo) error { return os.Remove(path) },
		"it is a directory": func(path string, _ os.FileInfo) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"it is shorter": func(path string, was os.FileInfo) error {
			return errors.Join(os.Truncate(path, 1), os.Chtimes(path, time.Time{}, was.ModTime()))
		},
		"it has changed": func(path string, was os.FileInfo) error {
			return errors.Join(os.Truncate(path, 0), os.Truncate(path, was.Size()), os.Chtimes(path, time.Time{}, was.ModTime().Add(coarsestTime+1)))
		},
	} {
		file := filepath.Join(t.TempDir(), "f")
		content := random(4 * BlockBytes)
		write(t, file, content)
		b := newBench(t, 2, file, filepath.Join(filepath.Dir(file), "g"))
		write(t, b.source.Paths[1], content)
		has, lacks := b.sharing("has", true), b.sharing("lacks", false)
		write(t, filepath.Join(has.dir, "f"), content)
		write(t, filepath.Join(has.dir, "g"), content)
		var once sync.Once
		lacks.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if address == has.Peers.Addr().String() {
				once.Do(func() {
					isThrough := func() bool {
						has.mu.Lock()
						defer has.mu.Unlock()
						return has.batch.through
					}
					for !isThrough() { // before that it would notice the change itself
						time.Sleep(time.Millisecond)
					}
					path := filepath.Join(has.dir, "f")
					was, err := os.Stat(path)
					if err = errors.Join(err, change(path, was)); err != nil {
						t.Error(err)
					}
				})
			}
			return dial(ctx, address)
		}
		b.complete(b.source.Paths[1], has.start(t.Context()), lacks.start(t.Context()))
		if got, err := os.ReadFile(filepath.Join(lacks.dir, "f")); err != nil || string(got) != string(content) {
			t.Errorf("%s: it is not the source's: %v", name, err)
		}
		if len(lacks.events) != 1 || lacks.events[0].Files != 1 || lacks.events[0].Reason != "" {
			t.Errorf("%s: %+v", name, lacks.events)
		}
		if b.hub.sent < 4*BlockBytes || b.hub.sent > 5*BlockBytes {
			t.Errorf("%s: the source has sent %d bytes", name, b.hub.sent)
		}
		for _, p := range b.source.peers.all {
			if len(p.refuses) > 0 {
				t.Errorf("%s: %s refuses %q", name, p.name, p.refuses)
			}
		}
	}
}

// serving lets a receiver serve a connection until it ends.
func serving(t *testing.T, r *Receiver, far net.Conn) {
	g := &giving{Conn: far, out: make([]byte, blockHeader)}
	open := &seating{all: []*giving{g}}
	go func() { _ = r.give(t.Context(), g, open); _ = far.Close() }()
}

// answer reads an answer to its end, and returns the length in its last block and how many bytes of
// the file have come.
func answer(t *testing.T, in io.Reader, size int64) (last uint32, bytes int64) {
	t.Helper()
	for {
		var h [blockHeader]byte
		if _, err := io.ReadFull(in, h[:]); err != nil {
			t.Fatal(err)
		}
		at, n := int64(binary.BigEndian.Uint64(h[:])), binary.BigEndian.Uint32(h[8:])
		switch {
		case n == ungiven || n == nothing && at == size:
			return n, bytes
		case n != unneeded:
			if _, err := io.CopyN(io.Discard, in, int64(n)); err != nil {
				t.Fatal(err)
			}
			bytes += int64(n)
		}
	}
}

// gives is a receiver that has verified these files.
func gives(t *testing.T, files ...[]byte) *Receiver {
	t.Helper()
	target, err := OpenTarget(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() }) // nothing is written to it
	r := &Receiver{line: &line{}, Target: target, batch: batch{listed: true}}
	for i, content := range files {
		path := filepath.Join(target.root.Name(), fmt.Sprint(i))
		write(t, path, content)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		r.batch.entries = append(r.batch.entries, Entry{Kind: File, Size: info.Size(), ModTime: info.ModTime().UnixNano(), Path: fmt.Sprint(i)})
		r.batch.states = append(r.batch.states, verified)
	}
	return r
}

// A file that changes while it is given is not given to its end.
func TestAFileChangesWhileItIsGiven(t *testing.T) {
	const size = 3 * BlockBytes
	for name, c := range map[string]struct {
		change func(path string) error
		units  int
		given  bool
	}{
		"it does not":             {func(string) error { return nil }, 0, true},
		"it shrinks":              {func(path string) error { return os.Truncate(path, 0) }, 0, false},
		"it shrinks, in units":    {func(path string) error { return os.Truncate(path, 0) }, 3, false},
		"it is written":           {func(path string) error { return os.WriteFile(path, random(size), 0o600) }, 0, false},
		"it is written, in units": {func(path string) error { return os.WriteFile(path, random(size), 0o600) }, 3, false},
	} {
		dir := t.TempDir()
		target, err := OpenTarget(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "f")
		write(t, path, random(size))
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		r := &Receiver{line: &line{}, Target: target, batch: batch{
			listed: true, states: []state{verified}, entries: []Entry{{Kind: File, Size: size, ModTime: info.ModTime().UnixNano(), Path: "f"}},
		}}
		near, far := pipe()
		serving(t, r, far)
		text, err := json.Marshal(request{Token: hex.EncodeToString(r.token[:]), Units: c.units})
		if err != nil {
			t.Fatal(err)
		}
		_, err = near.Write(slices.Concat(text, []byte("\n"), make([]byte, c.units*sha256.Size)))
		head := make([]byte, blockHeader)
		if _, failure := io.ReadFull(near, head); err != nil || failure != nil {
			t.Fatal(err, failure)
		}
		time.Sleep(20 * time.Millisecond) // the clock of the file system ticks
		if err := c.change(path); err != nil {
			t.Fatal(err)
		}
		last, _ := answer(t, io.MultiReader(bytes.NewReader(head), near), size)
		if want := map[bool]uint32{true: nothing, false: ungiven}[c.given]; last != want {
			t.Errorf("%s: the last block has the length %#x", name, last)
		}
		if err := errors.Join(near.Close(), target.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A receiver that has a part of a file gets from another one only what it lacks, with the holes. If
// that one gives it in part or not at all, the next one gives it, or the source sends what was
// lacking at the beginning. After a lie nothing is left, and all comes again.
func TestAPartComesFromOthers(t *testing.T) {
	const lacking, all = 6*BlockBytes + 7, 11*BlockBytes + 7
	var come atomic.Int64
	dies := func(c net.Conn, b []byte) (int, error) {
		n, err := c.Read(b)
		if come.Add(int64(n)) > 3*BlockBytes {
			return 0, errors.Join(errors.New("it has died"), c.Close())
		}
		return n, err
	}
	lies := func(c net.Conn, b []byte) (int, error) {
		n, err := c.Read(b)
		if n > 4096 { // no header, which would come through a buffer
			b[n-1] ^= 1
		}
		return n, err
	}
	holes := func(_ net.Conn, b []byte) (int, error) {
		if come.Add(1) > 1 {
			return 0, io.EOF
		}
		return copy(b, aBlock(0, nil)), nil // a unit comes anew, and nothing of it
	}
	const noHoles = "given, where no hole can be made"
	for name, c := range map[string]struct {
		givers      int
		read        func(net.Conn, []byte) (int, error) // of the first giver; nil: it is honest
		given       int64
		least, most int64 // that the source sends
	}{
		"given":             {1, nil, lacking, 0, BlockBytes},
		"the first digs":    {2, holes, all, 0, BlockBytes},
		noHoles:             {1, nil, all, 0, BlockBytes},
		"the first dies":    {2, dies, lacking, 0, BlockBytes},
		"the first lies":    {2, lies, all, 0, BlockBytes},
		"the only one dies": {1, dies, 0, lacking, lacking + BlockBytes},
		"the only one lies": {1, lies, 0, all + lacking, all + lacking + BlockBytes},
	} {
		come.Store(0)
		file := filepath.Join(t.TempDir(), "f")
		content := random(13*BlockBytes + 7)
		clear(content[4*BlockBytes : 6*BlockBytes])
		b := newBench(t, 1+c.givers, file)
		// put makes a file of which these spans are data, and all else a hole.
		put := func(path string, content []byte, spans ...span) {
			t.Helper()
			write(t, path, nil)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range spans {
				_, failure := f.WriteAt(content[s.from:s.to], s.from)
				err = errors.Join(err, failure)
			}
			if err := errors.Join(err, f.Truncate(int64(len(content))), f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		whole := []span{{0, 4 * BlockBytes}, {6 * BlockBytes, int64(len(content))}}
		put(file, content, whole...)
		hosts := []*host{b.sharing("lacks", true)}
		for i := range c.givers {
			h := b.sharing(fmt.Sprint("has", i), true)
			put(filepath.Join(h.dir, "f"), content, whole...)
			hosts = append(hosts, h)
		}
		lacks := hosts[0]
		// Of another version is one unit, and one that is a hole now.
		has := slices.Concat(content[:3*BlockBytes], random(2*BlockBytes), content[5*BlockBytes:])
		put(filepath.Join(lacks.dir, partialName("f")), has, span{0, 5 * BlockBytes}, span{11 * BlockBytes, 13 * BlockBytes})
		if name == noHoles {
			lacks.Target.punch = func(int, int64, int64) error { return unix.EOPNOTSUPP }
		}
		first := ""
		lacks.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dial(ctx, address)
			if address == b.source.Address || err != nil {
				return conn, err
			}
			if first == "" {
				first = address
			}
			if c.read != nil && address == first {
				return &faulty{conn, c.read}, nil
			}
			return conn, nil
		}
		for _, h := range hosts {
			h.start(t.Context())
		}
		b.complete(file, hosts...)
		var given int64
		reasons := 0
		for _, e := range lacks.events {
			given += e.Bytes
			if e.Reason != "" {
				reasons++
				if e.Host != first {
					t.Errorf("%s: %s is honest: %q", name, e.Host, e.Reason)
				}
			}
		}
		if given != c.given || (reasons == 1) != (c.read != nil) {
			t.Errorf("%s: %d bytes are given, and not %d: %+v", name, given, c.given, lacks.events)
		}
		if b.hub.sent < c.least || b.hub.sent > c.most {
			t.Errorf("%s: the source has sent %d bytes", name, b.hub.sent)
		}
		if n := allocated(t, filepath.Join(lacks.dir, "f")); n > 12*BlockBytes {
			t.Errorf("%s: %d bytes are allocated", name, n)
		}
	}
}

// A receiver reads no more of another one than it needs.
func TestWhatIsAskedIsBounded(t *testing.T) {
	for _, n := range []int{-1, maxUnits + 1} {
		if _, err := takeUnits(strings.NewReader(""), n); !errors.Is(err, errForeign) {
			t.Errorf("%d: %v", n, err)
		}
	}
	list, err := takeUnits(strings.NewReader(strings.Repeat("a", maxUnits*sha256.Size)), maxUnits)
	if err != nil || len(list) != maxUnits || string(list[1]) != strings.Repeat("a", sha256.Size) {
		t.Error(len(list), err)
	}
	if _, err := takeUnits(strings.NewReader("a"), 1); err == nil {
		t.Error("a SHA-256 is cut")
	}
}

// A receiver keeps no more of a source's promise than addresses and a SHA-256 need.
func TestAPromiseIsBounded(t *testing.T) {
	address := "[" + strings.Repeat("a", maxAddress-len("[]:1")) + "]:1"
	for list, want := range map[string]error{
		address + " " + address: nil, address + "1": errForeign, address + " " + address + "1": errForeign, "a b c": errForeign,
	} {
		if got, err := takeGivers([]byte(list)); !errors.Is(err, want) || err == nil && len(got) != 2 {
			t.Errorf("%q: %q, %v", list, got, err)
		}
	}
	for n, want := range map[int]error{sha256.Size - 1: errForeign, sha256.Size: nil, sha256.Size + 1: errForeign} {
		x := batch{entries: []Entry{{Kind: File, Size: 1}}, promises: map[int]promise{0: {givers: []string{address}}}}
		r := &Receiver{batch: x}
		if err := r.file(kindFileEnd, 0, make([]byte, n)); !errors.Is(err, want) || (r.batch.promises[0].sum != nil) != (want == nil) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// A receiver to which nobody gives anything good asks only some, so that the source has its answer
// in time.
func TestOnlySomeAreAskedInVain(t *testing.T) {
	var asked []string
	r := &Receiver{ctx: t.Context(), givers: map[string]*given{}, Events: func(Event) {}, Target: &Target{}, Dial: func(_ context.Context, address string) (net.Conn, error) {
		asked = append(asked, address)
		return nil, errors.New("it is away")
	}}
	x := &batch{promises: map[int]promise{}}
	for i := range maxRefused + 2 {
		x.entries = append(x.entries, Entry{Kind: File, Size: 1})
		x.promises[i] = promise{givers: []string{fmt.Sprint("127.0.0.1:", i+1)}, sum: make([]byte, sha256.Size)}
	}
	if err := r.fetch(x); err != nil || len(x.fetched) > 0 || !slices.Equal(slices.Sorted(slices.Values(asked)), r.refused()) || len(asked) != maxRefused {
		t.Error(err, x.fetched, asked, r.refused())
	}
	near, far := pipe()
	r.line = &line{conn: near}
	reports := make(chan report, 1)
	go func() { _ = (&line{conn: far, known: true}).reports(func(r *report) { reports <- *r }) }()
	for range 2 {
		if err := r.batchHere(1); err != nil {
			t.Fatal(err)
		}
		if l := (<-reports).Lacks; !slices.Equal(l.Refuses, r.refused()) || l.Alone != (len(l.Refuses) == maxRefused) {
			t.Errorf("%+v", l)
		}
		delete(r.givers, asked[0])
	}
	_ = near.Close()
}

// Nobody makes a receiver connect to a host that is no member of its group: neither another
// receiver nor the source.
func TestOnlyMembersAreConnectedTo(t *testing.T) {
	tree, _ := bigTree(t)
	for name, c := range map[string]struct {
		member func(netip.Addr) bool
		shares bool
	}{
		"a member":            {func(ip netip.Addr) bool { return ip == netip.MustParseAddr("127.0.0.1") }, true},
		"only the source":     {func() func(netip.Addr) bool { asked := 0; return func(netip.Addr) bool { asked++; return asked == 1 } }(), false},
		"not even the source": {func(netip.Addr) bool { return false }, false},
	} {
		b := newBench(t, 2, tree)
		has, lacks := b.sharing("has", true), b.sharing("lacks", false)
		if err := os.CopyFS(filepath.Join(has.dir, "tree"), os.DirFS(tree)); err != nil {
			t.Fatal(err)
		}
		var dialed []string
		lacks.Member = c.member
		lacks.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			dialed = append(dialed, address)
			return dial(ctx, address)
		}
		if name == "not even the source" {
			b.source.Receivers = 1 // it waits for no other one
			_, _ = b.run(has.start(t.Context()), lacks.start(t.Context()))
			if len(dialed) > 0 || lacks.err == nil || !strings.Contains(lacks.err.Error(), "is no member of the group") {
				t.Errorf("%s: %q, %v", name, dialed, lacks.err)
			}
			continue
		}
		b.complete(tree, has.start(t.Context()), lacks.start(t.Context()))
		if slices.Contains(dialed, has.Peers.Addr().String()) != c.shares || c.shares != (lacks.events[0].Reason == "") {
			t.Errorf("%s: %q, %+v", name, dialed, lacks.events)
		}
	}
}

// One receiver dies while it gives: the next one gives what is lacking.
func TestOneOfTheOthersIsKilled(t *testing.T) {
	tree, once := bigTree(t)
	b := newBench(t, 3, tree)
	hosts := []*host{b.sharing("a", true), b.sharing("b", true), b.sharing("lacks", false)}
	for _, h := range hosts[:2] {
		if err := os.CopyFS(filepath.Join(h.dir, "tree"), os.DirFS(tree)); err != nil {
			t.Fatal(err)
		}
	}
	var come atomic.Int64
	victim := hosts[0].Peers.Addr().String()
	hosts[2].Dial = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil || address != victim {
			return conn, err
		}
		return &faulty{conn, func(c net.Conn, p []byte) (int, error) {
			if come.Load() > BlockBytes {
				hosts[0].leave()
				hosts[0].stop()
				<-hosts[0].ends
				return 0, io.ErrUnexpectedEOF // whatever the kernels still have
			}
			n, err := c.Read(p)
			come.Add(int64(n))
			return n, err
		}}, nil
	}
	for _, h := range hosts {
		h.start(t.Context())
	}
	sent, err := b.run(hosts...)
	if err != nil || len(sent.Complete) != 2 || len(sent.Gone) != 1 || hosts[2].err != nil {
		t.Fatalf("%+v, %v, %v", sent, err, hosts[2].err)
	}
	if got, want := look(t, filepath.Join(hosts[2].dir, "tree")), look(t, tree); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if b.hub.sent > once/4 {
		t.Errorf("the source has sent %d bytes", b.hub.sent)
	}
}

// addressed is a connection that comes from an address.
type addressed struct {
	net.Conn
	from net.Addr
}

func (a *addressed) RemoteAddr() net.Addr { return a.from }

// mutePeers are a listener with an address that is not that of the source.
type mutePeers struct{ *pipes }

func (mutePeers) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// One that stands still, or is slow, holds up nobody for long.
func TestAGiverThatTakesLong(t *testing.T) {
	for name, gives := range map[string]func(far net.Conn){
		"stands still": func(net.Conn) {},
		"is slow": func(far net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, far) }()
			go func() {
				for at := uint64(0); ; at++ {
					block := append(binary.BigEndian.AppendUint32(numbers(at), 1), 0)
					if _, err := far.Write(block); err != nil {
						return
					}
					time.Sleep(time.Second) // of the test's clock
				}
			}()
		},
	} {
		clocked(t, 2, func(b *bench) {
			content, err := os.ReadFile(b.source.Paths[0])
			if err != nil {
				t.Fatal(err)
			}
			var hosts []*host
			for _, dir := range []string{"has", "lacks"} {
				h := b.receiver(filepath.Join(b.t.TempDir(), dir), true)
				h.Peers = mutePeers{&pipes{calls: make(chan net.Conn), closed: make(chan struct{})}}
				h.Events = func(e Event) {
					if e.Event == FromPeer {
						h.events = append(h.events, e)
					}
				}
				hosts = append(hosts, h)
			}
			write(t, filepath.Join(hosts[0].dir, "f"), content)
			var ends []net.Conn
			hosts[1].Dial = func(ctx context.Context, address string) (net.Conn, error) {
				if address != hosts[0].Peers.Addr().String() {
					return b.dial(ctx, address)
				}
				near, far := pipe()
				ends = append(ends, far)
				gives(far)
				return near, nil
			}
			begin := time.Now()
			b.byTheGroup(hosts[0].start(b.t.Context()), hosts[1].start(b.t.Context()))
			if took := time.Since(begin); took < peerPatience || took > peerPatience+3*time.Second {
				t.Errorf("%s: %v", name, took)
			}
			if len(hosts[1].events) != 1 || !strings.Contains(hosts[1].events[0].Reason, "timeout") || len(ends) != 1 {
				t.Errorf("%s: %+v, %d connections", name, hosts[1].events, len(ends))
			}
			for _, c := range ends {
				_ = c.Close()
			}
			<-time.After(time.Minute) // who was slow notices
		})
	}
}

// One that gives a long file may take as long as its bytes need.
func TestALongFileIsGiven(t *testing.T) {
	clocked(t, 2, func(b *bench) {
		content := random(16 * BlockBytes)
		write(t, b.source.Paths[0], content)
		has, lacks := b.receiver(filepath.Join(b.t.TempDir(), "has"), true), b.receiver(filepath.Join(b.t.TempDir(), "lacks"), false)
		for _, h := range []*host{has, lacks} {
			h.Peers = mutePeers{&pipes{calls: make(chan net.Conn), closed: make(chan struct{})}}
		}
		write(t, filepath.Join(has.dir, "f"), content)
		lacks.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if address != has.Peers.Addr().String() {
				return b.dial(ctx, address)
			}
			near, far := pipe()
			go func() {
				defer far.Close()
				_, _ = far.Read(make([]byte, maxHello))
				for at := 0; at < len(content); at += BlockBytes {
					time.Sleep(time.Second / 2) // of the test's clock
					head := binary.BigEndian.AppendUint32(numbers(uint64(at)), BlockBytes)
					_, _ = far.Write(append(head, content[at:at+BlockBytes]...))
				}
				_, _ = far.Write(append(numbers(uint64(len(content))), 0, 0, 0, 0))
			}()
			return near, nil
		}
		if b.byTheGroup(has.start(b.t.Context()), lacks.start(b.t.Context())); b.hub.sent > BlockBytes {
			t.Errorf("the source has sent %d bytes", b.hub.sent)
		}
	})
}

// Others are named for what they have and another one lacks, if both share, and enough have it.
func TestWhoIsNamed(t *testing.T) {
	whole, part := claim{Whole: sum{1}}, claim{Units: []sum{{2}}}
	has := func(shares string, c claim) *peer {
		return &peer{shares: shares, have: &have{Files: map[int]claim{0: c}}}
	}
	refuses := func(shares, address string) *peer {
		p := has(shares, claim{})
		s := newPeers("", 0, func(Event) {})
		s.reported(p, &report{Lacks: &lacks{Refuses: []string{address}}})
		return p
	}
	all := &peer{shares: "all", have: &have{All: true}}
	gone := has("gone", whole)
	gone.gone = true
	file := []Entry{{Kind: File, Size: 1}}
	for name, c := range map[string]struct {
		asked   []*peer
		entries []Entry
		want    []giver
	}{
		"one":                 {[]*peer{has("a", whole), has("b", claim{})}, file, []giver{{"a", sum{1}}}},
		"verified":            {[]*peer{all, has("b", claim{})}, file, []giver{{address: "all"}}},
		"two":                 {[]*peer{all, has("a", whole), has("b", claim{}), has("c", claim{})}, file, []giver{{address: "all"}, {"a", sum{1}}}},
		"nobody lacks it":     {[]*peer{all, has("a", whole)}, file, nil},
		"nothing is in it":    {[]*peer{all, has("b", claim{})}, []Entry{{Kind: File}}, nil},
		"it was left out":     {[]*peer{all, has("b", claim{})}, []Entry{{Kind: File, Size: 1, local: "left out"}}, nil},
		"too few have it":     {[]*peer{all, has("b", claim{}), has("c", claim{})}, file, nil},
		"it has gone":         {[]*peer{gone, has("b", claim{})}, file, nil},
		"it does not share":   {[]*peer{has("", whole), has("b", claim{})}, file, nil},
		"who lacks is alone":  {[]*peer{all, has("", claim{})}, file, nil},
		"one of them is":      {[]*peer{all, has("a", whole), has("", claim{}), has("c", claim{})}, file, nil},
		"it has a part":       {[]*peer{all, has("b", part)}, file, []giver{{address: "all"}}},
		"a part, and alone":   {[]*peer{all, has("", part)}, file, nil},
		"it has not answered": {[]*peer{all, {shares: "b"}}, file, nil},
		"one is refused":      {[]*peer{all, has("a", whole), refuses("b", "a")}, file, []giver{{address: "all"}}},
		"by one of two":       {[]*peer{all, has("a", whole), has("d", whole), refuses("b", "a"), has("c", claim{})}, file, []giver{{address: "all"}, {"d", sum{1}}}},
		"too few are left":    {[]*peer{all, has("a", whole), refuses("b", "a"), has("c", claim{})}, file, nil},
		"by one that has it":  {[]*peer{all, {shares: "a", refuses: []string{"all"}, have: &have{All: true}}, has("b", claim{})}, file, []giver{{address: "all"}, {address: "a"}}},
	} {
		s := newPeers("", 0, func(Event) {})
		plan := s.plan(c.asked, c.entries)
		s.relay(c.asked, c.entries, plan, map[string]string{"left out": "why"})
		if got := plan[0]; !slices.EqualFunc(got.givers, c.want, func(a, b giver) bool { return a.address == b.address && string(a.whole) == string(b.whole) }) || len(c.want) > 0 && !got.none {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// Who lacks it may go when the plan is made.
	leaves := has("", claim{})
	s := newPeers("", 0, func(Event) {})
	plan := s.plan([]*peer{leaves}, file)
	leaves.gone = true
	if s.relay([]*peer{leaves}, file, plan, nil); plan[0].givers != nil {
		t.Errorf("it has gone meanwhile: %+v", plan[0])
	}
	// Each one gives some of the files.
	many := make([]Entry, 4)
	for i := range many {
		many[i] = file[0]
	}
	asked := []*peer{all, {shares: "also", have: &have{All: true}}, {shares: "b", have: &have{}}}
	plan = s.plan(asked, many)
	s.relay(asked, many, plan, nil)
	if a, b := haveThis(plan[0].givers, nil), haveThis(plan[1].givers, nil); a != "all also" || b != "also all" {
		t.Errorf("%q, %q", a, b)
	}
	// If a receiver says that nothing has come from others, they are not named any more.
	s.reported(asked[2], &report{Lacks: &lacks{Alone: true}})
	plan = s.plan(asked, many)
	if s.relay(asked, many, plan, nil); plan[0].givers != nil {
		t.Errorf("%+v", plan[0])
	}
	three := []giver{{"a", sum{1}}, {"b", sum{2}}, {"c", nil}, {"d", sum{1}}}
	if got := haveThis(three, sum{1}); got != "a c" {
		t.Error(got)
	}
}

// fetched asks one receiver for files of these bytes, and returns how many it has given, and the
// reason for which it is asked no more. gives does what that one does with its end of a
// connection for each request.
func fetched(t *testing.T, gives func(far net.Conn), files ...[]byte) (came int, why string) {
	t.Helper()
	return fetchedTo(t, func(*Target, *batch) {}, gives, files...)
}

// fetchedTo does that with a target and a batch that are not the usual ones.
func fetchedTo(t *testing.T, unusual func(*Target, *batch), gives func(far net.Conn), files ...[]byte) (came int, why string) {
	t.Helper()
	return fetchedBy(t, unusual, func(context.Context, string) (net.Conn, error) {
		near, far := pipe()
		go func() {
			defer far.Close()
			for in := bufio.NewReader(far); ; gives(far) {
				if _, err := in.ReadSlice('\n'); err != nil {
					return
				}
			}
		}()
		return near, nil
	}, files...)
}

// pipe is net.Pipe whose ends take a deadline after the other end has closed, as TCP's do.
func pipe() (net.Conn, net.Conn) {
	a, b := net.Pipe()
	return late{a}, late{b}
}

type late struct{ net.Conn }

func (c late) SetReadDeadline(at time.Time) error  { return unlessClosed(c.Conn.SetReadDeadline(at)) }
func (c late) SetWriteDeadline(at time.Time) error { return unlessClosed(c.Conn.SetWriteDeadline(at)) }

func unlessClosed(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// fetchedBy does that with connections that are not the usual ones.
func fetchedBy(t *testing.T, unusual func(*Target, *batch), dial func(context.Context, string) (net.Conn, error), files ...[]byte) (came int, why string) {
	t.Helper()
	return fetchedOf(t, new(*Receiver), unusual, dial, files...)
}

// fetchedOf does that with a receiver that may have asked for other files before.
func fetchedOf(t *testing.T, of **Receiver, unusual func(*Target, *batch), dial func(context.Context, string) (net.Conn, error), files ...[]byte) (came int, why string) {
	t.Helper()
	target, err := OpenTarget(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	if *of == nil {
		*of = &Receiver{ctx: t.Context(), givers: map[string]*given{}, Events: func(Event) {}}
	}
	r := *of
	r.Target, r.Dial = target, dial
	x := &batch{promises: map[int]promise{}}
	for i, content := range files {
		x.entries = append(x.entries, Entry{Kind: File, Mode: 0o600, Size: int64(len(content)), Path: fmt.Sprint(i)})
		sum := sha256.Sum256(content)
		x.promises[i] = promise{givers: []string{"127.0.0.1:1"}, sum: sum[:]}
	}
	unusual(target, x)
	if err := errors.Join(r.fetch(x), target.Close()); err != nil {
		t.Error(err)
	}
	return len(x.fetched), r.givers["127.0.0.1:1"].why
}

// aBlock is a block as it is sent.
func aBlock(at int, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(numbers(uint64(at)), uint32(len(b))), b...)
}

// Who has a slow disk itself does not blame the giver.
func TestAGiverOfASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := make([]byte, 16*BlockBytes)
		given, why := fetchedTo(t, func(target *Target, _ *batch) {
			target.write = func(f *os.File, b []byte, at int64) (int, error) {
				time.Sleep(900 * time.Millisecond)
				return f.WriteAt(b, at)
			}
		}, func(far net.Conn) {
			for at := 0; at < len(content); at += BlockBytes {
				time.Sleep(400 * time.Millisecond)
				_, _ = far.Write(aBlock(at, content[at:at+BlockBytes]))
			}
			_, _ = far.Write(aBlock(len(content), nil))
		}, content)
		if given != 1 || why != "" {
			t.Errorf("%d are given, %q", given, why)
		}
		given, why = fetchedTo(t, func(target *Target, _ *batch) {
			target.work = func(int) error { time.Sleep(time.Second); return nil }
		}, func(far net.Conn) {
			_, _ = far.Write(aBlock(4*BlockBytes, nil)) // all of it is a hole, which is hashed here
		}, content[:4*BlockBytes], content[:4*BlockBytes], content[:4*BlockBytes])
		if given != 3 || why != "" {
			t.Errorf("of holes, %d are given, %q", given, why)
		}
	})
}

// A giver that has to read a unit before it answers has the time for that, and no more.
func TestAGiverReadsAUnit(t *testing.T) {
	const size = 2 * maxUnits * BlockBytes // a unit of it takes 1 s
	for waits, blamed := range map[time.Duration]bool{peerPatience + 900*time.Millisecond: false, peerPatience + 1100*time.Millisecond: true} {
		synctest.Test(t, func(t *testing.T) {
			_, why := fetchedTo(t, func(_ *Target, x *batch) {
				x.entries[0].Size = size
				x.claims = map[int]claim{0: {Units: make([]sum, 1)}}
			}, func(far net.Conn) {
				time.Sleep(waits)
				_, _ = far.Write(binary.BigEndian.AppendUint32(numbers(0), ungiven))
			}, nil)
			if (why != "") != blamed {
				t.Errorf("after %v: %q", waits, why)
			}
			<-time.After(time.Minute) // the other one ends
		})
	}
}

// One that is slow has some seconds in all, however many files it gives and however long they are.
func TestASlowGiver(t *testing.T) {
	small, long := []byte("small"), make([]byte, 16*slowestPeer)
	all := func(far net.Conn, content []byte) {
		for at := 0; at < len(content); at += BlockBytes {
			_, _ = far.Write(aBlock(at, content[at:min(at+BlockBytes, len(content))]))
		}
		_, _ = far.Write(aBlock(len(content), nil))
	}
	for name, c := range map[string]struct {
		files [][]byte
		gives func(far net.Conn)
		given int
		took  time.Duration // of the test's clock
	}{
		"a byte a second of a long file": {[][]byte{long}, func(far net.Conn) {
			for at := range 1000 {
				if _, err := far.Write(aBlock(at, long[:1])); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, 0, peerPatience},
		"a byte of a header a second": {[][]byte{long}, func(far net.Conn) {
			for range 1000 {
				if _, err := far.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, 0, peerPatience},
		"the same bytes again": {[][]byte{long}, func(far net.Conn) {
			for range 1000 {
				if _, err := far.Write(aBlock(0, long[:BlockBytes])); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, 0, peerPatience},
		"fast, and then it rests": {[][]byte{long}, func(far net.Conn) {
			_, _ = far.Write(aBlock(0, long[:BlockBytes]))
			_, _ = far.Write(aBlock(len(long)-BlockBytes, long[:BlockBytes]))
			time.Sleep(time.Hour)
		}, 0, peerPatience},
		"2 s for each of many files": {[][]byte{small, small, small, small}, func(far net.Conn) {
			time.Sleep(2 * time.Second)
			all(far, small)
		}, 2, peerPatience + 2*takes(fileBytes, slowestPeer)},
		"2 s for each of many longer files": {[][]byte{long[:2*slowestPeer], long[:2*slowestPeer], long[:2*slowestPeer], long[:2*slowestPeer]}, func(far net.Conn) {
			time.Sleep(2 * time.Second)
			all(far, long[:2*slowestPeer])
		}, 4, 8 * time.Second},
		"as fast as it has to be": {[][]byte{long}, func(far net.Conn) {
			time.Sleep(4 * time.Second)
			for at := 0; at < len(long); at += BlockBytes {
				time.Sleep(BlockBytes * time.Second / slowestPeer)
				_, _ = far.Write(aBlock(at, long[at:at+BlockBytes]))
			}
			_, _ = far.Write(aBlock(len(long), nil))
		}, 1, 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			given, why := fetched(t, c.gives, c.files...)
			if took := time.Since(begin).Round(time.Millisecond); given != c.given || (why == "") != (given == len(c.files)) || took != c.took.Round(time.Millisecond) {
				t.Errorf("%s: %d are given in %v, %q", name, given, took, why)
			}
			<-time.After(2 * time.Hour) // who was slow notices
		})
	}
}

// A receiver gives only files of the present batch that it has, to those who know the copy.
func TestWhatIsGiven(t *testing.T) {
	r := &Receiver{line: &line{}, token: [16]byte{1}, pass: 3, batch: batch{
		number: 5, listed: true, over: true, states: []state{waits, waits, verified, waits}, claims: map[int]claim{1: {Whole: sum{1}}},
		entries: []Entry{{Kind: File, Path: "no"}, {Kind: File, Path: "claimed"}, {Kind: File, Path: "verified"}, {Kind: Directory}},
	}}
	token := "01000000000000000000000000000000"
	for want, asked := range map[string][]request{
		"verified": {{token, 3, 5, 2, 0}},
		"": {
			{token, 3, 5, 0, 0}, {token, 3, 5, 1, 0}, {token, 3, 5, 3, 0}, {token, 3, 5, 4, 0}, {token, 3, 5, -1, 0}, {token, 3, 6, 2, 0}, {token, 2, 5, 2, 0},
		},
	} {
		for _, a := range asked {
			e, err := r.verifiedEntry(t.Context(), &a, nil)
			if errors.Is(err, errUngiven) != (want == "") || err == nil && e.Path != want {
				t.Errorf("%+v: %+v, %v", a, e, err)
			}
		}
	}
	if r.isOfTheCopy(&request{Pass: 3, Batch: 5, File: 2}) || !r.isOfTheCopy(&request{Token: token}) {
		t.Error("not who knows the copy gets files, or others do")
	}
	r.line = nil
	if r.isOfTheCopy(&request{Token: token, Pass: 3, Batch: 5, File: 2}) {
		t.Error("it gives before it knows its source")
	}
}

// Who asks may hear of the end of a batch before the one that gives: it waits, but not for long.
func TestAFileIsVerifiedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := request{Token: hex.EncodeToString(make([]byte, 16))}
		r := &Receiver{line: &line{}, batch: batch{
			listed: true, states: []state{waits}, entries: []Entry{{Kind: File, Path: "f"}}, ended: make(chan struct{}),
		}}
		begin := time.Now()
		soonEnds := func() <-chan struct{} {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			t.Cleanup(cancel)
			return ctx.Done()
		}
		if _, err := r.verifiedEntry(t.Context(), &asked, soonEnds()); !errors.Is(err, errUngiven) || time.Since(begin) != soon {
			t.Error(err, time.Since(begin))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.verifiedEntry(ctx, &asked, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.batch.states[0] = verified
			close(r.batch.ended)
			r.batch.over = true
		})
		if e, err := r.verifiedEntry(t.Context(), &asked, soonEnds()); err != nil || e.Path != "f" || time.Since(begin) != soon+time.Second {
			t.Error(e, err, time.Since(begin))
		}
	})
}

// stranger asks a receiver for the first file of the batch, as one that knows the copy, and returns
// how many bytes it gets.
func stranger(t *testing.T, b *bench, h *host) (bytes int64) {
	t.Helper()
	conn, err := dial(t.Context(), h.Peers.Addr().String())
	if err != nil {
		t.Error(err)
		return 0
	}
	defer conn.Close()
	h.mu.Lock()
	asked := request{Token: b.source.peers.token, Pass: h.pass, Batch: h.batch.number}
	h.mu.Unlock()
	if err := json.NewEncoder(conn).Encode(asked); err != nil {
		t.Error(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Error(err)
	}
	n, _ := io.Copy(io.Discard, conn) // whatever ends it
	return n
}

// A source that lists a file which only the receiver has learns nothing with which it could have
// the file given to others: neither the SHA-256 nor what it has heard of the receiver is enough.
func TestAFileThatIsNotOfTheCopyIsNotGiven(t *testing.T) {
	for name, says := range map[string]func(own []byte, claimed sum) []byte{
		"what the receiver has said": func(_ []byte, claimed sum) []byte { return claimed },
		"another SHA-256":            func([]byte, sum) []byte { return make([]byte, sha256.Size) },
		"the SHA-256":                func(own []byte, _ sum) []byte { return own },
		"that it is left out":        func([]byte, sum) []byte { return nil }, // and then the same list
	} {
		secret := random(BlockBytes)
		b := newBench(t, 1)
		h := b.sharing("h", true)
		write(t, filepath.Join(h.dir, "secret"), secret)
		near, far := pipe()
		h.line, h.done, h.ctx, h.givers = &line{conn: near}, map[[32]byte][]int{}, t.Context(), map[string]*given{}
		h.token = [16]byte{7}
		b.source.peers = newPeers(hex.EncodeToString(h.token[:]), 0, func(Event) {})
		answers := make(chan report, 3)
		go func() { _ = (&line{conn: far, known: true}).reports(func(r *report) { answers <- *r }) }()
		h.tasks.Go(func() { h.serve(t.Context()) })
		info, err := os.Stat(filepath.Join(h.dir, "secret"))
		if err != nil {
			t.Fatal(err)
		}
		e := Entry{Kind: File, Mode: 0o644, ModTime: info.ModTime().UnixNano(), Size: BlockBytes, Path: "secret"}
		text := e.append(nil)
		digest := sha256.Sum256(text)
		take := func(pass uint32, records []byte) {
			t.Helper()
			if err := h.take(append((&header{token: h.token, pass: pass}).append(nil), records...)); err != nil {
				t.Fatal(err)
			}
		}
		list := appendRecord(appendRecord(appendRecord(nil, kindBatch, numbers(0)), kindEntry, text), kindListed, digest[:])
		take(1, list)
		claimed := (<-answers).Have.Files[0].Whole
		own := sha256.Sum256(secret)
		end, of := kindFileEnd, says(own[:], claimed)
		if of == nil {
			end = kindLeftOut
		}
		take(1, appendRecord(appendRecord(nil, end, numbers(0), of), kindBatchEnd, numbers(0)))
		<-answers
		if of == nil {
			if take(2, list); !(<-answers).Have.All || h.bytes.Load() != 0 || h.files.Load() != 0 {
				t.Errorf("%s: it counts %d bytes in %d files", name, h.bytes.Load(), h.files.Load())
			}
		}
		want := int64(blockHeader) // it hears that it gets nothing
		if name == "the SHA-256" {
			want = BlockBytes + 2*blockHeader
		}
		if got := stranger(t, b, h); got != want {
			t.Errorf("%s: %d bytes, not %d", name, got, want)
		}
		// What was verified and has changed since is not given.
		if err := os.Chtimes(filepath.Join(h.dir, "secret"), time.Now(), info.ModTime().Add(coarsestTime+1)); err != nil {
			t.Fatal(err)
		}
		if got := stranger(t, b, h); got != blockHeader {
			t.Errorf("%s: %d bytes of a file that has changed", name, got)
		}
		_ = h.Peers.Close()
		h.tasks.Wait()
		if err := errors.Join(h.Target.Close(), near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A receiver that says that it gives files at no address, at several, or at one of another host, is
// not named to others.
func TestWhoGivesAtNoAddressIsNotNamed(t *testing.T) {
	for said, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1:1", "[::ffff:127.0.0.1]:1": "[::ffff:127.0.0.1]:1", "[fe80::1%eth0]:1": "[fe80::1%eth0]:1", "": "", "a:1": "",
		"127.0.0.1": "", "127.0.0.1:1 127.0.0.1:2": "", "[fe80::1%a b c]:1": "", "127.0.0.2:1": "", "[fe80::2%eth0]:1": "",
		"[fe80::1%" + strings.Repeat("a", maxAddress) + "]:1": "",
	} {
		near, far := pipe()
		own := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}
		if strings.Contains(said, "fe80") {
			own = net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth7", Port: 7}
		}
		near = &addressed{near, &own}
		s := newPeers("t", time.Minute, func(Event) {})
		s.tasks.Go(func() { s.hear(near) })
		if err := (&line{conn: far}).report(report{Hello: &hello{Token: "t", Host: "h", Shares: said}}); err != nil {
			t.Fatal(err)
		}
		<-s.news
		if got := s.all[0].shares; got != want {
			t.Errorf("%q: %q", said, got)
		}
		_ = far.Close()
		s.tasks.Wait()
	}
}

// crowd are connections of strangers that say nothing.
type crowd struct {
	*pipes
	left int
	each int64 // of them come from one address
	come atomic.Int64
}

func (c *crowd) Accept() (net.Conn, error) {
	if c.left == 0 {
		return c.pipes.Accept()
	}
	c.left--
	n := c.come.Add(1)
	near, _ := pipe()
	return &addressed{near, &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(n/c.each))}}, nil
}

// A receiver that has too many open files for a while gives files after that.
func TestAGiverWhoseListenerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
		f := &failing{Listener: p}
		f.left.Store(20)
		ended := make(chan struct{})
		go func() { defer close(ended); (&Receiver{Peers: f}).serve(t.Context()) }()
		conn, err := p.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		_ = errors.Join(conn.Close(), f.Close())
		<-ended
	})
}

// However many connect from any number of hosts and say nothing, a receiver serves some at a time,
// and the one that comes next is served at once: the first of them makes room.
func TestACrowdMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{pipes: &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}, left: 2 * maxGiven, each: 1}
		r := gives(t, []byte("f"))
		r.Peers = c
		ctx, cancel := context.WithCancel(t.Context())
		r.tasks.Go(func() { r.serve(ctx) })
		begin := time.Now()
		conn, err := c.dial(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(asks(t, r, 0)); err != nil {
			t.Fatal(err)
		}
		if last, n := answer(t, conn, 1); last != nothing || n != 1 || time.Since(begin) > 0 {
			t.Errorf("%d bytes have come after %v, and then %#x", n, time.Since(begin), last)
		}
		cancel()
		_ = c.Close()
		r.tasks.Wait()
	})
}

// Who has shown the token keeps its seat, and others make room for those that come: where an
// address has all its seats, others of this address.
func TestWhoMakesRoom(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	var p seating
	var all []*giving
	take := func(from netip.Addr, known, ok bool, out *giving) {
		t.Helper()
		g := &giving{from: from}
		got, who := p.take(g)
		if got != ok || who != out {
			t.Errorf("%v: %v, and %p makes room, not %p", from, got, who, out)
		}
		if known && !p.knows(g) {
			t.Errorf("%v has lost its seat", from)
		}
		all = append(all, g)
	}
	for n := range maxOfAnAddress {
		take(a, n != 1, true, nil)
	}
	for n := range maxOfAnAddress {
		take(b, n != 1, true, nil)
	}
	take(b, true, true, all[maxOfAnAddress+1]) // and not that of a, which came first
	take(b, false, false, nil)
	if p.knows(all[maxOfAnAddress+1]) {
		t.Error("who has made room is served")
	}
	for n := len(p.all); n < maxGiven; n++ {
		take(netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), true, true, nil)
	}
	other := netip.MustParseAddr("10.2.0.1")
	take(other, true, true, all[1])
	take(other, false, false, nil)
	p.free(all[0])
	p.free(all[1]) // which had left
	if take(other, false, true, nil); len(p.all) != maxGiven {
		t.Errorf("%d have a seat", len(p.all))
	}
}

// A program that is on no host of the group gets nothing, whatever it knows.
func TestOnlyMembersAreServed(t *testing.T) {
	for _, is := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
			r := gives(t, []byte("f"))
			r.Peers, r.Member = p, func(ip netip.Addr) bool { return is && ip == netip.MustParseAddr("127.0.0.1") }
			ctx, cancel := context.WithCancel(t.Context())
			r.tasks.Go(func() { r.serve(ctx) })
			conn, err := p.dial(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = conn.Write(asks(t, r, 0)) }()
			if last, n := answer(t, conn, 1); (last == nothing && n == 1) != is {
				t.Errorf("a member: %v: %d bytes, and then %#x", is, n, last)
			}
			cancel()
			_ = p.Close()
			r.tasks.Wait()
		})
	}
}

// asks is the request for a file that a receiver has, without what is there of it.
func asks(t *testing.T, r *Receiver, file int) []byte {
	t.Helper()
	text, err := json.Marshal(request{Token: hex.EncodeToString(r.token[:]), Pass: r.pass, Batch: r.batch.number, File: file})
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// However many connections of one address stand still, a receiver from another one is answered at
// once.
func TestAStrangerDoesNotKeepOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{pipes: &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}, left: 10 * maxGiven, each: 10*maxGiven + 1}
		r := &Receiver{Peers: c}
		ctx, cancel := context.WithCancel(t.Context())
		r.tasks.Go(func() { r.serve(ctx) })
		begin := time.Now()
		for range maxOfAnAddress + 1 { // none of them is kept when it has ended
			conn, err := c.dial(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "a request that is none\n")
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(begin) > 0 {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
			synctest.Wait()
		}
		cancel()
		_ = c.Close()
		r.tasks.Wait()
	})
}

// Of many receivers behind one address, the one that comes when the address has all its connections
// hears that it gets nothing now. It does not take the giver for one that has died.
func TestWhoHasNoSeatHearsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
		r := gives(t, []byte("f"))
		r.Peers = p
		ctx, cancel := context.WithCancel(t.Context())
		r.tasks.Go(func() { r.serve(ctx) })
		for range maxOfAnAddress {
			conn, err := p.dial(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(asks(t, r, 0)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // it has shown the token
		}
		conn, err := p.dial(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if want := binary.BigEndian.AppendUint32(numbers(0), ungiven); err != nil || !slices.Equal(got, want) {
			t.Errorf("%x, %v", got, err)
		}
		cancel()
		_ = p.Close()
		r.tasks.Wait()
	})
}

// A giver that is not at the end of the batch says after some seconds that it gives nothing,
// however many files it is asked for.
func TestAGiverThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := gives(t, []byte("f"), []byte("g"))
		clear(r.batch.states)
		r.batch.ended = make(chan struct{})
		near, far := pipe()
		serving(t, r, far)
		go func() { _, _ = near.Write(slices.Concat(asks(t, r, 0), asks(t, r, 1))) }()
		begin := time.Now()
		for range 2 {
			if last, _ := answer(t, near, 1); last != ungiven || time.Since(begin) != soon {
				t.Errorf("%#x after %v", last, time.Since(begin))
			}
		}
		_ = near.Close()
		synctest.Wait()
	})
}

// A giver waits while the other one hashes what is on its own disk, and for one that does nothing
// it waits for some seconds.
func TestAGiverWaitsForWhoHashes(t *testing.T) {
	const hole = 16 * BlockBytes // takes 16 s at most
	for name, c := range map[string]struct {
		hole  int64
		waits time.Duration
		given bool
	}{
		"it hashes a hole":     {hole, peerPatience + 15*time.Second, true},
		"it hashes for longer": {hole, peerPatience + 17*time.Second, false},
		"it does nothing":      {0, peerPatience + time.Second, false},
		"it rests":             {0, peerPatience - time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			content := make([]byte, c.hole+2*BlockBytes)
			r := gives(t, nil)
			path := filepath.Join(r.Target.root.Name(), "0")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(random(2*BlockBytes), c.hole)
			info, failure := f.Stat()
			if err := errors.Join(err, failure, f.Close()); err != nil {
				t.Fatal(err)
			}
			r.batch.entries[0].Size, r.batch.entries[0].ModTime = int64(len(content)), info.ModTime().UnixNano()
			near, far := pipe()
			serving(t, r, far)
			if _, err := near.Write(asks(t, r, 0)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(near, content[:blockHeader]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.waits) // of the test's clock
			rest, err := io.ReadAll(near)
			if given := len(rest) == 2*BlockBytes+2*blockHeader; err != nil || given != c.given {
				t.Errorf("%s: %d bytes, %v", name, len(rest), err)
			}
		})
	}
}

// Many that are slow to say that they give nothing do not let a receiver look as if it did nothing.
func TestManyGiveNothingSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, why := fetchedTo(t, func(_ *Target, x *batch) {
			for i := range x.entries {
				x.promises[i] = promise{givers: []string{fmt.Sprint("127.0.0.1:", 1+2*i), fmt.Sprint("127.0.0.1:", 2+2*i)}, sum: x.promises[i].sum}
			}
		}, func(far net.Conn) {
			time.Sleep(peerPatience - time.Millisecond)
			_, _ = far.Write(binary.BigEndian.AppendUint32(numbers(0), ungiven))
		}, slices.Repeat([][]byte{[]byte("f")}, 8)...)
		if took := time.Since(begin); took > maxRefused*peerPatience || why != "" {
			t.Errorf("%v, %q", took, why)
		}
	})
}

// distant is a connection over a link on which all takes some time.
func distant(delay time.Duration) (near, far net.Conn) {
	near, a := pipe()
	b, far := pipe()
	type piece struct {
		bytes []byte
		due   time.Time
	}
	carry := func(from, to net.Conn) {
		way := make(chan piece, 1<<16)
		go func() {
			defer close(way)
			buffer := make([]byte, BlockBytes)
			for {
				n, err := from.Read(buffer)
				if err != nil {
					return
				}
				way <- piece{bytes.Clone(buffer[:n]), time.Now().Add(delay)}
			}
		}()
		go func() {
			defer to.Close()
			for p := range way {
				time.Sleep(time.Until(p.due))
				_, _ = to.Write(p.bytes) // it may have ended
			}
		}()
	}
	carry(a, b)
	carry(b, a)
	return near, far
}

// Many small files come over a link with a delay, on which the first packets of a connection are
// lost, from one that is not blamed for the link.
func TestSmallFilesOverALongLink(t *testing.T) {
	for name, c := range map[string]struct{ connects, delay, most time.Duration }{
		"a delay":        {400 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second},
		"lost at first":  {time.Second, time.Millisecond, 1100 * time.Millisecond},
		"it is far away": {1200 * time.Millisecond, 600 * time.Millisecond, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			files := slices.Repeat([][]byte{[]byte("a small file")}, 100)
			giver := gives(t, files...)
			dials := 0
			begin := time.Now()
			came, why := fetchedBy(t, func(*Target, *batch) {}, func(context.Context, string) (net.Conn, error) {
				dials++
				time.Sleep(c.connects)
				near, far := distant(c.delay)
				serving(t, giver, far)
				return near, nil
			}, files...)
			if took := time.Since(begin); came != len(files) || why != "" || dials != 1 || took > c.most {
				t.Errorf("%s: %d files of %d in %v on %d connections, %q", name, came, len(files), took, dials, why)
			}
		})
	}
}

// A giver of an earlier version ends the connection after the first file, and is asked for the next
// one on another connection. One that ends it without a file is not asked in this batch any more.
func TestAGiverThatEndsTheConnection(t *testing.T) {
	for gives, want := range map[bool]int{true: 3, false: 1} {
		synctest.Test(t, func(t *testing.T) {
			dials := 0
			came, why := fetchedBy(t, func(*Target, *batch) {}, func(context.Context, string) (net.Conn, error) {
				dials++
				near, far := pipe()
				go func() {
					_, _ = far.Read(make([]byte, maxHello))
					if gives {
						_, _ = far.Write(slices.Concat(aBlock(0, []byte("f")), aBlock(1, nil)))
					} else {
						_, _ = far.Write(binary.BigEndian.AppendUint32(numbers(0), ungiven))
					}
					_ = far.Close()
				}()
				return near, nil
			}, slices.Repeat([][]byte{[]byte("f")}, 3)...)
			if dials != want || why != "" || (came == 3) != gives {
				t.Errorf("%d files on %d connections, %q", came, dials, why)
			}
		})
	}
}

// A receiver whose own disk is slow blames nobody, and answers the source in time.
func TestAFetchEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		files := slices.Repeat([][]byte{[]byte("f")}, 100)
		came, why := fetchedTo(t, func(target *Target, _ *batch) {
			target.write = func(f *os.File, b []byte, at int64) (int, error) {
				time.Sleep(900 * time.Millisecond)
				return f.WriteAt(b, at)
			}
		}, func(far net.Conn) {
			_, _ = far.Write(slices.Concat(aBlock(0, []byte("f")), aBlock(1, nil)))
		}, files...)
		if took := time.Since(begin); why != "" || came < 15 || took > (maxRefused+1)*peerPatience {
			t.Errorf("%d in %v, %q", came, took, why)
		}
	})
}

// Who has given something has some time for its next connection, and what is fast has no more time
// than all others.
func TestWhatAGiverEarns(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		0: batchPatience, peerPatience - batchPatience/2: peerPatience, -time.Second: 0,
	} {
		g := given{left: left}
		if g.earn(batchPatience, 0); g.left != want {
			t.Errorf("%v, and then %v", left, g.left)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		given := 0
		var r *Receiver
		for range 8 { // batches, each of which takes 900 ms
			came, why := fetchedOf(t, &r, func(*Target, *batch) {}, func(context.Context, string) (net.Conn, error) {
				near, far := pipe()
				go func() {
					defer far.Close()
					_, _ = far.Read(make([]byte, maxHello))
					time.Sleep(900 * time.Millisecond)
					_, _ = far.Write(slices.Concat(aBlock(0, []byte("f")), aBlock(1, nil)))
				}()
				return near, nil
			}, []byte("f"))
			if given += came; why != "" {
				t.Error(why)
			}
		}
		if given != 8 {
			t.Errorf("%d files are given", given)
		}
	})
}
