package matrix

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

const perftestPort = 18515

// perftestLines are the lines of rocastd.yaml with which runs of perftest use the cell's engine.
func perftestLines(c matrix.Cell) string {
	if !c.Is("addressing", "perftest") {
		return ""
	}
	return fmt.Sprintf("engine: %s\n", c.Get("engine"))
}

// perftestUp serves perftest at the group IP. The service ends with the daemon.
func (r *run) perftestUp() error {
	request := api.PerftestRequest{GroupIP: r.members[0].sees.String(), Port: perftestPort}
	for _, m := range r.members[1:] {
		request.Receivers = append(request.Receivers, m.IP.String())
	}
	request.Nak, request.OnFatal, request.Repair = r.c.Get("nak"), r.c.Get("on-fatal"), r.c.Get("repair")
	if r.c.Is("evict", "yes") {
		request.SilentAfter, request.Evict = "300ms", true
	}
	_, err := r.boxes[0].Client().PerftestUp(r.t.Context(), request)
	return err
}

// tool is the perftest of a host: the source has a client, the others have servers, which their
// users start again after each run.
type tool struct {
	r      *run
	m      *member
	closed atomic.Bool

	mu      sync.Mutex
	conn    net.Conn // of the newest run
	isOver  bool     // the box has hung up
	target  rnic.Remote
	nextQPN roce.QPN // no queue pair has the number of an earlier one
}

// openTools registers the memory of all hosts and starts the servers.
func (r *run) openTools() {
	r.t.Helper()
	for _, m := range append(slices.Clone(r.members), r.spare) {
		r.check(r.register(m))
		m.tool = &tool{r: r, m: m, nextQPN: m.qpn, isOver: true}
		r.t.Cleanup(m.tool.hangUp)
	}
	for _, m := range r.members[1:] {
		var l net.Listener
		r.check(m.NS.Do(func() (err error) {
			l, err = net.Listen("tcp", netip.AddrPortFrom(m.IP, perftestPort).String())
			return err
		}))
		done := make(chan struct{})
		go func() { defer close(done); m.tool.serve(l) }()
		r.t.Cleanup(func() {
			m.tool.closed.Store(true)
			_ = l.Close()
			m.tool.hangUp()
			<-done
		})
	}
}

func (t *tool) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		t.begin(conn)
		if err := t.answer(conn); err == nil {
			_ = testlab.HungUpOn(conn, patience)
		} // otherwise its run has ended
		t.hangUp()
	}
}

// begin takes the numbers of a new run.
func (t *tool) begin(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m.qp != nil {
		t.m.qp.Destroy()
	}
	t.conn, t.isOver = conn, t.closed.Load()
	t.m.qpn, t.nextQPN = t.nextQPN, t.nextQPN+0x100
	if t.isOver {
		_ = conn.Close()
	}
}

func (t *tool) hangUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		_ = t.conn.Close()
	}
	t.isOver = true
}

func (t *tool) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOver
}

// key is what a host says of its queue pair.
func (t *tool) key() testlab.PerftestKey {
	at := t.m.at(t.r.c, parts(t.r.c)[0])
	return testlab.PerftestKey{QPN: uint32(t.m.qpn), PSN: uint32(t.m.sends), RKey: at.RKey, VA: at.VA, IP: t.m.IP}
}

func (t *tool) opening() [][]byte {
	mtu := map[int]uint8{256: 1, 1024: 3, 4096: 5}[mtuOf(t.r.c)]
	return testlab.PerftestOpening("6.29", mtu)
}

// answer is the handshake of a server, until the run begins.
func (t *tool) answer(conn net.Conn) error {
	for _, message := range t.opening() {
		if _, err := testlab.ReadOnce(conn, len(message), patience); err != nil {
			return err
		}
		if _, err := conn.Write(message); err != nil {
			return err
		}
	}
	const keys = 4 // each side's, again, a wait before the run, and one behind it
	line := t.key().Line()
	for i := range keys {
		said, err := testlab.ReadOnce(conn, len(line), patience)
		if err != nil {
			return err
		}
		if i == 0 {
			if err := t.open(said); err != nil {
				return err
			}
		}
		if _, err := conn.Write(line); err != nil {
			return err
		}
	}
	return conn.Close() // the run is over
}

