package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// batchTwins are two workers that are given the same frames of two groups: one of them in batches,
// the other one frame by frame, so that each of its trains has one frame. Their ports keep buffers
// as zero-copy devices do.
type batchTwins struct {
	t    *testing.T
	r    *rand.Rand
	nets [2]*porttest.Net // the first one gets batches
	ids  [2]mft.GroupID
	now  feedback.Tick
	next map[qp]roce.PSN // what a sender sends next
	got  map[qp]roce.PSN // the newest packet that a receiver was sent
}

// qp is a member of a group, by its path; -1: the source that only sends.
type qp struct{ group, path int }

func newBatchTwins(t *testing.T, seed uint64) *batchTwins {
	r := rand.New(rand.NewPCG(seed, 0))
	w := &batchTwins{t: t, r: r, next: map[qp]roce.PSN{}, got: map[qp]roce.PSN{}}
	const chunks = 16 // as much as one group may retain
	policies := []feedback.Policy{w.policy(), w.policy()}
	if w.one(2) {
		policies[1] = policies[0]
	}
	for i := range w.nets {
		w.nets[i] = porttest.NewRetaining(4, chunks, nil, func() feedback.Tick { return w.now })
		for k, policy := range policies {
			g := w.group(k, policy)
			id, err := w.nets[i].Switch.Add(g)
			if err != nil {
				t.Fatal(err)
			}
			w.ids[k], w.next[qp{k, -1}], w.next[qp{k, 0}] = id, g.Source.FirstPSN, g.Paths[0].SendPSN
			// The first frame is served alone, so that the timers of both workers begin together.
			w.nets[i].Ports[3].Put(w.answer(k, 2, 0, roce.SyndromeUnlimited))
			w.nets[i].Poll()
		}
		for _, p := range w.nets[i].Ports {
			p.Keeps = true
		}
	}
	return w
}

func (w *batchTwins) policy() feedback.Policy {
	p := feedback.Policy{
		Ack: feedback.AckPolicy(w.r.IntN(3)), Nak: feedback.NakPolicy(w.r.IntN(2)),
		Switch: feedback.SwitchPolicy(w.r.IntN(2)),
	}
	switch w.r.IntN(6) {
	case 0:
		p.Credits = feedback.CreditsMerge
	case 1:
		p.SilentAfter, p.Evict = 5*time.Millisecond, w.r.IntN(2) == 0
	default:
		p.Repair, p.RepairWindow = feedback.RepairLocal, []int{3, 8}[w.r.IntN(2)]
		if w.one(2) {
			p.RepairBytes = 8 * mft.BufferBytes
		}
	}
	return p
}

// group returns group k. Its PSNs wrap soon, two of its receivers are behind one port, and b may
// become the source.
func (w *batchTwins) group(k int, policy feedback.Policy) *mft.Group {
	g := numbered(k)
	g.PathMTU, g.Policy, g.Source.FirstPSN = 4096, policy, 0xFFFFE0
	g.Source.DestQPN += roce.QPN(100 * k)
	g.Paths = []mft.Path{both(1, ipB, 0xFFFFF0), receiver(1, ipC), receiver(3, ipD)}
	for i := range g.Paths {
		g.Paths[i].RemoteQPN = g.QPN
		g.Paths[i].DestQPN += roce.QPN(100 * k)
	}
	return g
}

// replace gives a group another version on both switches.
func (w *batchTwins) replace() {
	k, how := w.r.IntN(len(w.ids)), w.r.IntN(6)
	for _, net := range w.nets {
		g := w.group(k, net.Switch.Table().Group(w.ids[k]).Policy)
		switch how {
		case 0: // the group as it was at first
		case 1, 2:
			g.Paths = slices.Delete(g.Paths, how, how+1)
		case 3:
			g.Paths[0].L2[3] ^= 1
		case 4:
			g.Paths[1].Port = mft.NoPort
		case 5: // the range has another index, and is elsewhere at the receivers
			g.Memory = mft.MustMemory(mft.VirtualRegion{VA: 1, Length: 1, RKey: 0}, memory.Range(0))
			for i := range g.Paths {
				g.Paths[i].Regions = g.Memory.At(func(v mft.VirtualRegion) mft.Region {
					return mft.Region{VA: uint64(i+9) << 32, RKey: v.RKey + 99}
				})
			}
		}
		if err := net.Switch.Replace(w.ids[k], g); err != nil {
			w.t.Fatal(err)
		}
	}
}

// frames makes frames that come by one port one after the other, of both groups.
func (w *batchTwins) frames() (port int, frames [][]byte) {
	port = []int{0, 0, 1, 1, 3}[w.r.IntN(5)]
	k, n := w.r.IntN(2), 1+w.r.IntN(12)
	if w.one(5) {
		n = 64
	}
	for range n {
		if w.one(6) {
			k = 1 - k
		}
		switch {
		case port == 0:
			frames = append(frames, w.data(qp{k, -1}))
		case port == 1 && w.one(4):
			frames = append(frames, w.data(qp{k, 0}))
		default:
			path := port - 1
			if port == 1 {
				path = w.r.IntN(2)
			}
			back := max(0, w.r.IntN(14)-9)
			frames = append(frames, w.answer(k, path, back, []roce.Syndrome{
				roce.NAKSequence, roce.SyndromeRNR(1), roce.SyndromeACK(5), roce.SyndromeUnlimited,
			}[min(w.r.IntN(16), 3)]))
		}
	}
	return port, frames
}

// one is true one time out of n.
func (w *batchTwins) one(n int) bool { return w.r.IntN(n) == 0 }

