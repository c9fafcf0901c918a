package softroce

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tscOption tells a kernel with software emulation how fast its TSC is, which is that of this
// machine. A guest that measures it while others take the CPUs gets it wrong, and then its clock
// runs several times too fast. "": with KVM the guest has another clock, or nothing says it.
func tscOption(accel string) string {
	if accel == "kvm" {
		return ""
	}
	return readTSC()
}

var readTSC = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	return tscIn(string(text))
})

// tscIn finds the frequency in /proc/cpuinfo. What stands there is the present frequency of the
// CPU, and not that of the TSC, where the CPU counts its cycles.
func tscIn(cpuinfo string) string {
	var khz string
	for line := range strings.Lines(cpuinfo) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "cpu MHz":
			if mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
				khz = fmt.Sprintf(" tsc_early_khz=%.0f", mhz*1000)
			}
		case "flags":
			if slices.Contains(strings.Fields(value), "aperfmperf") {
				return ""
			}
		}
	}
	return khz
}

// reading is what a guest's clock showed between two times of this machine's clock.
type reading struct {
	from, to time.Time
	guest    time.Duration
}

func (c *computer) readClock(ctx context.Context) (r reading, err error) {
	r.from = time.Now()
	text, err := c.Run(ctx, "cat", "/proc/uptime")
	r.to = time.Now()
	if err != nil {
		return r, err
	}
	seconds, _, _ := strings.Cut(text, " ")
	f, err := strconv.ParseFloat(seconds, 64)
	r.guest = time.Duration(f * float64(time.Second))
	return r, err
}

const (
	clockWrong = 0.02                  // a part of the time by which a guest's clock may be wrong
	clockTick  = 20 * time.Millisecond // two of /proc/uptime
)

// since returns an error unless the guest's clock may have been right between two readings.
func (r reading) since(first reading) error {
	least, most := r.from.Sub(first.to), r.to.Sub(first.from)
	went := r.guest - first.guest
	if off := time.Duration(float64(most) * clockWrong); went < least-off-clockTick || went > most+off+clockTick {
		return fmt.Errorf("its clock went on by %v while this machine's went on by %v to %v",
			went, least.Round(time.Millisecond), most.Round(time.Millisecond))
	}
	return nil
}

// CheckClocks returns an error if the clock of a guest has not run as this machine's since the last
// check: what the guest has done in time says nothing then.
func (l *Lab) CheckClocks(ctx context.Context) error {
	for _, g := range l.Guests {
		if g.machine() == nil {
			continue
		}
		now, err := g.readClock(ctx)
		if last := g.lastReading(now); err == nil && last != (reading{}) {
			err = now.since(last)
		}
		if err != nil {
			return fmt.Errorf("guest %d: %w", g.Number, err)
		}
	}
	return nil
}

// lastReading returns the last reading of a guest's clock, and keeps another one. It is zero if
// there is none since the guest was powered on, or was paused, which its clock does not notice.
func (c *computer) lastReading(next reading) (last reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, c.clock = c.clock, next
	return last
}
