package reload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/follow"
)

// box stands for a daemon. Its interfaces are eth1 to eth4.
type box struct {
	*Reloader
	t       *testing.T
	ports   []string
	bounds  map[string]int // LimitBytes of ports that were added
	refuse  error          // of the next change of ports
	gone    string         // a port whose interface is away
	bond    []string       // the lower devices of bond0; nil: it has none
	level   string
	told    []string
	changes int
	events  []string
}

func (b *box) PortList() (list api.Ports) {
	for _, name := range b.ports {
		p := api.Port{Name: name, State: api.PortUp}
		if name == b.gone || name == "bond0" {
			p.State = api.PortGone
		}
		list.Ports = append(list.Ports, p)
	}
	return list
}

func (b *box) ChangePorts(c follow.Change) error {
	if b.refuse != nil {
		return b.refuse
	}
	b.changes++
	b.ports = slices.DeleteFunc(slices.Clone(b.ports), func(name string) bool { return slices.Contains(c.Remove, name) })
	for i, name := range c.Add {
		b.ports, b.bounds[name] = append(b.ports, name), c.Bounds[i].LimitBytes
	}
	return nil
}

func (b *box) ConfigEvent(kind api.EventKind, cause string) {
	b.events = append(b.events, fmt.Sprint(kind, ": ", cause))
}

const running = "ports: [eth1, 'eth[23]']\nlog: {level: info}\negress: [{port: eth1, limit: 1MiB}, {port: 'eth*', limit: 2MiB}]\n"

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, ports: []string{"eth1", "eth2", "eth3"}, bounds: map[string]int{}, level: "info"}
	file := filepath.Join(t.TempDir(), "rocastd.yaml")
	b.write(file, running)
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	b.Reloader = New(Options{
		Running: c, Control: b, Log: zap.NewNop(),
		Check: func(c *config.Config, have []string) (err error) {
			var there []config.Interface
			for _, name := range append([]string{"eth1", "eth2", "eth4"}, have...) { // eth3 is away
				there = append(there, config.Interface{Name: name, Plain: true})
			}
			c.Ports, err = config.ExpandPorts(c.Ports, there)
			return err
		},
		Find: func(ports []string) ([]string, error) {
			return config.ExpandPorts(ports, []config.Interface{{Name: "bond0", Lower: b.bond}})
		},
		SetLevel: func(level string) error { b.level = level; return nil },
		Begins:   func() { b.told = append(b.told, "begins") }, Ends: func() { b.told = append(b.told, "ends") },
	})
	return b
}

