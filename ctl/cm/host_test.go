package cm

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// host connects as the kernel's CM does: it sends a REQ or REP again until it has an answer,
// answers a REP with an RTU each time, and knows a second REQ with the same comm ID and CA GUID.
type host struct {
	world *world
	ip    netip.Addr
	guid  uint64
	index uint32
	state string
	pair  wire.Pair
	peer  roce.QPN // remote QPN
	qpn   roce.QPN
	psn   roce.PSN // what it expects first
	first roce.PSN // what it sends first
	key   [2]uint64
	heard int           // REQs that are new
	retry *wire.MAD     // sent again every 4.1 s
	due   time.Duration // of retry
	tries int
	on    map[string]func(*host) // what the program does when the host comes to a state
}

// world carries messages between the hosts and the machine, and loses some of them. All of it runs
// in virtual time.
type world struct {
	t      *testing.T
	m      *Machine
	now    time.Duration
	hosts  []*host
	queue  []func()
	sent   int
	lose   int // the message with this number is lost; 0: none
	twice  int // the message with this number arrives twice
	groups map[string]bool
	file   *groupfile.File // of the newest group
	made   int
	left   []string // receivers that were taken out of a group
	slow   bool     // groups are not made before begun is called
	begun  func()
	// packets of the source are counted, and rate more each time.
	packets, rate uint64
}

func newWorld(t *testing.T, c Config) *world {
	w := &world{t: t, m: newMachine(c, newWays(), inBand, testSeed, usual, time.Time{}), groups: map[string]bool{}}
	for i, ip := range append([]netip.Addr{hostIPs["a"]}, c.Receivers...) {
		n := uint32(i + 1)
		w.hosts = append(w.hosts, &host{world: w, ip: ip, index: n, guid: uint64(n), qpn: roce.QPN(0x10 * n), psn: roce.PSN(1000 * n), state: "idle", on: map[string]func(*host){}})
	}
	return w
}

// carry hands a message over, as bytes.
func (w *world) carry(m wire.MAD, deliver func(wire.MAD)) {
	w.sent++
	copies := 1
	switch w.sent {
	case w.lose:
		return
	case w.twice:
		copies = 2
	}
	ip := roce.IPUDP{Src: groupIP, Dst: groupIP, HopLimit: 1, ID: 1, SrcPort: srcPort}
	frame, err := roce.AppendICRC(m.Append(ip.Append(roce.AppendEthernet(nil, roce.MAC{}, roce.MAC{}, ip.EtherType()), wire.TransportBytes), 1))
	if err != nil {
		w.t.Fatal(err)
	}
	got, err := wire.Decode(frame)
	if err != nil {
		w.t.Fatal(err)
	}
	for range copies {
		w.queue = append(w.queue, func() { deliver(got) })
	}
}

func (w *world) step(e Event) {
	for _, a := range w.m.Step(w.now, e) {
		switch a := a.(type) {
		case Send:
			i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.ip == a.To })
			w.carry(a.MAD, w.hosts[i].hear)
		case Make:
			if w.groups[a.File.Name] {
				w.t.Errorf("%s is made twice", a.File.Name)
			}
			w.groups[a.File.Name], w.file = true, a.File
			w.made++
			if w.begun = func() { w.step(Made{Connection: a.Connection}) }; !w.slow {
				w.queue = append(w.queue, w.begun)
			}
		case Leave:
			if !w.groups[a.Group] {
				w.t.Errorf("%v leaves %s, which does not exist", a.Receiver, a.Group)
			}
			w.left = append(w.left, hostName(a.Receiver))
		case Remove:
			if !w.groups[a.Group] {
				w.t.Errorf("%s is removed and does not exist", a.Group)
			}
			delete(w.groups, a.Group)
			w.queue = append(w.queue, func() { w.step(Removed{Connection: a.Connection}) })
		case Count:
			if len(a.Groups) != 1 || !w.groups[a.Groups[0]] {
				w.t.Errorf("packets of %q are counted", a.Groups)
			}
			w.packets += w.rate
			w.queue = append(w.queue, func() { w.step(Counted{a.Connection, w.packets, 0}) })
		}
	}
}

