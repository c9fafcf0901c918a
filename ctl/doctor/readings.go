package doctor

import (
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// Readings is what is known of a box.
type Readings struct {
	At       time.Time
	Client   api.Version
	NoBox    string // why no daemon answers; "": one does
	Version  api.Version
	Status   api.Status
	Features []api.Feature
	Groups   []api.Group // complete descriptions, of some groups at most
	// Missing has a question that the daemon did not answer, and behind a colon why.
	Missing []string
	// Kernel is the release of this machine's kernel. Remote: the daemon is on another machine, so
	// that nothing is known of the kernel and of NICs.
	Kernel string
	Remote bool
	NICs   map[string]NIC // by port
	// First is what was read some seconds before Now. nil: Now is the only reading.
	First *Sample
	Now   Sample
}

// Sample is what grows.
type Sample struct {
	At      time.Time
	Ports   []api.Port
	Stats   api.Counters
	Drops   api.Counters // those of Stats that count frames which were lost or refused
	Traffic api.Traffic
	NICs    map[string]api.Counters // by port: what ethtool -S says
}

// NIC is what ethtool says of a port and what does not grow.
type NIC struct {
	Driver   map[string]string // ethtool -i
	Channels Channels          // ethtool -l
	Features map[string]bool   // ethtool -k: on or off
	Missing  map[string]string // by flag: why it could not be read
}

// seconds is the time between the two readings; 0: there was only one.
func (r *Readings) seconds() float64 {
	if r.First == nil {
		return 0
	}
	return r.Now.At.Sub(r.First.At).Seconds()
}

// carried is what the groups have carried.
type carried struct {
	packets uint64 // in all
	grown   uint64 // of these, between the two readings
	active  int    // groups that carried packets between the two readings
}

// carried adds up what the groups have carried. A group that was made anew between the two readings
// counts from 0.
func (r *Readings) carried() (c carried) {
	before := map[string]uint64{}
	if r.First != nil {
		for i := range r.First.Traffic.Groups {
			before[r.First.Traffic.Groups[i].Name] = r.First.Traffic.Groups[i].Packets
		}
	}
	for i := range r.Now.Traffic.Groups {
		g := &r.Now.Traffic.Groups[i]
		c.packets += g.Packets
		if n := growth(before[g.Name], g.Packets); n > 0 && r.First != nil {
			c.grown += n
			c.active++
		}
	}
	return c
}

// growth is how much a total has grown. One that has fallen was begun anew.
func growth(was, is uint64) uint64 {
	if is < was {
		return is
	}
	return is - was
}

// grown returns those counters that have grown, and by how much; none without a first reading.
func grown(was, is api.Counters) api.Counters {
	all := api.Counters{}
	for name, n := range is {
		if g := growth(was[name], n); was != nil && g > 0 {
			all[name] = g
		}
	}
	return all
}
