package dataplane_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// played is what a core does with frames that it is given in order.
type played struct {
	Reasons []string
	Trains  []int // the number of frames of each call
	Sent    map[mft.PortID][]string
	Replies []dataplane.Reply
	Counts  map[string]uint64
	Traffic dataplane.Traffic
	State   feedback.Snapshot
	Kept    []bool
	Repairs []string // of b, which lacks the third packet
}

// play gives a core the frames, as a worker does that received them in one batch. If alone is set,
// each frame is given by itself and none is a train.
func (b *engineBench) play(g *mft.Group, frames []dataplane.Frame, alone bool) (p played) {
	p.Sent = map[mft.PortID][]string{}
	all := frames
	for len(frames) > 0 {
		out := dataplane.Outputs{Copies: make([]dataplane.Copy, 3)} // of earlier frames
		f, behind := &frames[0], frames[1:]
		if alone {
			// The core takes a frame of no kind for data or an answer by its opcode.
			f.Kind, behind = 0, nil
		}
		r, more := b.core.HandleTrain(0, b.table, f, behind, &out)
		for _, c := range out.Copies[3:] {
			for i := range frames[:1+more] {
				start := c.Apply(&frames[i])
				p.Sent[c.Path.Port] = append(p.Sent[c.Path.Port], fmt.Sprintf("%x", frames[i].Buf[start:]))
				c.OfNext()
			}
		}
		for range 1 + more {
			p.Reasons = append(p.Reasons, r.String())
		}
		p.Trains = append(p.Trains, 1+more)
		p.Replies = append(p.Replies, out.Replies...)
		frames = frames[1+more:]
	}
	for i := range all {
		p.Kept = append(p.Kept, all[i].Kept)
	}
	nak := ack(ipB, g.Paths[0].FirstPSN.Add(3), roce.NAKSequence)
	var out dataplane.Outputs
	b.core.Handle(0, b.table, b.frame(nak), &out)
	for _, r := range out.Repairs {
		p.Repairs = append(p.Repairs, fmt.Sprint(r.PSN))
	}
	s := dataplane.StateOf(b.core, g.ID)
	p.Counts, p.Traffic, p.State = map[string]uint64{}, s.Traffic, s.Snapshot
	for _, c := range s.Counters {
		p.Counts[c.Name] = c.Value
	}
	return p
}