// run lets everything happen that happens within d.
func (w *world) run(d time.Duration) {
	for end := w.now + d; ; {
		for len(w.queue) > 0 {
			next := w.queue[0]
			w.queue = w.queue[1:]
			next()
		}
		at, ok := w.m.Next()
		if !ok {
			at = end
		}
		for _, h := range w.hosts {
			if h.retry != nil {
				at = min(at, h.due)
			}
		}
		if at >= end {
			w.now = end
			return
		}
		w.now = max(w.now, at)
		w.step(nil)
		for _, h := range w.hosts {
			h.repeat()
		}
	}
}

func (h *host) become(state string) {
	if h.state == state {
		return
	}
	if h.state = state; h.on[state] != nil {
		h.on[state](h)
	}
}

func (h *host) say(m wire.Message) *wire.MAD {
	mad := wire.MAD{Header: wire.Header{TID: uint64(h.index)}, Message: m}
	h.world.carry(mad, func(m wire.MAD) { h.world.step(Heard{h.ip, m}) })
	return &mad
}

func (h *host) insist(m wire.Message) {
	h.retry, h.due, h.tries = h.say(m), h.world.now+4100*time.Millisecond, 15
}

func (h *host) repeat() {
	if h.retry == nil || h.world.now < h.due {
		return
	}
	if h.tries--; h.tries == 0 {
		h.retry = nil
		h.become("timed out")
		return
	}
	h.due += 4100 * time.Millisecond
	h.say(h.retry.Message)
}

func (h *host) connect() {
	h.state, h.pair = "connecting", wire.Pair{Local: h.index * 100}
	h.insist(testREQ(h.ip, h.pair.Local, h.guid, h.qpn, h.psn))
}

func (h *host) disconnect() {
	h.state = "disconnecting"
	h.insist(&wire.DREQ{Pair: h.pair, RemoteQPN: h.peer})
}

func (h *host) hear(m wire.MAD) {
	switch v := m.Message.(type) {
	case *wire.REQ:
		h.hearREQ(v)
	case *wire.REP:
		if h.state == "connecting" {
			h.retry, h.pair.Remote, h.peer, h.first = nil, v.Pair.Local, v.QPN, v.StartingPSN
			h.become("connected")
		}
		if h.state == "connected" {
			h.say(&wire.RTU{Pair: h.pair})
		}
	case *wire.RTU:
		if h.state == "accepting" {
			h.retry = nil
			h.become("connected")
		}
	case *wire.REJ:
		h.retry = nil
		h.become("refused " + v.Reason.String())
	case *wire.DREQ:
		if v.RemoteQPN != h.qpn {
			h.world.t.Errorf("%v is told to disconnect QP %#x, and has %#x", h.ip, v.RemoteQPN, h.qpn)
		}
		h.say(&wire.DREP{Pair: wire.Pair{Local: v.Pair.Remote, Remote: v.Pair.Local}})
		h.retry = nil
		h.become("over")
	case *wire.DREP:
		h.retry = nil
		h.become("over")
	}
}

func (h *host) hearREQ(req *wire.REQ) {
	key := [2]uint64{req.CAGUID, uint64(req.LocalCommID)}
	if h.key == key {
		return // it was here before
	}
	h.key = key
	h.heard++
	h.pair, h.peer, h.first = wire.Pair{Local: h.index * 100, Remote: req.LocalCommID}, req.QPN, req.StartingPSN
	h.become("accepting")
	if h.state == "accepting" {
		h.insist(&wire.REP{Pair: h.pair, QPN: h.qpn, StartingPSN: h.psn, CAGUID: h.guid, RNRRetry: 7})
	}
}

func (w *world) states() string {
	var l []string
	for _, h := range w.hosts {
		l = append(l, h.state)
	}
	return fmt.Sprint(l)
}

