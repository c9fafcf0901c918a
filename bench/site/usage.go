package site

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/slow"
)

// Usage is what has been used until a moment.
type Usage struct {
	at         time.Time
	hosts, box time.Duration // CPU time of this process and of the daemon
	sent       uint64        // bytes that a host has sent
}

// Use returns what has been used until now; source is the host whose link, which is shaped, counts.
func (l *Lab) Use(source *bed.Host) (u Usage, err error) {
	var self unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &self); err != nil {
		return u, err
	}
	u.hosts = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	if u.box, err = l.Daemon.CPUTime(); err != nil {
		return u, err
	}
	u.sent, err = slow.Sent(source.End)
	u.at = time.Now()
	return u, err
}

// Used is what a measurement has used.
type Used struct {
	Seconds   float64 `json:"seconds"`
	Sent      uint64  `json:"sourceBytes"` // on the source's link
	LinkShare float64 `json:"linkShare"`   // of what that link carries in this time; 0: nothing limits the link
	HostsCPUs float64 `json:"cpuHosts"`    // of all hosts together, and of packets that the kernel forwards in their time
	BoxCPUs   float64 `json:"cpuBox"`      // of rocastd
}

// Since is what was used since an earlier moment, over links of a rate in bits per second, or 0.
func (u Usage) Since(before Usage, rate int) Used {
	span := u.at.Sub(before.at)
	sent := u.sent - before.sent
	used := Used{
		Seconds: span.Seconds(), Sent: sent,
		HostsCPUs: float64(u.hosts-before.hosts) / float64(span), BoxCPUs: float64(u.box-before.box) / float64(span),
	}
	if rate > 0 {
		used.LinkShare = 8 * float64(sent) / float64(rate) / span.Seconds()
	}
	return used
}

// Quantile returns the shortest of some times that is not shorter than a share of them, in
// microseconds; without any, 0.
func Quantile(times []time.Duration, percent int) float64 {
	if len(times) == 0 {
		return 0
	}
	times = slices.Sorted(slices.Values(times))
	return float64(times[(len(times)*percent+99)/100-1]) / float64(time.Microsecond)
}
