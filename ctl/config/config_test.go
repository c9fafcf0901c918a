package config

import (
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
		Mode: "copy", Engine: "afxdp", LogFormat: "console", LogLevel: "info",
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
engine: auto
workers: 2
log: {format: json, level: debug}
perftest:
  - {groupIP: 10.77.0.100, receivers: [10.77.0.2, 10.77.0.3], port: 18516}
`))
	want := Config{
		Ports: []string{"eth1"}, Socket: "/tmp/s", SocketGroup: "rdma", StateDir: "/tmp/d", Mode: "zero-copy", Busy: true, Engine: "auto", Workers: 2,
		LogFormat: "json", LogLevel: "debug",
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
		{"ports: [eth1]\nport: 1\n", `line 2: key "port" is unknown here; the known keys are ports, socket, socketGroup, stateDir, mode, wait, engine, workers, log, perftest`},
		{"ports: [eth1]\nsocket: run/s\n", `line 2: socket "run/s" is a relative path; write a path that begins with /`},
		{"ports: [eth1]\nsocket: /" + strings.Repeat("s", 103) + "\n", `line 2: socket "/` + strings.Repeat("s", 103) + `" is longer than 103 bytes, the limit for the path of a socket; write a shorter path`},
		{"ports: [eth1]\nmode: fast\n", `line 2: mode "fast" is not one of ["copy" "zero-copy" "generic"]`},
		{"ports: [eth1]\nperftest:\n  - {groupIP: 10.0.0.9}\n", "line 3: perftest 1 has no receivers; add receivers: [ADDRESS, ...], where perftest's servers run"},
		{"ports: [eth1]\nperftest:\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.1}\n  - {groupIP: 10.0.0.9, receivers: 10.0.0.2}\n", "line 4: perftest 2 has the same groupIP 10.0.0.9 as an entry above; keep one of them"},
		{"ports: [eth1]\nlog:\n  level: loud\n", `line 3: log: level "loud" is not one of ["debug" "info" "warn" "error"]`},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%q\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
	file := filepath.Join(t.TempDir(), "none.yaml")
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
