package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rocast/rocast/ctl/api"
)

// Checks returns all checks, in the order in which a report has them.
func Checks() []Check {
	return []Check{
		{"daemon", "rocastd answers, and has the version of rocast", "rocast version", daemon},
		{"config", "the config file is what runs", "rocast status", from(config, "status")},
		{"kernel", "Linux 6.1 or newer, with all features that a group here needs", "rocast features", from(kernel, "features")},
		{"workers", "every forwarding thread ends its batches", "rocast status", from(problems(api.OfWorker, "no forwarding thread is stuck"), "status")},
		{"services", "every service at a group IP works, and etcd answers", "rocast status",
			from(problems("", "nothing is wrong with group IPs of hosts, with services or with etcd", api.OfHosts, api.OfStore, api.OfService), "status")},
		{"classifier", "no frame of a group goes to the kernel", "rocast stats --explain",
			from(problems(api.OfBox, "the classifier finds a socket and room for every frame of a group"), "status")},
		{"headers", "the driver puts the headers of every frame where the classifier reads them", "rocast stats --explain", from(headers, "stats")},
		{"notes", "no host that is no member sends frames to a group, and every edge asks", "rocast status", from(notes, "status")},
		{"groups", "every group is ready", "rocast group show NAME", from(groups, "status", "traffic")},
		{"drops", "no frame is lost or refused while groups carry data", "rocast drops", from(drops, "stats")},
		{"repair", "the box repairs what is lost, and the source does not have to help", "rocast stats --explain", from(repair, "stats")},
		{"congestion", "a receiver whose copies were marked answers with CNPs, and those of the most congested receiver reach the source",
			"rocast stats --explain", from(congestion, "stats", "ports", "traffic")},
		{"edges", "shared copies reach every receiver that shares", "rocast group show NAME", from(edges, "traffic")},
		{"link", "every port is up", "rocast port ls", from(links, "status", "ports")},
		{"driver", "a driver with which somebody has tried rocast", "ethtool -i PORT", eachPort(driver)},
		{"attach", "the classifier runs in the driver: native", "rocast port ls", eachPort(attach)},
		{"copies", "mode: copy, the default, or mode: zero-copy with a driver that can be relied on", "rocast port ls", eachPort(copies)},
		{"kernel-engine", "the kernel engine can send by the port", "rocast port ls", eachPort(kernelEngine)},
		{"queues", "rocastd serves every queue by which frames can come", "ethtool -l PORT", eachPort(queues)},
		{"spread", "with several workers, frames of several queue pairs come by several queues", "ethtool -S PORT", from(eachPort(spread), "status", "traffic")},
		{"vlan", "VLAN tags stay in the frame", "ethtool -k PORT", eachPort(vlan)},
		{"offloads", "no device joins several frames to one", "ethtool -k PORT", eachPort(offloads)},
		{"mtu", "the port carries the path MTU of its groups, and so does the network behind it", "ping -M do -c 3 -s BYTES HOST", from(eachPort(mtu), "groups")},
		{"rings", "the box takes every frame that the port receives, and the port takes every copy", "rocast port ls --json", eachPort(rings)},
		{"nic-faults", "the NIC loses no frame and finds none damaged", "ethtool -S PORT", eachPort(nicFaults)},
		{"pause", "nobody pauses the port, and the port pauses nobody", "ethtool -S PORT", eachPort(pause)},
	}
}

// from returns a check that cannot tell without what the daemon answers to some questions: what is
// not there would look like what is as it should be.
func from(judge func(*Readings) []Finding, questions ...string) func(*Readings) []Finding {
	return func(r *Readings) []Finding {
		if r.NoBox != "" {
			return judge(r)
		}
		for _, m := range r.Missing {
			if question, _, _ := strings.Cut(m, ": "); slices.Contains(questions, question) {
				return one(Unclear, "the daemon did not answer: "+m, "run rocast doctor again, as root; rocastd's log says more")
			}
		}
		return judge(r)
	}
}

// run is what makes traffic for the checks that need it.
const run = "run ib_write_bw -R -D 60 GROUP-IP at the source, and rocast doctor meanwhile"

func daemon(r *Readings) []Finding {
	switch {
	case r.NoBox != "":
		return one(Look, r.NoBox, "start rocastd (systemctl start rocastd), and read its log: journalctl -u rocastd")
	case r.Version.Version != r.Client.Version:
		return one(Look, fmt.Sprintf("rocastd is %s, and rocast is %s", r.Version.Version, r.Client.Version),
			"systemctl restart rocastd; queue pairs survive that")
	case len(r.Missing) > 0:
		return one(Unclear, "the daemon did not answer all questions: "+join(r.Missing, "; "), "run rocast doctor as root; rocastd's log says more")
	}
	seen := "rocastd and rocast are " + r.Version.Version
	if r.Version.Commit != "" {
		seen += fmt.Sprintf(" (commit %.12s)", r.Version.Commit)
	}
	return one(OK, seen, "")
}

