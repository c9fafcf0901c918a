package rnic

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/rocast/rocast/roce"
)

// Stories are conversations with one queue pair, as text: what it gets, and what it sends and does.
// Each runs twice, the second time with PSNs that wrap within a few packets.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) { runStory(t, file, 0) })
		t.Run(name+"/wrap", func(t *testing.T) { runStory(t, file, 0xFFFFFE-storyPSN) })
	}
}

// storyPSN is the first PSN of both directions, in every story.
const storyPSN roce.PSN = 0x2000

var (
	storySelf = Peer{MAC: roce.MAC{2, 0, 0, 0, 0, 1}, IP: netip.MustParseAddr("10.0.0.1"), QPN: 0x11, PSN: storyPSN}
	storyPeer = Peer{MAC: roce.MAC{2, 0, 0, 0, 0, 2}, IP: netip.MustParseAddr("10.0.0.2"), QPN: 0x22, PSN: storyPSN}
)

type story struct {
	t      *testing.T
	d      *datadriven.TestData
	shift  roce.PSN // added to every PSN the story names
	now    time.Duration
	q      *QP
	memory *Memory
	region Region
	state  State
	seen   Counters
	posts  uint64
	out    strings.Builder
}

func runStory(t *testing.T, file string, shift roce.PSN) {
	s := &story{t: t, shift: shift}
	commands := map[string]func(){
		"qp": s.create, "region": s.register, "recv": s.recv, "wait": s.wait, "packet": s.packet,
		"write": s.post, "write-imm": s.post, "send": s.post, "send-imm": s.post, "read": s.post,
		"go": s.transmit, "ack": s.response, "nak": s.response, "rnr": s.response, "memory": s.showMemory,
	}
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		command := commands[d.Cmd]
		if command == nil {
			d.Fatalf(t, "unknown command %s", d.Cmd)
		}
		s.t, s.d = t, d
		s.out.Reset()
		command()
		s.report()
		if s.out.Len() == 0 {
			return "nothing\n"
		}
		return s.out.String()
	})
}

func (s *story) number(key string, otherwise uint64) uint64 {
	value := otherwise
	for _, arg := range s.d.CmdArgs {
		if arg.Key == key {
			if _, err := fmt.Sscanf(arg.Vals[0], "%v", &value); err != nil {
				s.d.Fatalf(s.t, "%s: %v", key, err)
			}
		}
	}
	return value
}

func (s *story) text(key string) (value string) {
	s.d.MaybeScanArgs(s.t, key, &value)
	return value
}

// psn reads a PSN, in hexadecimal.
func (s *story) psn() (psn roce.PSN) {
	if _, err := fmt.Sscanf(s.text("psn"), "%x", &psn); err != nil {
		s.d.Fatalf(s.t, "psn: %v", err)
	}
	return psn.Add(int32(s.shift))
}

// qp [mtu=1024] [timeout=14] [retry=7] [rnr-retry=7] [as-rxe] [flow-control] [cnp=INTERVAL]
func (s *story) create() {
	c := Defaults()
	c.MAC, c.IP, c.QPN, c.SendPSN = storySelf.MAC, storySelf.IP, storySelf.QPN, storySelf.PSN.Add(int32(s.shift))
	c.MTUBytes = int(s.number("mtu", 1024))
	c.Timeout = uint8(s.number("timeout", 14))
	c.RetryCount, c.RNRRetry = uint8(s.number("retry", 7)), uint8(s.number("rnr-retry", 7))
	c.AsRXE, c.TakesNext, c.FlowControl = s.d.HasArg("as-rxe"), s.d.HasArg("takes-next"), s.d.HasArg("flow-control")
	if interval := s.text("cnp"); interval != "" {
		c.CNPInterval = s.duration(interval)
	}
	var err error
	s.memory = &Memory{}
	if s.q, err = NewQP(c, s.memory); err != nil {
		s.t.Fatal(err)
	}
	peer := storyPeer
	peer.PSN = peer.PSN.Add(int32(s.shift))
	if err := s.q.Connect(peer); err != nil {
		s.t.Fatal(err)
	}
	s.now, s.posts, s.state, s.seen = 0, 0, StateReady, Counters{}
}

