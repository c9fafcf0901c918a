package doctor

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// fixture reads what a program has said.
func fixture(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// healthy is a box with two ports on ConnectX NICs that carries two groups, in which every check
// but driver is ok: nobody has tried such a NIC.
func healthy(t *testing.T) *Readings {
	t.Helper()
	at := time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)
	version := api.Version{Version: "v1.2.0", Commit: "0123456789abcdef", Go: "go1.26.0"}
	r := &Readings{
		At: at, Client: version, Version: version, Kernel: "7.3.4",
		Status: api.Status{
			Workers: 2, Ports: map[string]int{api.PortUp: 2}, Groups: map[string]int{api.Ready: 2}, Healthy: true, Ready: true,
			Config: &api.ConfigState{File: "/etc/rocast/rocastd.yaml"},
		},
		Features: []api.Feature{{Name: "multi-buffer", Since: "6.6", Status: api.Available}},
		Groups: []api.Group{
			{GroupSummary: api.GroupSummary{Name: "g1", IP: "10.77.0.100", State: api.Ready}, MTU: 4096, Members: []api.Member{
				{IP: "10.77.0.1", Reach: api.Reach{Port: "eth1"}}, {IP: "10.77.0.2", Reach: api.Reach{Port: "eth2"}},
			}},
		},
		NICs: map[string]NIC{}, First: new(Sample),
	}
	nic := NIC{Driver: ParsePairs(fixture(t, "mlx5-i.txt")), Channels: ParseChannels(fixture(t, "mlx5-l.txt")), Features: ParseSwitches(fixture(t, "mlx5-k.txt"))}
	for i, s := range []*Sample{r.First, &r.Now} {
		n := uint64(i) * 100_000
		s.At = at.Add(time.Duration(i) * 2 * time.Second)
		s.Stats = api.Counters{"forwarded": 1000 + n, "cnp-passed": 3, "cnp-filtered": 4, "repair-sent": 7, "repair-lost-missing": 1}
		s.Drops = api.Counters{"bad-icrc": 5}
		s.Traffic.Groups = []api.GroupTraffic{
			{Name: "g1", Carrier: api.CarrierKernel, Packets: 500 + n/2, Receivers: []api.ReceiverTraffic{{IP: "10.77.0.2"}},
				Shares: []api.Share{{IP: "239.77.0.1", Members: 3, Working: 3, Saved: 20}}},
			{Name: "g2", Carrier: api.CarrierAFXDP, Packets: 500 + n/2},
		}
		s.NICs = map[string]api.Counters{}
		for _, name := range []string{"eth1", "eth2"} {
			s.Ports = append(s.Ports, api.Port{
				Name: name, State: api.PortUp, MTU: 4200, Attach: "native", Mode: "copy", MultiBuffer: true, Queues: 2,
				RxFrames: n, TxFrames: 3 * n, Marked: 9, Kernel: api.Counters{"rx-ring-full": 2},
			})
			s.NICs[name] = ParseStatistics(fixture(t, "mlx5-S.txt"))
			s.NICs[name]["rx0_packets"] += n / 2
			s.NICs[name]["rx1_packets"] += n / 2
			s.NICs[name]["rx_packets"] += n
			r.NICs[name] = nic
		}
	}
	return r
}

// finding returns what a check has found of something, or else of the box.
func finding(r Report, check, of string) (f Finding, found bool) {
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == check && f.Of == of })
	if i < 0 {
		return f, false
	}
	return r.Findings[i], true
}

