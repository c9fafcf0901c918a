package cm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// inBand is the real understanding of perftest's messages.
func inBand(groupIP, source netip.Addr, receivers []netip.Addr) Talk {
	return perftest.NewInBand(groupIP, source, receivers)
}

// theatre plays runs of perftest with -R between hosts and a machine, in virtual time. It loses one
// message of RDMA-CM, or one packet, or hands it over twice.
type theatre struct {
	t       *testing.T
	m       *Machine
	now     time.Duration
	actors  map[netip.Addr]*actor
	queue   []func()
	sent    int
	lose    int
	twice   int
	refuse  error // of each group
	groups  map[string]*groupfile.File
	slow    bool   // groups are not made before begun is called
	begun   func() // the outcome of the newest group
	refused string // what a program hears that connects besides the actors
	sending bool   // the source sends packets
	sent64  uint64
	wrong   uint64 // requests that the receivers have sent
	asking  bool   // the receivers send requests, and repeat them
	counted func() // the outcome of a Count is that of now, and comes when this is called; nil: it comes at once
	saw     string // of each group
	notes   []string
}

// actor is a host whose program is perftest's.
type actor struct {
	*theatre
	ip    netip.Addr
	index uint32
	conns map[uint32]*joint // by the host's comm ID
	last  uint32            // comm ID
	heard []string          // messages
	said  int               // of a receiver: messages
	// isThrough: a receiver disconnects when its last answer has arrived.
	isThrough bool
	// react, if it is set, is asked first what a receiver does with a message.
	react     func(j *joint, message []byte) (isDone bool)
	deaf      int // REQs for which the host has no listener
	deafToUD  int // the same for UD
	askedUD   []string
	dies      int // after so many answers; 0: does not
	isDead    bool
	ends      int          // after so many messages its queue pair refuses
	quits     int          // after so many answers
	hasty     bool         // the source says everything twice
	step      func(*actor) // of the source: what it does with the next answer, or when it is connected
	onFailure func()
	over      string        // why the source's program ended
	due       time.Duration // of the next thing that is repeated
}

// joint is one connection of a host.
type joint struct {
	*actor
	pair   wire.Pair
	qpn    roce.QPN
	peer   roce.QPN
	line   *line
	isOpen bool
	retry  wire.Message
	failed []Packet // that end its queue pair
}

// hearSIDR is what the kernel of a host does when it is asked for UD.
func (a *actor) hearSIDR(req *wire.SIDRREQ) {
	var header wire.IPHeader
	header.Decode((*[92]byte)(req.PrivateData[:]))
	a.askedUD = append(a.askedUD, fmt.Sprintf("%v to %v, service %#x", header.Src, header.Dst, req.ServiceID))
	rep := &wire.SIDRREP{RequestID: req.RequestID, ServiceID: req.ServiceID}
	if a.deafToUD > 0 {
		a.deafToUD--
		rep.Status = wire.ServiceUnsupported
	}
	a.carry(func() { a.theatre.step(Heard{a.ip, wire.MAD{Message: rep}}) })
}

func newTheatre(t *testing.T, receivers ...string) *theatre {
	config := testConfig(receivers...)
	config.Memory = Perftest
	th := &theatre{t: t, m: newMachine(config, newWays(), inBand, testSeed, usual, time.Time{}), actors: map[netip.Addr]*actor{}, groups: map[string]*groupfile.File{}}
	for name, ip := range hostIPs {
		th.actors[ip] = &actor{theatre: th, ip: ip, index: uint32(name[0]-'a') + 1, conns: map[uint32]*joint{}}
	}
	return th
}

// carry hands something over, or loses it.
func (th *theatre) carry(deliver func()) {
	th.sent++
	switch th.sent {
	case th.lose:
		return
	case th.twice:
		th.queue = append(th.queue, deliver)
	}
	th.queue = append(th.queue, deliver)
}

