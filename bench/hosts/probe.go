package hosts

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// probePatience is how long a probe is waited for. One that was lost is sent again as any packet
// is, and its time counts from the first time.
const probePatience = 5 * time.Second

// Probe sends packets one at a time, a pause apart, and returns for each the time from before the
// source's system call to its arrival in the XDP program of the last receiver.
func (h *Hosts) Probe(n int, pause time.Duration) (latencies []time.Duration, err error) {
	err = h.do(func() error {
		if err := h.setModes(modeStamp); err != nil {
			return err
		}
		for range n {
			l, err := h.probe()
			if err != nil {
				return err
			}
			latencies = append(latencies, l)
			if err := h.idle(pause); err != nil {
				return err
			}
		}
		return h.setModes(0)
	})
	return latencies, err
}

func (h *Hosts) probe() (time.Duration, error) {
	want := make([]uint64, len(h.receivers))
	for r, n := range h.receivers {
		want[r] = n.seen().Taken + 1
	}
	began, err := monotonic()
	if err != nil {
		return 0, err
	}
	if sent, err := h.send(1); err != nil || sent == 0 {
		return 0, errors.Join(errors.New("the source's window did not open between two probes"), err)
	}
	arrived, err := h.awaitProbe(want)
	return time.Duration(arrived - began), err
}

// awaitProbe spins until each receiver has taken as many packets as wanted, and returns when the
// last one came.
func (h *Hosts) awaitProbe(want []uint64) (arrived uint64, err error) {
	h.begin()
	deadline := h.progress.Add(probePatience)
	for r, n := range h.receivers {
		seen := n.seen()
		for ; seen.Taken < want[r]; seen = n.seen() {
			now := time.Now()
			if now.After(deadline) {
				return 0, fmt.Errorf("receiver %d did not get a packet within %v", r, probePatience)
			}
			if now.Sub(h.retry) < stallAfter {
				continue
			}
			h.retry = now
			if err := h.resend(); err != nil {
				return 0, err
			}
		}
		arrived = max(arrived, seen.Arrived)
	}
	return arrived, nil
}

// resend goes back, and sends nothing new.
func (h *Hosts) resend() error {
	h.goBack(true)
	for h.cursor < h.next {
		if _, err := h.send(min(batch, int(h.next-h.cursor))); err != nil {
			return err
		}
	}
	return nil
}

// idle lets the hosts answer, and spins until the pause is over: a CPU that slept would wake up
// late for the next probe.
func (h *Hosts) idle(pause time.Duration) error {
	for until := time.Now().Add(pause); time.Now().Before(until); {
		if _, err := h.respond(); err != nil {
			return err
		}
		if _, err := h.listen(); err != nil {
			return err
		}
	}
	return nil
}

// monotonic is the clock of bpf_ktime_get_ns.
func monotonic() (uint64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano()), err
}
