package rnic

import (
	"errors"
	"fmt"
	"time"
)

// RateControl are the parameters of the reaction point of DCQCN (Zhu et al., "Congestion Control
// for Large-Scale RDMA Deployments", SIGCOMM 2015): how a queue pair slows down when CNPs come, and
// speeds up when none come. Rates are in bits per second of whole frames. The zero value: the queue
// pair sends as fast as its owner calls Transmit, as rxe does.
type RateControl struct {
	LineRate int64 // with which the queue pair begins, and which it never exceeds
	MinRate  int64 // below which no CNP brings it
	// Gain is g: alpha, the estimate of how congested the path is, moves towards 1 or 0 by 1/2^Gain
	// of the distance.
	Gain          uint8
	AlphaEvery    time.Duration // alpha falls if no CNP came for so long (K)
	IncreaseEvery time.Duration // the rate rises (T)
	IncreaseBytes int64         // and whenever so many bytes were sent (B)
	Stages        int           // of fast recovery (F)
	Additive      int64         // by which the target rises behind these stages (R_AI)
	Hyper         int64         // if both timer and bytes are behind them (R_HAI)
}

// DCQCN returns the parameters of the paper for a line rate. R_HAI and the least rate are those of
// the paper's simulator.
func DCQCN(lineRate int64) RateControl {
	const megabit = 1_000_000
	return RateControl{
		LineRate: lineRate, MinRate: 100 * megabit, Gain: 8, AlphaEvery: 55 * time.Microsecond,
		IncreaseEvery: 55 * time.Microsecond, IncreaseBytes: 10 << 20, Stages: 5,
		Additive: 40 * megabit, Hyper: 200 * megabit,
	}
}

var errRateControl = errors.New("rate control needs positive rates, times and bytes")

func (c *RateControl) validate() error {
	switch {
	case *c == RateControl{}:
		return nil
	case c.LineRate <= 0 || c.MinRate <= 0 || c.AlphaEvery <= 0 || c.IncreaseEvery <= 0 || c.IncreaseBytes <= 0:
		return errRateControl
	case c.MinRate > c.LineRate:
		return fmt.Errorf("least rate %d exceeds the line rate %d", c.MinRate, c.LineRate)
	case c.LineRate > maxLineRate || c.Gain > alphaBits || c.Stages < 0 || c.Additive < 0 || c.Hyper < 0:
		return fmt.Errorf("rate control %+v is out of range", *c)
	}
	return nil
}

const (
	// Alpha has so many bits behind the point, so that the product with a rate fits into 64 bits.
	alphaBits   = 20
	alphaOne    = 1 << alphaBits
	maxLineRate = 1 << (62 - alphaBits)

	bitsPerByte = 8
)

// reaction is the reaction point of a queue pair. Nothing happens when its timers run out: catchUp
// applies them when the rate is needed next.
type reaction struct {
	RateControl
	rate, target int64 // R_C and R_T
	alpha        int64 // of alphaOne
	alphaAt      time.Duration
	increaseAt   time.Duration
	timerStage   int // increases by the timer since the last CNP
	bytesStage   int // and by the bytes
	bytes        int64
	cut          bool          // a CNP has come
	sendAt       time.Duration // the next packet may leave
	held         bool          // Transmit had to wait for sendAt
}

func newReaction(c RateControl) reaction {
	return reaction{RateControl: c, rate: c.LineRate, target: c.LineRate, alpha: alphaOne}
}

// on reports whether the queue pair has rate control.
func (r *reaction) on() bool { return r.LineRate > 0 }

// decrease reacts to a CNP.
func (r *reaction) decrease(now time.Duration) {
	if !r.on() {
		return
	}
	r.catchUp(now)
	r.target = r.rate
	r.rate = max(r.rate-r.rate*r.alpha>>(alphaBits+1), r.MinRate)
	r.alpha += (alphaOne - r.alpha) >> r.Gain
	r.alphaAt, r.increaseAt = now+r.AlphaEvery, now+r.IncreaseEvery
	r.timerStage, r.bytesStage, r.bytes = 0, 0, 0
	r.cut = true
}

// catchUp does what the timers would have done until now.
func (r *reaction) catchUp(now time.Duration) {
	if !r.cut {
		return
	}
	for ; now >= r.alphaAt; r.alphaAt += r.AlphaEvery {
		r.alpha -= r.alpha >> r.Gain
	}
	for ; now >= r.increaseAt; r.increaseAt += r.IncreaseEvery {
		r.timerStage++
		r.increase()
	}
}

// increase raises the rate towards the target, and the target behind fast recovery.
func (r *reaction) increase() {
	switch {
	case max(r.timerStage, r.bytesStage) < r.Stages:
	case min(r.timerStage, r.bytesStage) > r.Stages:
		r.target += r.Hyper
	default:
		r.target += r.Additive
	}
	r.target = min(r.target, r.LineRate)
	r.rate = (r.rate + r.target) / 2
}

// mayTransmit reports whether a packet may leave now.
func (r *reaction) mayTransmit(now time.Duration) bool {
	if !r.on() {
		return true
	}
	r.held = now < r.sendAt
	return !r.held
}

// release ends the wait for sendAt, so that deadline does not return a time that has passed.
func (r *reaction) release(now time.Duration) { r.held = r.held && now < r.sendAt }

// transmitted sets the earliest time of the next frame.
func (r *reaction) transmitted(now time.Duration, bytes int) {
	if !r.on() {
		return
	}
	r.catchUp(now)
	r.sendAt = now + time.Duration(int64(bytes)*bitsPerByte*int64(time.Second)/r.rate)
	if r.bytes += int64(bytes); r.cut && r.bytes >= r.IncreaseBytes {
		r.bytes -= r.IncreaseBytes
		r.bytesStage++
		r.increase()
	}
}

// deadline returns when a packet may leave that had to wait, or Never.
func (r *reaction) deadline() time.Duration {
	if r.held {
		return r.sendAt
	}
	return Never
}

// Paced reports whether a packet waits that may leave before a time.
func (q *QP) Paced(until time.Duration) bool { return q.reaction.deadline() < until }

// Rate returns the rate at which the queue pair may send now, in bits per second; 0: without rate
// control.
func (q *QP) Rate(now time.Duration) int64 {
	q.reaction.catchUp(now)
	return q.reaction.rate
}