func config(r *Readings) []Finding {
	c := r.Status.Config
	switch {
	case c == nil:
		return nil
	case c.Refused != "":
		return one(Look, "the last reload was refused: "+c.Refused, "correct "+c.File+", then: rocast reload")
	case c.Stale:
		return one(Look, c.File+" is not what runs: "+c.Reason, "rocast reload, or systemctl restart rocastd")
	}
	return one(OK, c.File+" is what runs", "")
}

func kernel(r *Readings) []Finding {
	seen := "Linux " + r.Kernel
	if r.Remote {
		seen = "a machine that is not this one"
	}
	var missing, unknown []string
	for _, f := range r.Features {
		switch f.Status {
		case api.Missing:
			missing = append(missing, f.Name+" (without it: "+f.Fallback+")")
		case api.Unknown:
			unknown = append(unknown, f.Name+" ("+f.Detail+")")
		}
	}
	switch {
	case !r.Remote && isOld(r.Kernel):
		return one(Look, seen, "boot Linux 6.1 or newer")
	case len(unknown) > 0:
		return one(Unclear, seen+"; probes that could not run: "+join(unknown, ", "), "rocastd needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON for them; the unit gives it these")
	case r.NoBox != "":
		return one(Unclear, seen, "start rocastd, which probes the kernel")
	case len(missing) > 0:
		return one(OK, seen+", which lacks "+join(missing, ", "), "")
	}
	return one(OK, seen+", which has every feature that rocastd uses", "")
}

// isOld reports whether a kernel is older than those with which rocast is tested.
func isOld(release string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return n == 2 && (major < 6 || major == 6 && minor < 1)
}

// problems returns a check that passes on the daemon's problems of some kinds. The daemon decides
// what is one, and its sentence has the remedy.
func problems(of, none string, more ...string) func(*Readings) []Finding {
	return func(r *Readings) (found []Finding) {
		if r.NoBox != "" {
			return nil
		}
		for _, p := range r.Status.Problems {
			if p.Of == of || slices.Contains(more, p.Of) {
				found = append(found, Finding{Verdict: Look, Of: p.Name, Seen: strings.TrimSuffix(p.State+": "+p.Reason, ": "), Remedy: "the reason says what to do"})
			}
		}
		if found == nil {
			return one(OK, none, "")
		}
		return found
	}
}

// headers looks at frames that end before their headers do. A single one was damaged. If many come,
// a driver leaves the front of long frames to their fragments, where no program for XDP looks
// without copying.
func headers(r *Readings) []Finding {
	if r.NoBox != "" {
		return nil
	}
	const name = "classifier-pass_truncated"
	of := func(s *Sample) api.Counters { return api.Counters{name: s.Stats[name]} }
	return []Finding{growing(r, first(r, of), of(&r.Now), "frames without their headers since the daemon started", "on a ConnectX: ethtool --set-priv-flags PORT rx_striding_rq off, and restart rocastd; else write mode: generic in rocastd.yaml")}
}

func notes(r *Readings) []Finding {
	switch {
	case r.NoBox != "":
		return nil
	case len(r.Status.Notes) == 0:
		return one(OK, "nothing to be said", "")
	}
	return one(Look, join(r.Status.Notes, "; "), "the note says what to do; a box with notes is healthy")
}

// troubles says which members of a group do not get on, and why.
func troubles(r *Readings, group string) (words []string) {
	for i := range r.Now.Traffic.Groups {
		g := &r.Now.Traffic.Groups[i]
		if g.Name != group {
			continue
		}
		if s := g.Source; s != nil {
			words = append(words, fmt.Sprintf("the source %s is in trouble (%s): %s", s.IP, s.Trouble, s.Reason))
		}
		for _, m := range g.Receivers {
			if m.Trouble != "" {
				words = append(words, fmt.Sprintf("%s (%s, %d packets behind): %s", m.IP, m.Trouble, m.Lag, m.Reason))
			}
		}
	}
	return words
}

