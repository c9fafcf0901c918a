package dataplane_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// bare is a core with one group, without ports.
type bare struct {
	core  *dataplane.Core
	table *mft.Table
	group *mft.Group
	out   dataplane.Outputs
}

func newBare(t *testing.T, g *mft.Group) *bare {
	t.Helper()
	table, err := new(mft.Table).With(g)
	if err != nil {
		t.Fatal(err)
	}
	return &bare{core: dataplane.NewCore(nil), table: table, group: g}
}

// handle decides about a frame of the group from the port of the packet's source.
func (b *bare) handle(now feedback.Tick, p packet, frame []byte) dataplane.Reason {
	f := dataplane.Frame{Group: b.group.ID, Port: mft.PortID(portOf[p.src]), Buf: frame, FragmentCount: 1}
	f.Fragments[0] = frame
	return b.core.Handle(now, b.table, &f, &b.out)
}

// The classifier attributes a frame to a group by its addresses. If the frame is not a packet of
// the group, the core drops it and counts it under its reason.
func TestFramesThatAreNoPackets(t *testing.T) {
	opcode := func(o roce.Opcode) func([]byte) []byte {
		return func(b []byte) []byte { b[42] = byte(o); return b }
	}
	for name, tt := range map[string]struct {
		damage func([]byte) []byte
		want   dataplane.Reason
	}{
		"cut in the BTH":            {func(b []byte) []byte { return b[:50] }, dataplane.Malformed},
		"cut in the RETH":           {func(b []byte) []byte { return b[:60] }, dataplane.Malformed},
		"another transport version": {func(b []byte) []byte { b[43] |= 1; return b }, dataplane.Malformed},
		"UDP longer than IP":        {func(b []byte) []byte { b[38]++; return b }, dataplane.Malformed},
		"an undefined opcode":       {opcode(0x1F), dataplane.UnknownOpcode},
		"UC":                        {opcode(0x24), dataplane.UnknownOpcode},
		"UD":                        {opcode(roce.OpUDSendOnly), dataplane.WrongTransport},
		"a READ response":           {opcode(roce.OpReadRespOnly), dataplane.UnmergeableResponse},
		"an atomic response":        {opcode(roce.OpAtomicAck), dataplane.UnmergeableResponse},
	} {
		b := newBare(t, group())
		p := write(firstPSN, []byte("0123456789abcdef"))
		if got := b.handle(0, p, tt.damage(p.frame(t))); got != tt.want || len(b.out.Copies)+len(b.out.Replies) != 0 {
			t.Errorf("%s: %v, want %v; %+v", name, got, tt.want, b.out)
		}
	}
}

// In-memory ports classify as the XDP program does.
func TestClassify(t *testing.T) {
	table, err := new(mft.Table).With(group())
	if err != nil {
		t.Fatal(err)
	}
	id := table.Group(0).ID
	cm := with(write(0, make([]byte, 264)), func(p *packet) { p.bth.Opcode, p.bth.DestQPN, p.reth = roce.OpUDSendOnly, 1, nil })
	for name, tt := range map[string]struct {
		packet packet
		id     mft.GroupID
		kind   dataplane.Kind
		class  dataplane.Class
	}{
		"data":                     {write(0, nil), id, dataplane.KindData, dataplane.ToGroup},
		"an ACK":                   {ack(ipB, 0, 0), id, dataplane.KindFeedback, dataplane.ToGroup},
		"a CNP":                    {cnp(ipB), id, dataplane.KindCNP, dataplane.ToGroup},
		"CM":                       {cm, mft.NoGroup, dataplane.KindCM, dataplane.ToGroup},
		"UD to the group's QPN":    {with(cm, func(p *packet) { p.bth.DestQPN = 3 }), mft.NoGroup, dataplane.KindData, dataplane.ToGroup},
		"another QPN":              {with(write(0, nil), func(p *packet) { p.bth.DestQPN = 9 }), mft.NoGroup, dataplane.KindData, dataplane.ToGroup},
		"CM to a host":             {to(cm, ipB), 0, 0, dataplane.ToKernel},
		"data to a host":           {to(write(0, nil), ipB), 0, 0, dataplane.ToKernel},
		"CM from the group's IP":   {with(to(cm, ipB), func(p *packet) { p.src = ipGroup }), 0, 0, dataplane.OwnSource},
		"data from the group's IP": {with(to(write(0, nil), ipB), func(p *packet) { p.src = ipGroup }), 0, 0, dataplane.OwnSource},
	} {
		gotID, kind, class := dataplane.Classify(table, tt.packet.frame(t))
		if class != tt.class || class == dataplane.ToGroup && (gotID != tt.id || kind != tt.kind) {
			t.Errorf("%s: group %#x, kind %d, class %d; want %#x, %d, %d", name, gotID, kind, class, tt.id, tt.kind, tt.class)
		}
	}
}

