package address

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeKernel is a set of addresses on interfaces 1 "eth1" and 2 "br0". It marks the addresses that
// the package added.
type fakeKernel struct {
	on     map[IfAddr]bool      // value: marked
	refuse error                // answer to the next add
	heard  map[IfAddr][][6]byte // the hosts that answer for an IP; where one is missing, no question can be asked
	boxes  [][6]byte            // MACs of the box
	macOf  map[int][6]byte      // of an interface; of the others it is 2
	asked  []IfAddr

	announced []IfAddr
	fail      string // the method that returns errFake
	rounds    []*fakeQuestion
	closed    bool
}

var errFake = errors.New("the kernel cannot")

func (k *fakeKernel) failing(method string) error {
	if k.fail == method {
		return errFake
	}
	return nil
}

var names = map[int]string{1: "eth1", 2: "br0"}

func (k *fakeKernel) add(p IfAddr) error {
	if err := k.refuse; err != nil {
		k.refuse = nil
		return err
	}
	if _, there := k.on[p]; there {
		return unix.EEXIST
	}
	k.on[p] = true
	return nil
}

func (k *fakeKernel) remove(p IfAddr) error {
	if err := k.failing("remove"); err != nil {
		return err
	}
	if _, there := k.on[p]; !there {
		return unix.EADDRNOTAVAIL
	}
	delete(k.on, p)
	return nil
}

func (k *fakeKernel) interfacesOf(ip netip.Addr) (places []IfAddr, err error) {
	for p := range k.on {
		if p.IP == ip {
			places = append(places, p)
		}
	}
	return places, k.failing("places")
}

func (k *fakeKernel) marked() (map[note]bool, error) {
	marked := map[note]bool{}
	for p, ours := range k.on {
		if ours {
			marked[note{p.IP, names[p.IfIndex]}] = true
		}
	}
	return marked, k.failing("marked")
}

func (k *fakeKernel) subnets(int) ([]netip.Prefix, error) { return nil, k.failing("subnets") }

func (k *fakeKernel) addresses(ifIndex int) (places []IfAddr, err error) {
	for p := range k.on {
		if p.IfIndex == ifIndex {
			places = append(places, p)
		}
	}
	return places, nil
}

func (k *fakeKernel) name(ifIndex int) (string, error) {
	if name, ok := names[ifIndex]; ok {
		return name, nil
	}
	return "", unix.ENODEV
}

func (k *fakeKernel) index(name string) (int, error) {
	if err := k.failing("index"); err != nil {
		return 0, err
	}
	for ifIndex, known := range names {
		if known == name {
			return ifIndex, nil
		}
	}
	return 0, nil
}

func (k *fakeKernel) macs() ([][6]byte, error) { return k.boxes, k.failing("macs") }

func (k *fakeKernel) asker(ifIndex int) (mac [6]byte, err error) {
	if mac, ok := k.macOf[ifIndex]; ok {
		return mac, nil
	}
	return [6]byte{2}, k.failing("asker")
}

func (k *fakeKernel) announce(p IfAddr) error {
	k.announced = append(k.announced, p)
	return k.failing("announce")
}

func (k *fakeKernel) ask(p IfAddr) (question, error) {
	answers, can := k.heard[p]
	if !can {
		return nil, errNobody
	}
	k.asked = append(k.asked, p)
	k.rounds = append(k.rounds, &fakeQuestion{answers: answers})
	return k.rounds[len(k.rounds)-1], nil
}

// fakeQuestion gets its answer at once or never.
type fakeQuestion struct {
	answers [][6]byte
	puts    int
	closed  bool
	until   []time.Duration
}

func (q *fakeQuestion) put() error { q.puts++; return nil }

func (q *fakeQuestion) answer(deadline time.Time) (mac [6]byte, err error) {
	q.until = append(q.until, time.Until(deadline))
	if q.puts < claimRounds || len(q.answers) == 0 { // the first questions are lost
		return mac, os.ErrDeadlineExceeded
	}
	mac, q.answers = q.answers[0], q.answers[1:]
	return mac, nil
}

func (q *fakeQuestion) close() { q.closed = true }

func (k *fakeKernel) Close() { k.closed = true }

// String lists the addresses: "10.0.0.9@br0".
func (k *fakeKernel) String() string {
	var all []string
	for p := range maps.Keys(k.on) {
		all = append(all, note{p.IP, names[p.IfIndex]}.String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func open(t *testing.T, k kernel, dir string) *Owner {
	t.Helper()
	o, err := newOwner(k, dir)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
