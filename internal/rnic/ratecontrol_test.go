package rnic

import (
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
)

// reactionPlay is a reaction point with small numbers: g is 1/2, alpha falls every 10 us, the rate
// rises every 20 us and every 1000 bytes.
type reactionPlay struct {
	t *testing.T
	reaction
}

func playReaction(t *testing.T, lineRate int64) *reactionPlay {
	return &reactionPlay{t, newReaction(RateControl{
		LineRate: lineRate, MinRate: 10, Gain: 1, AlphaEvery: 10 * time.Microsecond, IncreaseEvery: 20 * time.Microsecond,
		IncreaseBytes: 1000, Stages: 2, Additive: 100, Hyper: 300,
	})}
}

// at expects rate, target and alpha at a time, alpha in units of 1/65536.
func (p *reactionPlay) at(us int, rate, target, alpha int64) {
	p.t.Helper()
	p.catchUp(time.Duration(us) * time.Microsecond)
	if p.rate != rate || p.target != target || p.alpha != alpha<<(alphaBits-16) {
		p.t.Errorf("after %d us: rate %d, target %d, alpha %d/65536, want %d, %d, %d",
			us, p.rate, p.target, p.alpha>>(alphaBits-16), rate, target, alpha)
	}
}

func (p *reactionPlay) cnp(us int) { p.decrease(time.Duration(us) * time.Microsecond) }

func (p *reactionPlay) sends(us, bytes int) { p.transmitted(time.Duration(us)*time.Microsecond, bytes) }

func TestTheTimerRaisesTheRate(t *testing.T) {
	p := playReaction(t, 1000)
	p.at(500, 1000, 1000, 65536) // no CNP came: no timer runs
	p.cnp(1000)
	p.at(1009, 500, 1000, 65536)
	p.at(1010, 500, 1000, 32768)
	p.at(1019, 500, 1000, 32768)
	p.at(1020, 750, 1000, 16384) // fast recovery
	p.at(1040, 875, 1000, 4096)  // additive: the target is the line rate already
	p.cnp(1045)                  // 875 - 875/32
	p.at(1045, 848, 875, 34816)  // 1/16 + 15/32
	p.cnp(1050)                  // 848 - 848*17/64
	p.at(1050, 623, 848, 50176)  // 17/32 + 15/64
	p.at(1069, 623, 848, 25088)  // the timers began again with the CNP
	p.at(1070, 735, 848, 12544)  // fast recovery
	p.at(1090, 841, 948, 3136)   // additive
	p.at(1110, 920, 1000, 784)   // additive, up to the line rate
	p.at(1130, 960, 1000, 196)   //
	p.at(1150, 980, 1000, 49)    //
}

func TestTimerAndBytesRaiseTheRate(t *testing.T) {
	p := playReaction(t, 8000)
	p.sends(0, 5000) // before the first CNP nothing is counted
	p.cnp(0)
	p.cnp(1)
	p.cnp(2)
	p.at(2, 1000, 2000, 65536)
	p.sends(3, 999)
	p.at(21, 1000, 2000, 32768)
	p.at(22, 1500, 2000, 16384)
	p.sends(22, 1)
	p.at(22, 1750, 2000, 16384) // fast recovery by both
	p.at(42, 1925, 2100, 4096)  // additive, because of the timer
	p.sends(42, 1000)
	p.at(42, 2062, 2200, 4096)
	p.at(62, 2181, 2300, 1024) // the bytes are not behind fast recovery
	p.sends(62, 1999)
	p.at(62, 2390, 2600, 1024) // hyper, by both
	p.sends(63, 1)             // with the rest of before
	p.at(63, 2645, 2900, 1024)
	p.at(82, 2922, 3200, 256)
	p.cnp(82)
	p.sends(82, 999) // the count begins again
	if p.bytesStage != 0 || p.timerStage != 0 {
		t.Errorf("stages %d and %d after a CNP", p.timerStage, p.bytesStage)
	}
}

func TestBytesAloneRaiseTheRate(t *testing.T) {
	p := playReaction(t, 8000)
	p.cnp(0)
	p.sends(1, 1000)
	p.at(1, 6000, 8000, 65536)
	p.cnp(1)
	p.cnp(1)
	p.at(1, 1500, 3000, 65536)
	p.sends(1, 1000)
	p.at(1, 2250, 3000, 65536)
	p.sends(1, 1000)
	p.at(1, 2675, 3100, 65536)
}

func TestTheRateHasAFloor(t *testing.T) {
	p := playReaction(t, 1000)
	for range 20 {
		p.cnp(0)
	}
	p.at(0, 10, 10, 65536)
}

