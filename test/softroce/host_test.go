//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/image"
	"github.com/rocast/rocast/test/softroce/wire"
)

// hostPort is where the box answers programs on hosts.
const hostPort = 7472

// giveUp is how long a program waits without progress before it falls back, if its story does not
// say (DEFAULT_GIVE_UP of host/internal.h).
const giveUp = 3 * time.Second

// host is a program of host/ in a guest: a member of a group, which it has joined by itself.
type host struct {
	guest   *Guest
	process *control.Process
}

// hostAnswer is a line of the program.
type hostAnswer struct {
	Event        string `json:"event"`
	Message      string `json:"message"`
	Way          string `json:"way"`
	Fallbacks    int    `json:"fallbacks"`
	Returns      int    `json:"returns"`
	Members      int    `json:"members"`
	Received     int    `json:"received"`
	ReceivedHash string `json:"receivedHash"`
	Sent         int    `json:"sent"`
	SentHash     string `json:"sentHash"`
	Failed       int    `json:"failed"`
}

func startHost(t *testing.T, guest *Guest, name, role string, members int, more ...string) *host {
	t.Helper()
	return startHostOf(t, boxAddr, guest, name, role, members, more...)
}

// startHostOf starts a program that asks the box at an address.
func startHostOf(t *testing.T, box string, guest *Guest, name, role string, members int, more ...string) *host {
	t.Helper()
	p, err := guest.Start(append([]string{image.HostProgram, "box=" + net.JoinHostPort(box, strconv.Itoa(hostPort)), "name=" + name, "role=" + role,
		fmt.Sprintf("members=%d", members)}, more...)...)
	must(t, err)
	return &host{guest, p}
}

// answer returns the next line, which is to be this event.
func (h *host) answer(t *testing.T, ctx context.Context, event string) hostAnswer {
	t.Helper()
	line, err := h.process.Stdout.ReadLine(ctx)
	var a hostAnswer
	if err == nil {
		err = json.Unmarshal([]byte(line), &a)
	}
	if err == nil && a.Event != event {
		err = errors.New(a.Message)
	}
	if err != nil {
		t.Fatalf("%s, %s is due: %q, %v\n%s", h.guest.Addr, event, line, err, h.process.Stderr)
	}
	return a
}

func (h *host) tell(t *testing.T, format string, args ...any) {
	t.Helper()
	_, err := fmt.Fprintf(h.process, format+"\n", args...)
	must(t, err)
}

func (h *host) ask(t *testing.T, ctx context.Context, event, format string, args ...any) hostAnswer {
	t.Helper()
	h.tell(t, format, args...)
	return h.answer(t, ctx, event)
}

// leave ends the program, which frees everything: the sanitizers of the program complain otherwise.
func (h *host) leave(t *testing.T, ctx context.Context) {
	t.Helper()
	h.ask(t, ctx, "left", "leave")
	h.ends(t, ctx)
}

func (h *host) ends(t *testing.T, ctx context.Context) {
	t.Helper()
	if exit, err := h.process.Wait(ctx); err != nil || !exit.OK() {
		t.Errorf("%s: %v %v %s", h.guest.Addr, exit, err, h.process.Stderr)
	}
}

// received checks that receivers have what the source has sent: each message once, in order.
func received(t *testing.T, ctx context.Context, sent hostAnswer, receivers ...*host) {
	t.Helper()
	for _, r := range receivers {
		got := r.ask(t, ctx, "expected", "expect count=%d", sent.Sent)
		if got.ReceivedHash != sent.SentHash || got.Received != sent.Sent || got.Failed != 0 || sent.Failed != 0 {
			t.Errorf("%s has %+v, and the source sent %+v", r.guest.Addr, got, sent)
		}
	}
}

// startAll starts a source in the first guest and receivers in the others, and returns them when
// they have joined.
func startAll(t *testing.T, ctx context.Context, s *stage, box, name string, more ...string) (source *host, receivers []*host) {
	t.Helper()
	for i, g := range s.Guests {
		receivers = append(receivers, startHostOf(t, box, g, name, roleOf(i == 0), len(s.Guests), more...))
	}
	for _, h := range receivers {
		if a := h.answer(t, ctx, "joined"); a.Members != len(s.Guests) || a.Way != "multicast" {
			t.Errorf("%s: %+v", h.guest.Addr, a)
		}
	}
	return receivers[0], receivers[1:]
}

// returns waits until a program that has fallen back uses the group again.
func (h *host) returns(t *testing.T, ctx context.Context, s *stage) {
	t.Helper()
	for way := ""; way != "multicast"; {
		way = h.ask(t, ctx, "goes", "way").Way
		if ctx.Err() != nil {
			t.Fatalf("%s does not return\n%s", h.guest.Addr, s.Report(ctx))
		}
	}
}

