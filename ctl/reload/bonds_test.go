package reload

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The lower devices of a bond are ports as they come and go. Other ports stay: those that are
// named, and those that a glob has matched.
func TestTheLowerDevicesOfABondAreFollowed(t *testing.T) {
	b := newBox(t)
	b.change("ports: [eth1, 'eth[23]']", "ports: [eth1, 'eth[23]', bond0]")
	if done, err := b.Reload("root"); err != nil || done.String() != "ports changed; ports added: bond0" {
		t.Fatalf("%v, %v", done, err)
	}
	b.gone = "eth3" // as its glob keeps it
	for _, c := range []struct {
		bond []string
		want string
	}{
		{nil, "eth1 eth2 eth3 bond0"},
		{[]string{"eth6"}, "eth1 eth2 eth3 eth6"},
		{[]string{"eth6", "eth7"}, "eth1 eth2 eth3 eth6 eth7"},
		{[]string{"eth7", "eth1"}, "eth1 eth2 eth3 eth7"},
		{[]string{"eth7", "eth9"}, "eth1 eth2 eth3 eth7 eth9"},
		{nil, "eth1 eth2 eth3 bond0"},
	} {
		b.bond = c.bond
		b.FollowBonds()
		b.expect(c.want, "info")
		changes := b.changes
		b.FollowBonds()
		if b.changes != changes {
			t.Errorf("%v: ports changed again", c.bond)
		}
	}
	if b.bounds["eth6"] != 2<<20 || b.bounds["bond0"] != 0 {
		t.Errorf("bounds %v", b.bounds)
	}
}

// Without a name that could be a bond's, nothing is looked up.
func TestPortsThatAreUpAreNotAskedFor(t *testing.T) {
	b := newBox(t)
	b.Find = func([]string) ([]string, error) { t.Error("asked"); return nil, nil }
	b.FollowBonds()
}

// A change that is refused is tried again, and told if it fails twice.
func TestABondThatCannotBeFollowedIsToldOnce(t *testing.T) {
	b := newBox(t)
	core, logs := observer.New(zap.WarnLevel)
	b.Log = zap.New(core)
	b.change("ports: [eth1, 'eth[23]']", "ports: [eth1, 'eth[23]', bond0]")
	if _, err := b.Reload("root"); err != nil {
		t.Fatal(err)
	}
	b.bond, b.refuse = []string{"eth6"}, errors.New("eth1 cannot be removed")
	for i, want := range []int{0, 1, 1, 1} {
		b.FollowBonds()
		if logs.Len() != want {
			t.Errorf("call %d: %d warnings", i, logs.Len())
		}
	}
	if got := logs.All()[0]; !strings.Contains(got.Message, "do not follow") || got.ContextMap()["error"] != "eth1 cannot be removed" {
		t.Errorf("%+v", got)
	}
	b.refuse = nil
	b.FollowBonds()
	b.expect("eth1 eth2 eth3 eth6", "info")
}
