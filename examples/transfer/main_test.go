package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/boxes"
)

func TestMain(m *testing.M) { boxes.Main(m) }

const (
	chunks   = 8
	fileSize = chunks*chunkBytes - 1001 // the last chunk is not full
)

// run is one transfer of a test.
type run struct {
	*site
	t     *testing.T
	out   testlab.Output
	kill  []context.CancelFunc // of the receivers' programs
	ended []chan error
}

// start starts a coordinator and the programs of some receivers.
func start(t *testing.T, s *site, within time.Duration, hosts ...int) *run {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	r := &run{site: s, t: t, kill: make([]context.CancelFunc, 1+receivers), ended: make([]chan error, 1+receivers)}
	if err := s.coordinate(ctx, &r.out, within); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		for _, i := range hosts {
			<-r.ended[i]
		}
		if t.Failed() {
			t.Logf("%s\n%s", &r.out, r.Daemon.Log())
		}
	})
	for _, i := range hosts {
		own, kill := context.WithCancel(ctx)
		r.kill[i], r.ended[i] = kill, make(chan error, 1)
		go func() { r.ended[i] <- r.receive(own, i); close(r.ended[i]) }()
	}
	return r
}

// end returns how the program of a receiver ends.
func (r *run) end(i int) error {
	r.t.Helper()
	select {
	case err := <-r.ended[i]:
		return err
	case <-time.After(patient):
		r.t.Fatalf("receiver %d goes on for ever", i)
		return nil
	}
}

// have checks which receivers have the file, and that the coordinator has removed the group.
func (r *run) have(got *result, hosts ...int) {
	r.t.Helper()
	want, err := os.ReadFile(r.copyOf(0))
	if err != nil || len(want) != fileSize {
		r.t.Fatalf("the file has %d bytes: %v", len(want), err)
	}
	var delivered []string
	for _, i := range hosts {
		delivered = append(delivered, r.Hosts[i].IP.String())
		if err := r.end(i); err != nil {
			r.t.Errorf("receiver %d: %v", i, err)
		}
		if text, err := os.ReadFile(r.copyOf(i)); err != nil || string(text) != string(want) {
			r.t.Errorf("the copy of receiver %d differs from the file: %v", i, err)
		}
	}
	if texts(got.Delivered) != strings.Join(delivered, " ") || len(got.Failed) != receivers-len(hosts) {
		r.t.Errorf("delivered to %v, failed at %v, want %v", got.Delivered, got.Failed, delivered)
	}
	r.noGroup()
}

func (r *run) noGroup() {
	r.t.Helper()
	groups, err := r.Daemon.Client().Groups(r.t.Context())
	if err != nil || len(groups.Groups) != 0 {
		r.t.Errorf("groups are left: %+v, %v", groups, err)
	}
}

func texts(ips []netip.Addr) string {
	var all []string
	for _, ip := range ips {
		all = append(all, ip.String())
	}
	return strings.Join(all, " ")
}

// halfway does something when half of the chunks are acknowledged. More are on their way then.
func halfway(do func() error) func(int) error {
	return func(n int) error {
		if n != chunks/2 {
			return nil
		}
		return do()
	}
}

const patient = 20 * time.Second