func (b *box) write(file, text string) {
	b.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// change writes the file with parts replaced.
func (b *box) change(oldnew ...string) {
	b.t.Helper()
	b.write(b.file, strings.NewReplacer(oldnew...).Replace(running))
}

func (b *box) expect(ports, level string) {
	b.t.Helper()
	if got := strings.Join(b.ports, " "); got != ports || b.level != level {
		b.t.Errorf("ports %s, level %s; want %s, %s", got, b.level, ports, level)
	}
}

func TestAReloadTakesOverWhatHasChanged(t *testing.T) {
	b := newBox(t)
	if s := b.State(); s.Stale || s.File != b.file || s.Since.IsZero() {
		t.Errorf("%+v", s)
	}
	b.change("ports: [eth1, 'eth[23]']", "ports: [eth4, eth2, eth1, later]", "level: info", "level: debug")
	s := b.State()
	if want := "ports, log.level: the file has changed since; rocast reload takes the change over"; !s.Stale || s.Reason != want || !b.Stale() {
		t.Errorf("%+v", s)
	}
	done, err := b.Reload("root")
	if want := "ports, log.level changed; ports added: eth4, later; ports removed: eth3"; err != nil || done.String() != want {
		t.Errorf("%v, %v", done, err)
	}
	b.expect("eth1 eth2 eth4 later", "debug")
	if b.bounds["eth4"] != 2<<20 || b.bounds["later"] != 0 {
		t.Errorf("bounds %v", b.bounds)
	}
	if s := b.State(); s.Stale || s.Reason != "" {
		t.Errorf("%+v", s)
	}
	if got := strings.Join(b.told, " "); got != "begins ends" {
		t.Error(got)
	}
	if got := strings.Join(b.events, "\n"); got != "config-reloaded: "+done.String() {
		t.Error(got)
	}
	b.level = "warn" // as by rocast log level
	if done, err = b.Reload("root"); err != nil || b.level != "warn" || done.String() != "no key has changed" || done.Changed == nil || done.Added == nil || done.Removed == nil {
		t.Errorf("%+v, %v", done, err)
	}
}

// A port that a glob matched stays while its interface is away.
func TestAGlobKeepsAPortWhoseInterfaceIsAway(t *testing.T) {
	b := newBox(t)
	b.change("'eth[23]'", "'eth*'")
	if done, err := b.Reload("root"); err != nil || done.String() != "ports changed; ports added: eth4" {
		t.Errorf("%v, %v", done, err)
	}
	b.expect("eth1 eth2 eth3 eth4", "info")
}

// Whatever is wrong with a part of the file, nothing of it is taken over, and the status says why
// until the file is what runs.
func TestAReloadThatIsRefusedChangesNothing(t *testing.T) {
	b := newBox(t)
	more := []string{"[eth1,", "[eth1, eth4,", "level: info", "level: debug"}
	for _, c := range []struct {
		name   string
		change []string
		refuse error
		kind   api.Kind
		want   string
	}{
		{"a mistake", append(more, "egress", "egres"), nil, api.BadFile, `FILE: line 3: key "egres" is unknown here;`},
		{"a key that needs a restart", append(more, "log:", "mode: generic\nlog:"), nil, api.BadFile,
			"FILE: mode changes only at a restart; run systemctl restart rocastd, or undo the change of mode"},
		{"bounds of a port that stays", append(more, "limit: 2MiB", "limit: 3MiB"), nil, api.BadFile,
			"FILE: egress of port eth2 changes only at a restart; run systemctl restart rocastd, or undo the change"},
		{"a glob without an interface", append(more, "'eth[23]'", "'enp*'"), nil, api.BadFile, "FILE: ports: no interface matches enp*;"},
		{"a port that is needed", append(more, ", 'eth[23]'", ""), api.Errorf(api.BadFile, "ports: eth3 cannot be removed"), api.BadFile, "FILE: ports: eth3 cannot be removed"},
		{"a failure", more, errors.New("no memory"), api.Internal, "no memory"},
	} {
		b.change(c.change...)
		b.refuse = c.refuse
		_, err := b.Reload("root")
		want := strings.ReplaceAll(c.want, "FILE", b.file)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, want)
		}
		if e := (*api.Error)(nil); errors.As(err, &e) && e.Kind != c.kind {
			t.Errorf("%s: kind %s", c.name, e.Kind)
		}
		b.expect("eth1 eth2 eth3", "info")
		if s := b.State(); !s.Stale || s.Refused != err.Error() || s.Reason == "" {
			t.Errorf("%s: %+v", c.name, s)
		}
		if got := b.events[len(b.events)-1]; got != "config-refused: "+err.Error() {
			t.Errorf("%s: event %s", c.name, got)
		}
	}
	b.refuse = nil
	b.change()
	if s := b.State(); s.Stale || s.Refused != "" {
		t.Errorf("the change was undone, and %+v", s)
	}
	if b.changes != 0 || b.told[len(b.told)-1] != "ends" {
		t.Errorf("%d changes, told %v", b.changes, b.told)
	}
	b.change(more...)
	if _, err := b.Reload("root"); err != nil {
		t.Error(err)
	}
	b.expect("eth1 eth2 eth3 eth4", "debug")
}

func TestAFileThatCannotBeReadIsNotWhatRuns(t *testing.T) {
	b := newBox(t)
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	_, err := b.Reload("SIGHUP")
	if e := (*api.Error)(nil); !errors.As(err, &e) || e.Kind != api.Unavailable || !strings.HasPrefix(e.Message, "read the config: open ") {
		t.Errorf("%v", err)
	}
	if s := b.State(); !s.Stale || !strings.Contains(s.Reason, "no such file") || !strings.Contains(s.Refused, "no such file") {
		t.Errorf("%+v", s)
	}
	b.expect("eth1 eth2 eth3", "info")
}

// Reloads come one after the other, and who asks meanwhile for the state gets an answer.
func TestReloadsTakeTurns(t *testing.T) {
	b := newBox(t)
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() { _, _ = b.Reload("root") })
		asking.Go(func() {
			for range 20 {
				b.State() // as each GET /v1/status does
			}
		})
	}
	asking.Wait()
	if got := strings.Join(b.told, " "); got != "begins ends begins ends begins ends begins ends" {
		t.Error(got)
	}
}