func groups(r *Readings) []Finding {
	if r.NoBox != "" {
		return nil
	}
	found := problems(api.OfGroup, "")(r)
	if found[0].Verdict == Look {
		for i := range found {
			f := &found[i]
			f.Remedy = "the reason says what to do; docs/troubleshoot.md has what each fault looks like"
			if who := troubles(r, f.Of); len(who) > 0 {
				f.Seen += "; who holds it up: " + join(who, "; ")
			}
		}
		return found
	}
	carriers := map[string]int{}
	for i := range r.Now.Traffic.Groups {
		carriers[r.Now.Traffic.Groups[i].Carrier]++
	}
	n := r.Status.Groups[api.Ready]
	if n == 0 {
		return one(OK, "there is no group", "")
	}
	c := r.carried()
	seen := fmt.Sprintf("%s ready; the kernel carries %d, AF_XDP %d; %d packets", plural(n, "group"), carriers[api.CarrierKernel], carriers[api.CarrierAFXDP], c.packets)
	if r.First != nil {
		seen += fmt.Sprintf(", %.0f a second", float64(c.grown)/r.seconds())
	}
	return one(OK, seen, "")
}

// within says of how long a growth is.
func within(r *Readings) string { return fmt.Sprintf("in %.1f s", r.seconds()) }

// growing returns a finding about counters that should stand still.
func growing(r *Readings, was, is api.Counters, what, remedy string) Finding {
	if more := grown(was, is); r.First != nil && len(more) > 0 {
		return Finding{Verdict: Look, Seen: within(r) + ": " + list(more), Remedy: remedy}
	}
	seen := what + ": none"
	if all := list(is); all != "" {
		seen = what + ", but not now: " + all
		if r.First == nil {
			seen = what + ": " + all
		}
	}
	return Finding{Verdict: OK, Seen: seen}
}

// first is the earlier counters; nil: there are none.
func first(r *Readings, of func(*Sample) api.Counters) api.Counters {
	if r.First == nil {
		return nil
	}
	if c := of(r.First); c != nil {
		return c
	}
	return api.Counters{}
}

func drops(r *Readings) []Finding {
	if r.NoBox != "" {
		return nil
	}
	of := func(s *Sample) api.Counters { return s.Drops }
	return []Finding{growing(r, first(r, of), of(&r.Now), "lost or refused since the daemon started", "rocast drops says what each counter means, and docs/troubleshoot.md where to go on")}
}

func repair(r *Readings) []Finding {
	if r.NoBox != "" {
		return nil
	}
	of := func(s *Sample) api.Counters {
		c := api.Counters{}
		for name, n := range s.Stats {
			if strings.HasPrefix(name, "repair-given-up-") || strings.HasPrefix(name, "repair-lost-") {
				c[name] = n
			}
		}
		return c
	}
	f := growing(r, first(r, of), of(&r.Now), "the source had to help since the daemon started", "rocast stats --explain says why a packet was not kept, and rocast group show which receiver lacked it")
	f.Seen += fmt.Sprintf("; the box has repaired %d packets", r.Now.Stats["repair-sent"])
	return []Finding{f}
}

func congestion(r *Readings) []Finding {
	if r.NoBox != "" {
		return nil
	}
	var marked uint64
	for _, p := range r.Now.Ports {
		marked += p.Marked
	}
	passed, filtered := r.Now.Stats["cnp-passed"], r.Now.Stats["cnp-filtered"]
	cnps := passed + filtered
	switch {
	case r.carried().packets == 0:
		return one(Unclear, "no packet yet", run)
	case cnps == 0 && marked > 0:
		return one(Look, fmt.Sprintf("the box has marked %d copies, and no receiver has answered with a CNP", marked),
			"switch DCQCN on at the receivers: echo 1 > /sys/class/net/DEV/ecn/roce_np/enable/PRIORITY; Soft-RoCE sends no CNPs")
	case cnps == 0:
		return one(Unclear, "no copy was marked here, and no CNP came", "send two groups, or a group and a unicast flow, to one receiver, so that its link is congested")
	}
	return one(OK, fmt.Sprintf("%d CNPs came, and %d of them went to the source; the box has marked %d copies", cnps, passed, marked), "")
}

func edges(r *Readings) (found []Finding) {
	shared, saved := 0, uint64(0)
	for i := range r.Now.Traffic.Groups {
		g := &r.Now.Traffic.Groups[i]
		for _, s := range g.Shares {
			shared += s.Members
			saved += s.Saved
			if s.Working < s.Members {
				found = append(found, Finding{Of: g.Name, Verdict: Look,
					Seen:   fmt.Sprintf("the copies to %s reach %d of %s", s.IP, s.Working, plural(s.Members, "receiver")),
					Remedy: "rocast group show names those that have copies of their own; rocast-edge status at their hosts says why"})
			}
		}
	}
	switch {
	case r.NoBox != "":
		return nil
	case found != nil:
		return found
	case shared == 0:
		return one(OK, "no receivers share copies", "")
	}
	return one(OK, fmt.Sprintf("%s share, which has saved %d copies", plural(shared, "receiver"), saved), "")
}