// data returns what a sender sends next, and sometimes something that does not come next or needs a
// decision for another reason.
func (w *batchTwins) data(from qp) []byte {
	switch w.r.IntN(40) {
	case 0:
		w.next[from] = w.next[from].Add(-int32(w.r.IntN(10)))
	case 1:
		w.next[from] = w.next[from].Next()
	}
	size := w.r.IntN(60)
	if w.one(3) {
		size = 3800 + w.r.IntN(296) // in two buffers
	}
	p := write(w.next[from], slices.Repeat([]byte{byte(w.r.IntN(256))}, size))
	w.next[from] = w.next[from].Next()
	p.bth.DestQPN, p.bth.AckReq, p.class = roce.QPN(100+from.group), w.one(3), uint8(w.r.IntN(4))
	if from.path == 0 {
		p.src = ipB
	}
	if w.one(3) {
		p.reth = nil
		p.bth.Opcode = []roce.Opcode{roce.OpSendFirst, roce.OpSendMiddle, roce.OpSendLast, roce.OpSendOnly}[w.r.IntN(4)]
	} else if p.reth.VA += uint64(w.r.IntN(1000)); w.one(100) {
		p.reth.RKey++
	}
	if w.one(60) {
		p.bth.PKey = 0x7FFF
	}
	if w.one(80) {
		p.hopLimit = 1
	}
	b := p.frame(w.t)
	if w.one(60) {
		b[len(b)-1-w.r.IntN(size+4)] ^= 1
	}
	return b
}

// answer returns an answer to the newest packet that a receiver was sent, or to one so much older.
func (w *batchTwins) answer(k, path, back int, s roce.Syndrome) []byte {
	a := ack(w.group(k, feedback.Policy{}).Paths[path].Dst, w.got[qp{k, path}].Add(-int32(back)), s)
	a.bth.DestQPN = roce.QPN(100 + k)
	return a.frame(w.t)
}

// sent returns what a worker has sent since the last call: by port and QP, in order. An ACK that is
// behind another one stands for both, as in a batch.
func (w *batchTwins) sent(net *porttest.Net) map[string][]string {
	m := map[string][]string{}
	for port, p := range net.Ports {
		for _, b := range p.Take() {
			d := decode(w.t, b)
			to := fmt.Sprint(port, " ", d.Dst, d.QPN)
			if d.Opcode == roce.OpAck {
				if to += " answers"; d.Syndrome.IsACK() && len(m[to]) > 0 && strings.HasPrefix(m[to][len(m[to])-1], "ACK") {
					m[to] = m[to][:len(m[to])-1]
				}
				m[to] = append(m[to], fmt.Sprint(d.Syndrome, d.PSN, d.MSN))
				continue
			}
			m[to] = append(m[to], fmt.Sprintf("%d: %x", d.PSN, b))
			w.got[qp{int(d.QPN) / 100, int(d.Dst.As4()[3]) - 2}] = d.PSN
		}
	}
	return m
}

// state returns what a worker and its groups have come to.
func (w *batchTwins) state(net *porttest.Net) (groups []dataplane.GroupState, counters map[string]uint64) {
	for _, id := range w.ids {
		s, _ := net.Switch.GroupState(id)
		groups = append(groups, s)
	}
	counters = moved(net.Switch)
	// A train lets go at once of what it moves out of the window of its group, so that less has to
	// be given up for its packets.
	delete(counters, "repair-lost-no-memory")
	delete(counters, "repair-lost-group-full")
	_, retained := dataplane.CoreOf(net.Switch.Workers()[0]).Retained()
	if retained != net.Pool.Lent {
		w.t.Errorf("%d buffers are lent, and %d retained", net.Pool.Lent, retained)
	}
	counters["retained"] = uint64(retained)
	return groups, counters
}

// A worker that gets frames in batches, and decides about trains of them, sends what it sends when
// they come one by one, and comes to the same state.
func TestABatchIsItsFrames(t *testing.T) {
	testlab.Long(t)
	for seed := range uint64(20) {
		w := newBatchTwins(t, seed)
		for step := range 60 {
			w.now += feedback.Tick(w.r.IntN(3)) * feedback.Tick(w.r.IntN(3000)) * microsecond
			for _, net := range w.nets {
				net.Poll() // whose time has come is served now, and not between the frames
			}
			port, frames := w.frames()
			for i, net := range w.nets {
				for _, b := range frames {
					if net.Ports[port].Put(b); i == 1 {
						net.Poll()
					}
				}
				net.Poll()
			}
			diff := cmp.Diff(w.sent(w.nets[1]), w.sent(w.nets[0]))
			groups, counters := w.state(w.nets[1])
			inBatch, counted := w.state(w.nets[0])
			if diff += cmp.Diff(groups, inBatch, cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreFields(dataplane.GroupState{}, "Group")) + cmp.Diff(counters, counted); diff != "" || t.Failed() {
				t.Fatalf("seed %d, step %d: frame by frame, and in batches: %s", seed, step, diff)
			}
			if w.one(25) {
				w.replace()
			}
		}
	}
}

// All copies of a train to a receiver that cannot be reached count as not sent.
func TestATrainToAReceiverWithoutANextHop(t *testing.T) {
	g := group()
	g.Paths[1].Port = mft.NoPort
	net := newNet(t, g)
	for i := range 6 {
		net.Ports[0].Put(write(firstPSN+roce.PSN(i), nil).frame(t))
		if i == 0 {
			net.Poll() // what comes first is in no train
		}
	}
	net.Poll()
	if n := moved(net.Switch)["unsent"]; n != 6 || len(net.Ports[1].Take()) != 6 {
		t.Errorf("%d copies were not sent, want 6", n)
	}
}