func (th *theatre) step(e Event) {
	actions := th.m.Step(th.now, e)
	for _, n := range th.m.notes {
		th.notes = append(th.notes, fmt.Sprintf("%v %s: %s", n.Kind, hostName(n.Source), n.Says))
	}
	for _, a := range actions {
		switch a := a.(type) {
		case Send:
			if rej, ok := a.MAD.Message.(*wire.REJ); ok && rej.Pair.Remote == other {
				th.refused = fmt.Sprintf("%v, %s", rej.Reason, strings.TrimRight(string(rej.PrivateData[:]), "\x00"))
				continue
			}
			th.carry(func() { th.actors[a.To].hear(a.MAD) })
		case Transmit:
			th.carry(func() { th.actors[a.To].take(a.Packet) })
		case Make:
			th.begun = func() {
				if th.refuse == nil {
					th.groups[a.File.Name] = a.File
				}
				th.step(Made{a.Connection, th.refuse})
			}
			if !th.slow {
				th.queue = append(th.queue, th.begun)
			}
		case Count:
			if th.sending {
				th.sent64++
			}
			if th.asking {
				th.wrong++
			}
			counted := func() { th.step(Counted{a.Connection, th.sent64, th.wrong}) }
			if th.counted != nil {
				sent := th.sent64
				th.counted = func() { th.step(Counted{a.Connection, sent, 0}) }
				continue
			}
			th.queue = append(th.queue, counted)
		case Remove:
			delete(th.groups, a.Group)
			th.queue = append(th.queue, func() { th.step(Removed{a.Connection, th.saw}) })
		}
	}
}

func (th *theatre) run(d time.Duration) {
	for end := th.now + d; ; {
		for len(th.queue) > 0 {
			next := th.queue[0]
			th.queue = th.queue[1:]
			next()
		}
		at, ok := th.m.Next()
		if !ok {
			at = end
		}
		for _, a := range th.actors {
			for _, j := range a.conns {
				if j.line != nil && j.line.due > 0 && !a.isDead {
					at = min(at, j.line.due)
				}
			}
			if a.due > 0 && !a.isDead {
				at = min(at, a.due)
			}
		}
		if at >= end {
			th.now = end
			return
		}
		th.now = max(th.now, at)
		th.step(nil)
		for _, a := range th.actors {
			a.tick()
		}
	}
}

func (a *actor) tick() {
	if a.isDead {
		return
	}
	for _, j := range a.conns {
		if j.line != nil {
			packets, _ := j.line.tick(a.now)
			j.transmit(packets)
		}
	}
	if a.due == 0 || a.now < a.due {
		return
	}
	a.due = 0
	for _, j := range a.conns {
		if j.retry != nil {
			j.say(j.retry)
			a.due = a.now + 4*time.Second
		}
	}
}

func (j *joint) say(m wire.Message) {
	mad, from := wire.MAD{Message: m}, j.ip
	j.carry(func() { j.theatre.step(Heard{from, mad}) })
}

func (j *joint) insist(m wire.Message) {
	j.say(m)
	j.retry, j.due = m, j.now+4*time.Second
}

func (j *joint) transmit(packets []Packet) {
	for _, p := range packets {
		j.carry(func() { j.theatre.step(Received{j.ip, p, p.QPN}) })
	}
}

func (j *joint) speak(message []byte) { j.transmit(j.line.send(j.now, message)) }

// join gives a host one more connection.
func (a *actor) join() *joint {
	a.last++
	j := &joint{actor: a, pair: wire.Pair{Local: a.last}, qpn: roce.QPN(a.index*0x10 + a.last)}
	a.conns[a.last] = j
	return j
}

func (j *joint) psn() roce.PSN { return roce.PSN(j.index*1000 + j.pair.Local*10) }

// connect is what the source does.
func (a *actor) connect() *joint {
	j := a.join()
	j.insist(testREQ(a.ip, j.pair.Local, uint64(a.index), j.qpn, j.psn()))
	return j
}

func (j *joint) disconnect() {
	j.isOpen = false
	j.insist(&wire.DREQ{Pair: j.pair, RemoteQPN: j.peer})
}

