package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/ctl/perftest"
)

func TestConfigDefaults(t *testing.T) {
	got, err := Parse([]byte("ports: [eth1, 'eth2*']\n"))
	want := Config{
		Ports: []string{"eth1", "eth2*"}, Socket: "/run/rocast/rocast.sock", SocketGroup: "root", StateDir: "/var/lib/rocast",
		Mode: "copy", Engine: "auto", LogFormat: "console", LogLevel: "info",
		RepairMemory: 64 << 20,
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestConfigTakesEveryKey(t *testing.T) {
	got, err := Parse([]byte(`
ports: [eth1]
socket: /tmp/s
socketGroup: rdma
stateDir: /tmp/d
mode: zero-copy
wait: busy
engine: afxdp
workers: 2
repairMemory: 3GiB
log: {format: json, level: debug}
perftest:
  - {groupIP: 10.77.0.100, receivers: [10.77.0.2, 10.77.0.3], port: 18516}
`))
	want := Config{
		Ports: []string{"eth1"}, Socket: "/tmp/s", SocketGroup: "rdma", StateDir: "/tmp/d", Mode: "zero-copy", Busy: true, Engine: "afxdp", Workers: 2,
		LogFormat: "json", LogLevel: "debug", RepairMemory: 3 << 30,
		Perftest: []perftest.Config{{GroupIP: netip.MustParseAddr("10.77.0.100"), Receivers: []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.77.0.3")}, Port: 18516}},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
		t.Error(err, diff)
	}
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
	if _, err := Parse([]byte(regexp.MustCompile(`(?m)^#(\S)`).ReplaceAllString(string(text), "$1"))); err != nil {
		t.Errorf("uncommented: %v", err)
	}
}

func TestBadConfigIsRefusedWithLineAndMend(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"socket: /s\n", "line 1: the config has no ports; add ports: [NAME or GLOB, ...], the interfaces to carry groups on"},
		{"ports: []\n", "line 1: ports names no interface; name at least one"},
		{"ports: eth1\n", "line 1: ports is a single word; write a list"},
		{"ports:\n  - eth1\n  - 'eth[2'\n", `line 3: port 2 "eth[2" is not a valid glob; close its brackets`},
		{"ports: [eth1]\nport: 1\n", `line 2: key "port" is unknown here; the known keys are ports, socket, socketGroup, stateDir, mode, wait, engine, workers, repairMemory, log, perftest`},
		{"ports: [eth1]\nsocket: run/s\n", `line 2: socket "run/s" is a relative path; write a path that begins with /`},
		{"ports: [eth1]\nsocket: /" + strings.Repeat("s", 103) + "\n", `line 2: socket "/` + strings.Repeat("s", 103) + `" is longer than 103 bytes, the limit for the path of a socket; write a shorter path`},
		{"", "line 1: the config is empty; write its keys"},
		{"ports: [[eth1]]\n", "line 1: port 1 is a list; write one word"},
		{"ports: [eth1]\nworkers: 0\n", "line 2: workers is 0; at least one thread must forward frames, so write 1 or more"},
		{"ports: [eth1]\nworkers: 65\n", "line 2: workers is not a whole number from 0 to 64 (0x40); write one, without quotes"},
		{"ports: [eth1]\nworkers: two\n", "line 2: workers is not a whole number from 0 to 64 (0x40); write one, without quotes"},
		{"ports: [eth1]\nperftest:\n" + services(perftest.MaxServices+1), fmt.Sprintf("line %d: perftest %d is one more than the limit of %d; remove it", perftest.MaxServices+3, perftest.MaxServices+1, perftest.MaxServices)},
		{"ports: [eth1]\nrepairMemory: 64MB\n", `line 2: repairMemory "64MB" is not a size; write one such as 64MiB (KiB, MiB or GiB), or 0 for none`},
		{"ports: [eth1]\nrepairMemory: 64\n", `line 2: repairMemory "64" is not a size; write one such as 64MiB (KiB, MiB or GiB), or 0 for none`},
		{"ports: [eth1]\nrepairMemory: 12345678GiB\n", `line 2: repairMemory "12345678GiB" is not a size; write one such as 64MiB (KiB, MiB or GiB), or 0 for none`},
		{"ports: [eth1]\nmode: fast\n", `line 2: mode "fast" is not one of ["copy" "zero-copy" "generic"]`},
		{"ports: [eth1]\nperftest:\n  - {groupIP: 10.0.0.9}\n", "line 3: perftest 1 has no receivers; add receivers: [ADDRESS, ...], where perftest's servers run"},
		{"ports: [eth1]\nperftest:\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.1}\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.2}\n", "line 4: perftest 2 has the same groupIP 10.0.0.9 as an entry above; keep one of them"},
		{"ports: [eth1]\nlog:\n  level: loud\n", `line 3: log: level "loud" is not one of ["debug" "info" "warn" "error"]`},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%q\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
	for _, text := range []string{
		"ports: [eth1]\nsocket: /" + strings.Repeat("s", 102) + "\n", "ports: [eth1]\nworkers: 64\n", "ports: [eth1]\nperftest:\n" + services(perftest.MaxServices),
	} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
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
	if c, err := Load(good); err != nil || len(c.Ports) != 1 || c.StateDir != "/var/lib/rocast" {
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
	interfaces := []Interface{{"lo", false}, {"br0", false}, {"eth0", true}, {"eth1", true}, {"eth1.100", false}, {"eth2", true}}
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
