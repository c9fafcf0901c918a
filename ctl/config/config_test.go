package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/edges"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/feedback"
)

// same fails if a config was not read, or is not as wanted.
func same(t *testing.T, got, want Config, err error) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestConfigDefaults(t *testing.T) {
	got, err := Parse([]byte("ports: [eth1, 'eth2*']\n"))
	want := Config{
		Ports: []string{"eth1", "eth2*"}, Socket: "/run/rocast/rocast.sock", StateDir: "/var/lib/rocast",
		Mode: "copy", Engine: "auto", LogFormat: "auto", LogLevel: "info",
		RepairMemory: 64 << 20, Metrics: netip.MustParseAddrPort("127.0.0.1:7470"),
	}
	same(t, got, want, err)
	if got.API.On() {
		t.Error("the API listens on TCP without being told to")
	}
}

func TestConfigTakesEveryKey(t *testing.T) {
	got, err := Parse([]byte(`
ports: [eth1]
socket: /tmp/s
socketGroup: rdma
readGroup: monitor
stateDir: /tmp/d
mode: zero-copy
wait: busy
engine: afxdp
workers: 2
repairMemory: 3GiB
egress:
  - {port: eth1, kmin: 100KiB, kmax: 400KiB, percent: 1, limit: 1MiB}
  - {port: 'eth*', limit: 32KiB}
log: {format: json, level: debug}
metrics: "[::1]:9"
perftest:
  - {groupIP: 10.77.0.100, receivers: [10.77.0.2, 10.77.0.3], port: 18516}
cm:
  - {groupIP: 10.77.0.101, receivers: [10.77.0.2, 10.77.0.3], port: 7174, ack: quorum 1, memory: private-data, allow: 10.77.0.1}
neighbours:
  - {name: leaf2, address: 10.9.0.2, url: "https://10.9.0.2:7471"}
  - {name: spine-1.lab, address: fd00::2, url: "https://spine-1.lab:1", local: fd00::1, behind: [fd00:7::/64, 10.82.0.0/22], edge: true}
api: {listen: "[fd00::1]:7471", cert: /c, key: /k, ca: /a, clients: [monitor, trainer], readClients: [grafana]}
hosts: {listen: "10.77.0.254:7472", groupIPs: [10.77.0.200, fd77::200]}
edges: {addresses: [239.77.0.0/28, ff15::4d00/124], wires: [{ip: 10.77.0.12, host: 10.77.0.2}, {ip: 10.77.0.12, host: "fd77::2"}]}
store: etcd
etcd: {endpoints: ["https://10.0.0.5:2379", "https://e2:2379"], prefix: /lab/rocast, lease: 7s, cert: /ec, key: /ek, ca: /ea}
`))
	want := Config{
		Edges: edges.Config{
			Addresses: []netip.Prefix{netip.MustParsePrefix("239.77.0.0/28"), netip.MustParsePrefix("ff15::4d00/124")},
			Wires: []edges.Wire{
				{IP: netip.MustParseAddr("10.77.0.12"), Host: netip.MustParseAddr("10.77.0.2")},
				{IP: netip.MustParseAddr("10.77.0.12"), Host: netip.MustParseAddr("fd77::2")},
			},
		},
		Hosts: gather.Config{Listen: netip.MustParseAddrPort("10.77.0.254:7472"), GroupIPs: []netip.Addr{netip.MustParseAddr("10.77.0.200"), netip.MustParseAddr("fd77::200")}},
		Ports: []string{"eth1"}, Socket: "/tmp/s", SocketGroup: "rdma", ReadGroup: "monitor", StateDir: "/tmp/d", Mode: "zero-copy", Busy: true, Engine: "afxdp", Workers: 2,
		LogFormat: "json", LogLevel: "debug", RepairMemory: 3 << 30, Metrics: netip.MustParseAddrPort("[::1]:9"),
		Egress:   []Egress{{Port: "eth1", Kmin: 100 << 10, Kmax: 400 << 10, Limit: 1 << 20, Percent: 1}, {Port: "eth*", Limit: 32 << 10, Percent: 20}},
		Perftest: []perftest.Config{{GroupIP: netip.MustParseAddr("10.77.0.100"), Receivers: []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.77.0.3")}, Port: 18516, Policy: feedback.Policy{Repair: feedback.RepairLocal}}},
		CM: []cm.Config{{
			Config: groupip.Config{GroupIP: netip.MustParseAddr("10.77.0.101"), Receivers: []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.77.0.3")}, Port: 7174,
				Allow:  []netip.Prefix{netip.MustParsePrefix("10.77.0.1/32")},
				Policy: feedback.Policy{Ack: 1, OnFatal: feedback.FatalEvict, Repair: feedback.RepairLocal}},
			Memory: cm.PrivateData,
		}},
		Neighbours: []neighbour.Config{
			{Name: "leaf2", Address: netip.MustParseAddr("10.9.0.2"), URL: "https://10.9.0.2:7471"},
			{Name: "spine-1.lab", Address: netip.MustParseAddr("fd00::2"), URL: "https://spine-1.lab:1", Local: netip.MustParseAddr("fd00::1"),
				Behind: []netip.Prefix{netip.MustParsePrefix("fd00:7::/64"), netip.MustParsePrefix("10.82.0.0/22")}, Edge: true},
		},
		Etcd: desired.Settings{Endpoints: []string{"https://10.0.0.5:2379", "https://e2:2379"}, Prefix: "/lab/rocast", Lease: 7 * time.Second, Cert: "/ec", Key: "/ek", CA: "/ea"},
		API:  neighbour.API{Listen: netip.MustParseAddrPort("[fd00::1]:7471"), Files: neighbour.Files{Cert: "/c", Key: "/k", CA: "/a"}, Clients: []string{"monitor", "trainer"}, ReadClients: []string{"grafana"}},
	}
	same(t, got, want, err)
}

// The config file that is shipped is valid, also with every key that is commented out there.
func TestTheShippedExampleIsRead(t *testing.T) {
	text, err := os.ReadFile("../../packaging/rocastd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(text); err != nil {
		t.Error(err)
	}
	if _, err := Parse([]byte(regexp.MustCompile(`(?m)^#(\S)`).ReplaceAllString(strings.Replace(string(text), "store: files", "store: etcd", 1), "$1"))); err != nil {
		t.Errorf("uncommented: %v", err)
	}
}

// The shipped config has every key, and each one that is commented out shows its default, unless
// the default is to have none.
func TestTheShippedExampleShowsEveryDefault(t *testing.T) {
	text, err := os.ReadFile("../../packaging/rocastd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const ports = "ports: [eth1, eth2]\n"
	want, err := Parse([]byte(ports))
	if err != nil {
		t.Fatal(err)
	}
	want.Workers = 1            // 0 means one
	want.SocketGroup = "rocast" // empty means the daemon's group, as the unit starts it
	none := []string{"readGroup", "egress", "perftest", "cm", "neighbours", "api", "hosts", "edges", "etcd"}
	_, err = Parse([]byte("ports: [eth1]\nno: 1\n"))
	_, known, _ := strings.Cut(fmt.Sprint(err), "the known keys are ")
	for key := range strings.SplitSeq(known, ", ") {
		line := regexp.MustCompile(`(?m)^#?(` + key + `: .*)$`).FindSubmatch(text)
		if line == nil {
			t.Errorf("the shipped config does not show %s", key)
			continue
		}
		if key == "ports" || slices.Contains(none, key) {
			continue
		}
		got, err := Parse([]byte(ports + string(line[1]) + "\n"))
		if got.Workers == 0 {
			got.Workers = want.Workers
		}
		if got.SocketGroup == "" {
			got.SocketGroup = want.SocketGroup
		}
		t.Run(key, func(t *testing.T) { same(t, got, want, err) })
	}
}

func TestBadConfigIsRefusedWithLineAndMend(t *testing.T) {
	const wired = "ports: [eth1]\nhosts: {listen: '10.0.0.1:1', groupIPs: 10.0.0.9}\nedges: {addresses: 239.77.0.0/28, wires: ["
	for _, c := range []struct{ text, want string }{
		{"socket: /s\n", "line 1: the config has no ports; add ports: [NAME or GLOB, ...], the interfaces to carry groups on"},
		{"ports: []\n", "line 1: ports names no interface; name at least one"},
		{"ports: eth1\n", "line 1: ports is a single word; write a list"},
		{"ports:\n  - eth1\n  - 'eth[2'\n", `line 3: port 2 "eth[2" is not a valid glob; close its brackets`},
		{"ports: [eth1]\nhosts: {listen: 10.0.0.1, groupIPs: 10.0.0.9}\n", `line 2: hosts: listen "10.0.0.1" is not an address with a port; write one such as 10.77.0.254:7472`},
		{"ports: [eth1]\nhosts: {listen: '10.0.0.1:1', groupIPs: [10.0.0.9, 10.0.0.8]}\n", `line 2: hosts: group IP 2 is a second address of its family; write one, because the groups differ by their QPNs`},
		{"ports: [eth1]\nport: 1\n", `line 2: key "port" is unknown here; the known keys are ports, socket, socketGroup, readGroup, stateDir, mode, wait, engine, workers, repairMemory, egress, log, metrics, perftest, cm, neighbours, api, hosts, edges, store, etcd`},
		{"ports: [eth1]\nedges: {addresses: 239.77.0.0/28}\n", "line 2: edges needs hosts: {listen: ADDRESS:PORT, ...}, where edges ask for their mappings, or neighbours: that do"},
		{wired + "{ip: 10.77.0.2, host: 10.77.0.2}]}\n", "line 3: edges: wire 1 has 10.77.0.2 twice; an edge at the host itself needs no entry"},
		{wired + "{ip: 10.77.0.12, host: 10.77.0.2}, {ip: 10.77.0.13, host: 10.77.0.2}]}\n", "line 3: edges: wire 2 is in front of 10.77.0.2, as wire 1 is; a host has one edge"},
		{wired + "{ip: 10.77.0.12}]}\n", "line 3: edges: wire 1 has no host; add host: IP, the host that it is in front of"},
		{wired + "{host: 10.77.0.2}]}\n", "line 3: edges: wire 1 has no ip; add ip: IP, the address from which it asks"},
		{"ports: [eth1]\nedges: {addresses: 10.77.0.0/28}\n", `line 2: edges: range 1 "10.77.0.0/28" is not a range of multicast addresses; write one such as 239.77.0.0/28 or ff15::4d00/124`},
		{"ports: [eth1]\nstore: etcd\n", "line 2: store is etcd; etcd: {endpoints: [URL, ...]} and store: etcd need each other, so write both or neither"},
		{"ports: [eth1]\netcd: {endpoints: [\"http://a:1\"]}\n", "line 2: store is files; etcd: {endpoints: [URL, ...]} and store: etcd need each other, so write both or neither"},
		{"ports: [eth1]\nstore: etcd\netcd:\n  endpoints: []\n", "line 4: etcd: endpoints names no URL; name at least one"},
		{"ports: [eth1]\nstore: etcd\netcd:\n  endpoints: [a:2379]\n", `line 4: etcd: endpoint 1 "a:2379" is not the URL of a member of etcd; write https://HOST:PORT or http://HOST:PORT`},
		{"ports: [eth1]\nstore: etcd\netcd:\n  endpoints: [\"http://a:1\", \"https://b:1\"]\n", `line 4: etcd: endpoint 2 "https://b:1" uses TLS or not, unlike the endpoints above; write the same for all`},
		{"ports: [eth1]\nstore: etcd\netcd: {endpoints: [\"http://a:1\"], prefix: /rocast/}\n", `line 3: etcd: prefix "/rocast/" is not a prefix of keys; write one such as /rocast, without a slash at its end`},
		{"ports: [eth1]\nstore: etcd\netcd: {endpoints: [\"http://a:1\"], lease: 1500ms}\n", `line 3: etcd: lease "1500ms" is not a time of whole seconds from 2s to 1h0m0s; write one such as 5s`},
		{"ports: [eth1]\nstore: etcd\netcd: {endpoints: [\"https://a:1\"], cert: /c}\n", "line 3: etcd needs cert and key together; write both, or neither"},
		{"ports: [eth1]\nstore: etcd\netcd: {endpoints: [\"http://a:1\"], ca: /c}\n", "line 3: etcd names certificates, and its endpoints do not use TLS; write endpoints that begin with https:"},
		{"ports: [eth1]\nsocket: run/s\n", `line 2: socket "run/s" is a relative path; write a path that begins with /`},
		{"ports: [eth1]\nsocket: /" + strings.Repeat("s", 103) + "\n", `line 2: socket "/` + strings.Repeat("s", 103) + `" is longer than 103 bytes, the limit for the path of a socket; write a shorter path`},
		{"", "line 1: the config is empty; write its keys"},
		{"ports: [[eth1]]\n", "line 1: port 1 is a list; write one word"},
		{"ports: [eth1]\nworkers: 0\n", "line 2: workers is 0; at least one thread must forward frames, so write 1 or more"},
		{"ports: [eth1]\nworkers: 65\n", "line 2: workers is not a whole number from 0 to 64 (0x40); write one, without quotes"},
		{"ports: [eth1]\nworkers: two\n", "line 2: workers is not a whole number from 0 to 64 (0x40); write one, without quotes"},
		{"ports: [eth1]\nperftest:\n" + services(groupip.MaxServices+1), fmt.Sprintf("line %d: perftest %d is one more than the limit of %d; remove it", groupip.MaxServices+3, groupip.MaxServices+1, groupip.MaxServices)},
		{"ports: [eth1]\nrepairMemory: 64MB\n", `line 2: repairMemory "64MB" is not a size; write one such as 64MiB (KiB, MiB or GiB), or 0 for none`},
		{"ports: [eth1]\nrepairMemory: 64\n", `line 2: repairMemory "64" is not a size; write one such as 64MiB (KiB, MiB or GiB), or 0 for none`},
		{"ports: [eth1]\nrepairMemory: 12345678GiB\n", `line 2: repairMemory "12345678GiB" is not a size; write one such as 64MiB (KiB, MiB or GiB), or 0 for none`},
		{"ports: [eth1]\nmode: fast\n", `line 2: mode "fast" is not one of ["copy" "zero-copy" "generic"]`},
		{"ports: [eth1]\nperftest:\n  - {groupIP: 10.0.0.9}\n", "line 3: perftest 1 has no receivers; add receivers: [ADDRESS, ...], where perftest's servers run"},
		{"ports: [eth1]\nperftest:\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.1}\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.2}\n", "line 4: perftest 2 has the same groupIP 10.0.0.9 as an entry above; keep one of them"},
		{"ports: [eth1]\ncm:\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.1}\n", "line 3: cm 1 is refused: there is no port; name the one on which the receivers' programs listen"},
		{"ports: [eth1]\ncm:\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.1, port: 1, ack: quorum 2}\n", "line 3: cm 1 is refused: ack waits for 2 receivers and there are 1; write a smaller number, or name more receivers"},
		{"ports: [eth1]\ncm:\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.1, port: 1, ack: most}\n", `line 3: cm 1: ack "most" is neither all nor quorum N with N from 1`},
		{"ports: [eth1]\ncm:\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.1, port: 1, memory: none}\n", `line 3: cm 1: memory is "none"; write private-data, perftest or regions, or leave memory out`},
		{"ports: [eth1]\ncm:\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.9, port: 1}\n", "line 3: cm 1 is refused: receiver 10.0.0.9 is the group IP itself; give the group an address that no host has"},
		{"ports: [eth1]\ncm:\n  - {receivers: 10.0.0.1, port: 1}\n", "line 3: cm 1 has no groupIP; add groupIP: ADDRESS, what the client is told to connect to"},
		{"ports: [eth1]\nhook: /x\n", `line 2: key "hook" is no longer known; let a unit of its own run the program, behind rocast events -w --json: docs/operate.md`},
		{"ports: [eth1]\nmetrics: 127.0.0.1\n", `line 2: metrics "127.0.0.1" is not an address with a port; write one such as 127.0.0.1:7470 or [::]:7470, or "" for none`},
		{"ports: [eth1]\nmetrics: 127.0.0.1:0\n", `line 2: metrics "127.0.0.1:0" is not an address with a port; write one such as 127.0.0.1:7470 or [::]:7470, or "" for none`},
		{"ports: [eth1]\nmetrics: 127.0.0.1:07470\n", "line 2: metrics has a leading zero; write it in decimal without one"},
		{"ports: [eth1]\nmetrics: [a]\n", "line 2: metrics is a list; write one word"},
		{"ports: [eth1]\nlog:\n  level: loud\n", `line 3: log: level "loud" is not one of ["debug" "info" "warn" "error"]`},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%q\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
	for _, text := range []string{
		"ports: [eth1]\nsocket: /" + strings.Repeat("s", 102) + "\n", "ports: [eth1]\nworkers: 64\n", "ports: [eth1]\nperftest:\n" + services(groupip.MaxServices),
	} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAnEmptyValueTurnsMetricsOff(t *testing.T) {
	for _, text := range []string{`""`, ""} {
		if c, err := Parse([]byte("ports: [eth1]\nmetrics: " + text + "\n")); err != nil || c.Metrics.IsValid() {
			t.Errorf("%q: %v, %v", text, c.Metrics, err)
		}
	}
}

func TestRepairMemoryIsReadWithItsUnit(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "1KiB": 1 << 10, "20MiB": 20 << 20, "1GiB": 1 << 30} {
		if c, err := Parse([]byte("ports: [eth1]\nrepairMemory: " + text + "\n")); err != nil || c.RepairMemory != want {
			t.Errorf("%s: %d, want %d (%v)", text, c.RepairMemory, want, err)
		}
	}
}

// services is the list of n perftest services.
func services(n int) string {
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "  - {groupIP: 10.9.%d.%d, receivers: 10.0.0.1}\n", i>>8, i&0xFF)
	}
	return list.String()
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for path, text := range map[string]string{good: "ports: [eth1]\n", bad: "ports: eth1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := Load(good); err != nil || c.File != good || len(c.Ports) != 1 || c.StateDir != "/var/lib/rocast" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Load(bad); err == nil || err.Error() != bad+": line 1: ports is a single word; write a list" {
		t.Error(err)
	}
	file := filepath.Join(dir, "none.yaml")
	want := "read the config: open " + file + ": no such file or directory; write this file, or name another one with --config"
	if _, err := Load(file); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

func TestPortsAreExpanded(t *testing.T) {
	var interfaces []Interface
	for _, name := range []string{"eth0", "eth1", "eth2"} {
		interfaces = append(interfaces, Interface{Name: name, Plain: true})
	}
	for _, name := range []string{"lo", "br0", "eth1.100", "bond1"} {
		interfaces = append(interfaces, Interface{Name: name})
	}
	interfaces = append(interfaces, Interface{Name: "bond0", Lower: []string{"eth2", "eth1"}})
	for _, c := range []struct {
		patterns string
		want     string
	}{
		{"eth1 eth2", "eth1 eth2"},
		{"eth2 eth*", "eth2 eth0 eth1"},
		{"*", "eth0 eth1 eth2"},
		{"eth[12]", "eth1 eth2"},
		{"br0", "br0"},                  // a name may be that of any interface: the data path checks whether it can be a port
		{"eth1 eth9 eth9", "eth1 eth9"}, // eth9 does not exist yet
		{"bond0", "eth2 eth1"},
		{"eth0 eth1 bond0", "eth0 eth1 eth2"},
		{"bond1 eth0", "bond1 eth0"}, // it has no lower device yet
		{"bond*", "ports: no interface matches bond*; change it (ip link lists the interfaces), or write the name of an interface that is created later"},
		{"eth1 wlan*", "ports: no interface matches wlan*; change it (ip link lists the interfaces), or write the name of an interface that is created later"},
	} {
		names, err := ExpandPorts(strings.Fields(c.patterns), interfaces)
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.patterns, got, c.want)
		}
	}
}

func TestBadNeighboursAreRefused(t *testing.T) {
	const head, on = "ports: [eth1]\n", "api: {listen: \"10.9.0.1:7471\", cert: /c, key: /k, ca: /a}\n"
	const leaf2 = `{name: leaf2, address: 10.9.0.2, url: "https://10.9.0.2:7471"}`
	one := func(item string) string { return head + on + "neighbours: [" + item + "]\n" }
	url := func(u string) string { return one(`{name: leaf2, address: 10.9.0.2, url: "` + u + `"}`) }
	badURL := func(u string) string {
		return `line 3: neighbour 1: url "` + u + `" is not the URL of an API; write https://HOST:PORT`
	}
	for _, c := range []struct{ text, want string }{
		{head + "neighbours: [" + leaf2 + "]\n", "line 2: neighbours need to know this box by its certificate, and the config has no api; add api: {listen: ADDRESS:PORT, cert: FILE, key: FILE, ca: FILE}"},
		{one(leaf2 + ", " + strings.Replace(leaf2, "10.9.0.2,", "10.9.0.3,", 1)), "line 3: neighbour 2 has the same name as neighbour 1; correct one of them"},
		{one(leaf2 + ", " + strings.Replace(leaf2, "leaf2", "leaf3", 1)), "line 3: neighbour 2 has the same address as neighbour 1; correct one of them"},
		{one("{name: Leaf2}"), `line 3: neighbour 1: name "Leaf2" is not the name of a box; write a DNS name such as leaf2: up to 63 small letters, digits, '.' or '-'`},
		{one("{name: leaf-}"), `line 3: neighbour 1: name "leaf-" is not the name of a box; write a DNS name such as leaf2: up to 63 small letters, digits, '.' or '-'`},
		{one("{name: leaf2}"), "line 3: neighbour 1 has no address; add address: ADDRESS, the box's link address"},
		{one("{name: leaf2, address: 10.9.0.2}"), "line 3: neighbour 1 has no url; add url: https://HOST:PORT, where the box's api listens"},
		{one("{address: 127.0.0.1}"), "line 3: neighbour 1: address 127.0.0.1 is not an address that a box can have on the fabric; write a unicast address"},
		{one("{address: 224.0.0.1}"), "line 3: neighbour 1: address 224.0.0.1 is not an address that a box can have on the fabric; write a unicast address"},
		{one(strings.Replace(leaf2, "}", ", local: fd00::1}", 1)), "line 3: neighbour 1 has the address 10.9.0.2 and local fd00::1, and a link has addresses of one family; write two of the same family"},
		{one(strings.Replace(leaf2, "}", ", local: 10.9.0.2}", 1)), "line 3: neighbour 1 has the same address 10.9.0.2 as local; local is this box's address, so write that or remove it"},
		{one(strings.Replace(leaf2, "}", ", behind: [10.82.0.1/22]}", 1)), `line 3: neighbour 1: network 1 "10.82.0.1/22" is not a network; write one such as 10.82.0.0/22`},
		{one(strings.Replace(leaf2, "}", ", behind: [[a]]}", 1)), "line 3: neighbour 1: network 1 is a list; write one word"},
		{one(strings.Replace(leaf2, "}", ", behind: [10.82.0.1]}", 1)), `line 3: neighbour 1: network 1 "10.82.0.1" is not a network; write one such as 10.82.0.0/22`},
		{url("http://10.9.0.2:7471"), badURL("http://10.9.0.2:7471")},
		{url("https://10.9.0.2"), badURL("https://10.9.0.2")},
		{url("https://:7471"), badURL("https://:7471")},
		{url("https://u@10.9.0.2:7471"), badURL("https://u@10.9.0.2:7471")},
		{url("https://10.9.0.2:7471/v1"), badURL("https://10.9.0.2:7471/v1")},
		{url("https://10.9.0.2:7471?a=b"), badURL("https://10.9.0.2:7471?a=b")},
		{url("https://10.9.0.2:7471#a"), badURL("https://10.9.0.2:7471#a")},
		{head + "api: {listen: \"10.9.0.1\"}\n", `line 2: api: listen "10.9.0.1" is not an address with a port; write one such as 10.9.0.1:7471 or [fd00::1]:7471`},
		{head + "api: {listen: \"10.9.0.1:07471\"}\n", "line 2: api: listen has a leading zero; write it in decimal without one"},
		{head + "api: {listen: \"10.9.0.1:0\"}\n", `line 2: api: listen "10.9.0.1:0" is not an address with a port; write one such as 10.9.0.1:7471 or [fd00::1]:7471`},
		{head + "api: {listen: [1]}\n", "line 2: api: listen is a list; write one word"},
		{strings.Replace(url("X"), `"X"`, "[1]", 1), "line 3: neighbour 1: url is a list; write one word"},
		{head + "api: {listen: \"10.0.0.1:1\", cert: /c, key: /k, ca: /a, clients: [a, b], readClients: [b]}\n", "line 2: api has b in clients and in readClients; a program that may change groups may read, so remove it from readClients"},
		{head + "api: {readClients: [B]}\n", `line 2: api: client 1 "B" is not the name of a box; write a DNS name such as leaf2: up to 63 small letters, digits, '.' or '-'`},
		{head + "api: {clients: [A]}\n", `line 2: api: client 1 "A" is not the name of a box; write a DNS name such as leaf2: up to 63 small letters, digits, '.' or '-'`},
		{head + "api: {cert: box.pem}\n", `line 2: api: cert "box.pem" is a relative path; write a path that begins with /`},
		{head + "api: {cert: /box.pem}\n", "line 2: api has no listen; add listen: ADDRESS:PORT, where other boxes reach this one"},
		{head + "api: {listen: \"10.9.0.1:1\", cert: /c, key: /k}\n", "line 2: api has no ca; add ca: FILE, the certificate that signs those of all boxes"},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
	var many []string
	for i := range neighbour.Max + 1 {
		many = append(many, fmt.Sprintf("{name: leaf%d, address: 10.9.%d.%d, url: \"https://h:1\"}", i, 1+i/200, 1+i%200))
	}
	if _, err := Parse([]byte(one(strings.Join(many, ", ")))); err == nil || err.Error() != "line 3: neighbour 257 is one more than the limit of 256; remove it" {
		t.Error(err)
	}
}