// region va=V rkey=K bytes=N [read-only]
func (s *story) register() {
	s.region = Region{VA: s.number("va", 0), RKey: uint32(s.number("rkey", 0)), Bytes: make([]byte, s.number("bytes", 0))}
	if !s.d.HasArg("read-only") {
		s.region.Access = RemoteWrite
	}
	if err := s.memory.Register(s.region); err != nil {
		s.t.Fatal(err)
	}
}

// recv bytes=N [count=1]
func (s *story) recv() {
	for range s.number("count", 1) {
		if err := s.q.PostRecv(s.nextPost(), make([]byte, s.number("bytes", 0))); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *story) nextPost() uint64 {
	s.posts++
	return s.posts - 1
}

// write bytes=N [count=1], and the same for the other requests. Each goes behind the one before it
// in the memory of the peer.
func (s *story) post() {
	bytes := int(s.number("bytes", 0))
	for range s.number("count", 1) {
		id := s.nextPost()
		to := Remote{VA: 0x10000 + id*uint64(bytes), RKey: 0xABCD}
		m := message{remote: to, data: make([]byte, bytes), bytes: bytes, imm: 0x1234}
		for m.op = Write; m.op.String() != s.d.Cmd; {
			m.op++
		}
		if err := m.post(s.q, id); err != nil {
			fmt.Fprintln(&s.out, err)
		}
	}
	s.transmit()
}

// go, and every command that makes the requester send, takes [limit=N]: the requester is not asked
// for more packets than that.

// transmit prints what the requester sends: the packets that ask for an ACK, the first of the
// others, and how many others there are.
func (s *story) transmit() {
	const shown = 4
	var lines []string
	var quiet int
	for range s.number("limit", 1<<20) {
		frame := s.q.Transmit(s.now, nil)
		if frame == nil {
			break
		}
		line, asks := s.describe(frame)
		if len(lines)+quiet >= shown && !asks {
			quiet++
			continue
		}
		lines = append(lines, line)
	}
	for _, line := range lines {
		fmt.Fprintln(&s.out, line)
	}
	if quiet > 0 {
		fmt.Fprintf(&s.out, "and %d that do not ask for an ACK\n", quiet)
	}
}

func (s *story) describe(frame []byte) (line string, asksForACK bool) {
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		s.t.Fatal(err)
	}
	if v.Opcode == roce.OpCNP {
		return fmt.Sprintf("CNP to %#x, PSN %d, traffic class %#x", uint32(v.DestQPN(frame)), v.PSN(frame), v.TrafficClass(frame)), false
	}
	line = fmt.Sprintf("%s %06x", v.Opcode, uint32(v.PSN(frame).Add(-int32(s.shift))))
	if asksForACK = v.AckReq(frame); asksForACK {
		line += " A"
	}
	if v.Opcode.Headers().Has(roce.HasRETH) {
		reth := v.RETH(frame)
		line += fmt.Sprintf(" va=%x dma=%d", reth.VA, reth.DMABytes)
	}
	if v.Opcode == roce.OpAck {
		aeth := v.AETH(frame)
		return fmt.Sprintf("%s msn=%d (%s)", line, aeth.MSN, aeth.Syndrome), false
	}
	return line + fmt.Sprintf(" data=%d", v.PayloadBytes), asksForACK
}

// ack psn=P [msn=M] [credits=N], nak psn=P [code=0x60], rnr psn=P timer=T
func (s *story) response() {
	aeth := roce.AETH{Syndrome: roce.SyndromeUnlimited, MSN: roce.MSN(s.number("msn", uint64(s.q.comp.msn)))}
	if s.d.HasArg("credits") {
		aeth.Syndrome = roce.SyndromeACK(roce.CreditCodeFor(uint32(s.number("credits", 0))))
	}
	switch s.d.Cmd {
	case "nak":
		aeth.Syndrome = roce.Syndrome(s.number("code", uint64(roce.NAKSequence)))
	case "rnr":
		aeth.Syndrome = roce.SyndromeRNR(roce.RNRTimer(s.number("timer", 12)))
	}
	s.deliver(forge{bth: roce.BTH{Opcode: roce.OpAck, PSN: s.psn()}, body: aeth.Append(nil)})
	s.transmit()
}

