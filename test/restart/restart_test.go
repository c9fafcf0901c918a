package restart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/roce"
)

const (
	hosts      = 4
	memoryVA   = 0x10000
	memoryKey  = 0x77
	memory     = 16 << 10
	writeBytes = 2048 // two packets
	pathMTU    = 1024
	patience   = 60 * time.Second
	retryCount = 6
)

func TestMain(m *testing.M) { boxes.Main(m) }

// group is one group: host 0 writes to all others.
type group struct {
	name      string
	source    *endpoint.QP
	receivers [][]byte
	rounds    int           // how often the source has filled the memory
	filled    chan struct{} // has something when it has filled it again
	longest   time.Duration
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
	t := l.t
	t.Helper()
	g := &group{name: fmt.Sprintf("g%d", n), filled: make(chan struct{}, 1)}
	qpn := func(host int) roce.QPN { return roce.QPN(100*(n+1) + host) }
	expects := func(host int) roce.PSN { return roce.PSN(0xFFFF00 + 1000*host) }
	groupQPN, psn := roce.QPN(n+1), roce.PSN(0xFFFF80+n)
	text := fmt.Sprintf("name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n"+
		"  - {ip: %v, qpn: %d, psn: %d, role: source}\n",
		g.name, l.GroupIP(), groupQPN, pathMTU, memoryVA, memory, memoryKey, l.Hosts[0].IP, qpn(0), psn)
	for i, h := range l.Hosts[1:] {
		text += fmt.Sprintf("  - {ip: %v, qpn: %d, psn: %d, regions: {va: 0, length: %d, rkey: %d}}\n", h.IP, qpn(i+1), expects(i+1)&0xFFFFFF, memory, n+7)
	}
	l.daemon.Create(t, g.name, text)
	connect := func(host int, first roce.PSN, p endpoint.Peer) *endpoint.QP {
		c := bed.QP(qpn(host), first, pathMTU)
		c.Timeout, c.RetryCount = l.timeout, retryCount
		qp, err := l.Hosts[host].RNIC.NewQP(c)
		testlab.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		testlab.Must(t, qp.Connect(ctx, p))
		return qp
	}
	for i, h := range l.Hosts[1:] {
		m := make([]byte, memory)
		testlab.Must(t, h.RNIC.Register(rnic.Region{VA: 0, RKey: uint32(n + 7), Access: rnic.RemoteWrite, Bytes: m}))
		g.receivers = append(g.receivers, m)
		connect(i+1, 0, endpoint.Peer{IP: l.GroupIP(), QPN: groupQPN, PSN: expects(i+1) & 0xFFFFFF})
	}
	g.source = connect(0, psn, endpoint.Peer{IP: l.GroupIP(), QPN: groupQPN})
	l.groups = append(l.groups, g)
}

// stream lets the source of a group fill the memory again and again until stop, and compares what
// the receivers have.
func (l *lab) stream(ctx context.Context, g *group, stop <-chan struct{}) error {
	for {
		data := bed.Random(memory, byte(g.rounds))
		outage, err := bed.Write(ctx, g.source, rnic.Remote{VA: memoryVA, RKey: memoryKey}, data, writeBytes, nil)
		g.longest = max(g.longest, outage)
		if err != nil {
			return fmt.Errorf("%s, round %d, longest pause %v: %w", g.name, g.rounds, g.longest, err)
		}
		g.rounds++
		for i, m := range g.receivers {
			if !l.Hosts[i+1].Has(m, data) {
				return fmt.Errorf("%s: the memory of %v differs from the source's data", g.name, l.Hosts[i+1].IP)
			}
		}
		note(g.filled)
		note(l.filled)
		select {
		case <-stop:
			return bed.CheckResponses(g.source)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// The daemon is killed three times while the sources of forty groups send. Each source completes
// all that it posts, and the receivers have it.
func TestFortyGroupsSurviveWhenTheDaemonIsKilled(t *testing.T) {
	times := setting(t, "ROCAST_KILLS", 3)
	l := newLab(t, 40, uint8(setting(t, "ROCAST_TIMEOUT", 16)))
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

// setting is a number that the environment may say.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	testlab.Must(t, err)
	return n
}