func (a *actor) hear(mad wire.MAD) {
	if a.isDead {
		return
	}
	switch m := mad.Message.(type) {
	case *wire.REQ:
		a.accept(m)
	case *wire.REP:
		j := a.conns[m.Remote]
		if j == nil {
			return
		}
		if j.line == nil {
			j.retry, j.pair.Remote, j.peer, j.isOpen = nil, m.Local, m.QPN, true
			j.line = &line{peer: m.QPN, expected: j.psn(), next: m.StartingPSN}
			defer a.step(a)
		}
		j.say(&wire.RTU{Pair: j.pair})
	case *wire.RTU:
		a.settle(m.Remote)
	case *wire.REJ:
		if a.over == "" {
			a.over = "rejected: " + m.Reason.String()
		}
		a.conns = map[uint32]*joint{}
	case *wire.DREQ:
		if j := a.conns[m.Remote]; j != nil {
			j.isOpen, j.retry = false, nil
			j.say(&wire.DREP{Pair: j.pair})
		}
	case *wire.DREP:
		a.settle(m.Remote)
	case *wire.SIDRREQ:
		a.hearSIDR(m)
	}
}

func (a *actor) settle(commID uint32) {
	if j := a.conns[commID]; j != nil {
		j.retry = nil
	}
}

// accept is what a receiver does with a REQ.
func (a *actor) accept(req *wire.REQ) {
	for _, j := range a.conns {
		if j.pair.Remote == req.LocalCommID {
			return // it was here before
		}
	}
	if a.deaf > 0 {
		a.deaf--
		j := &joint{actor: a}
		j.say(&wire.REJ{Pair: wire.Pair{Remote: req.LocalCommID}, Reason: wire.InvalidServiceID})
		return
	}
	j := a.join()
	j.pair.Remote, j.peer, j.isOpen = req.LocalCommID, req.QPN, true
	j.line = &line{peer: req.QPN, expected: j.psn(), next: req.StartingPSN}
	j.insist(&wire.REP{Pair: j.pair, QPN: j.qpn, StartingPSN: j.psn(), CAGUID: uint64(a.index), RNRRetry: 7})
}

// take takes a packet. It belongs to the first connection.
func (a *actor) take(p Packet) {
	if a.isDead {
		return
	}
	for _, j := range a.conns {
		if j.qpn != p.QPN || j.line == nil {
			continue
		}
		if p.Opcode == roce.OpWriteOnly || p.AETH.Syndrome == roce.NAKRemoteOperational {
			j.failed = append(j.failed, p)
			return
		}
		if a.ends > 0 && len(a.heard) == a.ends && p.Opcode == roce.OpSendOnly {
			j.transmit([]Packet{{Opcode: roce.OpAck, QPN: j.peer, PSN: p.PSN, AETH: roce.AETH{Syndrome: roce.NAKRemoteOperational}}})
			return
		}
		packets, message, _ := j.line.hear(a.now, p)
		j.transmit(packets)
		if a.isThrough && len(j.line.out) == 0 {
			a.isThrough = false
			for _, j := range a.conns {
				j.disconnect()
			}
		}
		switch {
		case message == nil:
		case len(message) == unwanted:
			if a.over = "its receive failed"; a.onFailure != nil {
				a.onFailure()
				return
			}
		case a.step != nil:
			a.heard = append(a.heard, text(message))
			a.step(a)
		default:
			a.heard = append(a.heard, text(message))
			a.answer(j, message)
		}
		return
	}
}