// Every message of a connection is lost once, and once it arrives twice: from the REQ of the source
// to the last DREP. Each time all sides connect with numbers that fit, and afterwards nothing is
// left.
func TestEveryMessageIsLostOnceAndComesTwice(t *testing.T) {
	play := func(lose, twice int) int {
		w := newWorld(t, testConfig("b", "c"))
		w.lose, w.twice = lose, twice
		w.hosts[0].connect()
		w.run(15 * time.Second)
		if got := w.states(); got != "[connected connected connected]" || len(w.groups) != 1 || w.made != 1 {
			t.Errorf("message %d is lost, %d comes twice: %s, groups %v, %d made", lose, twice, got, w.groups, w.made)
		}
		a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
		if b.heard != 1 || c.heard != 1 || a.peer != b.peer || b.peer != c.peer || b.first != a.psn || c.first != a.psn || a.first != b.psn {
			t.Errorf("message %d is lost, %d comes twice: source %+v, receivers %+v and %+v", lose, twice, a, b, c)
		}
		a.disconnect()
		w.run(10 * time.Second)
		if got := w.states(); got != "[over over over]" || len(w.groups) != 0 {
			t.Errorf("message %d is lost, %d comes twice: %s after the end, groups %v", lose, twice, got, w.groups)
		}
		w.run(time.Minute)
		if len(w.m.conns)+len(w.m.byKey)+len(w.m.byID) != 0 || len(w.m.past) != 1 {
			t.Errorf("message %d is lost, %d comes twice: %d connections are left", lose, twice, len(w.m.conns))
		}
		if wrong := waysHeld(w.m); wrong != "" {
			t.Errorf("message %d is lost, %d comes twice: %s", lose, twice, wrong)
		}
		return w.sent
	}
	sent := play(0, 0)
	if sent < 15 {
		t.Fatalf("%d messages", sent)
	}
	for i := 1; i <= sent; i++ {
		play(i, 0)
		play(0, i)
	}
}

