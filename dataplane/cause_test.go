package dataplane_test

import (
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/roce"
)

// Each NAK and RNR NAK that the source is sent counts under its cause, for its group and in all.
// What a removed group was sent still counts in all.
func TestNAKsToTheSourceCountUnderTheirCause(t *testing.T) {
	g := group()
	net := newNet(t, g)
	send := func(port int, p packet) {
		net.Ports[port].Put(p.frame(t))
		net.Poll()
	}
	answer := func(s roce.Syndrome, psn roce.PSN) {
		for i := range g.Paths {
			path := &g.Paths[i]
			send(int(path.Port), ack(path.Dst, path.FirstPSN.Add(psn.Sub(firstPSN)), s))
		}
	}
	count := func(list []dataplane.Counter) map[string]uint64 {
		counts := map[string]uint64{}
		for _, c := range list {
			if len(c.Name) > 4 && c.Name[:4] == "nak-" && c.Value > 0 {
				counts[c.Name] = c.Value
			}
		}
		return counts
	}
	want := map[string]uint64{}
	check := func(what string) {
		t.Helper()
		naks := uint64(0)
		for _, f := range net.Ports[0].Take() {
			if d := decode(t, f); !d.Syndrome.IsACK() {
				naks++
			}
		}
		st, _ := net.Switch.GroupState(g.ID)
		for of, got := range map[string]map[string]uint64{"the group": count(st.Counters), "all": count(net.Switch.Counters())} {
			if len(got) != len(want) {
				t.Errorf("%s: of %s %v, want %v", what, of, got, want)
			}
			for name, n := range want {
				if got[name] != n {
					t.Errorf("%s: of %s %v, want %v", what, of, got, want)
				}
			}
		}
		if what != "an ACK" && naks != 1 {
			t.Errorf("%s: the source was sent %d NAKs", what, naks)
		}
	}
	send(0, write(firstPSN, nil))
	answer(roce.SyndromeUnlimited, firstPSN)
	check("an ACK")
	send(0, write(firstPSN+1, nil))
	answer(roce.NAKSequence, firstPSN+1)
	want["nak-receiver"] = 1
	check("a NAK")
	send(0, write(firstPSN+1, nil))
	answer(roce.SyndromeRNR(3), firstPSN+1)
	want["nak-not-ready"] = 1
	check("an RNR NAK")
	read := write(firstPSN+1, nil)
	read.bth.Opcode = roce.OpReadRequest
	send(0, read)
	want["nak-end"] = 1
	check("a READ")
	if err := net.Switch.Remove(g.ID); err != nil {
		t.Fatal(err)
	}
	if got := count(net.Switch.Counters()); len(got) != len(want) {
		t.Errorf("after the group was removed: %v", got)
	}
}