// open opens the queue pair of a run whose other end is said by a key line.
func (t *tool) open(said []byte) error {
	k, err := testlab.ReadPerftestKey(said)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.m.expects, t.target = roce.PSN(k.PSN), rnic.Remote{VA: k.VA, RKey: k.RKey}
	ctx, cancel := context.WithTimeout(t.r.t.Context(), patience)
	defer cancel()
	return t.r.open(ctx, t.m, k.QPN)
}

// runPerftest begins a run of a source, as a client does that knows nothing of groups.
func (r *run) runPerftest(source *member) {
	r.t.Helper()
	t := source.tool
	r.check(source.NS.Do(func() error {
		d := net.Dialer{Timeout: patience}
		conn, err := d.DialContext(r.t.Context(), "tcp", netip.AddrPortFrom(source.sees, perftestPort).String())
		if err == nil {
			t.begin(conn)
		}
		return err
	}))
	line := t.key().Line()
	for i, message := range append(t.opening(), line, line, line) {
		answer, err := t.ask(message)
		if err != nil {
			r.t.Fatalf("message %d of %v: %v\n%+v\n%s", i, source.IP, err, r.runs(), r.state())
		}
		if i < len(t.opening())+1 {
			continue
		}
		if k, err := testlab.ReadPerftestKey(answer); err != nil {
			r.t.Fatal(err)
		} else if i == len(t.opening())+1 {
			r.name = fmt.Sprintf("perftest-%s-%d", strings.ReplaceAll(source.sees.String(), ":", "-"), k.QPN)
			r.check(t.open(answer))
		}
	}
	conn := t.conn
	go func() {
		_, _ = testlab.ReadOnce(conn, len(line), 4*patience) // the answer to the last key line, or the end
		_ = conn.Close()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.isOver = t.isOver || t.conn == conn
	}()
	for _, m := range r.members { // its server has opened its queue pair
		m.tool.ended()
	}
	r.ready()
}

func (t *tool) ask(message []byte) ([]byte, error) {
	if _, err := t.conn.Write(message); err != nil {
		return nil, err
	}
	return testlab.ReadOnce(t.conn, len(message), patience)
}

// allHungUp waits until the run is over at all hosts.
func (r *run) allHungUp() {
	r.t.Helper()
	for _, m := range r.members {
		r.eventually(fmt.Sprintf("%v hears that the run has ended", m.IP), m.tool.ended)
	}
}

// perftestEvent lets an event happen that ends a run. The source's transfer ends with it, and a
// client runs again.
func (r *run) perftestEvent(b *box, last *member) (is bool) {
	r.t.Helper()
	switch r.c.Get("event") {
	case "restart":
		r.check(b.stop())
		r.allHungUp()
		r.begin(b)
		r.check(r.perftestUp())
	case "kill":
		r.ends(b, b.kill)
		r.allHungUp()
		r.check(r.perftestUp())
	case "leave":
		last.tool.hangUp()
		r.allHungUp()
	case "source-dies":
		r.members[0].NS.MustRun(r.t, "ip address flush dev %s", r.members[0].End.Name) // its kernel answers no more
		r.members[0].qp.Destroy()
		r.members[0] = r.spare
	default:
		return false
	}
	r.again = true
	r.abort()
	return true
}

// runs are the runs that the box lists, oldest first.
func (r *run) runs() []api.PerftestRun {
	r.t.Helper()
	list, err := r.boxes[0].Client().Perftests(r.t.Context())
	r.check(err)
	if len(list.Perftests) != 1 {
		r.t.Fatalf("perftest is up %d times", len(list.Perftests))
	}
	return list.Perftests[0].Runs
}

// nothingStaysOfPerftest ends the run as perftest does, and then the service.
func (r *run) nothingStaysOfPerftest() {
	r.t.Helper()
	t := r.members[0].tool
	_, err := t.conn.Write(t.key().Line())
	r.check(err)
	r.allHungUp()
	last := func() api.PerftestRun { runs := r.runs(); return runs[len(runs)-1] }
	r.eventually("the run has ended", func() bool { return last().Ended != nil })
	// A client whose last word comes late is said to have ended early, which is no failure.
	if run := last(); run.State != "ended" || strings.Contains(run.Reason, "does not answer") {
		r.t.Errorf("the last run is %q: %s", run.State, run.Reason)
	}
	_, err = r.boxes[0].Client().PerftestDown(r.t.Context(), r.members[0].sees.String())
	r.check(err)
}

// targetPerftest is where a source WRITEs: the box has told it in its key line.
func (r *run) targetPerftest() rnic.Remote { return r.members[0].tool.target }
