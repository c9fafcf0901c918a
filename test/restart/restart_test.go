package restart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

const (
	hosts      = 4
	memory     = 16 << 10
	writeBytes = 2048 // two packets
	patience   = 60 * time.Second
	retryCount = 6
)

func TestMain(m *testing.M) { boxes.Main(m) }

// group is one group: host 0 writes to all others.
type group struct {
	*softgroup.Group
	source  *softgroup.Member
	rounds  int           // how often the source has filled the memory
	filled  chan struct{} // has something when it has filled it again
	longest time.Duration
}

// forget takes what a channel has, so that the next thing in it is new.
func forget(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// note puts something into a channel, unless it has something.
func note(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

type lab struct {
	*bed.Bed
	t       *testing.T
	daemon  *boxes.Daemon
	timeout uint8 // local ACK timeout of the queue pairs: 4.096 us * 2^timeout
	groups  []*group
	filled  chan struct{} // has something when a source has filled the memory
}

func newLab(t *testing.T, groups int, timeout uint8) *lab {
	t.Helper()
	testlab.NeedRoot(t)
	l := &lab{t: t, timeout: timeout, filled: make(chan struct{}, 1)}
	var err error
	l.Bed, err = bed.New(bed.Options{Hosts: hosts})
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, l.Close()) })
	l.daemon = boxes.Launch(t, l.Box, boxes.Ports(l.Ports()...))
	// From now on it starts as its unit starts it.
	niced := filepath.Join(t.TempDir(), "rocastd")
	testlab.Must(t, os.WriteFile(niced, []byte("#!/bin/sh\nexec nice -n -10 "+l.daemon.Program+" \"$@\"\n"), 0o700))
	l.daemon.Program = niced
	for n := range groups {
		l.create(n)
	}
	return l
}

// create makes group n and connects the hosts' queue pairs to it.
func (l *lab) create(n int) {
	l.t.Helper()
	g := &group{filled: make(chan struct{}, 1)}
	g.Group = &softgroup.Group{
		Name: fmt.Sprintf("g%d", n), IP: l.GroupIP(), QPN: roce.QPN(n + 1), Bytes: memory, Timeout: l.timeout, RetryCount: retryCount,
	}
	g.source = g.Add(l.Hosts[0], softgroup.Sends, roce.QPN(100*(n+1)), roce.PSN(0xFFFF80+n), 0)
	for i, h := range l.Hosts[1:] {
		g.Add(h, softgroup.Receives, roce.QPN(100*(n+1)+i+1), 0, roce.PSN(0xFFFF00+1000*(i+1)))
	}
	l.daemon.Create(l.t, g.Name, g.File())
	g.Connect(l.t)
	l.groups = append(l.groups, g)
}

// stream lets the source of a group fill the memory again and again until stop, and compares what
// the receivers have.
func (l *lab) stream(ctx context.Context, g *group, stop <-chan struct{}) error {
	for {
		x, err := g.Send(ctx, g.source, writeBytes, nil)
		g.longest = max(g.longest, x.Outage)
		if err == nil {
			err = g.Compare(g.source, x.Data)
		}
		if err != nil {
			return fmt.Errorf("%s, round %d, longest pause %v: %w", g.Name, g.rounds, g.longest, err)
		}
		g.rounds++
		note(g.filled)
		note(l.filled)
		select {
		case <-stop:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// The daemon is killed three times while the sources of forty groups send. Each source completes
// all that it posts, and the receivers have it.
func TestFortyGroupsSurviveWhenTheDaemonIsKilled(t *testing.T) {
	times := testlab.Setting(t, "ROCAST_KILLS", 3)
	l := newLab(t, 40, uint8(testlab.Setting(t, "ROCAST_TIMEOUT", 16)))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	stop := make(chan struct{})
	sources, ctx := errgroup.WithContext(ctx)
	for _, g := range l.groups {
		sources.Go(func() error { return l.stream(ctx, g, stop) })
	}
	for n := range times {
		l.eachGetsOn(ctx)
		killed := time.Now()
		testlab.Must(t, l.daemon.Kill())
		dead := time.Now()
		forget(l.filled)
		l.daemon.StartFor(t, l.Box)
		answers := time.Now()
		select {
		case <-l.filled:
		case <-ctx.Done():
		}
		t.Logf("kill %d: the daemon was dead after %v, answered after another %v, and a source got on after %v",
			n+1, dead.Sub(killed), answers.Sub(dead), time.Since(killed))
	}
	l.eachGetsOn(ctx)
	close(stop)
	if err := sources.Wait(); err != nil {
		t.Errorf("%v\n%s", err, l.daemon.Log())
	}
	longest, rounds := time.Duration(0), 0
	for _, g := range l.groups {
		longest, rounds = max(longest, g.longest), rounds+g.rounds
	}
	t.Logf("%d rounds of %d groups; the longest pause of a source was %v", rounds, len(l.groups), longest)
}

// eachGetsOn waits until each source has filled the memory again, or one of them has failed.
func (l *lab) eachGetsOn(ctx context.Context) {
	for _, g := range l.groups {
		forget(g.filled)
	}
	for _, g := range l.groups {
		select {
		case <-g.filled:
		case <-ctx.Done():
			return
		}
	}
}
