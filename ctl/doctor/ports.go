package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/roce"
)

// port is what is known of a port.
type port struct {
	api.Port
	nic   NIC
	r     *Readings
	first *api.Port // some seconds before; nil: unknown
}

// eachPort asks of each port of the daemon.
func eachPort(judge func(*port) Finding) func(*Readings) []Finding {
	return from(func(r *Readings) (found []Finding) {
		for _, p := range r.Now.Ports {
			known := port{Port: p, nic: r.NICs[p.Name], r: r}
			if r.First != nil {
				if i := slices.IndexFunc(r.First.Ports, func(f api.Port) bool { return f.Name == p.Name }); i >= 0 {
					known.first = &r.First.Ports[i]
				}
			}
			f := judge(&known)
			f.Of = p.Name
			found = append(found, f)
		}
		return found
	}, "ports")
}

// links passes on what the daemon says of ports that do not work.
func links(r *Readings) []Finding {
	if r.NoBox != "" {
		return nil
	}
	found := problems(api.OfPort, "")(r)
	if found[0].Verdict == OK {
		found[0].Seen = plural(len(r.Now.Ports), "port") + " up"
	}
	return found
}

// unread is the finding of a check that needs what ethtool says with a flag.
func (p *port) unread(flag, what string) Finding {
	switch {
	case p.r.Remote:
		return Finding{Verdict: Unclear, Seen: "the daemon is on another machine", Remedy: "run rocast doctor there"}
	case p.nic.Missing[flag] != "":
		return Finding{Verdict: Unclear, Seen: p.nic.Missing[flag], Remedy: "apt install ethtool, if it is missing; some drivers do not answer"}
	}
	return Finding{Verdict: Unclear, Seen: "its driver does not say " + what, Remedy: "nothing: some drivers never do"}
}

func (p *port) driver() string { return p.nic.Driver["driver"] }

// statistics are the counters of the NIC that match; nil: ethtool says none.
func (p *port) statistics(left func(api.Counters) api.Counters) (was, is api.Counters) {
	if p.r.First != nil {
		was = left(p.r.First.NICs[p.Name])
	}
	return was, left(p.r.Now.NICs[p.Name])
}

// Tried are the drivers with which rocast was tried. docs/install.md has how.
var Tried = []string{"e1000e", "veth", "virtio_net", "vmxnet3"}

func driver(p *port) Finding {
	name := p.driver()
	if name == "" {
		return p.unread("-i", "its name")
	}
	seen := name
	for _, key := range []string{"version", "firmware-version", "bus-info"} {
		if v := p.nic.Driver[key]; v != "" {
			seen += ", " + key + " " + v
		}
	}
	if !slices.Contains(Tried, name) {
		return Finding{Verdict: Unclear, Seen: seen + "; nobody has told what rocast does with this driver",
			Remedy: "send this report; the list below has what is to be tried with it"}
	}
	return Finding{Verdict: OK, Seen: seen}
}

// stridesMTU is the largest MTU whose frames mlx5 has in one piece for XDP.
const stridesMTU = 3498

func attach(p *port) Finding {
	switch {
	case p.Attach == "":
		return Finding{Verdict: Unclear, Seen: "the port is not open", Remedy: "see the check link"}
	case p.Fallback != "":
		return Finding{Verdict: Look, Seen: "generic: " + p.Fallback, Remedy: "a NIC of the table docs/install.md#kernels-and-nics that is native"}
	case p.Attach != "native" && p.driver() == "mlx5_core" && p.MTU > stridesMTU:
		return Finding{Verdict: Look, Seen: fmt.Sprintf("%s at MTU %d: before Linux 6.4, mlx5 refuses native XDP above MTU %d while its receive queues have strides", p.Attach, p.MTU, stridesMTU),
			Remedy: fmt.Sprintf("ethtool --set-priv-flags %s rx_striding_rq off, and restart rocastd", p.Name)}
	case p.Attach != "native":
		return Finding{Verdict: Look, Seen: p.Attach + ": every packet of a group costs the kernel a buffer and a copy more",
			Remedy: "if the driver has native XDP, write mode: copy in rocastd.yaml, or lower the MTU (docs/install.md#kernels-and-nics)"}
	}
	seen := "native"
	if p.MultiBuffer {
		seen += ", with frames of several buffers (path MTU 4096)"
	}
	return Finding{Verdict: OK, Seen: seen}
}