// Packets that need no decision are handled at once, up to the first one that needs one. What is
// sent, counted and retained is the same as if each was handled by itself.
func TestTrain(t *testing.T) {
	next := func(i int) packet { return write(firstPSN+roce.PSN(i), []byte{byte(i), 1, 2, 3}) }
	change := func(f func(*packet)) func(*dataplane.Frame) packet {
		return func(*dataplane.Frame) packet { return with(next(2), f) }
	}
	same := func(p packet) func(*dataplane.Frame) packet { return func(*dataplane.Frame) packet { return p } }
	send := func(o roce.Opcode) func(*dataplane.Frame) packet {
		return change(func(p *packet) { p.bth.Opcode, p.reth = o, nil })
	}
	for name, tt := range map[string]struct {
		third   func(*dataplane.Frame) packet
		damage  func(*dataplane.Frame)
		policy  feedback.Policy
		uplinks mft.Ports
		trains  []int
	}{
		"plain packets":                     {third: same(next(2)), trains: []int{5}},
		"a SEND":                            {third: send(roce.OpSendOnly), trains: []int{5}},
		"inside a message":                  {third: send(roce.OpSendFirst), trains: []int{5}},
		"another DSCP's congestion":         {third: change(func(p *packet) { p.class = 3 }), trains: []int{5}},
		"a WRITE of no bytes":               {third: change(func(p *packet) { p.payload, p.reth.DMABytes, p.reth.RKey = nil, 0, 9 }), trains: []int{5}},
		"the last hop but one":              {third: change(func(p *packet) { p.hopLimit = 2 }), trains: []int{5}},
		"as long as may be":                 {third: change(func(p *packet) { p.payload, p.reth.DMABytes = make([]byte, 1024), 1024 }), trains: []int{5}},
		"damaged":                           {third: same(next(2)), damage: func(f *dataplane.Frame) { f.Buf[len(f.Buf)-5] ^= 1 }, trains: []int{5}},
		"sent again":                        {third: same(next(1)), trains: []int{2, 1, 1, 1}},
		"one is missing":                    {third: same(next(3)), trains: []int{2, 1, 1, 1}},
		"another P_Key":                     {third: change(func(p *packet) { p.bth.PKey = 0x7FFF }), trains: []int{2, 1, 1, 1}},
		"damaged, with another P_Key":       {third: change(func(p *packet) { p.bth.PKey = 0x7FFF }), damage: func(f *dataplane.Frame) { f.Buf[len(f.Buf)-5] ^= 1 }, trains: []int{2, 1, 1, 1}},
		"another DSCP":                      {third: change(func(p *packet) { p.class = 4 }), trains: []int{2, 1, 1, 1}},
		"the last hop":                      {third: change(func(p *packet) { p.hopLimit = 1 }), trains: []int{2, 1, 1, 1}},
		"too long":                          {third: change(func(p *packet) { p.payload, p.reth.DMABytes = make([]byte, 1028), 1028 }), trains: []int{2, 1, 1, 1}},
		"a READ":                            {third: change(func(p *packet) { p.bth.Opcode, p.payload = roce.OpReadRequest, nil }), trains: []int{2, 1, 1, 1}},
		"a READ response":                   {third: change(func(p *packet) { p.bth.Opcode, p.reth, p.aeth = roce.OpReadRespOnly, nil, &roce.AETH{} }), trains: []int{2, 1, 1, 1}},
		"an ACK of the source's":            {third: change(func(p *packet) { p.bth.Opcode, p.reth, p.aeth = roce.OpAck, nil, &roce.AETH{} }), trains: []int{2, 1, 1, 1}},
		"other memory":                      {third: change(func(p *packet) { p.reth.RKey++ }), trains: []int{2, 1, 1, 1}},
		"by another port":                   {third: same(next(2)), damage: func(f *dataplane.Frame) { f.Port = 2 }, trains: []int{2, 1, 1, 1}},
		"by another uplink of the source's": {third: same(next(2)), damage: func(f *dataplane.Frame) { f.Port = 2 }, uplinks: mft.Ports(0).With(0).With(2), trains: []int{2, 1, 1, 1}},
		"with a VLAN tag":                   {third: same(tagged(next(2), 5)), trains: []int{2, 1, 1, 1}},
		"to another address":                {third: change(func(p *packet) { p.dst = ipD }), trains: []int{2, 1, 1, 1}},
		"from a receiver":                   {third: change(func(p *packet) { p.src = ipB }), damage: func(f *dataplane.Frame) { f.Port = 0 }, trains: []int{2, 1, 1, 1}},
		"to another QPN":                    {third: change(func(p *packet) { p.bth.DestQPN = 9 }), trains: []int{2, 1, 1, 1}},
		"of another group":                  {third: same(next(2)), damage: func(f *dataplane.Frame) { f.Group++ }, trains: []int{2, 1, 1, 1}},
		"cut off":                           {third: same(next(2)), damage: func(f *dataplane.Frame) { f.Fragments[0] = f.Buf[:50] }, trains: []int{2, 1, 1, 1}},
		"an ACK, classified as data":        {third: same(ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited)), trains: []int{2, 1, 1, 1}},
		"a NAK, and no more is plain":       {third: same(ack(ipB, 0xFFFFF3, roce.NAKSequence)), trains: []int{2, 1, 1, 1}},
		"plain packets, with repair":        {third: same(next(2)), policy: feedback.Policy{Repair: feedback.RepairLocal}, trains: []int{5}},
		"one is missing, with repair":       {third: same(next(3)), policy: feedback.Policy{Repair: feedback.RepairLocal}, trains: []int{2, 1, 1, 1}},
		"damaged, with repair":              {third: same(next(2)), damage: func(f *dataplane.Frame) { f.Buf[len(f.Buf)-5] ^= 1 }, policy: feedback.Policy{Repair: feedback.RepairLocal}, trains: []int{5}},
		"retained three at a time":          {third: same(next(2)), policy: feedback.Policy{Repair: feedback.RepairLocal, RepairWindow: 3}, trains: []int{5}},
	} {
		t.Run(name, func(t *testing.T) {
			var as [2]played
			for k, alone := range []bool{true, false} {
				g := group()
				g.Policy, g.Uplinks, g.Source.Multipath = tt.policy, tt.uplinks, tt.uplinks != 0
				b := newEngineBench(t, g)
				b.core = dataplane.NewCore(nil)
				b.core.RetainUpTo(64, nil)
				hello := b.frame(write(firstPSN, nil)) // what comes first is never plain
				hello.Kind = 0
				b.core.Handle(0, b.table, hello, &b.out)
				var frames []dataplane.Frame
				for i := range 5 {
					p := next(i + 1)
					if i == 2 {
						p = tt.third(nil)
						p.bth.PSN = p.bth.PSN.Next()
					}
					raw := p.frame(t)
					f := dataplane.Frame{Group: g.ID, Kind: dataplane.KindData, Buf: append(make([]byte, dataplane.HeadroomBytes), raw...), Start: dataplane.HeadroomBytes, FragmentCount: 1}
					f.Port = mft.PortID(portOf[p.src])
					f.Fragments[0] = f.Buf[f.Start:]
					if i == 2 && tt.damage != nil {
						tt.damage(&f)
					}
					frames = append(frames, f)
				}
				as[k] = b.play(g, frames, alone)
			}
			if !slices.Equal(as[1].Trains, tt.trains) {
				t.Errorf("trains of %v, want %v: %v", as[1].Trains, tt.trains, as[1].Reasons)
			}
			as[0].Trains, as[1].Trains = nil, nil
			if diff := cmp.Diff(as[0], as[1]); diff != "" {
				t.Errorf("each alone, and as trains: %s", diff)
			}
		})
	}
}