// oks is what the checks of a healthy box see.
var oks = map[string]string{
	"daemon":             "rocastd and rocast are v1.2.0 (commit 0123456789ab)",
	"config":             "/etc/rocast/rocastd.yaml is what runs",
	"kernel":             "Linux 7.3.4, which has every feature that rocastd uses",
	"workers":            "no forwarding thread is stuck",
	"services":           "nothing is wrong with group IPs of hosts, with services or with etcd",
	"classifier":         "the classifier finds a socket and room for every frame of a group",
	"headers":            "frames without their headers since the daemon started: none",
	"notes":              "nothing to be said",
	"groups":             "2 groups ready; the kernel carries 1, AF_XDP 1; 101000 packets, 50000 a second",
	"drops":              "lost or refused since the daemon started, but not now: bad-icrc 5",
	"repair":             "the source had to help since the daemon started, but not now: repair-lost-missing 1; the box has repaired 7 packets",
	"congestion":         "7 CNPs came, and 3 of them went to the source; the box has marked 18 copies",
	"edges":              "3 receivers share, which has saved 20 copies",
	"link":               "2 ports up",
	"attach eth2":        "native, with frames of several buffers (path MTU 4096)",
	"copies eth2":        "mode copy; 50000 frames a second received and 150000 sent; AF_XDP copies what it carries",
	"kernel-engine eth2": "nothing prevents it",
	"queues eth2":        "the NIC has 2 queues to receive, and rocastd serves 2; at most 63",
	"spread eth2":        "in 2.0 s queue 0: 50000, queue 1: 50000",
	"vlan eth2":          "tags stay where they are",
	"offloads eth2":      "on: rx-checksumming, tx-checksumming, generic-receive-offload, receive-hashing",
	"mtu eth2":           "MTU 4200; path MTU of groups: g1 4096",
	"rings eth2":         "lost since the daemon started, but not now: rx-ring-full 2",
	"nic-faults eth2":    "lost or damaged since the driver was loaded, but not now: rx_out_of_buffer 12",
	"pause eth2":         "pause frames since the driver was loaded, but not now: rx_prio3_pause 40",
}

func TestAHealthyBoxIsOK(t *testing.T) {
	report := Examine(healthy(t))
	seen := map[string]bool{}
	for _, f := range report.Findings {
		key := strings.TrimSpace(f.Check + " " + f.Of)
		seen[f.Check] = true
		if f.Check == "driver" {
			if f.Verdict != Unclear || !strings.HasPrefix(f.Seen, "mlx5_core, version 7.3.4, firmware-version 16.35.4506 (MT_0000000008), bus-info 0000:3b:00.0; nobody has told") {
				t.Errorf("%+v", f)
			}
			continue
		}
		if want, known := oks[key]; f.Verdict != OK || known && f.Seen != want || f.Want == "" || f.Command == "" || strings.Contains(f.Command, "PORT") || f.Remedy != "" {
			t.Errorf("%s: %+v\nwant %s", key, f, want)
		}
	}
	for _, c := range Checks() {
		if !seen[c.Name] {
			t.Errorf("%s found nothing", c.Name)
		}
	}
	var byHand []string
	for _, h := range report.ByHand {
		byHand = append(byHand, h.Name)
	}
	if want := []string{"credits", "timers", "answers", "rules", "stick", "dpu"}; !slices.Equal(byHand, want) {
		t.Errorf("by hand are %q, want %q", byHand, want)
	}
	for key := range oks {
		if name, _, _ := strings.Cut(key, " "); !seen[name] {
			t.Errorf("there is no check %s", name)
		}
	}
	if report.Counts[OK] != len(report.Findings)-2 || report.Counts[Unclear] != 2 || report.Counts[Look] != 0 || report.Seconds != 2 {
		t.Errorf("%v of %d, %v s", report.Counts, len(report.Findings), report.Seconds)
	}
}

// wrong is a box that is not as it should be, and what the check says of that.
type wrong struct {
	check, of string
	what      string
	spoil     func(*Readings)
	verdict   Verdict
	seen      string // a part of it; with = in front: all
	remedy    string // a part of it
}

func addProblem(of, name, state, reason string) func(*Readings) {
	return func(r *Readings) {
		r.Status.Problems = append(r.Status.Problems, api.Problem{Of: of, Name: name, State: state, Reason: reason})
	}
}

// nic changes what ethtool says of eth2.
func nic(change func(*NIC)) func(*Readings) {
	return func(r *Readings) {
		n := r.NICs["eth2"]
		n.Driver, n.Features = clone(n.Driver), clone(n.Features)
		change(&n)
		r.NICs["eth2"] = n
	}
}

