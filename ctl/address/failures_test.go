package address

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What the kernel cannot do is no success, and a later try finds everything as it was.
func TestEachFailureOfTheKernelIsReported(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	dir := t.TempDir()
	o := open(t, k, dir)
	must(t, o.Hold(onBr0))
	k.fail = "marked"
	if _, err := newOwner(k, dir); !errors.Is(err, errFake) {
		t.Errorf("open: %v", err)
	}
	k.fail = "places"
	if _, err := o.Local(group); err == nil || err.Error() != "look up the interfaces that have 10.77.0.100: the kernel cannot" {
		t.Errorf("local: %v", err)
	}
	k.fail = "subnets"
	if _, err := o.Subnets(2); err == nil || err.Error() != "look up the addresses of interface 2: the kernel cannot" {
		t.Errorf("subnets: %v", err)
	}
	if err := o.Hold(IfAddr{IfIndex: 9, IP: group}); err == nil || err.Error() != "own 10.77.0.100: look up the name of interface 9: no such device" {
		t.Errorf("hold: %v", err)
	}
	k.fail = "remove"
	if err := o.Release(onBr0); err == nil || err.Error() != "remove 10.77.0.100 from br0: the kernel cannot" {
		t.Errorf("release: %v", err)
	}
	if noted, _, err := o.notes.list(); err != nil || len(noted) != 1 {
		t.Errorf("the note of an address that is still there: %v, %v", noted, err)
	}
	o = open(t, k, dir)
	if err := o.Sweep(); !errors.Is(err, errFake) {
		t.Errorf("sweep: %v", err)
	}
	o = open(t, k, dir)
	must(t, o.Hold(onBr0)) // takes it over
	if err := o.Close(); !errors.Is(err, errFake) || !k.closed || len(o.held) != 0 {
		t.Errorf("close: %v", err)
	}
	k.fail = "index"
	o = open(t, k, dir)
	if err := o.Sweep(); !errors.Is(err, errFake) || k.String() == "" {
		t.Errorf("sweep: %v, %s", err, k)
	}
	k.fail = ""
	o = open(t, k, dir)
	must(t, o.Sweep())
	if len(o.left) != 0 || k.String() != "" {
		t.Errorf("left %v, %s", o.left, k)
	}
}

// One note that the kernel does not confirm says nothing about the next one.
func TestEachNoteIsConfirmedByItself(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{onEth1: true}}
	dir := t.TempDir()
	notes, _, err := openNotes(dir)
	must(t, err)
	for _, name := range []string{"br0", "eth1"} {
		must(t, notes.put(note{group, name}))
	}
	o := open(t, k, dir)
	if !o.left[note{group, "eth1"}] || len(o.left) != 1 {
		t.Errorf("left %v", o.left)
	}
}

func TestAnAddressIsHeldAgainAfterItsRelease(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	o := open(t, k, t.TempDir())
	for range 2 {
		must(t, o.Hold(onBr0))
		if got := k.String(); got != "10.77.0.100@br0" {
			t.Errorf("held: %q", got)
		}
		must(t, o.Release(onBr0))
	}
}

// An interface that went away took its addresses along.
func TestAnAddressOfAnInterfaceThatHasGoneIsForgotten(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	dir := t.TempDir()
	o := open(t, k, dir)
	must(t, o.Hold(onBr0))
	must(t, o.Hold(onEth1))
	delete(k.on, onBr0) // with br0
	must(t, o.Release(onBr0))
	if noted, _, err := o.notes.list(); err != nil || len(noted) != 1 {
		t.Errorf("noted: %v, %v", noted, err)
	}
}

func deleted(kind uint16, p IfAddr) syscall.NetlinkMessage {
	header := nl.NewIfAddrmsg(unix.AF_INET)
	header.Index, header.Prefixlen = uint32(p.IfIndex), 32
	data := slices.Concat(header.Serialize(), nl.NewRtAttr(unix.IFA_LOCAL, p.IP.AsSlice()).Serialize())
	return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}
}