// filterAll puts filters into all wires, until the returned function is called.
func (s *stage) filterAll(of func(*Guest, wire.Direction) wire.Filter) (restore func()) {
	for _, g := range s.Guests {
		for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
			g.Wire.SetFilter(d, of(g, d))
		}
	}
	return func() {
		for _, g := range s.Guests {
			for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
				g.Wire.SetFilter(d, func(frame []byte) wire.Verdict { return s.see(g, d, frame) })
			}
		}
	}
}

// dropped counts the frames that all wires have lost.
func (s *stage) dropped() (n uint64) {
	for _, g := range s.Guests {
		n += g.Wire.Counts(wire.ToGuest).Dropped + g.Wire.Counts(wire.ToBox).Dropped
	}
	return n
}

// lossy lets all wires lose one RoCE frame in a hundred until the returned function is called, or
// the story ends. That function returns how many they have lost, and fails the test if none.
func (s *stage) lossy(t *testing.T) (end func() (lost uint64)) {
	before := s.dropped()
	restore := s.filterAll(func(g *Guest, d wire.Direction) wire.Filter {
		return wire.RandomLoss(uint64(2*g.Number)+uint64(d), 0.01, func(*roce.View, []byte) bool { return true })
	})
	t.Cleanup(restore)
	return func() uint64 {
		t.Helper()
		restore()
		lost := s.dropped() - before
		if lost == 0 {
			t.Error("nothing was lost")
		}
		return lost
	}
}

// storyHostIPv6 is a group at an IPv6 address.
func storyHostIPv6(t *testing.T, ctx context.Context, s *stage) string {
	source, receivers := startAll(t, ctx, s, boxAddr6, "h6")
	sent := source.ask(t, ctx, "sent", "send count=60 seed=1")
	received(t, ctx, sent, receivers...)
	said := ""
	if sent.Fallbacks != 0 {
		said = s.late(t, giveUp, "the source has fallen back: %+v", sent)
	}
	for _, h := range append(receivers, source) {
		h.leave(t, ctx)
	}
	s.noGroups(t, ctx)
	return fmt.Sprintf("%d messages, hashes equal%s", sent.Sent, said)
}

// storyHostLoss loses a share of all RoCE frames.
func storyHostLoss(t *testing.T, ctx context.Context, s *stage) string {
	source, receivers := startAll(t, ctx, s, boxAddr, "h4")
	end := s.lossy(t)
	sent := source.ask(t, ctx, "sent", "send count=200 seed=1")
	received(t, ctx, sent, receivers...)
	lost := end()
	for _, h := range append(receivers, source) {
		h.leave(t, ctx)
	}
	s.noGroups(t, ctx)
	return fmt.Sprintf("%d messages, %d frames lost, %d times by single connections: each message once and in order", sent.Sent, lost, sent.Fallbacks)
}

// isSYN reports whether a frame begins a TCP connection.
func isSYN(frame []byte) bool {
	const etherType, protocol, flags, syn, ack = 12, 14 + 9, 14 + 20 + 13, 0x02, 0x10
	return len(frame) > flags && frame[etherType] == 8 && frame[etherType+1] == 0 && frame[protocol] == 6 && frame[flags]&(syn|ack) == syn
}

// storyHostCut cuts the link of one receiver in the middle. The source falls back, and gets on when
// the link is there again, and returns to the group. Each message arrives once.
func storyHostCut(t *testing.T, ctx context.Context, s *stage) string {
	source, receivers := startAll(t, ctx, s, boxAddr, "h5", "give_up=1000")
	received(t, ctx, source.ask(t, ctx, "sent", "send count=40 seed=1"), receivers...)
	source.tell(t, "send count=200 seed=2")
	cut := receivers[1].guest
	connects := make(chan struct{})
	once := sync.OnceFunc(func() { close(connects) })
	restore := s.filterAll(func(g *Guest, d wire.Direction) wire.Filter {
		return func(frame []byte) wire.Verdict {
			if g != cut {
				return wire.Pass
			}
			if d == wire.ToGuest && isSYN(frame) {
				once()
			}
			return wire.Drop
		}
	})
	defer restore()
	select {
	case <-connects: // by a single connection: the source has fallen back
	case <-ctx.Done():
		t.Fatalf("the source does not fall back\n%s", s.Report(ctx))
	}
	restore()
	sent := source.answer(t, ctx, "sent")
	if sent.Fallbacks == 0 {
		t.Errorf("%+v", sent)
	}
	received(t, ctx, sent, receivers...)
	source.returns(t, ctx, s)
	sent = source.ask(t, ctx, "sent", "send count=40 seed=3")
	received(t, ctx, sent, receivers...)
	if sent.Returns == 0 {
		t.Errorf("%+v", sent)
	}
	for _, h := range append(receivers, source) {
		h.leave(t, ctx)
	}
	s.noGroups(t, ctx)
	return fmt.Sprintf("a receiver's link cut in the middle: %d messages, each once and in order; by multicast again", sent.Sent)
}

