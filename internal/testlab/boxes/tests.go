package boxes

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
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
	testlab.Eventually(t, patience, "all members are reached", func() bool { return d.Group(t, name).State == api.Ready }, d.Log)
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
