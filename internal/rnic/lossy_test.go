package rnic

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Over a link that loses, doubles and reorders frames in both directions, everything arrives intact
// and in order, or the requester gives up with one of the errors that its configuration allows.
// What it reports as done is done.
func TestEverythingArrivesOrAnErrorIsReported(t *testing.T) {
	runs := uint64(300)
	if testing.Short() {
		runs = 60
	}
	outcomes := map[Status]int{}
	for seed := range runs {
		s := newScenario(t, seed)
		s.run()
		if err := s.check(); err != nil {
			t.Fatalf("seed %d: %v\nrequester %+v\n%v\nresponder %v", seed, err, s.link.nodes[0].qp.cfg,
				s.link.nodes[0].qp.Counters().ByName(), s.link.nodes[1].qp.Counters().ByName())
		}
		outcomes[s.outcome]++
	}
	for _, want := range []Status{Success, RetryExceeded, RNRRetryExceeded} {
		if outcomes[want] == 0 {
			t.Errorf("no run ended with %q: %v", want, outcomes)
		}
	}
}

// scenario is one run: messages of all kinds from node 0 to node 1, each to a place of its own.
type scenario struct {
	t        *testing.T
	random   *rand.Rand
	link     *lossyLink
	messages []message
	received [][]byte // receive buffers, in order
	nextRecv time.Duration
	ended    []Completion
	recvs    []Completion
	outcome  Status
}

func newScenario(t *testing.T, seed uint64) *scenario {
	r := rand.New(rand.NewPCG(seed, 0))
	chosen := Config{MTUBytes: 256 << r.IntN(3), Timeout: uint8(8 + r.IntN(6)), RetryCount: 7, RNRRetry: 7}
	if impatient := r.IntN(2) == 0; impatient {
		chosen.RetryCount, chosen.RNRRetry = uint8(r.IntN(7)), uint8(r.IntN(7))
	}
	a, b := pairIPv4(t, func(c *Config) {
		c.MTUBytes, c.Timeout, c.RetryCount, c.RNRRetry = chosen.MTUBytes, chosen.Timeout, chosen.RetryCount, chosen.RNRRetry
		c.MinRNRTimer = 1
	})
	s := &scenario{t: t, random: r}
	s.link = &lossyLink{
		random: r, nodes: [2]*node{a, b}, lost: r.Float64() * 0.2, doubled: r.Float64() * 0.1,
		latency: 10 * time.Microsecond, jitter: time.Duration(r.IntN(200)) * time.Microsecond, at: s.postReceives,
	}
	s.post(a, b)
	return s
}