// startBoth starts a member that sends and receives on each guest, and waits until all have joined.
func startBoth(t *testing.T, ctx context.Context, s *stage, group string) (all []*host) {
	t.Helper()
	for _, g := range s.Guests {
		all = append(all, startHost(t, g, group, "both", len(s.Guests)))
	}
	for _, h := range all {
		h.answer(t, ctx, "joined")
	}
	return all
}

// storyHostSourceLeaves lets the member leave that is the source. The others go on without it.
func storyHostSourceLeaves(t *testing.T, ctx context.Context, s *stage) string {
	all := startBoth(t, ctx, s, "h7")
	const each = 12
	first, second, others := all[0], all[1], all[2:]
	first.ask(t, ctx, "sent", "send count=%d seed=1", each)
	for _, r := range all[1:] {
		r.ask(t, ctx, "expected", "expect count=%d", each)
	}
	first.leave(t, ctx)
	for round := 1; round <= 2; round++ {
		if a := second.ask(t, ctx, "sent", "send count=%d seed=2", each); a.Failed != 0 {
			t.Errorf("%+v", a)
		}
		for _, r := range others {
			if a := r.ask(t, ctx, "expected", "expect count=%d", each*(1+round)); a.Received != each*(1+round) || a.Failed != 0 {
				t.Errorf("%s has %+v, %d messages are due", r.guest.Addr, a, each*(1+round))
			}
		}
		second.returns(t, ctx, s)
	}
	a, said := second.ask(t, ctx, "goes", "way"), ""
	if a.Members != len(all)-1 {
		t.Errorf("%+v", a)
	}
	if a.Returns != 1 {
		said = s.late(t, giveUp, "the next source has returned to a group %d times, want once", a.Returns)
	}
	for _, h := range append(others, second) {
		h.leave(t, ctx)
	}
	s.noGroups(t, ctx)
	return fmt.Sprintf("the source left, and %d members went on by a new group%s", len(all)-1, said)
}

// storyHostTwoGroups has programs that are in two groups each: one program is the source of both,
// and then the source of one and a receiver of the other.
func storyHostTwoGroups(t *testing.T, ctx context.Context, s *stage) string {
	const first, other = 30, 40
	for _, second := range []int{0, 1} { // the source of the second group
		names := []string{fmt.Sprint("h9-", second), fmt.Sprint("h10-", second)}
		var all, receivers []*host
		for i, g := range s.Guests {
			all = append(all, startHost(t, g, names[0], roleOf(i == 0), len(s.Guests), "second="+names[1], "second_role="+roleOf(i == second)))
		}
		for i, h := range all {
			h.answer(t, ctx, "joined")
			if i != second {
				receivers = append(receivers, h)
			}
		}
		all[0].tell(t, "send count=%d seed=1", first)
		all[second].tell(t, "send second=1 count=%d seed=2", other)
		one := all[0].answer(t, ctx, "sent")
		sent := all[second].answer(t, ctx, "sent")
		received(t, ctx, one, all[1:]...)
		for _, r := range receivers {
			got := r.ask(t, ctx, "expected", "expect second=1 count=%d", other)
			if got.ReceivedHash != sent.SentHash || got.Received != sent.Sent || got.Failed != 0 || sent.Failed != 0 {
				t.Errorf("%s has %+v of the second group, and the source sent %+v", r.guest.Addr, got, sent)
			}
		}
		for i := len(all) - 1; i > second; i-- {
			all[i].leave(t, ctx)
		}
		all[second].leave(t, ctx)
		if second == 1 { // the first program has been told that its second group has ended
			all[0].answer(t, ctx, "error")
			all[0].answer(t, ctx, "left")
			all[0].ends(t, ctx)
		}
		s.noGroups(t, ctx)
	}
	return fmt.Sprintf("two groups in each program, %d and %d messages: from one source of both, and from two sources", first, other)
}

func roleOf(source bool) string {
	if source {
		return "source"
	}
	return "receiver"
}