// A frame may find a new version of its group that nothing has adopted yet: what waited for a
// receiver that left is sent.
func TestAFrameFindsANewVersion(t *testing.T) {
	b := newBare(t, group())
	b.handle(0, write(firstPSN, nil), write(firstPSN, nil).frame(t))
	for _, p := range []packet{ack(ipB, 0xFFFFF2, roce.SyndromeUnlimited), ack(ipC, 0xFFFFF3, roce.SyndromeUnlimited)} {
		b.handle(0, p, p.frame(t))
	}
	b.out.Reset()
	next := group()
	next.Paths = next.Paths[:2] // d leaves
	table, err := b.table.Replace(b.group.ID, next)
	if err != nil {
		t.Fatal(err)
	}
	b.table = table
	stray := ack(ipD, 0xFFFFF4, roce.SyndromeUnlimited)
	if got := b.handle(0, stray, stray.frame(t)); got != dataplane.NotReceiver {
		t.Errorf("%v", got)
	}
	if len(b.out.Replies) != 1 || b.out.Replies[0].PSN != firstPSN {
		t.Errorf("%+v", b.out.Replies)
	}
}

// When a group gets a slot, the state and the timer of the group that had the slot before are
// removed, even if Forget was not called.
func TestTheNextGroupInASlot(t *testing.T) {
	g := group()
	g.Policy.SilentAfter = 1e8
	b := newBare(t, g)
	b.handle(0, write(firstPSN+1, nil), write(firstPSN, nil).frame(t))
	if b.core.Pause(0) == 0 {
		t.Fatal("the group asks for no time")
	}
	next := group()
	table, err := b.table.Without(g.ID).With(next)
	if err != nil || next.ID.Slot() != g.ID.Slot() {
		t.Fatal(err)
	}
	b.table, b.group = table, next
	if got := b.handle(0, write(firstPSN, nil), write(firstPSN, nil).frame(t)); got != dataplane.Reason(feedback.Forwarded) {
		t.Errorf("%v", got)
	}
	if b.core.Pause(0) != 0 {
		t.Error("the group that was there before still has a timer, or one that asks for none has one")
	}
}

// A group that leaves while its round is served does not make another one miss its turn.
func TestAGroupThatLeavesInItsTurn(t *testing.T) {
	for _, c := range []struct {
		by, gone int
		want     []int
	}{
		{1, 1, []int{0, 1, 2, 3}},
		{2, 0, []int{0, 1, 2, 3}},
		{1, 3, []int{0, 1, 2}},
		{3, 3, []int{0, 1, 2, 3}},
	} {
		if got := dataplane.ServedBeside(4, c.by, c.gone); !slices.Equal(got, c.want) {
			t.Errorf("group %d removes %d: %d are served, want %d", c.by, c.gone, got, c.want)
		}
	}
}

// Time passes for a bounded number of groups at once, and for each of them once in a period.
func TestTickServesSomeGroupsAtOnce(t *testing.T) {
	core, out := dataplane.NewCore(nil), dataplane.Outputs{}
	const groups = 300
	for i := range groups {
		g := group()
		g.ID, g.QPN, g.Policy.SilentAfter = mft.GroupID(i), roce.QPN(i+1), 1e8
		if _, err := new(mft.Table).With(g); err != nil { // it is sealed now
			t.Fatal(err)
		}
		g.ID = mft.GroupID(i)
		core.Adopt(0, g, &out)
	}
	calls := 0
	for ; core.Tick(0, &out); calls++ {
		if calls > groups {
			t.Fatal("it never ends")
		}
	}
	if calls != 3 { // 128, 128, 44
		t.Errorf("%d groups take %d calls", groups, calls)
	}
}

// A copy is the packet with other headers, whichever headers it has: nothing is written where no
// RETH is.
func TestPacketsWithoutRETH(t *testing.T) {
	payload := []byte(strings.Repeat("payload ", 8))
	imm := append([]byte{1, 2, 3, 4}, payload...)
	for name, edit := range map[string]func(*packet){
		"the middle of a WRITE":       func(p *packet) { p.bth.Opcode, p.reth = roce.OpWriteMiddle, nil },
		"the end of a WRITE":          func(p *packet) { p.bth.Opcode, p.reth = roce.OpWriteLast, nil },
		"a SEND":                      func(p *packet) { p.bth.Opcode, p.reth = roce.OpSendOnly, nil },
		"a SEND with immediate":       func(p *packet) { p.bth.Opcode, p.reth, p.payload = roce.OpSendOnlyImm, nil, imm },
		"a WRITE's end and immediate": func(p *packet) { p.bth.Opcode, p.reth, p.payload = roce.OpWriteLastImm, nil, imm },
	} {
		t.Run(name, func(t *testing.T) {
			g := group()
			net := newNet(t, g)
			first := with(write(firstPSN, nil), func(p *packet) { p.bth.Opcode = roce.OpWriteFirst })
			say(t, net, first)
			p := write(firstPSN+1, payload)
			edit(&p)
			for _, port := range net.Ports {
				port.Take()
			}
			say(t, net, p)
			frame := p.frame(t)
			for i, path := range g.Paths {
				out := net.Ports[i+1].Take()
				if len(out) != 1 {
					t.Fatalf("%v got %d frames; counters %v", path.Dst, len(out), moved(net.Switch))
				}
				const headers = 14 + 20 + 8 + roce.BTHBytes
				if diff := cmp.Diff(frame[headers:len(frame)-4], out[0][headers:len(out[0])-4]); diff != "" {
					t.Errorf("%v: what follows the BTH changed:\n%s", path.Dst, diff)
				}
				if d := decode(t, out[0]); d.PSN != path.FirstPSN.Next() || !d.ICRCValid {
					t.Errorf("%v got %+v", path.Dst, d)
				}
			}
		})
	}
}