// What others do to their addresses is told. What the Owner does is not, nor what is done to the
// Owner's addresses.
func TestWhatOthersDoIsTold(t *testing.T) {
	before := IfAddr{IfIndex: 1, IP: netip.MustParseAddr("10.77.0.1")}
	foreign := IfAddr{IfIndex: 1, IP: netip.MustParseAddr("10.77.0.2")}
	o := open(t, &fakeKernel{on: map[IfAddr]bool{before: false}}, t.TempDir())
	must(t, o.Hold(onBr0))
	must(t, o.Hold(before))
	marked := deleted(unix.RTM_DELADDR, onEth1) // it was released just now
	marked.Data = append(marked.Data, nl.NewRtAttr(ifaProto, []byte{mark}).Serialize()...)
	got := o.notice([]syscall.NetlinkMessage{
		deleted(unix.RTM_NEWADDR, foreign), deleted(unix.RTM_DELADDR, onBr0), marked, {Data: []byte{1}},
		deleted(unix.RTM_NEWADDR, onBr0), deleted(unix.RTM_DELADDR, before),
	})
	if want := []Change{{foreign.IP, false}, {before.IP, true}}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

// Only what the Owner itself added and others took off is put back: once, and as soon as possible.
func TestWhatIsPutBack(t *testing.T) {
	before := IfAddr{IfIndex: 1, IP: netip.MustParseAddr("10.77.0.1")}
	foreign := IfAddr{IfIndex: 1, IP: netip.MustParseAddr("10.77.0.2")}
	k := &fakeKernel{on: map[IfAddr]bool{before: false}}
	o := open(t, k, t.TempDir())
	for _, p := range []IfAddr{onBr0, onEth1, before} {
		must(t, o.Hold(p))
	}
	putBack := func() (restored string) {
		o.putBack(func(p IfAddr, name string) { restored += note{p.IP, name}.String() })
		return restored
	}
	delete(k.on, onBr0)
	delete(k.on, before)
	o.notice([]syscall.NetlinkMessage{
		deleted(unix.RTM_NEWADDR, onEth1), {Header: syscall.NlMsghdr{Type: unix.RTM_DELADDR}, Data: []byte{1}},
		deleted(unix.RTM_DELADDR, before), deleted(unix.RTM_DELADDR, foreign), deleted(unix.RTM_DELADDR, onBr0),
	})
	if len(o.lost) != 1 {
		t.Errorf("lost %v", o.lost)
	}
	k.refuse = unix.ENETDOWN
	if got := putBack(); got != "" || len(o.lost) != 1 {
		t.Errorf("while the interface is down: %q, lost %v", got, o.lost)
	}
	if got := putBack(); got != "10.77.0.100@br0" || len(o.lost) != 0 {
		t.Errorf("then: %q, lost %v", got, o.lost)
	}
	if got := putBack(); got != "" {
		t.Errorf("twice: %q", got)
	}
	o.notice(nil) // notifications were lost: everything may be gone
	if len(o.lost) != 2 {
		t.Errorf("lost %v", o.lost)
	}
	if got := putBack(); got != "" || len(o.lost) != 0 {
		t.Errorf("what is still there: %q, lost %v", got, o.lost)
	}
	o.notice([]syscall.NetlinkMessage{deleted(unix.RTM_DELADDR, onBr0)})
	must(t, o.Release(onBr0))
	if got := putBack(); got != "" || len(o.lost) != 0 {
		t.Errorf("what is released meanwhile: %q, lost %v", got, o.lost)
	}
}

func TestNotesThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, _, err := openNotes(file); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file for a directory: %v", err)
	}
	if _, _, err := openNotes("/proc/rocast"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a directory that cannot be made: %v", err)
	}
	if _, _, err := notes(file).list(); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a list from a file: %v", err)
	}
	if err := (&Owner{kernel: &fakeKernel{}, notes: notes(file)}).findLeftovers(); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("leftovers in a file: %v", err)
	}
	notes, _, err := openNotes(filepath.Join(dir, "notes"))
	must(t, err)
	n := note{group, "br0"}
	must(t, os.MkdirAll(filepath.Join(notes.path(n), "x"), 0o700))
	if err := notes.put(n); !errors.Is(err, unix.EISDIR) {
		t.Errorf("put: %v", err)
	}
	if err := notes.drop(n); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("drop: %v", err)
	}
	k := &fakeKernel{on: map[IfAddr]bool{}}
	o := &Owner{kernel: k, notes: notes, held: map[IfAddr]*holding{}}
	if err := o.Hold(onBr0); !errors.Is(err, unix.EISDIR) || k.String() != "" {
		t.Errorf("hold: %v, and there is %s", err, k)
	}
	must(t, os.RemoveAll(notes.path(n)))
	must(t, notes.put(n))
	for path, want := range map[string]os.FileMode{string(notes): 0o700, notes.path(n): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	for errno, want := range map[unix.Errno]bool{unix.EROFS: true, unix.ENOSPC: true, unix.EDQUOT: true, unix.EACCES: false} {
		if got := unwritable(fmt.Errorf("write: %w", errno)); got != want {
			t.Errorf("%v: %v", errno, got)
		}
	}
}

