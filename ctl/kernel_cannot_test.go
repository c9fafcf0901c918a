package ctl

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
)

// cannot is a kernel that fails in one call, and that loses an address as soon as it runs.
type cannot struct {
	*ctltest.Addresses
	call string
}

var errCannot = errors.New("the kernel cannot")

func (c cannot) err(call string) error {
	if c.call == call {
		return errCannot
	}
	return nil
}

func (c cannot) Local(ip netip.Addr) (bool, error) {
	local, err := c.Addresses.Local(ip)
	return local, errors.Join(err, c.err("Local"))
}

func (c cannot) Subnets(ifIndex int) ([]netip.Prefix, error) {
	nets, err := c.Addresses.Subnets(ifIndex)
	return nets, errors.Join(err, c.err("Subnets"))
}

func (c cannot) Sweep() error { return errors.Join(c.Addresses.Sweep(), c.err("Sweep")) }
func (c cannot) Close() error { return errors.Join(c.Addresses.Close(), c.err("Close")) }

func (c cannot) Release(p address.IfAddr) error {
	return errors.Join(c.Addresses.Release(p), c.err("Release"))
}

func (c cannot) Run(ctx context.Context, restored func(address.IfAddr, string), changed func([]address.Change), rival address.Rival) error {
	restored(address.IfAddr{IfIndex: 2, IP: addr("10.77.0.100")}, "eth2")
	return c.Addresses.Run(ctx, restored, changed, rival)
}

func TestWhatTheKernelCannotSayRefusesTheGroup(t *testing.T) {
	for _, call := range []string{"Local", "Subnets"} {
		for _, text := range []string{g1, strings.Replace(g1, "qpn: 1\n", "qpn: 1\naddressing: switch-ip\n", 1)} {
			w := newWorld(t)
			w.addresses.Box[addr("10.77.0.100")] = strings.Contains(text, "switch-ip")
			w.Addresses = cannot{w.addresses, call}
			if _, err := w.Create(t.Context(), []byte(text)); err == nil || !strings.Contains(err.Error(), "the kernel cannot") {
				t.Errorf("%s: %v", call, err)
			}
			w.expect(t, nothing)
		}
	}
}

// A stop that left addresses behind is not a clean one.
func TestAStopThatFailsIsNotClean(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.Addresses = cannot{w.addresses, "Close"}
	if err := w.Close(); !errors.Is(err, errCannot) {
		t.Errorf("closed: %v", err)
	}
	if g, err := w.restart(t, false).Group("g1"); err != nil || !g.Restored {
		t.Errorf("%+v, %v", g, err)
	}
}

// A group whose address stays is removed all the same, and the log says what stays.
func TestAddressesThatStayAreLogged(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.groups.Addresses = cannot{w.addresses, "Release"}
	if err := w.Remove("g1"); err != nil {
		t.Error(err)
	}
	w.expect(t, nothing)
	w.groups.Addresses = cannot{w.addresses, "Sweep"}
	if err := w.Restore(); err != nil {
		t.Error(err)
	}
	for _, message := range []string{"could not remove all addresses of the removed group from the box", "could not remove an address that an earlier run added"} {
		if w.logs.FilterMessage(message).Len() != 1 {
			t.Errorf("not logged: %s", message)
		}
	}
	if w.logs.FilterMessage("group removed").Len() != 0 {
		t.Error("the log says that all went well")
	}
}

// Run does everything that control has to do beside requests.
func TestRunFollowsEverything(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	w.Addresses = cannot{w.addresses, ""}
	w.Services.Perftest = []perftest.Config{{GroupIP: addr("127.0.0.203"), Receivers: []netip.Addr{addr("10.77.0.2")}, Port: 18598}}
	w.sw.SetPort(1, dataplane.PortDown, 2)
	w.sw.Notify(dataplane.Note{Group: w.groups.Named("g1").ID, Receiver: addr("10.77.0.3"), What: feedback.NoteFatal})
	w.run(t)
	for _, message := range []string{
		"another program removed a group's IP; rocastd has added it again", "link down", "member event", "a service of the config is up",
	} {
		testlab.Eventually(t, testlab.Patience, message, func() bool { return w.logs.FilterMessage(message).Len() == 1 }, nil)
	}
	if err := w.Services.PerftestDown("127.0.0.203"); err != nil {
		t.Error(err)
	}
}