// A program may refuse, or its host may be dead; a host may die while it is connected.
func TestHostsThatRefuseOrDie(t *testing.T) {
	for _, c := range []struct {
		name   string
		quorum bool
		on     map[string]func(*host) // of the second receiver
		want   string
	}{
		{"refuses", false, map[string]func(*host){"accepting": func(h *host) {
			h.say(&wire.REJ{Pair: wire.Pair{Remote: h.pair.Remote}, Reason: wire.ConsumerDefined})
			h.become("idle")
		}},
			"[refused consumer defined refused consumer defined idle]"},
		{"is dead", false, map[string]func(*host){"accepting": func(h *host) { h.state = "dead" }}, "[refused no resources refused consumer defined refused timeout]"},
		{"is dead, and the other is enough", true, map[string]func(*host){"accepting": func(h *host) { h.state = "dead" }}, "[connected connected refused timeout]"},
		{"disconnects", false, map[string]func(*host){"connected": (*host).disconnect}, "[over over over]"},
		{"disconnects, and the other is enough", true, map[string]func(*host){"connected": (*host).disconnect}, "[connected connected over]"},
	} {
		config := testConfig("b", "c")
		if c.quorum {
			config.Policy.Ack = 1
		}
		w := newWorld(t, config)
		w.hosts[2].on = c.on
		w.hosts[0].connect()
		w.run(30 * time.Second)
		if got := w.states(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if alive := w.hosts[0].state == "connected"; alive != (len(w.groups) == 1) {
			t.Errorf("%s: groups %v", c.name, w.groups)
		}
	}
}

// A host that answers no probe of its connection is dead, unless its packets go on.
func TestASourceThatOnlySends(t *testing.T) {
	w := newWorld(t, testConfig("b", "c"))
	w.hosts[0].connect()
	w.run(time.Second)
	w.hosts[0].state, w.rate = "silent", 1
	if w.run(10 * usual.probe); len(w.groups) != 1 {
		t.Error("its packets go on, and its connection has ended")
	}
	w.rate = 0
	if w.run(7 * usual.probe); len(w.groups) != 0 {
		t.Error("it sends nothing more, and its connection is on")
	}
}

// Packets are counted once at a time, however long that takes; what is known after the end of the
// connection brings nobody back.
func TestPacketsThatTakeLongToCount(t *testing.T) {
	w := newWorld(t, testConfig("b", "c"))
	w.hosts[0].connect()
	w.run(time.Second)
	w.hosts[0].state = "silent"
	counts, now := 0, w.now
	for w.m.conns[1].state == Established {
		now, _ = w.m.Next()
		for _, a := range w.m.Step(now, nil) {
			if _, ok := a.(Count); ok {
				counts++
			}
		}
	}
	w.m.Step(now, Counted{1, 7, 0})
	if counts != 1 || len(w.m.notes) != 0 {
		t.Errorf("counted %d times, told of %+v", counts, w.m.notes)
	}
	w.m.Step(now, Counted{99, 7, 0}) // it is forgotten
}

// A receiver that disconnects leaves the group, which goes on while enough are left. One that gives
// up while the group is being made leaves it then, and one that never joined leaves none.
func TestAReceiverThatDisconnectsLeavesTheGroup(t *testing.T) {
	refuses := func(h *host) {
		h.say(&wire.REJ{Pair: h.pair, Reason: wire.ConsumerDefined})
		h.retry, h.state = nil, "gone"
	}
	c := &connection{note: "one"}
	if c.adds("two"); c.note != "one; two" {
		t.Errorf("%q", c.note)
	}
	for _, c := range []struct {
		name   string
		on     string // what the second receiver of three does, when it comes to this state
		does   func(*host)
		during func(*world) // while the group is being made
		want   string
		note   string
	}{
		{"disconnects", "connected", (*host).disconnect, nil, "[c]", "it goes on although receiver 10.77.0.3 disconnected"},
		{"refuses before the group is made", "accepting", refuses, nil, "[]", ""},
		{"gives up while the group is being made", "", nil, func(w *world) { refuses(w.hosts[2]); w.run(0) }, "[c]",
			"it goes on although receiver 10.77.0.3 refuses (consumer defined)"},
	} {
		config := testConfig("b", "c", "d")
		config.Policy.Ack = 2
		w := newWorld(t, config)
		w.hosts[2].on[c.on] = c.does
		w.slow = c.during != nil
		w.hosts[0].connect()
		if w.run(2 * time.Second); c.during != nil {
			c.during(w)
			if len(w.left) != 0 {
				t.Errorf("%s: it leaves a group that is not there", c.name)
			}
			w.begun()
		}
		w.run(2 * time.Second)
		if got := fmt.Sprint(w.left); got != c.want || len(w.groups) != 1 || w.hosts[0].state != "connected" {
			t.Errorf("%s: %s have left, want %s; groups %v, %s", c.name, got, c.want, w.groups, w.states())
		}
		if got := w.m.seen(w.m.conns[1]).Reason; got != c.note {
			t.Errorf("%s: %q, want %q", c.name, got, c.note)
		}
		w.hosts[3].disconnect() // one is too few
		w.run(2 * time.Second)
		if got := fmt.Sprint(w.left); got != c.want || len(w.groups) != 0 {
			t.Errorf("%s: %s have left, groups %v", c.name, got, w.groups)
		}
	}
}

// Connections that come and go leave nothing, and bounds hold.
func TestBounds(t *testing.T) {
	w := newWorld(t, testConfig("b"))
	for i := range MaxConnections + MaxPast + 1 {
		h := w.hosts[0]
		w.hosts[1].key = [2]uint64{}
		h.connect()
		h.pair.Local, h.qpn = uint32(i+1), roce.QPN(i+100)
		h.retry, w.queue = nil, nil
		h.say(testREQ(h.ip, h.pair.Local, h.guid, h.qpn, h.psn))
		w.run(0)
		if h.state != "connected" {
			t.Fatalf("connection %d: %s", i, w.states())
		}
		h.disconnect()
		w.run(0)
	}
	if wrong := waysHeld(w.m); wrong != "" {
		t.Error(wrong)
	}
	for id := range w.m.conns {
		if id <= MaxPast+1 {
			t.Errorf("connection %d is remembered, and not the newest ones", id)
		}
	}
	if len(w.m.conns) != MaxConnections || len(w.groups) != 0 || len(w.m.past) != MaxPast {
		t.Errorf("%d connections are remembered, %d groups", len(w.m.conns), len(w.groups))
	}
	if len(w.m.busy) != 0 {
		t.Errorf("each step looks at %d connections that are only remembered", len(w.m.busy))
	}
	w.run(time.Minute)
	if len(w.m.conns)+len(w.m.byKey)+len(w.m.byID) != 0 {
		t.Error("connections are remembered for ever")
	}
	many := testConfig("b")
	for len(many.Receivers) < groupip.MaxReceivers {
		many.Receivers = append(many.Receivers, many.Receivers[0])
	}
	wide := newMachine(many, newWays(), inBand, testSeed, usual, time.Time{})
	const most = maxSides / groupip.MaxReceivers
	for i := range uint32(most + 1) { // of as many sources as may fill it
		from := hostIP(byte(200 + i%shareOfASource))
		if i == 0 {
			wide.Step(0, Heard{from, wire.MAD{Message: testREQ(from, 1000, 1, 1000, 0)}})
			wide.Step(usual.asking, nil)
			wide.Step(usual.asking, nil)
		}
		wide.Step(usual.asking, Heard{from, wire.MAD{Message: testREQ(from, i+1, 1, roce.QPN(i+100), 0)}})
	}
	if len(wide.conns) != most {
		t.Errorf("%d connections to %d receivers", len(wide.conns), groupip.MaxReceivers)
	}
	refused := wide.counts[TooMany]
	for _, c := range wide.conns { // none is a handshake, and none may be forgotten
		c.state = Established
	}
	wide.Step(usual.asking, Heard{hostIPs["a"], wire.MAD{Message: testREQ(hostIPs["a"], 2000, 1, 2000, 0)}})
	if len(wide.conns) != most || wide.counts[TooMany] != refused+1 {
		t.Errorf("%d established connections to %d receivers, %d refused", len(wide.conns), groupip.MaxReceivers, wide.counts[TooMany])
	}
	// A source that does not go on keeps no other one out, and all together have a bound.
	asks := func(from netip.Addr, i uint32) {
		w.m.Step(w.now, Heard{from, wire.MAD{Message: testREQ(from, i+1, 1, roce.QPN(i+100), 0)}})
	}
	for i := range uint32(maxOfASource + 1) {
		asks(hostIPs["a"], i)
	}
	if len(w.m.conns) != maxOfASource || w.m.counts[TooMany] != 1 {
		t.Errorf("%d handshakes of one source, %d refused", len(w.m.conns), w.m.counts[TooMany])
	}
	source := hostIP(100)
	for range MaxHandshakes/maxOfASource - 1 {
		source = source.Prev()
		for i := range uint32(maxOfASource) {
			asks(source, i)
		}
	}
	if len(w.m.conns) != MaxHandshakes || w.m.counts[TooMany] != 1 {
		t.Errorf("%d handshakes of all sources, %d refused", len(w.m.conns), w.m.counts[TooMany])
	}
	if asks(source.Prev(), 0); len(w.m.conns) != MaxHandshakes || w.m.counts[TooMany] != 2 {
		t.Errorf("one more: %d handshakes, %d refused", len(w.m.conns), w.m.counts[TooMany])
	}
}

// A comm ID is never 0, which means none, and never that of another connection.
func TestTheCommIDsOfTheBox(t *testing.T) {
	m := newMachine(testConfig("b"), newWays(), inBand, seed{commID: 1<<32 - 2}, usual, time.Time{})
	m.byID[2] = &side{}
	for _, want := range []uint32{1<<32 - 1, 1, 3} {
		if s := m.newSide(&connection{}, hostIPs["b"]); s.pair.Local != want || m.byID[want] != s {
			t.Errorf("comm ID %#x, want %#x", s.pair.Local, want)
		}
	}
}

// A group's QPN is none that the protocol reserves, and comes again when all others were used.
func TestTheQPNsOfGroups(t *testing.T) {
	for last, want := range map[roce.QPN]roce.QPN{0: 0x100, 0xFF: 0x100, 0x100: 0x101, 0xFFFFFD: 0xFFFFFE, 0xFFFFFE: 0x100, 0xFFFFFF: 0x100} {
		m := newMachine(testConfig("b"), newWays(), inBand, seed{qpn: last}, usual, time.Time{})
		if got := m.nextQPN(); got != want {
			t.Errorf("behind %#x comes %#x, want %#x", uint32(last), uint32(got), uint32(want))
		}
	}
}