// storyHostEnds lets the only source leave, and then in another group a member end it for all. The
// others hear so, and end.
func storyHostEnds(t *testing.T, ctx context.Context, s *stage) string {
	source, receivers := startAll(t, ctx, s, boxAddr, "h8")
	sent := source.ask(t, ctx, "sent", "send count=20 seed=1")
	received(t, ctx, sent, receivers...)
	source.leave(t, ctx)
	end := func(others []*host, want string) {
		t.Helper()
		for _, h := range others {
			if a := h.answer(t, ctx, "error"); a.Message != want {
				t.Errorf("%s hears %q, want %q", h.guest.Addr, a.Message, want)
			}
			h.answer(t, ctx, "left")
			h.ends(t, ctx)
		}
		s.noGroups(t, ctx)
	}
	end(receivers, source.guest.Addr.String()+" has left, and group h8 has ended with it")
	all := startBoth(t, ctx, s, "h11")
	received(t, ctx, all[0].ask(t, ctx, "sent", "send count=12 seed=1"), all[1:]...) // else a receive that is posted later fails, too
	last := all[len(all)-1]
	last.ask(t, ctx, "left", "end")
	last.ends(t, ctx)
	end(all[:len(all)-1], last.guest.Addr.String()+" has ended group h11")
	return fmt.Sprintf("the source left after %d messages, and %d receivers ended by themselves; in another group a member ended it, and so did all others", sent.Sent, len(receivers))
}

// storyHost plays a group of programs that have librocast alone: they join, send, leave, and join
// again.
func storyHost(t *testing.T, ctx context.Context, s *stage) string {
	source, receivers := startAll(t, ctx, s, boxAddr, "h1")
	sent := source.ask(t, ctx, "sent", "send count=100 seed=1")
	received(t, ctx, sent, receivers...)
	// One leaves, and comes back with nothing of what was sent meanwhile.
	receivers[2].leave(t, ctx)
	received(t, ctx, source.ask(t, ctx, "sent", "send count=20 seed=2"), receivers[:2]...)
	late := startHost(t, s.Guests[3], "h1", "receiver", len(s.Guests))
	if a := late.answer(t, ctx, "joined"); a.Members != len(s.Guests) {
		t.Errorf("%+v", a)
	}
	sent = source.ask(t, ctx, "sent", "send count=30 seed=3")
	received(t, ctx, sent, receivers[:2]...)
	if got := late.ask(t, ctx, "expected", "expect count=30"); got.Received != 30 || got.Failed != 0 {
		t.Errorf("%+v", got)
	}
	for _, h := range []*host{late, receivers[0], receivers[1]} {
		h.leave(t, ctx)
	}
	source.leave(t, ctx)
	s.noGroups(t, ctx)
	return fmt.Sprintf("%d messages by librocast, WRITEs and SENDs by turns; one receiver left and came back: hashes equal, no finding of the sanitizers", sent.Sent)
}

// storyHostSources lets each member send in turn.
func storyHostSources(t *testing.T, ctx context.Context, s *stage) string {
	all := startBoth(t, ctx, s, "h2")
	const rounds, each = 2, 12
	for round := range rounds {
		for i, h := range all {
			h.ask(t, ctx, "is source", "source")
			if a := h.ask(t, ctx, "sent", "send count=%d seed=%d", each, 1+round); a.Failed != 0 || a.Sent != (round+1)*each {
				t.Errorf("%+v", a)
			}
			for j, r := range all {
				if want := each * (round*(len(all)-1) + others(i+1, j)); j != i {
					if a := r.ask(t, ctx, "expected", "expect count=%d", want); a.Received != want {
						t.Errorf("%s has %+v, %d messages are due", r.guest.Addr, a, want)
					}
				}
			}
		}
	}
	for i := len(all) - 1; i > 0; i-- {
		all[i].leave(t, ctx)
	}
	all[0].leave(t, ctx)
	s.noGroups(t, ctx)
	return fmt.Sprintf("%d members sent in turn, %d rounds of %d messages", len(all), rounds, each)
}

// others counts the first n members without member j.
func others(n, j int) int {
	if j < n {
		return n - 1
	}
	return n
}

