package restart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl/api"
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
	between    = 1200 * time.Millisecond // of two kills
)

func TestMain(m *testing.M) {
	status := m.Run()
	boxes.RemoveProgram()
	os.Exit(status)
}

// group is one group: host 0 writes to all others.
type group struct {
	name      string
	source    *endpoint.QP
	receivers [][]byte
	rounds    int // how often the source has filled the memory
	longest   time.Duration
}

type lab struct {
	*bed.Bed
	t       *testing.T
	daemon  boxes.Daemon
	timeout uint8 // local ACK timeout of the queue pairs: 4.096 us * 2^timeout
	groups  []*group
	filled  atomic.Uint64 // times that a source has filled the memory
}

func newLab(t *testing.T, groups int, timeout uint8) *lab {
	t.Helper()
	testlab.NeedRoot(t)
	dir, err := os.MkdirTemp("", "rcr") // short: the path of a socket has its limit
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	l := &lab{t: t, timeout: timeout}
	l.Bed, err = bed.New(bed.Options{Hosts: hosts})
	testlab.Permitted(t, err)
	t.Cleanup(func() { check(t, l.Close()) })
	program, err := boxes.Program()
	check(t, err)
	file, socket := filepath.Join(dir, "rocastd.yaml"), filepath.Join(dir, "s")
	config := fmt.Sprintf("ports: [%s]\nsocket: %s\nstateDir: %s\n", strings.Join(l.Ports(), ", "), socket, filepath.Join(dir, "state"))
	check(t, os.WriteFile(file, []byte(config), 0o600))
	niced := filepath.Join(dir, "rocastd")
	check(t, os.WriteFile(niced, []byte("#!/bin/sh\nexec nice -n -10 "+program+" \"$@\"\n"), 0o700)) // as its unit says
	l.daemon = boxes.Daemon{Program: niced, Config: file, Socket: socket}
	t.Cleanup(func() { check(t, l.daemon.Kill()) })
	l.start()
	for n := range groups {
		l.create(n)
	}
	return l
}

func (l *lab) start() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	check(l.t, l.daemon.Start(ctx, l.Box))
}

// create makes group n and connects the hosts' queue pairs to it.
func (l *lab) create(n int) {
	t := l.t
	t.Helper()
	g := &group{name: fmt.Sprintf("g%d", n)}
	qpn := func(host int) roce.QPN { return roce.QPN(100*(n+1) + host) }
	expects := func(host int) roce.PSN { return roce.PSN(0xFFFF00 + 1000*host) }
	groupQPN, psn := roce.QPN(n+1), roce.PSN(0xFFFF80+n)
	text := fmt.Sprintf("name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n"+
		"  - {ip: %v, qpn: %d, psn: %d, role: source}\n",
		g.name, l.GroupIP(), groupQPN, pathMTU, memoryVA, memory, memoryKey, l.Hosts[0].IP, qpn(0), psn)
	for i, h := range l.Hosts[1:] {
		text += fmt.Sprintf("  - {ip: %v, qpn: %d, psn: %d, regions: {va: 0, length: %d, rkey: %d}}\n", h.IP, qpn(i+1), expects(i+1)&0xFFFFFF, memory, n+7)
	}
	_, err := l.daemon.Client().CreateGroup(t.Context(), []byte(text))
	check(t, err)
	connect := func(host int, first roce.PSN, p endpoint.Peer) *endpoint.QP {
		c := bed.QP(qpn(host), first, pathMTU)
		c.Timeout, c.RetryCount = l.timeout, retryCount
		qp, err := l.Hosts[host].RNIC.NewQP(c)
		check(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		check(t, qp.Connect(ctx, p))
		return qp
	}
	for i, h := range l.Hosts[1:] {
		m := make([]byte, memory)
		check(t, h.RNIC.Register(rnic.Region{VA: 0, RKey: uint32(n + 7), Access: rnic.RemoteWrite, Bytes: m}))
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
		l.filled.Add(1)
		for i, m := range g.receivers {
			if !l.Hosts[i+1].Has(m, data) {
				return fmt.Errorf("%s: the memory of %v differs from the source's data", g.name, l.Hosts[i+1].IP)
			}
		}
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
	testlab.Eventually(t, patience, "the groups are ready", func() bool {
		list, err := l.daemon.Client().Groups(t.Context())
		return err == nil && !slices.ContainsFunc(list.Groups, func(g api.GroupSummary) bool { return g.State != api.Ready })
	}, l.daemon.Log)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	stop := make(chan struct{})
	sources, ctx := errgroup.WithContext(ctx)
	for _, g := range l.groups {
		sources.Go(func() error { return l.stream(ctx, g, stop) })
	}
	for n := range times {
		time.Sleep(between)
		killed := time.Now()
		check(t, l.daemon.Kill())
		dead, before := time.Now(), l.filled.Load()
		l.start()
		answers := time.Now()
		for l.filled.Load() == before && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		t.Logf("kill %d: the daemon was dead after %v, answered after another %v, and a source got on after %v",
			n+1, dead.Sub(killed), answers.Sub(dead), time.Since(killed))
	}
	time.Sleep(between)
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

// setting is a number that the environment may say.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	check(t, err)
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
