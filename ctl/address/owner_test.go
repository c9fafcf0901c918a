package address

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

var (
	group  = netip.MustParseAddr("10.77.0.100")
	onBr0  = IfAddr{IfIndex: 2, IP: group}
	onEth1 = IfAddr{IfIndex: 1, IP: group}
)

const earlierBoot = "5ff5a2b1-05a0-4c3b-8f3e-6a4f3a1b2c3d"

func TestTheLastHolderTakesTheAddressAlong(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	o := open(t, k, t.TempDir())
	must(t, o.Hold(onBr0))
	must(t, o.Hold(onBr0))
	must(t, o.Hold(onEth1))
	must(t, o.Release(onBr0))
	if got, want := k.String(), "10.77.0.100@br0 10.77.0.100@eth1"; got != want {
		t.Errorf("with holders left: %s, want %s", got, want)
	}
	must(t, o.Release(onBr0))
	must(t, o.Release(onEth1))
	must(t, o.Release(onEth1)) // one call too many
	if got := k.String(); got != "" {
		t.Errorf("left %s", got)
	}
}

func TestWhatTheBoxHadBeforeStays(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{onBr0: false}}
	dir := t.TempDir()
	o := open(t, k, dir)
	must(t, o.Hold(onBr0))
	if local, err := o.Local(group); err != nil || !local {
		t.Errorf("held, and the box's own: local %v, %v", local, err)
	}
	must(t, o.Release(onBr0))
	if got, want := k.String(), "10.77.0.100@br0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	must(t, o.Hold(onBr0))
	o = open(t, k, dir) // after a crash
	must(t, o.Sweep())
	if got, want := k.String(), "10.77.0.100@br0"; got != want {
		t.Errorf("after a crash: %s, want %s", got, want)
	}
}

func TestAGroupsIPIsNotTheBoxsOwn(t *testing.T) {
	o := open(t, &fakeKernel{on: map[IfAddr]bool{}}, t.TempDir())
	must(t, o.Hold(onBr0))
	if local, err := o.Local(group); err != nil || local {
		t.Errorf("local %v, %v", local, err)
	}
}

func TestACrashsLeftoversAreTakenBackOrTakenOver(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	dir := t.TempDir()
	o := open(t, k, dir)
	must(t, o.Hold(onBr0))
	must(t, o.Hold(onEth1))

	o = open(t, k, dir)
	must(t, o.Hold(onBr0)) // the group is restored, but the members on eth1 are not
	must(t, o.Sweep())
	if got, want := k.String(), "10.77.0.100@br0"; got != want {
		t.Errorf("after the restart: %s, want %s", got, want)
	}
	must(t, o.Release(onBr0))
	if got := k.String(); got != "" {
		t.Errorf("taken over but not given back: %s", got)
	}
}

// The daemon crashed after it wrote the note and before it added the address. Then the
// administrator added the same address.
func TestANoteAloneIsNotBelieved(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	dir := t.TempDir()
	o := open(t, k, dir)
	must(t, o.notes.put(note{group, "br0"}))
	k.on[onBr0] = false
	o = open(t, k, dir)
	must(t, o.Hold(onBr0))
	must(t, o.Release(onBr0))
	must(t, o.Sweep())
	if got, want := k.String(), "10.77.0.100@br0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNotesOfAnotherBootAreDropped(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, earlierBoot)
	must(t, os.Mkdir(other, 0o700))
	must(t, os.WriteFile(filepath.Join(other, "10.77.0.100@br0"), nil, 0o600))
	k := &fakeKernel{on: map[IfAddr]bool{onBr0: true}}
	o := open(t, k, dir)
	must(t, o.Sweep())
	if got, want := k.String(), "10.77.0.100@br0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("the other boot's notes are still there")
	}
}

func TestAnAddressThatCannotBeAddedIsNotHeld(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}, refuse: unix.EPERM}
	dir := t.TempDir()
	o := open(t, k, dir)
	if err := o.Hold(onBr0); !errors.Is(err, unix.EPERM) || err.Error() != "own 10.77.0.100 on br0: operation not permitted" {
		t.Errorf("%v", err)
	}
	if notes, _, err := o.notes.list(); err != nil || len(notes) != 0 {
		t.Errorf("notes %v, %v", notes, err)
	}
	must(t, o.Hold(onBr0))
	if got, want := k.String(), "10.77.0.100@br0"; got != want {
		t.Errorf("the next try: %s, want %s", got, want)
	}
}