// storyHostFallback kills the box while programs with librocast use a group: they go on by single
// connections, and return when the box is there again. Each message arrives once.
func storyHostFallback(t *testing.T, ctx context.Context, s *stage) string {
	const soon = time.Second
	source, receivers := startAll(t, ctx, s, boxAddr, "h3", fmt.Sprint("give_up=", soon.Milliseconds()))
	received(t, ctx, source.ask(t, ctx, "sent", "send count=40 seed=1"), receivers...)
	source.tell(t, "send count=400 seed=2")
	must(t, s.Kill())
	sent := source.answer(t, ctx, "sent")
	if sent.Way != "unicast" || sent.Fallbacks == 0 {
		t.Errorf("the box is gone, and the source goes on by %+v", sent)
	}
	said := ""
	if sent.Fallbacks > 1 {
		said += s.late(t, soon, "the source has fallen back %d times, want once", sent.Fallbacks)
	}
	before := sent
	received(t, ctx, sent, receivers...)
	began := time.Now()
	must(t, s.Start(ctx))
	source.returns(t, ctx, s)
	took := time.Since(began)
	sent = source.ask(t, ctx, "sent", "send count=40 seed=3")
	if sent.Returns == 0 {
		t.Errorf("%+v", sent)
	}
	if sent.Way != "multicast" || sent.Returns != before.Returns+1 {
		said += s.late(t, soon, "the source has fallen back once more: %+v", sent)
	}
	received(t, ctx, sent, receivers...)
	for _, h := range receivers {
		h.leave(t, ctx)
	}
	source.leave(t, ctx)
	s.noGroups(t, ctx)
	return fmt.Sprintf("box killed in the middle: %d messages, each once and in order; by multicast again %.1f s after the start%s",
		sent.Sent, took.Seconds(), said)
}

// streamWindow is how many bytes of a stream are on their way at most.
const streamWindow = 1 << 20

// stream begins a stream at all hosts.
func stream(t *testing.T, source *host, receivers []*host, bytes, seed int) {
	t.Helper()
	source.tell(t, "stream bytes=%d seed=%d", bytes, seed)
	for _, r := range receivers {
		r.tell(t, "read")
	}
}

// streamed checks that receivers have the stream that has begun, and all before.
func streamed(t *testing.T, ctx context.Context, source *host, receivers []*host) (sent hostAnswer) {
	t.Helper()
	sent = source.answer(t, ctx, "streamed")
	for _, r := range receivers {
		if got := r.answer(t, ctx, "read"); got.ReceivedHash != sent.SentHash || got.Received != sent.Sent {
			t.Errorf("%s has %+v, and the source sent %+v", r.guest.Addr, got, sent)
		}
	}
	return sent
}

// storyHostStreams sends streams, of which the last is longer than the memory for them, where RoCE
// frames are lost.
func storyHostStreams(t *testing.T, ctx context.Context, s *stage) string {
	source, receivers := startAll(t, ctx, s, boxAddr, "h12", fmt.Sprint("window=", streamWindow))
	end := s.lossy(t)
	for seed, bytes := range []int{0, streamWindow / 2, 5*streamWindow + 1} {
		stream(t, source, receivers, bytes, seed)
		streamed(t, ctx, source, receivers)
	}
	lost := end()
	for _, h := range append(receivers, source) {
		h.leave(t, ctx)
	}
	s.noGroups(t, ctx)
	return fmt.Sprintf("three streams, the longest five times as long as the memory for them; %d frames lost, hashes equal", lost)
}

// storyHostStreamFallback kills the box in the middle of a stream. The stream goes on by single
// connections, and the next one by the group again.
func storyHostStreamFallback(t *testing.T, ctx context.Context, s *stage) string {
	source, receivers := startAll(t, ctx, s, boxAddr, "h13", fmt.Sprint("window=", streamWindow), "give_up=1000")
	middle, frames := make(chan struct{}), 0
	restore := s.filterAll(func(g *Guest, d wire.Direction) wire.Filter {
		return func(frame []byte) wire.Verdict {
			if g == s.Guests[1] && d == wire.ToGuest {
				if frames++; frames == 2*streamWindow/MTU4096 {
					close(middle)
				}
			}
			return wire.Pass
		}
	})
	defer restore()
	stream(t, source, receivers, 5*streamWindow+1, 1)
	s.await(t, ctx, "the middle of the stream", middle)
	must(t, s.Kill())
	sent := streamed(t, ctx, source, receivers)
	if sent.Way != "unicast" || sent.Fallbacks == 0 {
		t.Errorf("the box is gone, and the source goes on by %+v", sent)
	}
	must(t, s.Start(ctx))
	source.returns(t, ctx, s)
	stream(t, source, receivers, streamWindow+7, 2)
	streamed(t, ctx, source, receivers)
	for _, h := range append(receivers, source) {
		h.leave(t, ctx)
	}
	s.noGroups(t, ctx)
	return fmt.Sprintf("box killed in the middle of a stream of %d pieces, and another one by multicast again: hashes equal", sent.Sent)
}
