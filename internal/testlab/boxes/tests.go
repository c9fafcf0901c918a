package boxes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// patience bounds what a daemon takes to start, and to reach the members of a group.
const patience = 60 * time.Second

// Main is the TestMain of a package whose tests call Program.
func Main(m *testing.M) {
	code := m.Run()
	RemoveProgram()
	os.Exit(code)
}

// MustProgram is Program for a test.
func MustProgram(t testing.TB) string {
	t.Helper()
	program, err := Program()
	testlab.Must(t, err)
	return program
}

// Launch starts a daemon with a config of these lines, which ends with the test.
func Launch(t testing.TB, in *netns.NS, lines string) *Daemon {
	t.Helper()
	d, err := NewDaemon(MustProgram(t), lines)
	testlab.Must(t, err)
	t.Cleanup(func() { testlab.Must(t, d.Remove()) })
	d.StartFor(t, in)
	return d
}

// StartFor is Start for a test, also after a Kill.
func (d *Daemon) StartFor(t testing.TB, in *netns.NS) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	testlab.Must(t, d.Start(ctx, in))
}

// Create creates a group, and returns when all its members are reached.
func (d *Daemon) Create(t testing.TB, name, file string) {
	t.Helper()
	if _, err := d.Client().CreateGroup(t.Context(), []byte(file)); err != nil {
		t.Fatalf("%v\n%s\n%s", err, file, d.Log())
	}
	Ready(t, name, d)
}

// Running is a daemon: a Daemon or a Box.
type Running interface {
	Client() *client.Client
	Log() string
}

// Ready waits until a group is ready at all of the daemons.
func Ready[R Running](t testing.TB, group string, at ...R) {
	t.Helper()
	testlab.Eventually(t, patience, group+" is ready", func() bool {
		return !slices.ContainsFunc(at, func(d R) bool {
			g, err := d.Client().Group(t.Context(), group)
			return err != nil || g.State != api.Ready
		})
	}, func() string { return State(t, group, at...) })
}

// linesOfLog is how much of each log State shows.
const linesOfLog = 30

// State is what daemons say of a group, and what they have logged last.
func State[R Running](t testing.TB, group string, at ...R) string {
	var s strings.Builder
	for i, d := range at {
		g, err := d.Client().Group(context.WithoutCancel(t.Context()), group)
		fmt.Fprintf(&s, "box %d: %v, %s %s, engine %+v, counters %v\n", i, err, g.State, g.Reason, g.Engine, g.Counters)
		for _, m := range g.Members {
			acked := "nothing"
			if m.Acked != nil {
				acked = fmt.Sprint(*m.Acked)
			}
			fmt.Fprintf(&s, "  %s %d %s %s acked %s %s\n", m.IP, m.QPN, m.State, m.Part, acked, m.Reason)
		}
		lines := strings.Split(d.Log(), "\n")
		fmt.Fprintln(&s, strings.Join(lines[max(0, len(lines)-linesOfLog):], "\n"))
	}
	return s.String()
}

// Up starts a daemon in each box of a fabric. They end with the test.
func Up(t testing.TB, f *fabric.Fabric, names ...string) *Set {
	t.Helper()
	return UpWith(t, f, nil, names...)
}

// UpWith is Up with other configs, which edit returns for each box; nil: as they are.
func UpWith(t testing.TB, f *fabric.Fabric, edit func(b *Box, config string) string, names ...string) *Set {
	t.Helper()
	s, err := New(f, filepath.Dir(MustProgram(t)), names...)
	testlab.Must(t, err)
	t.Cleanup(func() { testlab.Must(t, s.Close()) })
	for _, b := range s.Boxes {
		if edit != nil {
			testlab.Must(t, b.Edit(func(config string) string { return edit(b, config) }))
		}
	}
	for _, b := range s.Boxes {
		b.StartFor(t)
	}
	return s
}

// StartFor is Start for a test, also after a Kill.
func (b *Box) StartFor(t testing.TB) {
	t.Helper()
	b.daemon.StartFor(t, b.Box.Box)
}

// Group is a group as the daemon shows it.
func (d *Daemon) Group(t testing.TB, name string) api.Group {
	t.Helper()
	g, err := d.Client().Group(t.Context(), name)
	testlab.Must(t, err)
	return g
}

// NeedProgram is MustProgram for a story whose hosts are soft NICs. It skips the test where such a
// story cannot be played.
func NeedProgram(t testing.TB) string {
	t.Helper()
	testlab.NeedRoot(t)
	if testing.Short() {
		t.Skip("under the race detector the soft NICs are so slow that the story takes a minute")
	}
	return MustProgram(t)
}