func TestCloseGivesEverythingBack(t *testing.T) {
	before := IfAddr{IfIndex: 1, IP: netip.MustParseAddr("10.77.0.1")}
	k := &fakeKernel{on: map[IfAddr]bool{before: false}}
	o := open(t, k, t.TempDir())
	for _, p := range []IfAddr{onBr0, onEth1, before} {
		must(t, o.Hold(p))
		must(t, o.Hold(p))
	}
	must(t, o.Close())
	if got, want := k.String(), "10.77.0.1@eth1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	must(t, o.Release(onBr0)) // late
}

// If the note cannot be written, for example on a full disk, the address is added all the same.
func TestAnAddressIsHeldThoughItCannotBeNoted(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	dir := t.TempDir()
	o := open(t, k, dir)
	must(t, os.RemoveAll(dir))
	must(t, o.Hold(onBr0))
	if got, want := k.String(), "10.77.0.100@br0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	must(t, o.Release(onBr0))
	if got := k.String(); got != "" {
		t.Errorf("left %s", got)
	}
	must(t, o.Hold(onBr0))
	must(t, o.Close())
}

// An IP is announced where it is held, and what cannot be announced is an error.
func TestAnIPIsAnnouncedWhereItIsHeld(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}}
	o := open(t, k, t.TempDir())
	for _, p := range []IfAddr{{1, group}, {2, group}, {2, netip.MustParseAddr("10.77.0.7")}} {
		must(t, o.Hold(p))
	}
	must(t, o.Release(IfAddr{1, group}))
	must(t, o.Announce(group))
	if want := []IfAddr{{2, group}}; !slices.Equal(k.announced, want) {
		t.Errorf("announced at %v, want %v", k.announced, want)
	}
	k.fail = "announce"
	if err := o.Announce(group); !errors.Is(err, errFake) {
		t.Errorf("%v", err)
	}
}

// The hosts on an interface that gets another MAC hear of it, each time and once, and of the box's
// own addresses too; those on other interfaces hear nothing. While nobody can hear the box, it
// waits.
func TestAnotherMACIsAnnounced(t *testing.T) {
	other := netip.MustParseAddr("10.77.0.7")
	box := IfAddr{1, netip.MustParseAddr("10.77.0.1")}
	k := &fakeKernel{on: map[IfAddr]bool{box: false}, macOf: map[int][6]byte{1: {2, 1}}}
	o := open(t, k, t.TempDir())
	for _, p := range []IfAddr{onEth1, onBr0, {2, other}} {
		must(t, o.Hold(p))
	}
	for _, step := range []struct {
		when string
		macs map[int][6]byte
		want []IfAddr
	}{
		{"nothing has changed", map[int][6]byte{1: {2, 1}}, nil},
		{"eth1 has another MAC", map[int][6]byte{1: {2, 9}}, []IfAddr{onEth1, box}},
		{"nothing has changed since", map[int][6]byte{1: {2, 9}}, nil},
		{"br0 is down", map[int][6]byte{1: {2, 9}, 2: {}}, nil},
		{"br0 is up as before", map[int][6]byte{1: {2, 9}, 2: {2}}, nil},
		{"br0 has gone down and come up with another MAC", map[int][6]byte{1: {2, 9}, 2: {2, 8}}, []IfAddr{onBr0, {2, other}}},
	} {
		k.macOf, k.announced = step.macs, nil
		o.announceMoved()
		slices.SortFunc(k.announced, func(a, b IfAddr) int { return b.IP.Compare(a.IP) })
		slices.SortFunc(step.want, func(a, b IfAddr) int { return b.IP.Compare(a.IP) })
		if !slices.Equal(k.announced, step.want) {
			t.Errorf("%s: announced at %v, want %v", step.when, k.announced, step.want)
		}
	}
}

// An interface that nobody could hear when the address came needs no announcement when it comes up.
func TestTheFirstMACIsNotAnnounced(t *testing.T) {
	k := &fakeKernel{on: map[IfAddr]bool{}, macOf: map[int][6]byte{1: {}}}
	o := open(t, k, t.TempDir())
	must(t, o.Hold(onEth1))
	k.macOf[1] = [6]byte{2, 5}
	if o.announceMoved(); len(k.announced) > 0 {
		t.Errorf("announced at %v", k.announced)
	}
	k.macOf[1] = [6]byte{2, 6}
	if o.announceMoved(); !slices.Equal(k.announced, []IfAddr{onEth1}) {
		t.Errorf("announced at %v", k.announced)
	}
}
