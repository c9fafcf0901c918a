package hosts

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/bench/lab"
	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

// openHosts makes a lab whose box floods, as the kernel's bridge does.
func openHosts(t *testing.T, o Options) (*lab.Lab, *Hosts) {
	t.Helper()
	cpus, err := lab.SplitCPUs(1)
	if err != nil {
		t.Skip(err) // says how many CPUs are missing, and how to get them
	}
	l, err := lab.New(lab.Options{Receivers: 3, MTU: 1500})
	if errors.Is(err, os.ErrPermission) {
		t.Skip("needs root, to make network namespaces; run it with sudo:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	commands := [][]string{{"ip", "link", "add", "flood", "type", "bridge"}, {"ip", "link", "set", "flood", "up"}}
	for _, p := range l.PortNames() {
		commands = append(commands, []string{"ip", "link", "set", p, "master", "flood"})
	}
	if err := l.Run(commands); err != nil {
		t.Fatal(err)
	}
	if o.Workload, err = l.Workload(64, 1); err != nil {
		t.Fatal(err)
	}
	o.CPU = cpus.Hosts
	h, err := Open(l, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, h
}

func TestVerifyNoticesAForwarderThatDoesNotRewrite(t *testing.T) {
	_, h := openHosts(t, Options{Rewriting: workload.Nothing})
	if err := h.Verify(100, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	h.Rewriting = workload.Addresses // what the bridge does not do
	if err := h.Verify(100, 10*time.Second); err == nil || !strings.Contains(err.Error(), "differs") {
		t.Errorf("verified as a forwarder that rewrites addresses: %v", err)
	}
}

// A forwarder that loses, repeats or misdirects the answers of one receiver is no forwarder.
func TestVerifyNoticesWhatHappensToAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		how  string // what a tc action does with the answers
		to   func(ports []string) string
		want string
	}{
		"lost":        {"redirect", func([]string) string { return "lo" }, "answers, and the source got"},
		"repeated":    {"mirror", func(ports []string) string { return ports[0] }, "answers, and the source got"},
		"misdirected": {"mirror", func(ports []string) string { return ports[1] }, "receiver 0 got a frame of 62 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			l, h := openHosts(t, Options{Rewriting: workload.Nothing})
			ports := l.PortNames()
			err := l.Run([][]string{{"tc", "qdisc", "add", "dev", ports[2], "clsact"}, {
				"tc", "filter", "add", "dev", ports[2], "ingress", "protocol", "all", "u32", "match", "u32", "0", "0",
				"action", "mirred", "egress", c.how, "dev", c.to(ports),
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Verify(40, 5*time.Second); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("verified: %v", err)
			}
		})
	}
}

// An answer that is not merged is attributed to the receiver that sent it, and while a forwarder is
// verified, every bit of the answer matters.
func TestListensToEachReceiver(t *testing.T) {
	_, h := openHosts(t, Options{Rewriting: workload.Nothing})
	// Of a receiver that there is not.
	h.Workload.HostMACs, h.Workload.PortMACs = append(h.Workload.HostMACs, roce.MAC{}), append(h.Workload.PortMACs, roce.MAC{})
	answer := workload.Answer{
		Receiver: 1, Direct: true, Syndrome: roce.SyndromeUnlimited, PSN: workload.SourcePSN(0).Prev(), MSN: 5,
	}
	tell := func(change func(*workload.Answer), bit int) error {
		a := answer
		change(&a)
		b := h.Workload.AppendAnswer(nil, &a)
		if bit >= 0 {
			b[bit/8] ^= 1 << (bit % 8)
		}
		return h.do(func() error { return h.listenTo(b) })
	}
	same := func(*workload.Answer) {}
	if err := tell(same, -1); err != nil || !slices.Equal(h.heard, []uint64{0, 1, 0}) {
		t.Errorf("an ACK of nothing: %v, heard %v", err, h.heard)
	}
	var e *untrue
	if err := tell(func(a *workload.Answer) { a.PSN = a.PSN.Next() }, -1); !errors.As(err, &e) || e.receiver != 1 {
		t.Errorf("an ACK of what the receiver lacks: %v", err)
	}
	for name, change := range map[string]func(a *workload.Answer){
		"of a receiver that there is not": func(a *workload.Answer) { a.Receiver = 3 },
		"of the source itself":            func(a *workload.Answer) { a.Receiver = -1 },
		"for a group that there is not":   func(a *workload.Answer) { a.Group = 1 },
		"to the group's QP":               func(a *workload.Answer) { a.Direct = false },
	} {
		if err := tell(change, -1); !errors.Is(err, errMalformed) {
			t.Errorf("an answer %s: %v", name, err)
		}
	}
	h.verifier = &verifier{}
	if err := tell(same, -1); err != nil {
		t.Errorf("while a forwarder is verified: %v", err)
	}
	for bit := range 8 * len(h.Workload.AppendAnswer(nil, &answer)) {
		if tell(same, bit) == nil {
			t.Errorf("bit %d of byte %d is not looked at", bit%8, bit/8)
		}
	}
}

// What a link loses the source sends again, and every receiver takes each packet once.
func TestGoesBackOverALoss(t *testing.T) {
	l, h := openHosts(t, Options{Rewriting: workload.Nothing})
	stop := h.Stream()
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	port := l.PortNames()[2]
	for _, step := range []struct {
		state string
		after func(Stats) bool
	}{
		{"down", func(s Stats) bool { return s.Copies[0] > 1000 }},
		{"up", func(s Stats) bool { return s.Resent > 0 }},
	} {
		waitFor(t, h, step.after)
		if err := l.Run([][]string{{"ip", "link", "set", port, step.state}}); err != nil {
			t.Fatal(err)
		}
	}
	lost := h.Stats()
	waitFor(t, h, func(s Stats) bool { return s.Copies[1] > lost.Copies[0]+1000 })
	s := h.Stats()
	if s.WentBack == 0 || s.Resent == 0 || s.Repeated == 0 {
		t.Errorf("a link was down, and nothing was sent again: %+v", s)
	}
	for r, n := range s.Copies {
		if n+Window < s.Copies[0] || n > s.Copies[0]+Window {
			t.Errorf("receiver %d has %d packets, receiver 0 has %d: more apart than a window", r, n, s.Copies[0])
		}
	}
}

func waitFor(t *testing.T, h *Hosts, enough func(Stats) bool) {
	t.Helper()
	testlab.Eventually(t, 2*testlab.Patience, "packets flow", func() bool { return enough(h.Stats()) },
		func() string { return fmt.Sprintf("%+v", h.Stats()) })
}

func TestProbeMeasures(t *testing.T) {
	_, h := openHosts(t, Options{Rewriting: workload.Nothing})
	if err := h.Verify(40, 10*time.Second); err != nil { // it leaves packets unacknowledged
		t.Fatal(err)
	}
	before := h.Stats().Heard
	latencies, err := h.Probe(100, 10*time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	if acks := h.Stats().Heard - before; acks < 3*99 { // those of the last one may still be on their way
		t.Errorf("the receivers answered %d times", acks)
	}
	for _, l := range latencies {
		if l <= 0 || l > probePatience {
			t.Fatalf("a packet took %v", l)
		}
	}
	if s := h.Stats(); len(latencies) != 100 || s.Copies[0] != s.Sent || s.Copies[2] != s.Sent {
		t.Errorf("%d latencies: %+v", len(latencies), s)
	}
}

// A probe that is lost is sent again, and its latency includes the time until then.
func TestProbeOutlivesALoss(t *testing.T) {
	l, h := openHosts(t, Options{Rewriting: workload.Nothing})
	if _, err := h.Probe(3*batch, 0); err != nil { // more than a batch is unacknowledged then
		t.Fatal(err)
	}
	port := l.PortNames()[2]
	if err := l.Run([][]string{{"ip", "link", "set", port, "down"}}); err != nil {
		t.Fatal(err)
	}
	var latencies []time.Duration
	probed := make(chan error, 1)
	go func() {
		var err error
		latencies, err = h.Probe(1, 0)
		probed <- err
	}()
	waitFor(t, h, func(s Stats) bool { return s.Resent > 0 })
	if err := l.Run([][]string{{"ip", "link", "set", port, "up"}}); err != nil {
		t.Fatal(err)
	}
	if err := <-probed; err != nil {
		t.Fatal(err)
	}
	if latencies[0] < stallAfter {
		t.Errorf("a packet that was lost took %v", latencies[0])
	}
}

// A wrong answer to the source ends the measurement.
func TestListensCritically(t *testing.T) {
	_, h := openHosts(t, Options{Rewriting: workload.All, Merges: true})
	tell := func(syndrome roce.Syndrome, psn roce.PSN, damage byte) error {
		b := response(t, h.Workload, syndrome, psn)
		b[len(b)-1] ^= damage
		return h.do(func() error { return h.listenTo(b) })
	}
	before := workload.SourcePSN(0).Prev()
	if err := tell(roce.SyndromeUnlimited, before, 0); err != nil {
		t.Errorf("an ACK of nothing: %v", err)
	}
	if err := tell(roce.NAKSequence, workload.SourcePSN(0), 0); err != nil {
		t.Errorf("a NAK that asks for the first packet: %v", err)
	}
	if err := h.do(func() error { _, err := h.send(3); return err }); err != nil {
		t.Fatal(err)
	}
	if err := tell(roce.NAKSequence, workload.SourcePSN(0), 0); err != nil || h.backs != 1 || h.cursor != 0 {
		t.Errorf("a NAK of three packets: %v, went back %d times to %d", err, h.backs, h.cursor)
	}
	var e *untrue
	if err := tell(roce.SyndromeUnlimited, before.Next(), 0); !errors.As(err, &e) || e.receiver != 0 || e.told != 1 {
		t.Errorf("an ACK of what nobody has: %v", err)
	}
	if err := tell(roce.NAKSequence, before.Add(2), 0); !errors.As(err, &e) {
		t.Errorf("a NAK that acknowledges what nobody has: %v", err)
	}
	if err := tell(roce.NAKRemoteAccess, before, 0); err == nil || errors.As(err, &e) {
		t.Errorf("a fatal NAK: %v", err)
	}
	if err := tell(roce.SyndromeUnlimited, before, 1); !errors.Is(err, errMalformed) {
		t.Errorf("an ACK with a wrong ICRC: %v", err)
	}
}

// response is what a switch tells the source.
func response(t *testing.T, w *workload.Workload, syndrome roce.Syndrome, psn roce.PSN) []byte {
	t.Helper()
	ip := roce.IPUDP{Src: workload.GroupIP(0), Dst: workload.SourceIP, HopLimit: 64}
	bth := roce.BTH{Opcode: roce.OpAck, PKey: roce.DefaultPKey, DestQPN: workload.SourceQPN(0), PSN: psn}
	aeth := roce.AETH{Syndrome: syndrome}
	b := roce.AppendEthernet(nil, w.HostMACs[0], w.PortMACs[0], ip.EtherType())
	b, err := roce.AppendICRC(aeth.Append(bth.Append(ip.Append(b, roce.BTHBytes+roce.AETHBytes))))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