// A file that another program or a person put beside the notes neither prevents a start nor is
// deleted: the daemon names it.
func TestFilesThatAreNoNotesAreNamedAndLeftAlone(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	dir := t.TempDir()
	o := open(t, k, dir)
	must(t, o.Hold(onBr0))
	if strays := o.Strays(); len(strays) != 0 {
		t.Errorf("strays %q", strays)
	}
	inside := string(o.notes)
	want := []string{
		filepath.Join(dir, "README"), filepath.Join(dir, earlierBoot), filepath.Join(dir, "backup"),
		filepath.Join(inside, "10.77.0.101@br0"), filepath.Join(inside, "10.77.0.102"),
		filepath.Join(inside, "FD00::1@br0"), filepath.Join(inside, "text"),
	}
	must(t, os.WriteFile(want[0], nil, 0o600))
	must(t, os.WriteFile(want[1], nil, 0o600))
	must(t, os.MkdirAll(filepath.Join(want[2], "x"), 0o700))
	must(t, os.MkdirAll(filepath.Join(want[3], "x"), 0o700))
	for _, path := range want[4:] {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	slices.Sort(want)
	for range 2 {
		o = open(t, k, dir)
		if got := slices.Sorted(slices.Values(o.Strays())); !slices.Equal(got, want) {
			t.Errorf("strays\n%q, want\n%q", got, want)
		}
		if !o.left[note{group, "br0"}] || len(o.left) != 1 {
			t.Errorf("left %v", o.left)
		}
	}
}

// Notes of an earlier boot that stay could be taken for notes of this one some day.
func TestNotesOfAnotherBootThatCannotBeDropped(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, earlierBoot)
	must(t, os.Mkdir(other, 0o700))
	if err := unix.Mount("tmpfs", other, "tmpfs", 0, ""); err != nil { // a mount point cannot be removed
		t.Skipf("needs CAP_SYS_ADMIN: %v", err)
	}
	_, _, err := openNotes(dir)
	must(t, unix.Unmount(other, unix.MNT_DETACH))
	if !errors.Is(err, unix.EBUSY) || !strings.HasPrefix(err.Error(), "drop the notes of an earlier boot: ") {
		t.Error(err)
	}
}

// A note that the kernel does not confirm and that stays could be taken for proof some day.
func TestAnUnconfirmedNoteThatCannotBeDropped(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	dir := t.TempDir()
	notes, _, err := openNotes(dir)
	must(t, err)
	n := note{group, "br0"}
	must(t, notes.put(n))
	if err := unix.Mount("/dev/null", notes.path(n), "", unix.MS_BIND, ""); err != nil { // a mount point cannot be removed
		t.Skipf("needs CAP_SYS_ADMIN: %v", err)
	}
	_, err = newOwner(k, dir)
	must(t, unix.Unmount(notes.path(n), unix.MNT_DETACH))
	if !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
}