// A frame whose last bytes are missing is no part of a train, whatever its headers say.
func TestAFrameThatIsCutOffEndsATrain(t *testing.T) {
	b := newEngineBench(t, group())
	b.core = dataplane.NewCore(nil)
	b.core.Handle(0, b.table, b.frame(write(firstPSN, nil)), &b.out)
	frames := make([]dataplane.Frame, 3)
	for i := range frames {
		f := &frames[i]
		*f = *b.frame(write(firstPSN+1+roce.PSN(i), make([]byte, 100)))
		all := f.Head()
		f.Fragments[0], f.Fragments[1], f.FragmentCount = all[:80], all[80:], 2
	}
	cut := &frames[2]
	cut.Fragments[1] = cut.Fragments[1][:len(cut.Fragments[1])-1]
	if r, more := b.core.HandleTrain(0, b.table, &frames[0], frames[1:], &b.out); r != dataplane.Reason(feedback.Forwarded) || more != 1 {
		t.Errorf("%v, with %d more", r, more)
	}
	if r := b.core.Handle(0, b.table, cut, &b.out); r != dataplane.Malformed {
		t.Errorf("what is cut off is %v", r)
	}
}

// A train ends where a receiver would be further behind the source than the window allows.
func TestTrainEndsAtTheHorizon(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.core = dataplane.NewCore(nil)
	give := func(psn roce.PSN, behind ...roce.PSN) (dataplane.Reason, int) {
		var frames []dataplane.Frame
		for _, psn := range behind {
			frames = append(frames, *b.frame(write(psn, nil)))
		}
		return b.core.HandleTrain(0, b.table, b.frame(write(psn, nil)), frames, &b.out)
	}
	give(firstPSN)
	const last = firstPSN - 1 + feedback.Window // nobody has acknowledged anything
	give(last - 3)
	if r, more := give(last-2, last-1, last, last+1); r != dataplane.Reason(feedback.Forwarded) || more != 2 {
		t.Errorf("%v, with %d more", r, more)
	}
	if r, more := give(last+1, last+2); r != dataplane.Reason(feedback.OutsideWindow) || more != 0 {
		t.Errorf("behind the horizon: %v, with %d more", r, more)
	}
}

