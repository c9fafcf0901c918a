//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/test/softroce/wire"
)

// TestBond runs rocast in a box with a bond towards the source, of which a lower device fails in
// mid-transfer, and comes back.
func TestBond(t *testing.T) {
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	for _, mode := range []string{"active-backup", "balance-xor", lacpMode} {
		t.Run(mode, func(t *testing.T) {
			nics := []nicModel{virtioNet, virtioNet, virtioNet, virtioNet, virtioNet}
			l := openLab(t, Config{Kernel: "6.12", Guests: len(nics) - 1, MTU: MTU1024, BoxNICs: nics, BondMode: mode})
			site := inGuest{l.Box.(*BoxGuest)}
			must(t, site.install(testContext(t, time.Minute), bin))
			s := &stage{Lab: l, judge: newJudge(l), rocast: &rocast{site: site}}
			ctx := testContext(t, 10*time.Minute)
			refusesTeam(t, ctx, site)
			must(t, site.write(ctx, "rocastd.yaml", fmt.Sprintf("ports: [%s, %s, %s, %s]\nsocket: %s\nstateDir: %s\n", bondName, PortName(2), PortName(3), PortName(4),
				site.path("socket"), site.path("state"))))
			must(t, s.Start(ctx))
			t.Cleanup(func() {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			})
			t.Log(s.playWithin(t, 8*time.Minute, "6.12", story{name: "fail-over", run: storyFailOver}))
		})
	}
}

// refusesTeam checks that a team is refused as a port, in one sentence that says what to do.
func refusesTeam(t *testing.T, ctx context.Context, site inGuest) {
	t.Helper()
	_, err := site.box.Run(ctx, "ip", "link", "add", "team0", "type", "team")
	must(t, err)
	must(t, site.write(ctx, "team.yaml", fmt.Sprintf("ports: [team0]\nsocket: %s\nstateDir: %s\n", site.path("socket"), site.path("state"))))
	const want = "rocastd: open port team0: it is a team, and rocast does not know which of its ports is active; make it a bond in mode active-backup, 802.3ad, balance-xor\n"
	for _, args := range [][]string{{"--check"}, nil} {
		if _, err := site.run(ctx, "rocastd", append(args, "--config", site.path("team.yaml"))...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rocastd %v: %v, want %s", args, err, want)
		}
	}
	_, err = site.box.Run(ctx, "ip", "link", "del", "team0")
	must(t, err)
}

// storyFailOver takes the lower device of the bond away that carries the flow, in mid-transfer, and
// then the other one. Then one of them leaves the bond. The source only notices lost packets.
func storyFailOver(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	const bytes = 4 * longBytes // that take longer than a command in the box's guest
	spec.bytes = bytes
	spec.connect.Timeout = 18 // 1.07 s: rxe inserts a packet if its timer often runs out too early (docs/wire.md)
	g := s.addGroup(t, ctx, spec)
	s.locked(func() { g.unseenLoss = true }) // what is on its way by a lower device that goes down
	box := s.Box.(*BoxGuest)
	set := func(lower int, what string) {
		t.Helper()
		if box.cable == nil {
			unplug(s.Guests[0].wires()[lower]) // else a full wire to a NIC that is down would hold the guest up
		}
		_, err := box.Run(ctx, "ip", "link", "set", lowers[lower], what)
		must(t, err)
		switch {
		case box.cable != nil:
			box.cable.Plug(lower, what == "up")
		case what == "up":
			s.watch(s.Guests[0], s.Guests[0].wires()[lower])
		}
	}
	s.awaitPorts(t, ctx, PortName(1), secondLower, PortName(2), PortName(3), PortName(4))
	for i, name := range lowers {
		transfer := g.transfer("write", messageBytes, bytes/messageBytes)
		must(t, g.from.StartTransfer(transfer))
		s.reaches(t, ctx, g, int32(i*bytes/g.pathMTU)+200)
		set(i, "down")
		if sent, _ := s.tally(g); sent == (i+1)*bytes/g.pathMTU {
			t.Errorf("the source was done before %s was down", name)
		}
		g.await(t, ctx, transfer)
		g.delivered(t, ctx, bytes)
		set(i, "up")
		s.awaitCarrying(t, ctx, name, box.bondMode == lacpMode)
	}
	set(1, "nomaster")
	s.awaitPorts(t, ctx, PortName(1), PortName(2), PortName(3), PortName(4))
	g.run(t, ctx, g.transfer("write", messageBytes, bytes/messageBytes))
	g.delivered(t, ctx, bytes)
	return "two fail-overs, and a lower device leaves: all messages done, hashes equal, QPs live"
}

// unplug makes a wire lose everything.
func unplug(w *wire.Wire) {
	for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
		w.SetFilter(d, func([]byte) wire.Verdict { return wire.Drop })
	}
}

// awaitPorts waits until the daemon has just these ports, in any order.
func (s *stage) awaitPorts(t *testing.T, ctx context.Context, want ...string) {
	t.Helper()
	slices.Sort(want)
	for {
		var list api.Ports
		out, err := s.ask(ctx, "port", "ls")
		must(t, err)
		must(t, json.Unmarshal(out, &list))
		var names []string
		for _, p := range list.Ports {
			names = append(names, p.Name)
		}
		if slices.Sort(names); slices.Equal(names, want) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the ports are %q, want %q", names, want)
		}
	}
}

// awaitCarrying waits until the bond may send by a lower device, with LACP until the other end lets
// it do so too.
func (s *stage) awaitCarrying(t *testing.T, ctx context.Context, name string, lacp bool) {
	t.Helper()
	if lacp {
		_, err := s.Box.(*BoxGuest).Run(ctx, "dash", "-c", fmt.Sprintf("until [ $(cat /sys/class/net/%s/bonding_slave/state) = active ]; do :; done", name))
		must(t, err)
	}
	_, err := s.Box.(*BoxGuest).Run(ctx, "dash", "-c", fmt.Sprintf("until [ $(cat /sys/class/net/%s/bonding_slave/mii_status) = up ]; do :; done", name))
	must(t, err)
}
