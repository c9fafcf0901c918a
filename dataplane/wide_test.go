package dataplane_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// full is a WRITE of a whole path MTU of 4096, which takes two buffers. It does not ask for an ACK.
func full(psn roce.PSN) packet {
	p := write(psn, bytes.Repeat(fmt.Appendf(nil, "packet %8d.", psn), 4096/16))
	p.bth.AckReq = false
	return p
}

// Where one copy of a packet leaves, the engine carries packets of several buffers: the copies are
// those that the core makes.
func TestTheEngineCarriesPacketsOfSeveralBuffers(t *testing.T) {
	w := newTwins(t, func(g *mft.Group) { g.PathMTU, g.Paths = 4096, g.Paths[:1] })
	for i := range 3 * calmPackets {
		psn := roce.PSN(firstPSN).Add(int32(i))
		w.put(0, full(psn).frame(t))
		w.put(1, ack(ipB, w.a.Paths[0].FirstPSN.Add(int32(i)), roce.SyndromeUnlimited).frame(t))
	}
	if st, _ := w.with.Switch.GroupState(w.a.ID); !st.Engine.Kernel || st.Engine.Carried != 2*calmPackets || st.Engine.Answers != "" {
		t.Errorf("%+v", st.Engine)
	}
	w.counts()
}

// Receivers that share a leg get one copy. When an edge is lost, its receiver needs a second one,
// and the core carries the group until the edge works again.
func TestTheEngineCarriesPacketsOfSeveralBuffersByASharedLeg(t *testing.T) {
	b, psn := newCarriedEdgeBench(t, func(g *mft.Group) { g.PathMTU, g.Policy.RepairWindow = 4096, 16 })
	b.send(full(psn), full(psn+1))
	b.expectEngine(true)
	for i, f := range b.Ports[1].Take() {
		if d := decode(t, f); !d.ICRCValid || d.Dst != ipAll || d.PSN != psn+roce.PSN(i) || d.Payload != string(full(d.PSN).payload) {
			t.Errorf("copy %d is %+v", i, d)
		}
	}
	if e := b.state().Engine; e.Carried != 26 {
		t.Errorf("%+v", e)
	}
	for path := range b.hosts {
		b.answer(path, psn+1, roce.SyndromeUnlimited)
		b.hosts[path].next = psn + 2
	}
	b.hosts[1].dead = true
	b.messages(psn+2, 100)
	b.expectNotes("edge-lost 3")
	if e := b.state().Engine; e.Kernel || e.Reason != mft.ErrBlockMTU.Error() {
		t.Errorf("%+v", e)
	}
	b.expectLeft(100, 0, 100, 0)
}

// A group that may never have one copy says so from the beginning, and one that may does not.
func TestWhoMayHaveTheEngineWithALongPathMTU(t *testing.T) {
	one := group()
	one.Paths = one.Paths[:1]
	for _, tt := range []struct {
		group   *mft.Group
		pathMTU int
		may     bool
	}{{group(), 4096, false}, {group(), 2048, true}, {one, 4096, true}, {sharingGroup(), 4096, true}} {
		tt.group.PathMTU = tt.pathMTU
		net := porttest.NewFanOutAt(4, nil)
		if _, err := net.Switch.Add(tt.group); err != nil {
			t.Fatal(err)
		}
		st, _ := net.Switch.GroupState(tt.group.ID)
		if says := st.Engine.Reason == mft.ErrBlockMTU.Error(); says == tt.may {
			t.Errorf("%d receivers, %d copies: %s", len(tt.group.Paths), tt.group.Copies(), st.Engine.Reason)
		}
	}
}

// A receiver that loses a packet of several buffers which the engine carried gets it again to the
// byte from what the engine retains.
func TestAPacketOfSeveralBuffersIsRepaired(t *testing.T) {
	b, psn := newCarriedBench(t, func(g *mft.Group) { g.PathMTU, g.Paths = 4096, g.Paths[:1] })
	b.send(full(psn), quiet(psn+1), full(psn+2))
	b.expectEngine(true)
	sent := b.Ports[1].Take()
	if len(sent) != 3 {
		t.Fatalf("%d copies", len(sent))
	}
	b.answer(0, psn, roce.NAKSequence)
	again := b.Ports[1].Take()
	if len(again) != 3 {
		t.Fatalf("%d packets are sent again", len(again))
	}
	for i, f := range again {
		d := decode(t, f)
		if want := sent[i][:len(sent[i])-4]; !d.ICRCValid || i < 2 && !bytes.Equal(f[:len(f)-4], want) || len(f) != len(sent[i]) {
			t.Errorf("packet %d is sent again as %+v", i, d)
		}
	}
	b.settle(psn+2, 0)
}

// What the engine retains counts as what it may take in the core's memory: a group keeps to its
// bound in bytes.
func TestPacketsOfSeveralBuffersKeepToTheBoundInBytes(t *testing.T) {
	b, psn := newCarriedBench(t, func(g *mft.Group) {
		g.PathMTU, g.Paths, g.Policy.RepairBytes = 4096, g.Paths[:1], 11*mft.BufferBytes
	})
	core := dataplane.CoreOf(b.Switch.Workers()[0])
	for i := range roce.PSN(7) {
		b.send(full(psn + i))
		b.expectEngine(i < 5)
		if got, want := core.RetainedBytes(b.group.ID), min(int(i)+1, 5)*2*mft.BufferBytes; got != want {
			t.Errorf("%d bytes are retained, want %d", got, want)
		}
	}
	b.answer(0, psn+2, roce.NAKSequence)
	if n := core.RetainedBytes(b.group.ID); n > 11*mft.BufferBytes {
		t.Errorf("%d bytes are retained", n)
	}
	b.settle(psn+6, 0)
	if n := core.RetainedBytes(b.group.ID); n != 0 {
		t.Errorf("%d bytes are retained when the receiver has all", n)
	}
}

// Nobody gets a copy of its own packets: a source that also receives leaves one copy to its only
// peer, which the engine carries.
func TestTheSourceOfPacketsOfSeveralBuffersGetsNoCopy(t *testing.T) {
	g := group()
	g.Paths = g.Paths[:1]
	both := g.Paths[0]
	both.Dst, both.Sends = g.Source.Dst, true
	if g.Paths = append(g.Paths, both); g.Copies() != 1 {
		t.Errorf("%d copies leave", g.Copies())
	}
}