func TestTransfer(t *testing.T) {
	s, err := openSite(t.Context(), boxes.NeedProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, test := range map[string]func(*testing.T, *site){
		"a file reaches all receivers":   reachesAll,
		"a receiver does not connect":    doesNotConnect,
		"a receiver dies":                receiverDies,
		"the box starts again":           boxStartsAgain,
		"the sender dies":                senderDies,
		"a copy that differs is no copy": differs,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

func reachesAll(t *testing.T, s *site) {
	r := start(t, s, patient, 1, 2, 3)
	got, err := r.send(t.Context(), fileSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.have(got, 1, 2, 3)
	last := -1
	for _, step := range []string{": 1 ", ": 2 ", ": 3 ", ": 4 ", ": 6 ", ": 7 "} {
		at := strings.Index(r.out.String(), step)
		if at <= last {
			t.Errorf("step%s is missing, or comes too early", step)
		}
		last = at
	}
}

// The transfer does not begin, the sender hears which receiver is missing, and the other receivers
// do not wait for ever.
func doesNotConnect(t *testing.T, s *site) {
	r := start(t, s, 5*time.Second, 1, 2)
	_, err := r.send(t.Context(), fileSize, func(int) error { t.Error("data was sent"); return nil })
	if err == nil || !strings.Contains(err.Error(), "receiver 10.77.0.4: ") || !strings.Contains(err.Error(), "has connected") {
		t.Errorf("the sender is told: %v", err)
	}
	for i := 1; i <= 2; i++ {
		if err := r.end(i); err == nil {
			t.Errorf("receiver %d takes the transfer for done", i)
		}
	}
	r.noGroup()
}

// The others get the file, and the sender hears who does not have it and why.
func receiverDies(t *testing.T, s *site) {
	r := start(t, s, patient, 1, 2, 3)
	got, err := r.send(t.Context(), fileSize, halfway(func() error {
		r.kill[3]()
		if err := r.end(3); err == nil {
			t.Error("the receiver has ended without an error")
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.have(got, 1, 2)
	if reason := got.Failed[r.Hosts[3].IP]; !strings.Contains(reason, "evicted: it lacks the source's PSN") {
		t.Errorf("the reason is %q", reason)
	}
}

// The transfer goes on where it was.
func boxStartsAgain(t *testing.T, s *site) {
	r := start(t, s, patient, 1, 2, 3)
	got, err := r.send(t.Context(), fileSize, halfway(func() error {
		return errors.Join(r.Daemon.Kill(), r.Daemon.Start(t.Context(), r.Box))
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.have(got, 1, 2, 3)
}

// The group is removed, and the receivers know that they do not have the file.
func senderDies(t *testing.T, s *site) {
	r := start(t, s, patient, 1, 2, 3)
	ctx, kill := context.WithCancel(t.Context())
	if _, err := r.send(ctx, fileSize, halfway(func() error { kill(); return ctx.Err() })); err == nil {
		t.Error("the sender has ended without an error")
	}
	for i := 1; i <= receivers; i++ {
		if err := r.end(i); err == nil {
			t.Errorf("receiver %d takes the transfer for done", i)
		}
	}
	for begin := time.Now(); !strings.Contains(r.out.String(), "has failed"); time.Sleep(time.Millisecond) {
		if time.Since(begin) > patient {
			t.Fatal("the coordinator does not notice")
		}
	}
	r.noGroup()
}

func differs(t *testing.T, s *site) {
	r := start(t, s, patient, 1, 2)
	liar := make(chan error, 1)
	go func() {
		l, err := r.dial(t.Context(), 3)
		if err == nil {
			err = receiveFile(t.Context(), liarNIC{softNIC{Endpoint: r.Hosts[3].RNIC}}, l, r.Hosts[3].IP, r.copyOf(3))
		}
		liar <- err
	}()
	got, err := r.send(t.Context(), fileSize, nil)
	if err := errors.Join(err, <-liar); err != nil {
		t.Fatal(err)
	}
	r.have(got, 1, 2)
	if reason := got.Failed[r.Hosts[3].IP]; reason != "its copy differs from the file" {
		t.Errorf("the reason is %q", reason)
	}
}

// liarNIC makes endpoints that save other bytes than they have.
type liarNIC struct{ softNIC }

type liarEndpoint struct{ endpoint }

func (n liarNIC) open(ctx context.Context, bytes int64) (endpoint, error) {
	e, err := n.softNIC.open(ctx, bytes)
	return liarEndpoint{e}, err
}

func (e liarEndpoint) save(path string, bytes int64) error {
	return os.WriteFile(path, make([]byte, bytes), 0o600)
}