func clone[V any](m map[string]V) map[string]V {
	c := map[string]V{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

func eth2(change func(*api.Port)) func(*Readings) {
	return func(r *Readings) { change(&r.Now.Ports[1]) }
}

func grow(name string, by uint64) func(*Readings) {
	return func(r *Readings) { r.Now.NICs["eth2"][name] += by }
}

// noPackets is a box whose groups have carried nothing.
func noPackets(r *Readings) {
	for _, s := range []*Sample{r.First, &r.Now} {
		for i := range s.Traffic.Groups {
			s.Traffic.Groups[i].Packets = 0
		}
	}
}

func all(changes ...func(*Readings)) func(*Readings) {
	return func(r *Readings) {
		for _, c := range changes {
			c(r)
		}
	}
}

func shortPackets(r *Readings) { r.Groups[0].MTU = 1024 }

func noStatistics(r *Readings) { r.Now.NICs["eth2"], r.First.NICs["eth2"] = nil, nil }

var wrongs = []wrong{
	{"daemon", "", "none answers", func(r *Readings) { r.NoBox = "no daemon answers on /s" }, Look, "no daemon answers on /s", "systemctl start rocastd"},
	{"daemon", "", "it is of another version", func(r *Readings) { r.Version.Version = "v1.1.0" }, Look, "rocastd is v1.1.0, and rocast is v1.2.0", "restart"},
	{"daemon", "", "it does not answer all", func(r *Readings) { r.Missing = []string{"groups: EOF"} }, Unclear, "groups: EOF", "as root"},
	{"daemon", "", "a build without a commit", func(r *Readings) { r.Version.Commit = "" }, OK, "=rocastd and rocast are v1.2.0", ""},
	{"groups", "", "half a second", func(r *Readings) { r.Now.At = r.First.At.Add(time.Second / 2) }, OK, "; 101000 packets, 200000 a second", ""},
	{"groups", "", "one reading", func(r *Readings) { r.First = nil }, OK, "=2 groups ready; the kernel carries 1, AF_XDP 1; 101000 packets", ""},
	{"groups", "", "a new one", func(r *Readings) { r.First.Traffic.Groups = r.First.Traffic.Groups[:1] }, OK, "101000 packets, 50250 a second", ""},
	{"groups", "g1", "another one's receiver is in trouble", all(addProblem(api.OfGroup, "g1", api.Waiting, "no MAC"), func(r *Readings) {
		r.Now.Traffic.Groups[1].Receivers = []api.ReceiverTraffic{{IP: "10.77.0.3", Trouble: api.TroubleStalled}}
	}), Look, "=waiting: no MAC", ""},
	{"congestion", "", "one mark without a CNP", func(r *Readings) {
		delete(r.Now.Stats, "cnp-passed")
		delete(r.Now.Stats, "cnp-filtered")
		r.Now.Ports[0].Marked, r.Now.Ports[1].Marked = 0, 1
	}, Look, "has marked 1 copies", "roce_np"},
	{"driver", "eth2", "without firmware", nic(func(n *NIC) { n.Driver["driver"], n.Driver["firmware-version"] = "e1000e", "" }), OK, "=e1000e, version 7.3.4, bus-info 0000:3b:00.0", ""},
	{"queues", "eth2", "no more are possible", nic(func(n *NIC) { n.Channels.MaxCombined = 2 }), OK, "=the NIC has 2 queues to receive, and rocastd serves 2", ""},
	{"queues", "eth2", "one more is possible", nic(func(n *NIC) { n.Channels.MaxCombined = 3 }), OK, "; at most 3", ""},
	{"queues", "eth2", "queues of each direction", nic(func(n *NIC) { n.Channels = Channels{RX: 1, Combined: 1} }), OK, "has 2 queues", ""},
	{"queues", "eth2", "rocastd serves none", all(nic(func(n *NIC) { n.Channels.Combined = 3 }), eth2(func(p *api.Port) { p.Attach = "" })), OK, "has 3 queues", ""},
	{"spread", "eth2", "nine of ten by one queue", func(r *Readings) {
		r.Now.NICs["eth2"]["rx0_packets"] += 40_000
		r.Now.NICs["eth2"]["rx1_packets"] -= 40_000
	}, Look, "=in 2.0 s queue 0: 90000, queue 1: 10000", "sdfn"},
	{"spread", "eth2", "nearly nine of ten by one queue", func(r *Readings) {
		r.Now.NICs["eth2"]["rx0_packets"] += 39_999
		r.Now.NICs["eth2"]["rx1_packets"] -= 39_999
	}, OK, "=in 2.0 s queue 0: 89999, queue 1: 10001", ""},
	{"spread", "eth2", "just enough packets", func(r *Readings) {
		r.Now.NICs["eth2"] = clone(r.First.NICs["eth2"])
		r.Now.NICs["eth2"]["rx0_packets"] += 500
		r.Now.NICs["eth2"]["rx1_packets"] += 500
	}, OK, "=in 2.0 s queue 0: 500, queue 1: 500", ""},
	{"rings", "eth1", "of the first port", func(r *Readings) { r.Now.Ports[0].Kernel = api.Counters{"rx-ring-full": 3} }, Look, "=in 2.0 s: rx-ring-full 1", ""},
	{"rings", "eth2", "more than before of this port", func(r *Readings) { r.First.Ports[1].Kernel = api.Counters{"rx-ring-full": 1} }, Look, "=in 2.0 s: rx-ring-full 1", ""},
	{"rings", "eth2", "no counters", func(r *Readings) { r.Now.Ports[1].Kernel = nil }, OK, "=lost since the daemon started: none", ""},
	{"config", "", "it has changed", func(r *Readings) { r.Status.Config.Stale, r.Status.Config.Reason = true, "ports differ" }, Look, "is not what runs: ports differ", "rocast reload"},
	{"config", "", "a reload was refused", func(r *Readings) { r.Status.Config.Refused = "line 3: bad" }, Look, "refused: line 3: bad", "then: rocast reload"},
	{"kernel", "", "a probe could not run", func(r *Readings) {
		r.Features = append(r.Features, api.Feature{Name: "kick-budget", Status: api.Unknown, Detail: "not permitted"})
	}, Unclear, "kick-budget (not permitted)", "CAP_BPF"},
	{"kernel", "", "no daemon has probed it", func(r *Readings) { r.NoBox, r.Features = "none", nil }, Unclear, "Linux 7.3.4", "start rocastd"},
	{"kernel", "", "it is old", func(r *Readings) { r.Kernel = "5.15.0-100-generic" }, Look, "=Linux 5.15.0-100-generic", "6.1 or newer"},
	{"kernel", "", "an old one is in front of the box", func(r *Readings) { r.Kernel, r.Remote = "5.15.0", true }, OK, "a machine that is not this one", ""},
	{"kernel", "", "a feature is missing", func(r *Readings) {
		r.Features = append(r.Features, api.Feature{Name: "kick-budget", Status: api.Missing, Fallback: "more syscalls"})
	}, OK, "which lacks kick-budget (without it: more syscalls)", ""},
	{"kernel", "", "it is another machine's", func(r *Readings) { r.Remote = true }, OK, "a machine that is not this one, which has every", ""},
	{"workers", "", "one is stuck", addProblem(api.OfWorker, "", api.Stuck, "worker 1"), Look, "stuck: worker 1", "reason"},
	{"services", "10.77.0.9", "a group IP of hosts is none", addProblem(api.OfHosts, "10.77.0.9", api.Failed, "taken"), Look, "failed: taken", "reason"},
	{"services", "", "etcd is away", addProblem(api.OfStore, "", api.Away, "no answer"), Look, "away: no answer", "reason"},
	{"services", "10.77.0.8", "a service is degraded", addProblem(api.OfService, "10.77.0.8", api.Degraded, "port in use"), Look, "degraded: port in use", "reason"},
	{"classifier", "classifier-pass_no_socket", "frames go to the kernel", addProblem(api.OfBox, "classifier-pass_no_socket", api.Degraded, "no socket"), Look, "degraded: no socket", "reason"},
	{"headers", "", "frames without headers come", func(r *Readings) { r.Now.Stats["classifier-pass_truncated"] = 9 }, Look, "in 2.0 s: classifier-pass_truncated 9", "rx_striding_rq off"},
	{"attach", "eth2", "strides", all(eth2(func(p *api.Port) { p.Attach, p.MTU = "generic", 3499 }), shortPackets), Look, "generic at MTU 3499", "ethtool --set-priv-flags eth2 rx_striding_rq off"},
	{"attach", "eth2", "a short frame", all(eth2(func(p *api.Port) { p.Attach, p.MTU = "generic", 3498 }), shortPackets), Look, "generic: every packet", "mode: copy"},
	{"attach", "eth2", "another driver", all(eth2(func(p *api.Port) { p.Attach = "generic" }), nic(func(n *NIC) { n.Driver["driver"] = "ice" })), Look, "generic: every packet", "mode: copy"},
	{"notes", "", "a stranger sends", func(r *Readings) { r.Status.Notes = []string{"10.0.0.9 sends"} }, Look, "10.0.0.9 sends", "note"},
	{"groups", "g1", "one is degraded", all(addProblem(api.OfGroup, "g1", api.Degraded, "none gets on"), func(r *Readings) {
		r.Now.Traffic.Groups[0].Receivers = []api.ReceiverTraffic{{IP: "10.77.0.3", Trouble: api.TroubleStalled, Lag: 129, Reason: "it acknowledges nothing"}, {IP: "10.77.0.4"}}
		r.Now.Traffic.Groups[0].Source = &api.SourceTraffic{IP: "10.77.0.1", Trouble: api.TroubleUnreachable, Reason: "no route"}
	}), Look, "=degraded: none gets on; who holds it up: the source 10.77.0.1 is in trouble (unreachable): no route; 10.77.0.3 (stalled, 129 packets behind): it acknowledges nothing", "docs/troubleshoot.md"},
	{"groups", "g1", "one waits, and who is not known", addProblem(api.OfGroup, "g1", api.Waiting, "no MAC"), Look, "=waiting: no MAC", "docs/troubleshoot.md"},
	{"groups", "g1", "one receiver is in trouble", all(addProblem(api.OfGroup, "g1", api.Degraded, "r"), func(r *Readings) {
		r.Now.Traffic.Groups[0].Receivers[0].Trouble = api.TroubleEvicted
	}), Look, "=degraded: r; who holds it up: 10.77.0.2 (evicted, 0 packets behind): ", ""},
	{"groups", "", "there is none", func(r *Readings) { r.Status.Groups = nil }, OK, "there is no group", ""},
	{"drops", "", "frames are refused now", func(r *Readings) { r.Now.Drops = api.Counters{"bad-icrc": 6, "wrong-vlan": 2} }, Look, "in 2.0 s: bad-icrc 1, wrong-vlan 2", "rocast drops"},
	{"drops", "", "there is one reading", func(r *Readings) { r.First = nil }, OK, "since the daemon started: bad-icrc 5", ""},
	{"drops", "", "none ever", func(r *Readings) { r.First.Drops, r.Now.Drops = nil, nil }, OK, "since the daemon started: none", ""},
	{"drops", "", "the first ones", func(r *Readings) { r.First.Drops = nil }, Look, "in 2.0 s: bad-icrc 5", "rocast drops"},
	{"drops", "", "the daemon was restarted in between", func(r *Readings) { r.Now.Drops = api.Counters{"bad-icrc": 2} }, Look, "bad-icrc 2", ""},
	{"repair", "", "the source has to help", func(r *Readings) { r.Now.Stats["repair-given-up-attempts"] = 4 }, Look, "in 2.0 s: repair-given-up-attempts 4; the box has repaired 7 packets", "rocast group show"},
	{"congestion", "", "nothing was sent", noPackets, Unclear, "no packet yet", "ib_write_bw"},
	{"congestion", "", "marks without CNPs", func(r *Readings) { delete(r.Now.Stats, "cnp-passed"); delete(r.Now.Stats, "cnp-filtered") }, Look, "has marked 18 copies, and no receiver", "roce_np"},
	{"congestion", "", "neither marks nor CNPs", func(r *Readings) {
		delete(r.Now.Stats, "cnp-passed")
		delete(r.Now.Stats, "cnp-filtered")
		r.Now.Ports[0].Marked, r.Now.Ports[1].Marked = 0, 0
	}, Unclear, "no CNP came", "one receiver"},
	{"congestion", "", "only filtered CNPs", func(r *Readings) { delete(r.Now.Stats, "cnp-passed") }, OK, "4 CNPs came, and 0 of them", ""},
	{"edges", "g1", "copies do not reach all", func(r *Readings) { r.Now.Traffic.Groups[0].Shares[0].Working = 1 }, Look, "the copies to 239.77.0.1 reach 1 of 3 receivers", "rocast-edge status"},
	{"edges", "", "none share", func(r *Readings) { r.Now.Traffic.Groups[0].Shares = nil }, OK, "no receivers share", ""},
	{"link", "eth2", "it is down", addProblem(api.OfPort, "eth2", api.PortDown, "its link is down"), Look, "down: its link is down", "reason"},
	{"driver", "eth2", "a tried one", nic(func(n *NIC) { n.Driver["driver"] = "virtio_net" }), OK, "virtio_net, version", ""},
	{"driver", "eth2", "ethtool is missing", nic(func(n *NIC) { *n = NIC{Missing: map[string]string{"-i": "ethtool -i eth2: not found", "-l": "x"}} }), Unclear, "not found", "apt install ethtool"},
	{"driver", "eth2", "another machine", func(r *Readings) { r.Remote, r.NICs = true, nil }, Unclear, "another machine", "there"},
	{"driver", "eth2", "it says nothing", nic(func(n *NIC) { n.Driver = nil }), Unclear, "does not say its name", "nothing"},
	{"attach", "eth2", "generic after all", eth2(func(p *api.Port) { p.Attach, p.Fallback = "generic", "no room for metadata" }), Look, "generic: no room for metadata", "docs/install.md"},
	{"attach", "eth2", "generic", all(eth2(func(p *api.Port) { p.Attach, p.MTU = "generic", 1500 }), shortPackets), Look, "generic: every packet", "mode: copy"},
	{"attach", "eth2", "not open", eth2(func(p *api.Port) { p.Attach = "" }), Unclear, "not open", "link"},
	{"attach", "eth2", "one buffer", eth2(func(p *api.Port) { p.MultiBuffer = false }), OK, "=native", ""},
	{"copies", "eth2", "zero-copy", eth2(func(p *api.Port) { p.Mode = "zero-copy" }), OK, "sent; AF_XDP copies nothing", ""},
	{"copies", "eth2", "zero-copy of virtio_net", all(eth2(func(p *api.Port) { p.Mode = "zero-copy" }), nic(func(n *NIC) { n.Driver["driver"] = "virtio_net" })), Look, "wrong addresses", "mode: copy"},
	{"copies", "eth2", "not open", eth2(func(p *api.Port) { p.Mode = "" }), Unclear, "not open", "link"},
	{"copies", "eth2", "one reading", func(r *Readings) { r.First = nil }, OK, "100000 frames received and 300000 sent", ""},
	{"kernel-engine", "eth2", "it cannot", eth2(func(p *api.Port) { p.NoKernel = "GRO is off" }), Look, "GRO is off", "reason"},
	{"queues", "eth2", "the NIC has more", nic(func(n *NIC) { n.Channels.Combined = 8 }), Look, "has 8 queues to receive, and rocastd serves 2", "ethtool -L eth2 combined 2"},
	{"queues", "eth2", "the NIC does not say", nic(func(n *NIC) { n.Channels = ParseChannels("") }), Unclear, "how many queues", "nothing"},
	{"spread", "eth2", "all by one queue", func(r *Readings) { r.Now.NICs["eth2"]["rx1_packets"] = r.First.NICs["eth2"]["rx1_packets"] }, Look, "=in 2.0 s queue 0: 50000, queue 1: 0", "rx-flow-hash udp4 sdfn"},
	{"spread", "eth2", "the other group sends a single packet", func(r *Readings) {
		r.Now.NICs["eth2"]["rx1_packets"] = r.First.NICs["eth2"]["rx1_packets"]
		r.Now.Traffic.Groups[1].Packets = r.First.Traffic.Groups[1].Packets + 1
	}, Look, "queue 1: 0", "sdfn"},
	{"spread", "eth2", "one worker", func(r *Readings) {
		r.Now.NICs["eth2"]["rx1_packets"] = r.First.NICs["eth2"]["rx1_packets"]
		r.Status.Workers = 1
	}, OK, "one worker serves all queues", ""},
	{"spread", "eth2", "one group sends", func(r *Readings) {
		r.Now.NICs["eth2"]["rx1_packets"] = r.First.NICs["eth2"]["rx1_packets"]
		r.Now.Traffic.Groups[1].Packets = r.First.Traffic.Groups[1].Packets
	}, Unclear, "one queue pair", "-q 8"},
	{"spread", "eth2", "few packets", func(r *Readings) {
		r.Now.NICs["eth2"] = clone(r.First.NICs["eth2"])
		r.Now.NICs["eth2"]["rx0_packets"] += 999
	}, Unclear, "999 packets in 2.0 s", "ib_write_bw"},
	{"spread", "eth2", "one queue", eth2(func(p *api.Port) { p.Queues = 1 }), OK, "one queue", ""},
	{"spread", "eth2", "nothing is counted", noStatistics, Unclear, "/proc/interrupts", "nothing"},
	{"spread", "eth2", "one reading", func(r *Readings) { r.First = nil }, Unclear, "one reading", "--seconds"},
	{"vlan", "eth2", "tags are taken out", eth2(func(p *api.Port) { p.TagsTaken = "eth2 takes the VLAN tags of eth2.5 out" }), Look, "eth2.5", "ethtool -K eth2 rxvlan off txvlan off"},
	{"vlan", "eth2", "tags would be taken out", nic(func(n *NIC) { n.Features["rx-vlan-offload"] = true }), OK, "takes tags out of frames, and nothing on this box", ""},
	{"vlan", "eth2", "a veth", nic(func(n *NIC) { n.Features["rx-vlan-offload"], n.Driver["driver"] = true, "veth" }), OK, "stay where they are", ""},
	{"vlan", "eth2", "unknown", nic(func(n *NIC) { delete(n.Features, "rx-vlan-offload") }), Unclear, "its offloads", "nothing"},
	{"vlan", "eth2", "no NIC is known", func(r *Readings) { delete(r.NICs, "eth2") }, Unclear, "its offloads", "nothing"},
	{"offloads", "eth2", "frames are joined", nic(func(n *NIC) { n.Features["large-receive-offload"], n.Features["rx-gro-hw"] = true, true }), Look, "large-receive-offload, rx-gro-hw", "ethtool -K eth2 lro off rx-gro-hw off"},
	{"offloads", "eth2", "virtio_net says that it joins", nic(func(n *NIC) { n.Features["rx-gro-hw"], n.Driver["driver"] = true, "virtio_net" }), OK, "rx-gro-hw", ""},
	{"offloads", "eth2", "none", nic(func(n *NIC) { n.Features = map[string]bool{"rx-vlan-offload": false} }), OK, "none is on", ""},
	{"offloads", "eth2", "unknown", nic(func(n *NIC) { n.Features = nil }), Unclear, "its offloads", "nothing"},
	{"mtu", "eth2", "too small", eth2(func(p *api.Port) { p.MTU = 4159 }), Look, "MTU 4159; path MTU of groups: g1 4096", "ip link set eth2 mtu 4160"},
	{"mtu", "eth2", "just enough", eth2(func(p *api.Port) { p.MTU = 4160 }), OK, "MTU 4160", ""},
	{"mtu", "eth2", "too small for IPv6", func(r *Readings) { r.Groups[0].IP, r.Now.Ports[1].MTU = "fd00::100", 4179 }, Look, "MTU 4179", "mtu 4180"},
	{"mtu", "eth2", "no group", func(r *Readings) { r.Groups[0].Members = r.Groups[0].Members[:1] }, Unclear, "no group has a member behind it", "make a group"},
	{"rings", "eth2", "frames are lost on the way to the box", func(r *Readings) { r.Now.Ports[1].Kernel = api.Counters{"rx-ring-full": 12} }, Look, "in 2.0 s: rx-ring-full 10", "docs/reference.md"},
	{"rings", "eth2", "copies are lost", eth2(func(p *api.Port) { p.TxLost, p.QueueFull = 3, 2 }), Look, "lost 3, queueFull 2", "docs/reference.md"},
	{"rings", "eth2", "a frame was withdrawn", func(r *Readings) { r.Now.Ports[1].Kernel = api.Counters{"rx-ring-full": 2, "tx-withdrawn": 9} }, OK, "but not now", ""},
	{"rings", "eth2", "the port is new", func(r *Readings) { r.First.Ports = r.First.Ports[:1] }, OK, "rx-ring-full 2", ""},
	{"nic-faults", "eth2", "damaged frames", grow("rx_crc_errors_phy", 3), Look, "in 2.0 s: rx_crc_errors_phy 3", "cable"},
	{"nic-faults", "eth2", "the classifier drops ACKs that it has merged", grow("rx_xdp_drop", 3), OK, "but not now: rx_out_of_buffer 12", ""},
	{"nic-faults", "eth2", "the NIC's filter keeps frames away", grow("rx_steer_missed_packets", 3), OK, "but not now: rx_out_of_buffer 12", ""},
	{"nic-faults", "eth2", "frames have no flow-director filter (ixgbe)", grow("fdir_miss", 3), OK, "but not now: rx_out_of_buffer 12", ""},
	{"nic-faults", "eth2", "interrupts and page pools are no frames", all(grow("rx-interrupts", 3), grow("[0]: missed_irqs", 3), grow("rx_pp_cache_miss", 3)), OK, "but not now: rx_out_of_buffer 12", ""},
	{"nic-faults", "eth2", "the rings of ixgbe are empty", grow("rx_no_dma_resources", 3), Look, "in 2.0 s: rx_no_dma_resources 3", "cable"},
	{"nic-faults", "eth2", "nothing is counted", noStatistics, Unclear, "what it loses", "nothing"},
	{"pause", "eth2", "the switch pauses the box", grow("rx_prio3_pause", 8), Look, "in 2.0 s: rx_prio3_pause 8", "receiver or switch"},
	{"pause", "eth2", "the box pauses the switch", grow("tx_prio3_pause", 8), Look, "tx_prio3_pause 8", "rings and spread"},
	{"pause", "eth2", "pauses without packets", all(noPackets, grow("rx_prio3_pause", 8)), Look, "rx_prio3_pause 8", ""},
	{"pause", "eth2", "some once, and no packets", noPackets, OK, "but not now: rx_prio3_pause 40", ""},
	{"pause", "eth2", "a duration is no frame", grow("rx_prio3_pause_duration", 8), OK, "but not now: rx_prio3_pause 40", ""},
	{"pause", "eth2", "none yet, and no packets", all(noPackets, func(r *Readings) { r.Now.NICs["eth2"]["rx_prio3_pause"], r.First.NICs["eth2"]["rx_prio3_pause"] = 0, 0 }), Unclear, "no packet of a group yet", "ib_write_bw"},
	{"pause", "eth2", "none, and packets", func(r *Readings) { r.Now.NICs["eth2"]["rx_prio3_pause"], r.First.NICs["eth2"]["rx_prio3_pause"] = 0, 0 }, OK, "since the driver was loaded: none", ""},
	{"pause", "eth2", "nothing is counted", noStatistics, Unclear, "pause frames", "nothing"},
}

func TestEachCheckSeesWhatIsWrong(t *testing.T) {
	tried := map[string]bool{}
	for _, w := range wrongs {
		r := healthy(t)
		w.spoil(r)
		report := Examine(r)
		f, found := finding(report, w.check, w.of)
		fits := strings.Contains(f.Seen, w.seen)
		if whole, exact := strings.CutPrefix(w.seen, "="); exact {
			fits = f.Seen == whole
		}
		if !found || f.Verdict != w.verdict || !fits || !strings.Contains(f.Remedy, w.remedy) || (f.Remedy == "") != (w.verdict == OK) {
			t.Errorf("%s: %s: %+v\nwant %s: %s; %s", w.check, w.what, f, w.verdict, w.seen, w.remedy)
		}
		if w.verdict == Look && (report.Findings[0] != f || report.Counts[Look] != 1) {
			t.Errorf("%s: %s: %d findings need a look, and the first one is %+v", w.check, w.what, report.Counts[Look], report.Findings[0])
		}
		tried[w.check] = tried[w.check] || w.verdict != OK
	}
	for _, c := range Checks() {
		if !tried[c.Name] {
			t.Errorf("nothing shows that the check %s can fail", c.Name)
		}
	}
}

// Without a daemon the report says so, and does not call the box well.
func TestWithoutADaemonNothingIsOK(t *testing.T) {
	r := &Readings{NoBox: "no daemon answers", Kernel: "6.12.1"}
	report := Examine(r)
	if report.Counts[OK] != 0 || report.Counts[Look] != 1 || report.Counts[Unclear] != 1 || report.Seconds != 0 || report.Findings[0].Check != "daemon" {
		t.Errorf("%+v", report)
	}
}

// What the daemon did not answer looks like nothing, and nothing is no finding that all is well.
func TestWhatTheDaemonDidNotAnswerIsNotOK(t *testing.T) {
	was := Examine(healthy(t))
	for question, lose := range map[string]func(*Readings){
		"status":   func(r *Readings) { r.Status = api.Status{} },
		"features": func(r *Readings) { r.Features = nil },
		"groups":   func(r *Readings) { r.Groups = nil },
		"ports":    func(r *Readings) { r.Now.Ports, r.Now.NICs = nil, nil },
		"stats":    func(r *Readings) { r.Now.Stats, r.Now.Drops = nil, nil },
		"traffic":  func(r *Readings) { r.Now.Traffic = api.Traffic{} },
	} {
		r := healthy(t)
		r.Now.NICs["eth2"]["rx1_packets"] = r.First.NICs["eth2"]["rx1_packets"]
		lose(r)
		r.Missing = []string{"perftest: EOF", question + ": EOF"}
		report := Examine(r)
		found := map[string]bool{}
		for _, f := range report.Findings {
			found[f.Check] = true
			if before, known := finding(was, f.Check, f.Of); f.Verdict == OK && (!known || f.Seen != before.Seen) {
				t.Errorf("no answer about %s: %+v", question, f)
			}
			if f.Verdict == Look && f.Check != "spread" {
				t.Errorf("no answer about %s: %+v", question, f)
			}
		}
		for _, c := range Checks() {
			if !found[c.Name] && c.Name != "config" {
				t.Errorf("no answer about %s: %s found nothing", question, c.Name)
			}
		}
		if f, _ := finding(report, "daemon", ""); f.Verdict != Unclear || !strings.Contains(f.Seen, question+": EOF") {
			t.Errorf("%+v", f)
		}
	}
}

func TestIsOld(t *testing.T) {
	for release, want := range map[string]bool{
		"5.15.0-100-generic": true, "6.0.19": true, "4.18.0-553.el8": true, "6.1.0-56-amd64": false, "6.12.1": false, "7.0.0-rc1": false, "10.0": false, "": false, "unknown": false,
	} {
		if got := isOld(release); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}