// A group without memory passes addresses and keys on as they are.
func TestAGroupWithoutMemory(t *testing.T) {
	g := group()
	g.Memory = nil
	for i := range g.Paths {
		g.Paths[i].Regions = mft.Regions{}
	}
	net := newNet(t, g)
	p := write(firstPSN, []byte("anywhere"))
	p.reth.VA, p.reth.RKey = 0xABCD_0000_1234, 99
	say(t, net, p)
	out := net.Ports[1].Take()
	if len(out) != 1 {
		t.Fatalf("%d frames; counters %v", len(out), moved(net.Switch))
	}
	if d := decode(t, out[0]); d.VA != p.reth.VA || d.RKey != p.reth.RKey {
		t.Errorf("VA %#x, R_Key %d", d.VA, d.RKey)
	}
}

// A checksum that the source computed over its own addresses is not true of a copy's.
func TestUDPChecksumIsCleared(t *testing.T) {
	net := newNet(t, group())
	frame := write(firstPSN, []byte("x")).frame(t)
	frame[40], frame[41] = 0xBE, 0xEF
	net.Ports[0].Put(frame)
	net.Poll()
	for i := range 3 {
		if out := net.Ports[i+1].Take(); len(out) != 1 || out[0][40] != 0 || out[0][41] != 0 {
			t.Errorf("receiver %d got %x", i, out)
		}
	}
}

// A packet that all have is acknowledged again where it asks, and else now and then.
func TestResentPacketsAreAnsweredWhereTheyAsk(t *testing.T) {
	net := newNet(t, group())
	say(t, net, write(firstPSN, nil))
	say(t, net, write(firstPSN+1, nil))
	for i, host := range []packet{ack(ipB, 0xFFFFF3, 0x1F), ack(ipC, 0xFFFFF4, 0x1F), ack(ipD, 0xFFFFF5, 0x1F)} {
		say(t, net, host)
		net.Ports[i+1].Take()
	}
	net.Ports[0].Take()
	asks := write(firstPSN, nil)
	say(t, net, asks)
	if psn := heard(t, net, ipA, roce.OpAck); psn != firstPSN {
		t.Errorf("a heard ACK %d", psn)
	}
	asks.bth.AckReq = false
	say(t, net, asks)
	silent(t, net)
}

// Only packets that are the source's leave their mark on its answers.
func TestAPacketFarOutsideLeavesNoMark(t *testing.T) {
	net := newNet(t, group())
	stray := write(roce.PSN(firstPSN).Add(1<<22), nil)
	stray.bth.PKey, stray.class = 0x1234, 0xF0
	say(t, net, write(firstPSN, nil))
	say(t, net, stray)
	for _, p := range []packet{ack(ipB, 0xFFFFF2, 0x1F), ack(ipC, 0xFFFFF3, 0x1F), ack(ipD, 0xFFFFF4, 0x1F)} {
		say(t, net, p)
	}
	out := net.Ports[0].Take()
	if len(out) != 1 || out[0][15] != 0 || out[0][44] != 0xFF || out[0][45] != 0xFF {
		t.Errorf("the source heard %x; counters %v", out, moved(net.Switch))
	}
}

// CNPs are counted for the receiver that sent them.
func TestCNPsCountForTheirReceiver(t *testing.T) {
	b := newBare(t, group())
	b.handle(0, write(firstPSN, nil), write(firstPSN, nil).frame(t))
	for range 3 {
		b.handle(0, cnp(ipC), cnp(ipC).frame(t))
	}
	const muchLater = 1e6
	if got := b.handle(muchLater, cnp(ipB), cnp(ipB).frame(t)); got != dataplane.Reason(feedback.CNPFiltered) {
		t.Errorf("b's: %v", got)
	}
	if got := b.handle(muchLater, cnp(ipC), cnp(ipC).frame(t)); got != dataplane.Reason(feedback.CNPPassed) {
		t.Errorf("c's: %v", got)
	}
}