// answer is what perftest answers at a receiver.
func (a *actor) answer(j *joint, message []byte) {
	if a.react != nil && a.react(j, message) {
		return
	}
	switch a.said++; {
	case len(message) == 16:
		j.speak([]byte("6.20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	case len(message) == 56 && binary.BigEndian.Uint32(message[8:]) != 0:
		j.speak(testKey(a.peerOf(roce.QPN(binary.BigEndian.Uint32(message[8:]))).qpn, a.index))
	default:
		j.speak(message)
	}
	a.isDead = a.said == a.dies
	if a.said == a.quits {
		j.disconnect()
	}
	a.isThrough = a.said == 10+2*(len(a.conns)-1)
}

// testKey is a key whose memory says to which host it belongs.
func testKey(qpn roce.QPN, host uint32) []byte {
	b := make([]byte, 56)
	for at, n := range map[int]uint32{4: 1, 8: uint32(qpn), 12: host, 16: host, 24: host} {
		binary.BigEndian.PutUint32(b[at:], n)
	}
	return b
}

func text(b []byte) string {
	if len(b) != 56 {
		return strings.TrimRight(string(b), "\x00")
	}
	return fmt.Sprintf("key %#x rkey=%#x va=%#x", binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint64(b[24:]))
}

// playPerftest is a client with so many queue pairs.
func playPerftest(a *actor, qps int) {
	control := a.connect()
	connected := -1
	key0 := make([]byte, 56)
	script := [][]byte{[]byte("6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), []byte("cycl"), []byte("line"), []byte("5\x00"), key0}
	at := 0
	a.step = func(*actor) {
		if at == len(script) && connected < qps {
			if connected < 0 {
				for connected = 0; connected < qps; connected++ {
					a.connect()
				}
				connected = 0
				return
			}
			if connected++; connected < qps {
				return
			}
			script = append(script, key0)
			for range 2 {
				for id := range uint32(qps) {
					script = append(script, testKey(a.conns[id+2].qpn, a.index))
				}
			}
			for _, report := range []string{"", "size4096", "iter 200"} {
				script = append(script, []byte(report))
				if report == "" {
					script[len(script)-1] = testKey(a.conns[2].qpn, a.index)
				}
			}
			script = append(script, testKey(a.conns[2].qpn, a.index))
		}
		if at < len(script) {
			control.speak(script[at])
			if a.hasty {
				control.speak(script[at])
			}
			at++
			return
		}
		for id := uint32(len(a.conns)); id > 0; id-- {
			a.conns[id].disconnect()
		}
		a.over = "through"
	}
}

func (th *theatre) host(name string) *actor { return th.actors[hostIPs[name]] }

// isOver fails if anything is left of the runs.
func (th *theatre) isOver(about string) {
	th.t.Helper()
	th.run(time.Minute)
	if wrong := waysHeld(th.m); wrong != "" {
		th.t.Errorf("%s: %s", about, wrong)
	}
	if m := th.m; len(m.conns)+len(m.byKey)+len(m.byID)+len(m.lines)+len(th.groups) != 0 || m.run != nil {
		th.t.Errorf("%s: %d connections are left, groups %v", about, len(m.conns), th.groups)
	}
	for name, ip := range hostIPs {
		for _, j := range th.actors[ip].conns {
			if j.isOpen {
				th.t.Errorf("%s: %s is still connected", about, name)
			}
		}
	}
}

// A run goes through when any one of its messages or packets is lost, or comes twice.
func TestARunOfPerftest(t *testing.T) {
	play := func(lose, twice int) int {
		about := fmt.Sprintf("%d is lost, %d comes twice", lose, twice)
		th := newTheatre(t, "b", "c")
		th.lose, th.twice = lose, twice
		a := th.host("a")
		playPerftest(a, 2)
		var during []*groupfile.File
		step := a.step
		a.step = func(*actor) {
			if len(a.heard) == 8 { // the client has all keys, and may send
				during = slices.Collect(func(yield func(*groupfile.File) bool) {
					for _, qpn := range []roce.QPN{0x201, 0x202} {
						if f := th.groups[groupName(th.m.config, qpn)]; f == nil || !yield(f) {
							return
						}
					}
				})
			}
			step(a)
		}
		th.run(30 * time.Second)
		if a.over != "through" {
			t.Fatalf("%s: the client is %q, and heard %q", about, a.over, a.heard)
		}
		want := "6.10 cycl line 5 key 0x0 key 0x0 K1 K2 K1 K2 K1 size4096 iter 200 K1"
		if got := a.words("rkey=0x20167 va=0x100000000", "rkey=0x20267 va=0x100000000"); got != want {
			t.Errorf("%s: the client hears\n%s\nwant\n%s", about, got, want)
		}
		for _, name := range []string{"b", "c"} {
			if got := th.host(name).words("rkey=0x1 va=0x100000000", "rkey=0x1 va=0x100000000"); got != want {
				t.Errorf("%s: %s hears\n%s\nwant\n%s", about, name, got, want)
			}
		}
		th.isOver(about)
		if n := th.m.counts[Unexpected]; n != 0 && lose+twice == 0 {
			t.Errorf("%d messages did not fit", n)
		}
		if len(during) != 2 {
			t.Fatalf("%s: the client could send before there were groups", about)
		}
		for _, f := range during {
			if f.Source.QPN != a.peerOf(f.QPN).qpn || f.Memory[0].VA != 1<<32 || f.Source.FirstPSN != f.Receivers[0].FirstPSN {
				t.Errorf("%s: %+v", about, f)
			}
			for k, r := range f.Receivers {
				j := th.actors[r.IP].peerOf(f.QPN)
				if r.QPN != j.qpn || r.FirstPSN != j.psn() || r.Regions[0].RKey != j.index || r.RemoteQPN != f.QPN || r.IP != th.m.config.Receivers[k] {
					t.Errorf("%s: %+v", about, r)
				}
			}
		}
		return th.sent
	}
	sent := play(0, 0)
	if sent < 150 {
		t.Fatalf("%d messages", sent)
	}
	for i := 1; i <= sent; i++ {
		play(i, 0)
		play(0, i)
	}
}

// peerOf returns the connection of a host with a queue pair of the box.
func (a *actor) peerOf(qpn roce.QPN) *joint {
	for _, j := range a.conns {
		if j.peer == qpn {
			return j
		}
	}
	return &joint{}
}

// words are the messages that a host heard, with K1 and K2 for keys of the two groups.
func (a *actor) words(memory ...string) string {
	l := slices.Clone(a.heard)
	names := map[string]string{} // the keys in the order in which they come
	for k, w := range l {
		for i, m := range memory {
			if w == fmt.Sprintf("key %#x %s", 0x201+i, m) {
				if names[w] == "" {
					names[w] = fmt.Sprintf("K%d", len(names)+1)
				}
				l[k] = names[w]
			}
		}
	}
	return strings.ReplaceAll(strings.Join(l, " "), "key 0x0 rkey=0x0 va=0x0", "key 0x0")
}

// A run that cannot go on ends at all sides, and says why. Programs that wait for a message notice.
func TestRunsThatFail(t *testing.T) {
	const failed = "its receive failed"
	for _, c := range []struct {
		name   string
		before func(*theatre)
		source string // why its program ends
		other  string // why that of receiver b ends
		reason string
	}{
		{"a receiver does not listen", func(th *theatre) { th.host("c").deaf = 1 }, "rejected: invalid service ID", "rejected: consumer defined", "receiver 10.77.0.3 refuses (invalid service ID)"},
		{"a receiver listens again too late", func(th *theatre) { th.after("c", 5, func(j *joint) { j.deaf = 100 }) },
			"rejected: invalid service ID", "rejected: consumer defined", "receiver 10.77.0.3 refuses (invalid service ID)"},
		{"a receiver is another program", func(th *theatre) { th.reply("c", 3, []byte("nonsense")) },
			failed, failed, "receiver 10.77.0.3 answers 2 bytes with 8; run the same perftest on all sides"},
		{"a receiver speaks twice", func(th *theatre) {
			th.host("c").react = func(j *joint, message []byte) bool { j.speak(message); return false }
		}, failed, failed, "receiver 10.77.0.3 spoke before its turn; it does not run the same perftest as the source"},
		{"a receiver disconnects", func(th *theatre) { th.after("c", 3, func(j *joint) { j.disconnect() }) },
			failed, failed, "receiver 10.77.0.3 disconnected before the run was over"},
		{"a receiver is dead", func(th *theatre) { th.after("c", 3, func(j *joint) { j.isDead = true }) },
			failed, failed, "receiver 10.77.0.3 was silent for 30s at its turn"},
		{"a receiver dies before it is asked", func(th *theatre) { th.host("c").dies = 6 }, failed, failed, "receiver 10.77.0.3 does not answer"},
		{"a receiver dies before it is connected", func(th *theatre) { th.host("c").dies = 5 },
			"rejected: no resources", "rejected: consumer defined", "receiver 10.77.0.3 does not answer"},
		{"a receiver disconnects before it is asked", func(th *theatre) { th.host("c").quits = 6 },
			failed, failed, "receiver 10.77.0.3 has disconnected too early"},
		{"a receiver dies when there is a group", func(th *theatre) { th.host("c").dies = 8 }, failed, failed, "receiver 10.77.0.3 does not answer"},
		{"a receiver's queue pair ends", func(th *theatre) { th.host("c").ends = 3 }, failed, failed, "receiver 10.77.0.3 ended its queue pair"},
		{"the source does not wait", func(th *theatre) { th.host("a").hasty = true }, failed, failed, "source 10.77.0.1 spoke before its turn"},
		{"there is no group", func(th *theatre) { th.refuse = errors.New("no room") }, failed, failed, "no room"},
	} {
		th := newTheatre(t, "b", "c")
		c.before(th)
		a := th.host("a")
		playPerftest(a, 1)
		th.run(time.Minute)
		if a.over != c.source || th.host("b").over != c.other {
			t.Errorf("%s: the source is %q, receiver b %q; want %q and %q", c.name, a.over, th.host("b").over, c.source, c.other)
		}
		if len(th.groups) > 0 {
			t.Errorf("%s: groups %v are left", c.name, th.groups)
		}
		if reasons := th.reasons(); !slices.Contains(reasons, c.reason) {
			t.Errorf("%s: the reasons are %q, want %s", c.name, reasons, c.reason)
		}
	}
}

// reasons are those for which connections have ended.
func (th *theatre) reasons() (l []string) {
	for _, c := range th.m.past {
		l = append(l, c.Reason)
	}
	for _, c := range th.m.all() {
		l = append(l, c.reason)
	}
	return l
}

// slowRun is a run whose source waits for its group.
func slowRun(t *testing.T) *theatre {
	t.Helper()
	th := newTheatre(t, "b", "c")
	th.slow = true
	playPerftest(th.host("a"), 1)
	th.run(time.Second)
	if th.begun == nil || th.m.run == nil {
		t.Fatal("no group is being made")
	}
	return th
}

// A source that waits for its group hears of it if that queue pair is disconnected meanwhile.
func TestAQueuePairThatEndsBeforeItsGroupIsMade(t *testing.T) {
	th := slowRun(t)
	th.host("c").conns[2].disconnect()
	th.run(time.Second)
	th.begun()
	th.run(time.Second)
	const failed = "its receive failed"
	if a, b := th.host("a").over, th.host("b").over; a != failed || b != failed {
		t.Errorf("the source is %q, receiver b %q", a, b)
	}
	if c := th.m.all()[0]; c.reason != "receiver 10.77.0.3 disconnected" || len(th.groups) != 0 {
		t.Errorf("the run ended because %q, groups %v", c.reason, th.groups)
	}
}

// What becomes of the group of a run that has ended does not matter to the next run.
func TestAGroupThatIsMadeAfterItsRun(t *testing.T) {
	for _, refuse := range []error{nil, errors.New("no room")} {
		th := slowRun(t)
		a := th.host("a")
		a.step = func(*actor) {}
		for _, j := range a.conns {
			j.disconnect()
		}
		th.run(time.Second)
		a.connect()
		th.run(time.Second)
		th.refuse = refuse
		th.begun()
		th.run(time.Second)
		if r := th.m.run; r == nil || r.control.state != Established || len(th.groups) != 0 || a.over != "" {
			t.Errorf("the group of the run before is made: %v; run %+v, groups %v, the source is %q", refuse, r, th.groups, a.over)
		}
	}
}

// after lets a receiver do something in place of its answer to a message.
func (th *theatre) after(name string, number int, do func(*joint)) {
	seen := 0
	th.host(name).react = func(j *joint, _ []byte) bool {
		seen++
		if seen == number {
			do(j)
		}
		return seen == number && j.deaf == 0
	}
}

func (th *theatre) reply(name string, number int, message []byte) {
	th.after(name, number+1, func(j *joint) { j.speak(message) })
}

// The programs of the receivers listen for the queue pairs a little after the source may connect.
func TestAReceiverListensAgain(t *testing.T) {
	th := newTheatre(t, "b", "c")
	th.after("c", 5, func(j *joint) { j.deaf = 3 })
	playPerftest(th.host("a"), 1)
	th.run(time.Second) // the box asks again within tenths of a second
	if a := th.host("a"); a.over != "through" {
		t.Errorf("the source is %q", a.over)
	}
	th.isOver("a receiver listens late")
}

// The receivers' programs serve one source at a time. A second one hears that as soon as the first
// one has answered that it is there, also if it is on the host of the first one. The first one's
// run goes on.
func TestOneRunAtATime(t *testing.T) {
	for _, c := range []struct {
		from  string
		until int // answers that the first source has heard
		says  string
	}{
		{"d", 0, "no resources, the run of 10.77.0.1 has not ended; it ends in 8 s unless receiver 10.77.0.2 answers"},
		{"d", 1, "no resources, the run of 10.77.0.1 has not ended; it ends in 30 s unless source 10.77.0.1 goes on"},
		{"d", 5, "no resources, the run of 10.77.0.1 has not ended; it ends in 30 s unless source 10.77.0.1 goes on"},
		{"d", 8, "no resources, the run of 10.77.0.1 has not ended; it ends in 5 min unless source 10.77.0.1 goes on"},
		{"a", 4, "no resources, the run of 10.77.0.1 has not ended; it ends in 30 s unless source 10.77.0.1 goes on"},
		{"a", 8, "no resources, the run of 10.77.0.1 has not ended; it ends in 5 min unless source 10.77.0.1 goes on"},
	} {
		th := newTheatre(t, "b", "c")
		a := th.host("a")
		playPerftest(a, 1)
		step, asked := a.step, false
		if c.until == 0 {
			th.queue = append(th.queue, func() { th.request(c.from) })
		}
		a.step = func(*actor) {
			if len(a.heard) == c.until && c.until > 0 && !asked {
				asked = true
				th.request(c.from)
			}
			step(a)
		}
		th.run(30 * time.Second)
		if n := th.m.counts[TooMany]; n != 1 {
			t.Errorf("%+v: %d are counted as too many", c, n)
		}
		if a.over != "through" || th.refused != c.says {
			t.Errorf("%+v: the first source is %q, the second one hears %q", c, a.over, th.refused)
		}
		if _, says, _ := strings.Cut(c.says, ", "); !slices.Equal(th.notes, []string{fmt.Sprintf("0 %s: %s", c.from, says)}) {
			t.Errorf("%+v: told of %q", c, th.notes)
		}
		th.isOver("two sources")
	}
}

// other is the comm ID of a program that connects besides the actors.
const other = 999

// request is a REQ of such a program on a host.
func (th *theatre) request(from string) {
	th.step(Heard{hostIPs[from], wire.MAD{Message: testREQ(hostIPs[from], other, 4, 0x99, 1)}})
}

// A source that connects again and again does not fill the memory of the box: the run remembers all
// its connections until it ends.
func TestARunHasSoManyConnections(t *testing.T) {
	th := newTheatre(t, "b")
	a := th.host("a")
	playPerftest(a, 1)
	step := a.step
	a.step = func(*actor) {
		if th.m.run != nil && th.m.run.talk.ExpectsConnections() {
			a.step = func(*actor) {}
			for len(th.m.run.data) < MaxConnections {
				th.m.run.data = append(th.m.run.data, &connection{state: Over})
			}
			a.connect()
			return
		}
		step(a)
	}
	th.run(time.Second)
	if m := th.m; m.run == nil || len(m.run.data) != MaxConnections || m.counts[TooMany] == 0 {
		t.Errorf("%+v, %d refused", m.run, m.counts[TooMany])
	}
	if want := []string{"0 a: the run of 10.77.0.1 has 1024 queue pairs, as many as there may be"}; !slices.Equal(th.notes, want) {
		t.Errorf("told of %q, want %q", th.notes, want)
	}
}

// The message that makes a program's receive fail may be lost too.
func TestARunThatFailsWithLoss(t *testing.T) {
	for lose := range 140 {
		th := newTheatre(t, "b", "c")
		th.lose = lose
		th.reply("c", 3, []byte("nonsense"))
		playPerftest(th.host("a"), 1)
		th.run(time.Minute)
		for _, name := range []string{"a", "b"} {
			if got := th.host(name).over; got != "its receive failed" {
				t.Errorf("%d is lost: the program at %s is %q", lose, name, got)
			}
		}
	}
}

// A transfer may take any time, as long as the source sends packets.
func TestALongTransfer(t *testing.T) {
	th := newTheatre(t, "b", "c")
	th.sending = true
	a := th.host("a")
	playPerftest(a, 1)
	step := a.step
	a.step = func(*actor) {
		if len(a.heard) < 9 {
			step(a)
		}
	}
	th.run(10 * time.Minute)
	if len(th.groups) != 1 {
		t.Fatalf("groups %v, after %q", th.groups, a.heard)
	}
	a.step = step
	step(a)
	th.run(time.Minute)
	if a.over != "through" {
		t.Errorf("the source is %q", a.over)
	}
}