// Nothing is a train of a group whose frames the core has not seen, that has changed since, or
// whose answers a decision waits for.
func TestNoTrain(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, b *engineBench, g *mft.Group){
		"the group's first frame": func(*testing.T, *engineBench, *mft.Group) {},
		"a new version": func(t *testing.T, b *engineBench, g *mft.Group) {
			b.handle(b.data(g))
			next := group()
			next.Paths = next.Paths[:2]
			table, err := b.table.Replace(g.ID, next)
			if err != nil {
				t.Fatal(err)
			}
			b.table = table
		},
		"a NAK waits": func(_ *testing.T, b *engineBench, g *mft.Group) {
			b.handle(b.data(g))
			b.handle(ack(ipB, g.Paths[0].FirstPSN, roce.NAKSequence))
		},
	} {
		g := group()
		b := newEngineBench(t, g)
		b.core = dataplane.NewCore(nil)
		before(t, b, g)
		frame, behind := b.frame(b.data(g)), *b.frame(b.data(g))
		if r, more := b.core.HandleTrain(0, b.table, frame, []dataplane.Frame{behind}, &b.out); r != dataplane.Reason(feedback.Forwarded) || more != 0 {
			t.Errorf("%s: %v, with %d more", name, r, more)
		}
	}
}

// A packet that comes while the engine has the group takes the group back, and is no train.
func TestAnArmedGroupHasNoTrains(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.arm(g)
	frame, behind := b.frame(b.data(g)), *b.frame(b.data(g))
	if r, more := b.core.HandleTrain(0, b.table, frame, []dataplane.Frame{behind}, &b.out); r != dataplane.Reason(feedback.Forwarded) || more != 0 {
		t.Errorf("%v, with %d more", r, more)
	}
	if dataplane.EngineOf(b.core, g.ID).Kernel {
		t.Error("the engine still has the group")
	}
}

// A group whose packets come in trains is armed as soon as one whose packets come one by one.
func TestTrainsCalmAGroup(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.handle(b.data(g))
	var frames []dataplane.Frame
	for range calmPackets - 1 {
		frames = append(frames, *b.frame(b.data(g)))
	}
	b.core.HandleTrain(0, b.table, &frames[0], frames[1:len(frames)-1], &b.out)
	if n := dataplane.Noted(b.core); n != 0 {
		t.Errorf("%d groups are noted after %d packets", n, calmPackets-1)
	}
	b.core.HandleTrain(0, b.table, &frames[len(frames)-1], nil, &b.out)
	if n := dataplane.Noted(b.core); n != 1 {
		t.Errorf("%d groups are noted after %d packets", n, calmPackets)
	}
}

// Where the way to the source has changed, its packets that come by the old port are refused, also
// those that come behind others in a train.
func TestNoTrainByAPortThatIsLeft(t *testing.T) {
	g := group()
	b := newEngineBench(t, g)
	b.core = dataplane.NewCore(nil)
	b.handle(b.data(g))
	next := group()
	next.Source.Leg = leg(2, ipA, 17)
	table, err := b.table.Replace(g.ID, next)
	if err != nil {
		t.Fatal(err)
	}
	b.table = table
	b.core.Adopt(0, next, &b.out)
	if got := b.handle(b.data(g)); got != dataplane.WrongPort {
		t.Errorf("%v", got)
	}
}
