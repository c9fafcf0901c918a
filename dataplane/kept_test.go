package dataplane_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/roce"
)

// Ports may keep the buffers of frames that are sent for the last time, and read them later. What
// they send is the same, and no buffer is lost or used twice.
func TestPortsMayKeepTheLastCopy(t *testing.T) {
	run := func(keeps bool) (sent [][]byte, kept int) {
		net := newNet(t, group())
		for _, p := range net.Ports {
			p.Keeps = keeps
		}
		for round := range 3 {
			psn := roce.PSN(firstPSN + 70*round)
			for i := range 70 { // more than a batch
				net.Ports[0].Put(write(psn.Add(int32(i)), make([]byte, 100+i)).frame(t))
			}
			net.Poll()
			for i, p := range group().Paths {
				net.Ports[i+1].Put(ack(p.Dst, p.FirstPSN.Add(int32(70*round+69)), roce.SyndromeUnlimited).frame(t))
			}
			net.Poll()
			kept += net.Pool.Lent
			for _, p := range net.Ports {
				sent = append(sent, p.Take()...)
			}
			if net.Pool.Lent != 0 {
				t.Errorf("round %d: %d buffers were not given back", round, net.Pool.Lent)
			}
		}
		return sent, kept
	}
	want, _ := run(false)
	got, kept := run(true)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("without and with keeping (-want +got):\n%s", diff)
	}
	// Of each data packet the last of its three copies, and each ACK to the source.
	if want := 3 * (70 + 1); kept != want {
		t.Errorf("the ports kept %d buffers, want %d", kept, want)
	}
}

// Where the copies of a batch leave in several lanes, only those of the last one are kept.
func TestAPortKeepsNoBufferThatIsSentAgain(t *testing.T) {
	g := group()
	g.Paths[2].Port, g.Paths[2].Rank = 1, 1 // two receivers behind one port
	net := newNet(t, g)
	for _, p := range net.Ports {
		p.Keeps = true
	}
	net.Ports[0].Put(write(firstPSN, []byte("payload")).frame(t))
	net.Poll()
	var qpns []roce.QPN
	for _, p := range net.Ports {
		for _, b := range p.Take() {
			d := decode(t, b)
			if !d.ICRCValid || d.Payload != "payload" {
				t.Errorf("sent %+v", d)
			}
			qpns = append(qpns, d.QPN)
		}
	}
	slices.Sort(qpns)
	if want := []roce.QPN{g.Paths[0].DestQPN, g.Paths[1].DestQPN, g.Paths[2].DestQPN}; !slices.Equal(qpns, want) {
		t.Errorf("copies went to QPNs %v, want %v", qpns, want)
	}
	if net.Pool.Lent != 0 {
		t.Errorf("%d buffers were not given back", net.Pool.Lent)
	}
}