// Three questions, a tenth of a second each; a question that nobody can hear costs nothing.
func TestHowLongHostsAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{on: map[IfAddr]bool{}, heard: map[IfAddr][][6]byte{onBr0: nil}}
		o := open(t, k, t.TempDir())
		if claim, found := o.Claimed(t.Context(), []IfAddr{{IfIndex: 9, IP: group}, onEth1, onBr0}); found || claim != (Claim{}) {
			t.Errorf("%v", claim)
		}
		synctest.Wait() // a question is closed after the answer
		q := k.rounds[0]
		if q.puts != 3 || !q.closed || len(k.asked) != 1 {
			t.Errorf("%+v, asked %v", q, k.asked)
		}
		for _, d := range q.until {
			if d != 100*time.Millisecond {
				t.Errorf("waits %v", d)
			}
		}
		time.Sleep(freeFor)
		k.fail = "macs"
		k.heard[onBr0] = [][6]byte{{2, 9}}
		if _, found := o.Claimed(t.Context(), []IfAddr{onBr0}); found {
			t.Error("claimed, maybe by the box itself")
		}
		synctest.Wait()
		k.fail = ""
		must(t, o.Hold(IfAddr{IfIndex: 1, IP: netip.MustParseAddr("10.77.0.9")}))
		if _, found := o.Claimed(t.Context(), []IfAddr{onBr0}); !found {
			t.Error("not asked because the box holds another IP")
		}
		given, up := context.WithCancel(t.Context())
		up()
		if _, found := o.Claimed(given, []IfAddr{onBr0}); found {
			t.Error("claimed, although nobody was asked any more")
		}
		if _, found := o.Claimed(t.Context(), nil); found {
			t.Error("claimed nowhere")
		}
	})
}

func TestAddressesAsTheKernelListsThem(t *testing.T) {
	ip, peer := netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.88.0.2")
	attr := func(kind int, value []byte) []byte { return nl.NewRtAttr(kind, value).Serialize() }
	message := func(attrs ...[]byte) []byte {
		header := nl.NewIfAddrmsg(unix.AF_INET)
		header.Index, header.Prefixlen = 7, 24
		return slices.Concat(append([][]byte{header.Serialize()}, attrs...)...)
	}
	local, address := attr(unix.IFA_LOCAL, ip.AsSlice()), attr(unix.IFA_ADDRESS, ip.AsSlice())
	for name, c := range map[string]struct {
		data []byte
		want assigned
		ok   bool
	}{
		"IPv4":      {message(address, local), assigned{IfAddr{7, ip}, 24, netip.MustParsePrefix("10.77.0.0/24"), 0}, true},
		"a peer":    {message(attr(unix.IFA_ADDRESS, peer.AsSlice()), local), assigned{IfAddr{7, ip}, 24, netip.MustParsePrefix("10.88.0.0/24"), 0}, true},
		"no local":  {message(address, attr(ifaProto, []byte{114})), assigned{IfAddr{7, ip}, 24, netip.MustParsePrefix("10.77.0.0/24"), 114}, true},
		"local":     {message(local), assigned{IfAddr{7, ip}, 24, netip.Prefix{}, 0}, true},
		"nothing":   {message(), assigned{IfAddr: IfAddr{IfIndex: 7}, bits: 24}, false},
		"too short": {message()[:7], assigned{}, false},
		"damaged":   {message([]byte{200, 0, 1, 0}), assigned{}, false},
	} {
		if got, ok := parse(c.data); ok != c.ok || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
	if list := parseAll([][]byte{message(), message(local), message()[:7]}); len(list) != 1 || list[0].IP != ip {
		t.Errorf("listed %+v", list)
	}
	if mark != 114 { // another version of the daemon has to know the addresses of this one
		t.Errorf("the mark is %d", mark)
	}
	for want, list := range map[error][]assigned{nil: {{}, {proto: 1}}, errors.ErrUnsupported: {{}, {}}} {
		if got := checkMarks(list, nil); got != want {
			t.Errorf("%+v: %v", list, got)
		}
	}
	if err := checkMarks(nil, errFake); err != errFake {
		t.Errorf("a list that cannot be read: %v", err)
	}
}

// The carries of a sum are added to it.
func TestChecksumsFold(t *testing.T) {
	packet := make([]byte, ipv6Bytes+icmpBytes)
	for i := 8; i < len(packet); i++ {
		packet[i] = 0xff
	}
	sum := uint32(icmpBytes + icmpv6)
	for i := 8; i < len(packet); i += 2 {
		if sum += 0xffff; sum > 0xffff {
			sum -= 0xffff
		}
	}
	if got := checksum(packet); got != ^uint16(sum) {
		t.Errorf("%#x, want %#x", got, ^uint16(sum))
	}
	clear(packet)
	copy(packet[8:], []byte{0xff, 0xff, 0x00, 0x10})
	if got, want := checksum(packet), ^uint16(icmpBytes+icmpv6+0x10); got != want {
		t.Errorf("with one carry: %#x, want %#x", got, want)
	}
}
