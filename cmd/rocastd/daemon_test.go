package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

// notOwned is a group that touches no interface of the machine the test runs on: nothing is owned,
// and its members are in a network reserved for documentation.
const notOwned = `name: g1
addressing: virtual-qpn
ip: 198.51.100.2
qpn: 5
mtu: 1024
members:
  - {ip: 198.51.100.1, qpn: 17, psn: 1000, role: source}
  - {ip: 198.51.100.2, qpn: 18, psn: 5}
`

// twin opens a data path in memory.
func twin(c config.Config) (ctl.Switch, func() error, error) {
	return ctltest.NewSwitch(c.Ports...), func() error { return nil }, nil
}

func testConfig(t *testing.T) config.Config {
	t.Helper()
	dir := t.TempDir()
	return config.Config{
		Ports: []string{"lo"}, Socket: filepath.Join(dir, "rocast.sock"), SocketGroup: fmt.Sprint(os.Getegid()),
		StateDir: filepath.Join(dir, "state"), LogFormat: "json", LogLevel: "debug",
	}
}

// start runs a daemon until stop is called, which returns its log.
func start(t *testing.T, c config.Config, openSwitch opener) (daemon *client.Client, stop func() string) {
	t.Helper()
	var out bytes.Buffer
	log, err := newLog(c, &out)
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(c, log, openSwitch)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.run(ctx) }()
	stop = sync.OnceValue(func() string {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return out.String()
	})
	t.Cleanup(func() { stop() })
	return client.New(c.Socket), stop
}

func TestGroupsComeBackWithTheDaemon(t *testing.T) {
	settings, ctx := testConfig(t), context.Background()
	settings.RepairMemory = 512 << 10
	client, stop := start(t, settings, twin)
	if _, err := client.CreateGroup(ctx, []byte(notOwned)); err != nil {
		t.Fatal(err)
	}
	log := stop()
	for _, want := range []string{`"msg":"ready"`, `"repairMemoryKiB":512`, `"msg":"group created"`, `"msg":"stopped"`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
	if _, err := os.Stat(settings.Socket); err == nil {
		t.Error("the socket is still there")
	}
	client, _ = start(t, settings, twin)
	g, err := client.Group(ctx, "g1")
	if err != nil || g.State != api.Waiting || g.Restored {
		t.Errorf("%+v, %v: want it waiting for its members, and fresh: it carried nothing", g, err)
	}
}

// With store: etcd a group is created where etcd has it. No box reaches the source of this one, so
// it is refused, and etcd keeps nothing of it.
func TestTheDaemonTakesItsGroupsFromEtcd(t *testing.T) {
	cluster, settings, ctx := etcd.Start(t, 1), testConfig(t), context.Background()
	settings.Etcd = desired.Settings{Endpoints: cluster.Endpoints(), Prefix: "/rocast", Lease: 2 * time.Second}
	client, _ := start(t, settings, twin)
	other := testConfig(t)
	other.Etcd = settings.Etcd
	second, _ := start(t, other, twin)
	if _, err := client.CreateGroup(ctx, []byte(notOwned)); err == nil || !strings.Contains(err.Error(), "no box says that the source 198.51.100.1 is attached to it") {
		t.Errorf("%v", err)
	}
	var list api.Groups
	testlab.Eventually(t, testlab.Patience, "the other daemon has no group", func() bool {
		var err error
		list, err = second.Groups(ctx)
		return err == nil && len(list.Groups) == 0
	}, func() string { return fmt.Sprintf("%+v", list) })
	cluster.Kill(t, 0)
	soon, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := client.CreateGroup(soon, []byte(notOwned)); err == nil || !strings.Contains(err.Error(), "does not answer, and running groups run on") {
		t.Errorf("%v", err)
	}
}

// One warning names all files that other programs put among the notes of addresses.
func TestStrayFilesAmongTheNotesOfAddressesDoNotPreventAStart(t *testing.T) {
	settings := testConfig(t)
	_, stop := start(t, settings, twin)
	if log := stop(); strings.Contains(log, "that are no notes") {
		t.Errorf("without such files:\n%s", log)
	}
	boots, err := filepath.Glob(filepath.Join(settings.StateDir, "addresses", "*"))
	if err != nil || len(boots) != 1 {
		t.Fatalf("%q, %v", boots, err)
	}
	strays := []string{filepath.Join(settings.StateDir, "addresses", "README"), filepath.Join(boots[0], "text")}
	for _, path := range strays {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, stop = start(t, settings, twin)
	log := stop()
	if want := fmt.Sprintf(`"files":[%q,%q]`, strays[0], strays[1]); strings.Count(log, want) != 1 || strings.Count(log, "that are no notes") != 1 {
		t.Errorf("%s is not in the log once:\n%s", want, log)
	}
	for _, path := range strays {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestASecondDaemonOnTheStateDirectoryIsRefused(t *testing.T) {
	settings := testConfig(t)
	start(t, settings, twin)
	log, err := newLog(settings, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	settings.Socket += "2"
	_, err = open(settings, log, twin)
	if want := fmt.Sprintf("is in use by the rocastd with PID %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want that it %s", err, want)
	}
}

func TestAStartThatFailsLeavesNothing(t *testing.T) {
	settings := testConfig(t)
	log, err := newLog(settings, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(settings.Socket, nil, 0o600); err != nil { // in the way of the last step
		t.Fatal(err)
	}
	closed := false
	if _, err := open(settings, log, func(c config.Config) (ctl.Switch, func() error, error) {
		return ctltest.NewSwitch(c.Ports...), func() error { closed = true; return nil }, nil
	}); err == nil || !strings.Contains(err.Error(), "a file that is not a socket has this name") {
		t.Errorf("%v", err)
	}
	if !closed {
		t.Error("the data path is still open")
	}
	os.Remove(settings.Socket)
	start(t, settings, twin) // the state directory is free again
}

// Prometheus refuses a scrape in which two counters have one name.
func TestTheRealCountersCanBeScraped(t *testing.T) {
	settings := testConfig(t)
	start(t, settings, twin)
	scraper := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", settings.Socket)
	}}}
	answer, err := scraper.Get("http://rocastd" + api.MetricsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), `rocast_frames_total{reason="merged"} 0`) {
		t.Errorf("%s %v\n%s", answer.Status, err, text)
	}
}

func TestEveryFeatureHasAnAnswer(t *testing.T) {
	for _, f := range features() {
		if f.Name == "" || f.Since == "" || f.Status == "" {
			t.Errorf("%+v", f)
		}
		if f.Status == api.Unknown && f.Detail == "" {
			t.Errorf("%s is unknown, and nobody says why", f.Name)
		}
	}
}