func copies(p *port) Finding {
	if p.Mode == "" {
		return Finding{Verdict: Unclear, Seen: "the port is not open", Remedy: "see the check link"}
	}
	seen := "mode " + p.Mode
	if f := p.first; f != nil {
		rate := func(was, is uint64) float64 { return float64(growth(was, is)) / p.r.seconds() }
		seen += fmt.Sprintf("; %.0f frames a second received and %.0f sent", rate(f.RxFrames, p.RxFrames), rate(f.TxFrames, p.TxFrames))
	} else {
		seen += fmt.Sprintf("; %d frames received and %d sent", p.RxFrames, p.TxFrames)
	}
	if p.Mode != "zero-copy" {
		return Finding{Verdict: OK, Seen: seen + "; AF_XDP copies what it carries"}
	}
	if p.driver() == "virtio_net" {
		return Finding{Verdict: Look, Seen: seen + "; a virtio_net that is a module gives the device wrong addresses",
			Remedy: "write mode: copy in rocastd.yaml and restart rocastd, unless the data does not matter (docs/install.md#kernels-and-nics)"}
	}
	return Finding{Verdict: OK, Seen: seen + "; AF_XDP copies nothing"}
}

func kernelEngine(p *port) Finding {
	if p.NoKernel != "" {
		return Finding{Verdict: Look, Seen: "AF_XDP sends the copies by this port: " + p.NoKernel, Remedy: "the reason says what to do, if anything helps"}
	}
	return Finding{Verdict: OK, Seen: "nothing prevents it"}
}

func queues(p *port) Finding {
	has := p.nic.Channels.RX + p.nic.Channels.Combined
	if has == 0 {
		return p.unread("-l", "how many queues it has")
	}
	seen := fmt.Sprintf("the NIC has %s to receive, and rocastd serves %d", plural(has, "queue"), p.Queues)
	if most := p.nic.Channels.MaxCombined; most > has {
		seen += fmt.Sprintf("; at most %d", most)
	}
	if has > p.Queues && p.Attach != "" {
		return Finding{Verdict: Look, Seen: seen, Remedy: fmt.Sprintf("ethtool -L %s combined %d, or restart rocastd: frames that come by another queue go to the kernel", p.Name, p.Queues)}
	}
	return Finding{Verdict: OK, Seen: seen}
}

const (
	fewFrames = 1000 // too few to say how they are spread
	oneSided  = 0.9  // of all frames by one queue
)

func spread(p *port) Finding {
	if p.Queues == 1 {
		return Finding{Verdict: OK, Seen: "the port has one queue"}
	}
	was, is := p.statistics(func(c api.Counters) api.Counters { return c })
	now := byQueue(is)
	if len(now) == 0 {
		return p.unread("-S", "how many packets each queue has received; /proc/interrupts shows which queue is busy")
	}
	if was == nil {
		return Finding{Verdict: Unclear, Seen: "there was one reading only", Remedy: "run rocast doctor with --seconds above 0"}
	}
	before := byQueue(was)
	var sum, most uint64
	var words []string
	for _, q := range slices.Sorted(maps.Keys(now)) {
		n := growth(before[q], now[q])
		sum += n
		most = max(most, n)
		words = append(words, fmt.Sprintf("queue %d: %d", q, n))
	}
	if sum < fewFrames {
		return Finding{Verdict: Unclear, Seen: fmt.Sprintf("%d packets %s", sum, within(p.r)), Remedy: run}
	}
	seen := within(p.r) + " " + join(words, ", ")
	switch {
	case float64(most) < oneSided*float64(sum):
		return Finding{Verdict: OK, Seen: seen}
	case p.r.Status.Workers < 2:
		return Finding{Verdict: OK, Seen: seen + "; one worker serves all queues"}
	case p.r.carried().active < 2:
		return Finding{Verdict: Unclear, Seen: seen + "; all packets of one queue pair come by one queue", Remedy: "send by several groups at once: ib_write_bw -R -q 8"}
	}
	return Finding{Verdict: Look, Seen: seen, Remedy: fmt.Sprintf("ethtool -N %s rx-flow-hash udp4 sdfn: then the UDP source port, which differs for each queue pair, counts", p.Name)}
}

