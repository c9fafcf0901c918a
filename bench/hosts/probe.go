package hosts

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// probePatience bounds the time of a probe. A lost probe is sent again like any packet, and its
// time counts from the first sending.
const probePatience = 5 * time.Second

// Probe sends n packets one at a time, with a pause before each. For each it returns the time from
// the source's system call to the arrival in the XDP program of the last receiver.
func (h *Hosts) Probe(n int, pause time.Duration) (latencies []time.Duration, err error) {
	err = h.do(func() error {
		if err := h.setModes(modeStamp); err != nil {
			return err
		}
		h.setWindow(min(h.Window, carefulWindow))
		defer h.setWindow(h.Window)
		h.ackEvery = 1 // a packet alone is a whole message, and NICs ask for an ACK of each message
		for range n {
			if err := h.idle(pause); err != nil {
				return err
			}
			l, err := h.probe()
			if err != nil {
				return err
			}
			latencies = append(latencies, l)
		}
		return h.setModes(0)
	})
	return latencies, err
}

func (h *Hosts) probe() (time.Duration, error) {
	began, err := monotonic()
	if err != nil {
		return 0, err
	}
	if sent, err := h.send(1); err != nil || sent == 0 {
		return 0, errors.Join(errors.New("the source's window is closed"), err)
	}
	arrived, err := h.awaitProbe()
	return time.Duration(arrived - began), err
}

// awaitProbe spins until each receiver has taken all packets, and returns the time of the last
// arrival.
func (h *Hosts) awaitProbe() (arrived uint64, err error) {
	h.begin()
	deadline := h.progress.Add(probePatience)
	for r, n := range h.receivers {
		seen := n.seen()
		for ; seen.Taken < h.next; seen = n.seen() {
			now := time.Now()
			if now.After(deadline) {
				return 0, fmt.Errorf("receiver %d did not get a packet within %v", r, probePatience)
			}
			if now.Sub(h.retry) < stallAfter {
				continue
			}
			h.retry = now
			h.goBack(true)
			if err := h.catchUp(); err != nil {
				return 0, err
			}
		}
		arrived = max(arrived, seen.Arrived)
	}
	return arrived, nil
}

// catchUp sends the packets that are to be sent again, and no new ones.
func (h *Hosts) catchUp() error {
	for h.cursor < h.next {
		if _, err := h.send(min(batch, int(h.next-h.cursor))); err != nil {
			return err
		}
	}
	return nil
}

// idle lets the hosts answer, and spins until the pause is over and the window is open. It does not
// sleep, because a CPU that slept would wake up late for the next probe.
func (h *Hosts) idle(pause time.Duration) error {
	h.begin()
	began := h.progress
	for {
		if _, err := h.respond(); err != nil {
			return err
		}
		if _, err := h.listen(); err != nil {
			return err
		}
		now := time.Now()
		h.mindProgress(now)
		if err := h.catchUp(); err != nil {
			return err
		}
		switch waited := now.Sub(began); {
		case waited >= pause && h.next-h.base < h.window:
			return nil
		case waited > pause+probePatience:
			return errors.New("the source's window did not open between two probes")
		}
	}
}

// monotonic reads the clock of bpf_ktime_get_ns.
func monotonic() (uint64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano()), err
}
