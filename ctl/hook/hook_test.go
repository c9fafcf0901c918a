package hook

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/events"
	"github.com/rocast/rocast/internal/testlab"
)

// stage is a hook that runs a script for the events of a log.
type stage struct {
	*Runner
	dir    string
	events *events.Log
	logs   *observer.ObservedLogs
}

// newStage writes the script, in which $DIR is a directory for what it leaves.
func newStage(t *testing.T, script string) *stage {
	t.Helper()
	s := &stage{dir: t.TempDir(), events: events.New(func() time.Time { return time.Unix(1000, 5000).UTC() })}
	path := filepath.Join(s.dir, "notify")
	text := "#!/bin/sh\nDIR=" + s.dir + "\n" + script
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	s.logs = logs
	s.Runner = New(path, s.events.Wait, zap.New(core))
	return s
}

// play runs the hook until it has run for n events.
func (s *stage) play(t *testing.T, n uint64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	testlab.Eventually(t, testlab.Patience, fmt.Sprintf("%d runs", n), func() bool { return s.State().Runs >= n }, func() string {
		return fmt.Sprintf("%+v", s.State())
	})
	stop()
	<-done
}

func (s *stage) wrote(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// Each event is handed over whole, one after the other, those that happened before Run too.
func TestTheProgramHasEachEventInOrder(t *testing.T) {
	s := newStage(t, `echo "begin $ROCAST_SEQ" >>$DIR/out
{ echo "$# $1 $2"; env | grep -v -e ^PWD -e ^SHLVL -e ^_ -e ^OLDPWD | sort; cat; } >>$DIR/out
sleep 0.05
echo "end $ROCAST_SEQ" >>$DIR/out
`)
	t.Setenv("SECRET", "x")
	psn := uint32(1007)
	s.events.Add(api.Event{Kind: api.MemberEvicted, Group: "g1", Member: "10.77.0.2", RemoteQPN: 1, PSN: &psn, Cause: "evicted: it lacks \"all\""})
	s.events.Add(api.Event{Kind: api.GroupDegraded, Group: "g1", GoesOn: true})
	s.events.Add(api.Event{Kind: api.PortWentDown, Port: "eth1", Cause: "its link is down"})
	s.events.Add(api.Event{Kind: api.NeighbourDown, Neighbour: "leaf2"})
	s.play(t, 4)
	const path, at = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "ROCAST_TIME=1970-01-01T00:16:40.000005Z"
	want := []string{
		"begin 1", "2 member-evicted g1", path, `ROCAST_CAUSE=evicted: it lacks "all"`, "ROCAST_GROUP=g1", "ROCAST_KIND=member-evicted", "ROCAST_MEMBER=10.77.0.2",
		"ROCAST_MISSED=0", "ROCAST_PSN=1007", "ROCAST_REMOTE_QPN=1", "ROCAST_SEQ=1", at,
		`{"seq":1,"time":"1970-01-01T00:16:40.000005Z","kind":"member-evicted","group":"g1","member":"10.77.0.2","remoteQPN":1,"psn":1007,"cause":"evicted: it lacks \"all\""}`, "end 1",
		"begin 2", "2 degraded g1", path, "ROCAST_GOES_ON=1", "ROCAST_GROUP=g1", "ROCAST_KIND=degraded", "ROCAST_MISSED=0", "ROCAST_SEQ=2", at,
		`{"seq":2,"time":"1970-01-01T00:16:40.000005Z","kind":"degraded","group":"g1","goesOn":true}`, "end 2",
		"begin 3", "2 port-down eth1", path, "ROCAST_CAUSE=its link is down", "ROCAST_KIND=port-down", "ROCAST_MISSED=0", "ROCAST_PORT=eth1", "ROCAST_SEQ=3", at,
		`{"seq":3,"time":"1970-01-01T00:16:40.000005Z","kind":"port-down","port":"eth1","cause":"its link is down"}`, "end 3",
		"begin 4", "2 neighbour-down leaf2", path, "ROCAST_KIND=neighbour-down", "ROCAST_MISSED=0", "ROCAST_NEIGHBOUR=leaf2", "ROCAST_SEQ=4", at,
		`{"seq":4,"time":"1970-01-01T00:16:40.000005Z","kind":"neighbour-down","neighbour":"leaf2"}`, "end 4",
	}
	if got := s.wrote(t); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := s.State(), (api.Hook{Path: s.path, Runs: 4}); got != want || s.logs.Len() != 0 {
		t.Errorf("%+v, %v", got, s.logs.All())
	}
}

// A program that hangs is killed with all that it has started, and the next event has its turn.
func TestAProgramThatHangsIsKilled(t *testing.T) {
	s := newStage(t, `echo $ROCAST_SEQ >>$DIR/out
[ $ROCAST_SEQ = 2 ] && exit
sleep 300 &
echo $! >$DIR/child
echo I hang
wait
`)
	s.timeout = 300 * time.Millisecond
	s.events.Add(api.Event{Kind: api.GroupCreated, Group: "g1"})
	s.events.Add(api.Event{Kind: api.GroupRemoved, Group: "g1"})
	s.play(t, 2)
	if got, want := s.State(), (api.Hook{Path: s.path, Runs: 2, TimedOut: 1}); got != want {
		t.Errorf("%+v", got)
	}
	if got := s.wrote(t); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("%q", got)
	}
	child, err := os.ReadFile(filepath.Join(s.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	testlab.Eventually(t, testlab.Patience, "its child is gone", func() bool {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	}, nil)
	line := s.logs.FilterMessage("the hook was killed, because it took too long").All()
	if len(line) != 1 || line[0].ContextMap()["output"] != "I hang" || line[0].ContextMap()["event"] != "group-created" {
		t.Errorf("%v", s.logs.All())
	}
}

// What the daemon started ends with it, and is not counted as a failure.
func TestTheProgramEndsWithTheDaemon(t *testing.T) {
	s := newStage(t, "echo x >$DIR/out; sleep 300\n")
	s.events.Add(api.Event{Kind: api.GroupCreated, Group: "g1"})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	testlab.Eventually(t, testlab.Patience, "it runs", func() bool { _, err := os.Stat(filepath.Join(s.dir, "out")); return err == nil }, nil)
	stop()
	select {
	case <-done:
	case <-time.After(testlab.Patience):
		t.Fatal("it goes on")
	}
	if got := s.State(); got.Runs != 0 || got.Failed != 0 || s.logs.Len() != 0 {
		t.Errorf("%+v, %v", got, s.logs.All())
	}
}

func TestAProgramThatFailsIsLoggedWithItsOutput(t *testing.T) {
	s := newStage(t, "echo no mail today; head -c 9999 /dev/zero | tr '\\0' x; echo and more >&2; exit 3\n")
	s.events.Add(api.Event{Kind: api.GroupCreated, Group: "g1"})
	s.play(t, 1)
	line := s.logs.FilterMessage("the hook has failed").All()
	if len(line) != 1 || line[0].ContextMap()["error"] != "exit status 3" {
		t.Fatalf("%v", s.logs.All())
	}
	if out := line[0].ContextMap()["output"].(string); !strings.HasPrefix(out, "no mail today\nxxx") || len(out) != maxOutput {
		t.Errorf("%d bytes: %.40q", len(out), out)
	}
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	s.events.Add(api.Event{Kind: api.GroupRemoved, Group: "g1"})
	again := New(s.path, s.events.Wait, s.log)
	s.Runner = again
	s.play(t, 2)
	if got, want := s.State(), (api.Hook{Path: s.path, Runs: 2, Failed: 2}); got != want {
		t.Errorf("%+v", got)
	}
}

func TestWhatAProgramThatWorksWritesIsLogged(t *testing.T) {
	s := newStage(t, "[ $1 = degraded ] && echo sent\nexit 0\n")
	s.events.Add(api.Event{Kind: api.GroupDegraded, Group: "g1"})
	s.events.Add(api.Event{Kind: api.GroupRestored, Group: "g1"})
	s.play(t, 2)
	if all := s.logs.All(); len(all) != 1 || all[0].Message != "the hook has written" || all[0].ContextMap()["output"] != "sent" {
		t.Errorf("%v", all)
	}
}

// More events than may wait: the oldest are missed, and counted.
func TestEventsThatCannotWaitAreCounted(t *testing.T) {
	s := newStage(t, "echo $ROCAST_SEQ $ROCAST_MISSED >>$DIR/out\n[ $ROCAST_SEQ = 10 ] && sleep 300\nexit 0\n")
	for range MaxWaiting + 9 {
		s.events.Add(api.Event{Kind: api.GroupCreated, Group: "g1"})
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	testlab.Eventually(t, testlab.Patience, "it is busy with event 10", func() bool {
		text, _ := os.ReadFile(filepath.Join(s.dir, "out"))
		return string(text) == "10 9\n"
	}, nil)
	stop()
	<-done
	if got := s.State(); got.Missed != 9 {
		t.Errorf("%+v", got)
	}
	// Events that the log itself no longer keeps are missed too.
	for range events.Kept {
		s.events.Add(api.Event{Kind: api.GroupCreated, Group: "g1"})
	}
	r := New("/bin/true", s.events.Wait, zap.NewNop())
	ctx, stop = context.WithCancel(t.Context())
	done = make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	testlab.Eventually(t, testlab.Patience, "one run", func() bool { return r.State().Runs > 0 }, nil)
	stop()
	<-done
	if got := r.State().Missed; got != events.Kept+9 {
		t.Errorf("%d were missed", got)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, loose, fine := write("plain", 0o644), write("loose", 0o757), write("fine", 0o770)
	for path, want := range map[string]string{
		fine:        "",
		plain:       "hook: " + plain + " is not executable; chmod +x " + plain,
		loose:       "hook: every user may change " + loose + "; chmod o-w " + loose,
		dir:         "hook: " + dir + " is not a file; name a program or a script",
		dir + "/no": "hook: there is no file " + dir + "/no; write it, or remove hook: from the config",
		fine + "/x": "hook: stat " + fine + "/x: not a directory",
	} {
		got := ""
		if err := Check(path); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