func vlan(p *port) Finding {
	if p.TagsTaken != "" {
		return Finding{Verdict: Look, Seen: p.TagsTaken, Remedy: fmt.Sprintf("ethtool -K %s rxvlan off txvlan off", p.Name)}
	}
	on, known := p.nic.Features["rx-vlan-offload"]
	switch {
	case !known:
		return p.unread("-k", "its offloads")
	case on && p.driver() != "veth":
		return Finding{Verdict: OK, Seen: fmt.Sprintf("the NIC takes tags out of frames, and nothing on this box has a tag there; before hosts use tags: ethtool -K %s rxvlan off txvlan off", p.Name)}
	}
	return Finding{Verdict: OK, Seen: "tags stay where they are"}
}

// joining are features that make one frame of several, each with what switches it off.
var joining = []struct{ feature, off string }{{"large-receive-offload", "lro"}, {"rx-gro-hw", "rx-gro-hw"}}

func offloads(p *port) Finding {
	if len(p.nic.Features) == 0 {
		return p.unread("-k", "its offloads")
	}
	var words, off []string
	for _, f := range []string{"rx-checksumming", "tx-checksumming", "generic-receive-offload", "receive-hashing", "ntuple-filters", "hw-tc-offload"} {
		if on, known := p.nic.Features[f]; known && on {
			words = append(words, f)
		}
	}
	for _, j := range joining {
		if p.nic.Features[j.feature] {
			words = append(words, j.feature)
			off = append(off, j.off+" off")
		}
	}
	seen := "on: " + strings.Join(words, ", ")
	if words == nil {
		seen = "none is on"
	}
	// virtio_net says that rx-gro-hw is on, and switches it off itself while a program is attached.
	if off != nil && p.driver() != "virtio_net" {
		return Finding{Verdict: Look, Seen: seen, Remedy: fmt.Sprintf("ethtool -K %s %s", p.Name, strings.Join(off, " "))}
	}
	return Finding{Verdict: OK, Seen: seen}
}

func mtu(p *port) Finding {
	var need int
	var names []string
	for i := range p.r.Groups {
		g := &p.r.Groups[i]
		if slices.ContainsFunc(g.Members, func(m api.Member) bool { return m.Port == p.Name }) {
			need = max(need, roce.LinkMTU(g.MTU, !strings.Contains(g.IP, ":")))
			names = append(names, fmt.Sprintf("%s %d", g.Name, g.MTU))
		}
	}
	seen := fmt.Sprintf("MTU %d", p.MTU)
	if names == nil {
		return Finding{Verdict: Unclear, Seen: seen + "; no group has a member behind it", Remedy: "make a group, and ask again"}
	}
	seen += "; path MTU of groups: " + join(names, ", ")
	if need > p.MTU {
		return Finding{Verdict: Look, Seen: seen, Remedy: fmt.Sprintf("ip link set %s mtu %d, and as much at each link behind it", p.Name, need)}
	}
	return Finding{Verdict: OK, Seen: seen}
}

func rings(p *port) Finding {
	count := func(p *api.Port) api.Counters {
		c := api.Counters{"queueFull": p.QueueFull, "lost": p.TxLost}
		maps.Copy(c, p.Kernel)
		delete(c, "tx-withdrawn") // a frame that rocast itself has withdrawn
		return c
	}
	var was api.Counters
	if p.first != nil {
		was = count(p.first)
	}
	return growing(p.r, was, count(&p.Port), "lost since the daemon started", "docs/reference.md#every-counter says what each counter means; rx-: the box is too slow; tx- and lost: the port is")
}

func nicFaults(p *port) Finding {
	was, is := p.statistics(func(c api.Counters) api.Counters { return matching(c, faults, noFaults) })
	if len(is) == 0 {
		return p.unread("-S", "what it loses")
	}
	return growing(p.r, was, is, "lost or damaged since the driver was loaded", "look at the cable, at the switch port and at the NIC's rings (ethtool -g); docs/install.md#what-only-real-hardware-can-show")
}

func pause(p *port) Finding {
	was, is := p.statistics(func(c api.Counters) api.Counters { return matching(c, pauses, noPauses) })
	if len(is) == 0 {
		return p.unread("-S", "how many pause frames it has received and sent")
	}
	f := growing(p.r, was, is, "pause frames since the driver was loaded", "rx: the other end of the link tells the box to wait, so find the receiver or switch that is congested; tx: the box tells "+
		"the other end to wait, so see the checks rings and spread")
	if list(is) == "" && p.r.carried().packets == 0 {
		return Finding{Verdict: Unclear, Seen: "no pause frame, and no packet of a group yet", Remedy: run}
	}
	return f
}