func TestParametersOfThePaper(t *testing.T) {
	c := Defaults()
	c.IP, c.RateControl = storySelf.IP, DCQCN(25_000_000_000)
	q, err := NewQP(c, &Memory{})
	if err != nil {
		t.Fatal(err)
	}
	q.reaction.decrease(0)
	if rate := q.Rate(54 * time.Microsecond); rate != 12_500_000_000 {
		t.Errorf("the first CNP leaves %d bits/s", rate)
	}
	if rate := q.Rate(55 * time.Microsecond); rate != 18_750_000_000 {
		t.Errorf("%d bits/s after 55 us", rate)
	}
	// Five times half of what is missing, but for what additive increase would add.
	if rate := q.Rate(4 * 55 * time.Microsecond); rate != 24_218_750_000 {
		t.Errorf("%d bits/s after 220 us", rate)
	}
}

// A queue pair sends one frame after the other at its rate, and says when the next one may leave.
func TestTransmitKeepsToTheRate(t *testing.T) {
	a, b := pairIPv4(t, func(c *Config) { c.RateControl = DCQCN(8_000_000_000) }) // a byte takes a nanosecond
	for i := range uint64(3) {
		if err := a.qp.PostWrite(i, make([]byte, 1000), b.remote()); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Duration(5000)
	first := len(a.qp.Transmit(now, a.buf[:]))
	if first < 1000 {
		t.Fatal("the first packet has to wait")
	}
	next := now + time.Duration(first)
	if a.qp.NextDeadline() == next {
		t.Error("the next packet waits, but nobody has asked for it")
	}
	if a.qp.Transmit(next-1, a.buf[:]) != nil || a.qp.NextDeadline() != next {
		t.Errorf("the second packet may leave at %d, want %d", a.qp.NextDeadline(), next)
	}
	if a.qp.Paced(next) || !a.qp.Paced(next+1) {
		t.Error("the second packet's turn is not when it may leave")
	}
	if a.qp.Tick(next - 1); a.qp.NextDeadline() != next {
		t.Errorf("an early look moves the deadline to %d", a.qp.NextDeadline())
	}
	if a.qp.Tick(next); a.qp.NextDeadline() == next {
		t.Error("the deadline stays although it has come")
	}
	if a.qp.Transmit(next, a.buf[:]) == nil {
		t.Error("the second packet has to wait longer")
	}
	// A congestion notification halves the rate: the packet behind the next one waits twice
	// as long.
	a.qp.ReceiveDecoded(next, cnpView(t), cnpTo(t, a, b), a.buf[:])
	if n := a.qp.Counters().Get(CNPsReceived); n != 1 {
		t.Fatalf("%d CNPs", n)
	}
	now = next + time.Duration(first)
	if a.qp.Transmit(now, a.buf[:]) == nil {
		t.Fatal("the third packet has to wait for more than the second one took")
	}
	if err := a.qp.PostWrite(3, make([]byte, 1000), b.remote()); err != nil {
		t.Fatal(err)
	}
	if a.qp.Transmit(now+time.Duration(2*first-1), a.buf[:]) != nil {
		t.Error("after a CNP a packet leaves too early")
	}
	if a.qp.Transmit(now+time.Duration(2*first), a.buf[:]) == nil {
		t.Error("after a CNP a packet leaves too late")
	}
}

// Without rate control a CNP changes nothing.
func TestWithoutRateControlNothingWaits(t *testing.T) {
	a, b := pairIPv4(t, nil)
	for i := range uint64(2) {
		if err := a.qp.PostWrite(i, make([]byte, 1000), b.remote()); err != nil {
			t.Fatal(err)
		}
		a.qp.ReceiveDecoded(0, cnpView(t), cnpTo(t, a, b), nil)
		if a.qp.Transmit(0, a.buf[:]) == nil {
			t.Error("a packet waits")
		}
	}
	if a.qp.Rate(0) != 0 {
		t.Error("there is a rate")
	}
}

// A queue pair in ERR waits for nothing.
func TestAnErrorEndsTheWait(t *testing.T) {
	a, b := pairIPv4(t, func(c *Config) { c.RateControl, c.Timeout = DCQCN(8_000_000_000), 0 })
	for i := range uint64(2) {
		if err := a.qp.PostWrite(i, make([]byte, 1000), b.remote()); err != nil {
			t.Fatal(err)
		}
		a.qp.Transmit(0, a.buf[:])
	}
	if a.qp.NextDeadline() == Never {
		t.Fatal("the second packet does not wait")
	}
	if a.qp.fail(); a.qp.NextDeadline() != Never {
		t.Errorf("waits until %d", a.qp.NextDeadline())
	}
}

// cnpTo returns a CNP of b for a.
func cnpTo(t *testing.T, a, b *node) []byte {
	t.Helper()
	b.qp.notifier.due = true
	return b.qp.Notify(make([]byte, MaxFrameBytes))
}

// cnpView locates the headers of a CNP.
func cnpView(t *testing.T) *roce.View {
	t.Helper()
	x, y := pairIPv4(t, nil)
	var v roce.View
	if b := cnpTo(t, x, y); v.Decode(b, len(b)) != nil {
		t.Fatal("a CNP does not decode")
	}
	return &v
}