func (s *scenario) post(a, b *node) {
	offset := uint64(0)
	for i := range 1 + s.random.IntN(40) {
		to := b.remote()
		to.VA += offset
		m := message{op: Operation(s.random.IntN(4)), remote: to, imm: s.random.Uint32()}
		m.data = make([]byte, s.random.IntN(1+[]int{0, 64, 2000, 20000}[s.random.IntN(4)]))
		for j := range m.data {
			m.data[j] = byte(s.random.Uint32()) | 1
		}
		offset += uint64(len(m.data))
		s.messages = append(s.messages, m)
		if m.op != Write {
			s.received = append(s.received, make([]byte, 20000))
		}
		if err := m.post(a.qp, uint64(i)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// postReceives gives the receiver its buffers late, and a few at a time.
func (s *scenario) postReceives() {
	q := s.link.nodes[1].qp
	for s.link.now >= s.nextRecv && s.posted() < len(s.received) {
		if err := q.PostRecv(uint64(s.posted()), s.received[s.posted()]); err != nil {
			s.t.Fatal(err)
		}
		if s.random.IntN(4) == 0 {
			s.nextRecv = s.link.now + time.Duration(s.random.IntN(2000))*time.Microsecond
		}
	}
}

func (s *scenario) posted() int { return s.link.nodes[1].qp.recvUsed + len(s.recvs) }

func (s *scenario) run() {
	s.link.run(10*time.Minute, func() bool {
		s.drain()
		return len(s.ended) == len(s.messages)
	})
}

func (s *scenario) drain() {
	for i, to := range [2]*[]Completion{&s.ended, &s.recvs} {
		for {
			c, ok := s.link.nodes[i].qp.Poll()
			if !ok {
				break
			}
			*to = append(*to, c)
		}
	}
}

func (s *scenario) check() error {
	if len(s.ended) != len(s.messages) {
		return fmt.Errorf("hangs at %v: %d of %d work requests ended", s.link.now, len(s.ended), len(s.messages))
	}
	recv := 0
	for i, c := range s.ended {
		m := &s.messages[i]
		if c.WRID != uint64(i) || c.Op != m.op {
			return fmt.Errorf("completion %d is %v", i, c)
		}
		if c.Status != Success {
			return s.checkFailure(s.ended[i:])
		}
		if err := s.delivered(m, &recv); err != nil {
			return fmt.Errorf("message %d (%s, %d bytes) was reported done: %w", i, m.op, len(m.data), err)
		}
	}
	counters := s.link.nodes[0].qp.Counters()
	if counters.Violations() != 0 || counters.Get(ACKsWrongMSN) != 0 {
		return errors.New("the responder broke a rule")
	}
	return nil
}

// delivered checks that a message is where it should be. recv counts the receives that were taken.
func (s *scenario) delivered(m *message, recv *int) error {
	at := s.link.nodes[1].memory[m.remote.VA-nodeVA:][:len(m.data)]
	if m.op != Write {
		if *recv >= len(s.recvs) {
			return fmt.Errorf("%d receives completed", len(s.recvs))
		}
		c := s.recvs[*recv]
		if hasImm := m.op != Send; c.Status != Success || int(c.Bytes) != len(m.data) || c.HasImm != hasImm ||
			hasImm && c.Imm != m.imm {
			return fmt.Errorf("receive %d is %v", *recv, c)
		}
		if m.op != WriteImm {
			at = s.received[*recv][:len(m.data)]
		}
		*recv++
	}
	if !bytes.Equal(at, m.data) {
		return fmt.Errorf("data differs")
	}
	return nil
}

// checkFailure checks that the requester was allowed to give up, and that every message behind was
// flushed.
func (s *scenario) checkFailure(ended []Completion) error {
	c := s.link.nodes[0].qp.cfg
	s.outcome = ended[0].Status
	permitted := s.outcome == RetryExceeded && c.RetryCount != retryForever ||
		s.outcome == RNRRetryExceeded && c.RNRRetry != retryForever
	if !permitted {
		return fmt.Errorf("gave up with %v", ended[0])
	}
	for _, c := range ended[1:] {
		if c.Status != WRFlushed {
			return fmt.Errorf("%v behind %v", c, ended[0])
		}
	}
	return nil
}

// Nothing is allocated, on either side, while a message of any kind is on its way.
func TestNoAllocationPerPacket(t *testing.T) {
	a, b := pairIPv4(t, nil)
	data, receive := make([]byte, 40*1024), make([]byte, 40*1024)
	allocs := testing.AllocsPerRun(100, func() {
		posted := []error{
			a.qp.PostWrite(1, data, b.remote()), b.qp.PostRecv(2, receive), a.qp.PostSend(3, data),
			b.qp.PostRecv(4, receive), a.qp.PostWriteImm(5, data, b.remote(), 6),
		}
		for _, err := range posted {
			if err != nil {
				t.Fatal(err)
			}
		}
		exchange(a, b)
		for range 3 {
			if c, ok := a.qp.Poll(); !ok || c.Status != Success {
				t.Fatal(c, ok)
			}
		}
		for range 2 {
			if c, ok := b.qp.Poll(); !ok || c.Bytes != uint32(len(data)) {
				t.Fatal(c, ok)
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per run", allocs)
	}
}

func TestNoAllocationForRefusedAndRepeatedFrames(t *testing.T) {
	a, b := pairIPv4(t, nil)
	if err := a.qp.PostWrite(1, make([]byte, 64), b.remote()); err != nil {
		t.Fatal(err)
	}
	var buf, reply [MaxFrameBytes]byte
	frame := a.qp.Transmit(0, buf[:])
	wrong := bytes.Clone(frame)
	wrong[len(wrong)-1]++
	ack := b.qp.Receive(0, frame, nil)
	now := time.Duration(0)
	allocs := testing.AllocsPerRun(100, func() {
		now += time.Second
		b.qp.Receive(now, frame, reply[:]) // duplicate
		b.qp.Receive(now, wrong, reply[:])
		a.qp.Tick(now) // times out and resends
		a.qp.Transmit(now, buf[:])
	})
	if allocs != 0 {
		t.Errorf("%v allocations per run", allocs)
	}
	if a.qp.Receive(now, ack, nil); a.qp.Counters().Get(MessagesSent) != 1 {
		t.Error(a.qp.Counters().ByName())
	}
}

// One run is a message of 256 packets of 1 KiB, built, checked, executed and acknowledged.
func BenchmarkMessageOf256Packets(b *testing.B) {
	from, to := pairIPv4(b, nil)
	data := make([]byte, 256*1024)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := from.qp.PostWrite(1, data, to.remote()); err != nil {
			b.Fatal(err)
		}
		exchange(from, to)
		if c, ok := from.qp.Poll(); !ok || c.Status != Success {
			b.Fatal(c, ok)
		}
	}
}