func (s *story) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return d
}

// wait D lets time pass. What the timers cause is printed with the time since the start of the
// story.
func (s *story) wait() {
	for end := s.now + s.duration(s.d.CmdArgs[0].Key); ; {
		if next := s.q.NextDeadline(); next > end {
			s.now = end
			return
		} else {
			s.now = next
		}
		s.q.Tick(s.now)
		before := s.out.Len()
		s.transmit()
		if text := s.out.String()[before:]; text != "" {
			kept := s.out.String()[:before]
			s.out.Reset()
			fmt.Fprintf(&s.out, "%sat %v\n%s", kept, s.now.Round(10*time.Microsecond), text)
		}
	}
}

// packet op=WRITE_ONLY psn=P [A] bytes=N [va=V] [rkey=K] [dma=N] [pad=N] [ecn=N], and changes that
// make it wrong, see forge.
func (s *story) packet() {
	f := forge{bth: roce.BTH{Opcode: opcodeNamed(s.t, s.text("op")), PSN: s.psn(), AckReq: s.d.HasArg("A")}}
	bytes := s.number("bytes", 0)
	headers := f.bth.Opcode.Headers()
	if headers.Has(roce.HasRETH) {
		reth := roce.RETH{
			VA: s.number("va", s.region.VA), RKey: uint32(s.number("rkey", uint64(s.region.RKey))),
			DMABytes: uint32(s.number("dma", bytes)),
		}
		f.body = reth.Append(f.body)
	}
	if headers.Has(roce.HasImmDt) {
		imm := roce.ImmDt(0xCAFE)
		f.body = imm.Append(f.body)
	}
	f.body = append(f.body, make([]byte, f.bth.Opcode.ExtBytes()-len(f.body))...)
	for i := range bytes {
		f.body = append(f.body, byte(i))
	}
	f.addresses = func(ip *roce.IPUDP, _ *roce.MAC) { ip.TrafficClass = uint8(s.number("ecn", 0)) }
	f.bth.PadCount = uint8(s.number("pad", uint64(roce.PadFor(int(bytes)))))
	s.deliver(f)
}

func opcodeNamed(t *testing.T, name string) roce.Opcode {
	for op := range 256 {
		if roce.Opcode(op).String() == name {
			return roce.Opcode(op)
		}
	}
	t.Fatalf("no opcode %q", name)
	return 0
}

func (s *story) deliver(f forge) {
	reply := s.q.Receive(s.now, f.frame(s.t), nil)
	for _, frame := range [][]byte{reply, s.q.Notify(nil)} {
		if frame != nil {
			line, _ := s.describe(frame)
			fmt.Fprintln(&s.out, line)
		}
	}
}

// memory prints how much of the region is not zero.
func (s *story) showMemory() {
	written := 0
	for _, b := range s.region.Bytes {
		if b != 0 {
			written++
		}
	}
	fmt.Fprintf(&s.out, "%d of %d bytes are not zero\n", written, len(s.region.Bytes))
}

// quietCounters are not printed: what the story prints otherwise shows them.
var quietCounters = map[Counter]bool{
	MessagesSent: true, MessagesReceived: true, PayloadBytesReceived: true, RequestsExecuted: true, ACKsSent: true,
	NAKSequenceSent: true, NAKInvalidRequestSent: true, NAKRemoteAccessSent: true, RNRNAKsSent: true,
	ACKsReceived: true, NAKSequenceReceived: true, RNRNAKsReceived: true, NAKFatalReceived: true, FramesRetransmitted: true,
	ACKsWrongMSN: true,
}

// report prints completions, a change of state, and the counters that moved.
func (s *story) report() {
	for {
		c, ok := s.q.Poll()
		if !ok {
			break
		}
		fmt.Fprintln(&s.out, c)
	}
	if s.q.State() != s.state {
		s.state = s.q.State()
		fmt.Fprintln(&s.out, "state", s.state)
	}
	for c := range NumCounters {
		if n := s.q.Counters().Get(c) - s.seen.Get(c); n != 0 && !quietCounters[c] {
			fmt.Fprintf(&s.out, "%s +%d\n", c, n)
		}
	}
	s.seen = *s.q.Counters()
}
