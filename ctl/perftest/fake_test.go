package perftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

var (
	groupIP  = netip.MustParseAddr("127.0.0.100")
	clientIP = netip.MustParseAddr("127.0.0.1")
)

// exchange is one message of the client and the answer to it.
type exchange struct{ client, server []byte }

// script has the messages of both sides of a run.
type script struct {
	exchanges []exchange
	farewell  bool // versions up to 6.16 send "done" before they disconnect
	holds     bool // does not disconnect first: its run is not over
}

// opening is the part before the keys. Keys and reports follow with say.
func opening(version string, m mtu) *script {
	sc := &script{}
	for _, message := range testlab.PerftestOpening(version, uint8(m)) {
		sc.say(message)
	}
	return sc
}

func (sc *script) say(message []byte) *script {
	sc.exchanges = append(sc.exchanges, exchange{message, message})
	return sc
}

// keys appends the keys of queue pairs, which it names by letter: "a" is the first.
func (sc *script) keys(letters string) *script {
	for _, l := range letters {
		n := int(l - 'a')
		client := key{OutReads: 1, QPN: 0x42, PSN: 0x100, RKey: 0x5580, VA: 0x5590c93c5000, GID: clientIP}
		server := key{OutReads: 1, QPN: 0xa2, PSN: 0x200, RKey: 0xb42e, VA: 0x5604caecf000, GID: clientIP}
		for _, k := range []*key{&client, &server} {
			k.QPN, k.PSN, k.VA = k.QPN+roce.QPN(n), k.PSN.Add(int32(n)), k.VA+uint64(n)<<12
		}
		sc.exchanges = append(sc.exchanges, exchange{client.line(), server.line()})
	}
	return sc
}

func (sc *script) reports(n int) *script {
	for i := range n {
		sc.say([]byte{0, 0, 0, 0, 0, 0, 0x20, byte(i)})
	}
	return sc
}

// moved returns the script for the side at ip: with the GID of ip, and with QPNs, PSNs and keys
// that depend on n.
func (sc *script) moved(ip netip.Addr, n int) *script {
	out := &script{farewell: sc.farewell, holds: sc.holds}
	for _, e := range sc.exchanges {
		out.exchanges = append(out.exchanges, exchange{movedKey(e.client, ip, n), movedKey(e.server, ip, n)})
	}
	return out
}

func movedKey(message []byte, ip netip.Addr, n int) []byte {
	k, err := parseKey(message)
	if err != nil {
		return message
	}
	k.GID, k.QPN, k.PSN, k.VA = ip, k.QPN+roce.QPN(n)<<8, k.PSN.Add(int32(n)<<8), k.VA+uint64(n)<<32
	if k.RKey != 0 {
		k.RKey += uint32(n)
	}
	return k.line()
}

// lab is a helper whose surroundings are fakes.
type lab struct {
	*testing.T
	helper    *Helper
	config    Config
	groups    *fakeGroups
	told      chan string
	owning    sync.Mutex // services are closed at the same time
	owned     map[netip.Addr]int
	subnets   []netip.Prefix // of the box
	listeners []net.Listener
	errs      chan error // the results of the fake perftests
	players   sync.WaitGroup
}

// newLab listens as the servers of n receivers, at addresses of the loopback. No service is up yet.
func newLab(t *testing.T, n int, change func(*limits)) *lab {
	l := &lab{
		T: t, groups: &fakeGroups{have: map[string]*groupfile.File{}, seen: map[string]Traffic{}},
		told: make(chan string, 1000), owned: map[netip.Addr]int{}, errs: make(chan error, 100),
		subnets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
	l.helper = New(Options{Groups: l.groups, Addresses: l, Log: zap.New(teller{told: l.told})})
	l.helper.limits.sleep = time.Hour // no client is taken for ib_write_bw
	l.helper.limits.version, l.helper.limits.dial, l.helper.limits.part = testlab.Patience, testlab.Patience, testlab.Patience
	l.helper.limits.cmPort = 0
	if change != nil {
		change(&l.helper.limits)
	}
	l.config = Config{GroupIP: groupIP}
	for i := range n {
		l.config.Receivers = append(l.config.Receivers, netip.AddrFrom4([4]byte{127, 0, 0, byte(11 + i)}))
	}
	l.listen()
	t.Cleanup(l.close)
	return l
}

// listen opens the receivers' servers, all on a port that is free at the first receiver.
func (l *lab) listen() {
	for _, ip := range l.config.Receivers {
		ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, l.config.Port)))
		if err != nil {
			l.Fatal(err)
		}
		l.listeners = append(l.listeners, ln)
		l.config.Port = ln.Addr().(*net.TCPAddr).AddrPort().Port()
	}
}

func (l *lab) up() {
	l.Helper()
	if err := l.helper.Up(context.Background(), l.config); err != nil {
		l.Fatal(err)
	}
}

// Own is the Addresses of the helper.
func (l *lab) Own(ip netip.Addr, towards []netip.Addr) ([]netip.Prefix, func(), error) {
	if !slices.Equal(towards, l.config.Receivers) {
		return nil, nil, fmt.Errorf("own towards %v", towards)
	}
	count := func(by int) {
		l.owning.Lock()
		defer l.owning.Unlock()
		l.owned[ip] += by
	}
	count(1)
	return l.subnets, func() {
		count(-1)
		if have := l.groups.names(); len(have) > 0 { // the runs have ended before
			l.Errorf("groups %v are left when the group IP goes", have)
		}
	}, nil
}

// teller is a log that delivers its entries as sentences: "run of CLIENT ended: REASON".
type teller struct {
	told   chan<- string
	fields []zapcore.Field
}

func (teller) Enabled(zapcore.Level) bool { return true }

func (t teller) With(fields []zapcore.Field) zapcore.Core {
	return teller{t.told, append(slices.Clone(t.fields), fields...)}
}

func (t teller) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return c.AddCore(e, t)
}

func (teller) Sync() error { return nil }

func (t teller) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range append(slices.Clone(t.fields), fields...) {
		f.AddTo(values)
	}
	v := values.Fields
	sentence := strings.Replace(e.Message, "perftest run", fmt.Sprintf("run of %v", v["client"]), 1)
	if reason, ok := v["reason"]; ok && reason != "" {
		sentence += fmt.Sprint(": ", reason)
	}
	if n, ok := v["queuePairs"]; ok {
		sentence += fmt.Sprintf(": queue pairs %v, receivers %v, path MTU %v", n, v["receivers"], v["pathMTU"])
	}
	t.told <- sentence
	return nil
}

// close ends everything and checks that nothing is left.
func (l *lab) close() {
	l.helper.Close()
	l.closeListeners()
	l.players.Wait()
	if n := l.owned[groupIP]; n != 0 {
		l.Errorf("the group IP is held %d times after the end", n)
	}
	if have := l.groups.names(); len(have) > 0 {
		l.Errorf("groups %v are left", have)
	}
	if left := goroutines(); left != "" {
		l.Errorf("goroutines are left:\n%s", left)
	}
}

func (l *lab) closeListeners() {
	for _, ln := range l.listeners {
		ln.Close()
	}
}

// goroutines returns the goroutines of this package that are not tests.
func goroutines() (left string) {
	for range 1000 {
		left = ""
		stacks := make([]byte, 1<<20)
		for _, s := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(s, "ctl/perftest.(*") && !strings.Contains(s, "testing.tRunner") {
				left += s + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
		runtime.Gosched() // a goroutine that has reported its end may still run for a moment
	}
	return left
}

// hears waits for a sentence that ends with end.
func (l *lab) hears(end string) {
	l.Helper()
	var heard []string
	timeout := time.After(testlab.Patience)
	for {
		select {
		case s := <-l.told:
			if strings.HasSuffix(s, end) {
				return
			}
			if s == "could not remove a perftest group" && l.groups.stuck == nil {
				l.Error(s)
			}
			heard = append(heard, s)
		case <-timeout:
			l.Fatalf("heard\n%s\nbut not\n%s", strings.Join(heard, "\n"), end)
		}
	}
}

// last returns the listing of the newest run.
func (l *lab) last() Session {
	l.Helper()
	list := l.helper.List()
	if len(list) != 1 || len(list[0].Sessions) == 0 {
		l.Fatalf("listed: %+v", list)
	}
	return list[0].Sessions[len(list[0].Sessions)-1]
}

// play runs what f does as one of the sides; its error is the lab's.
func (l *lab) play(f func() error) {
	l.players.Go(func() { l.errs <- f() })
}

// ended waits for n players to end well.
func (l *lab) ended(n int) {
	l.Helper()
	for range n {
		if err := <-l.errs; err != nil {
			l.Error(err)
		}
	}
}

// clientConn connects from the client's address.
func (l *lab) clientConn() (net.Conn, error) { return l.connFrom(clientIP) }

func (l *lab) connFrom(ip netip.Addr) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: ip.AsSlice()}, Timeout: 5 * time.Second}
	return d.Dial("tcp", netip.AddrPortFrom(groupIP, l.config.Port).String())
}

// serverConn does what the server of receiver i does first: it accepts one client and stops
// listening.
func (l *lab) serverConn(i int) (net.Conn, error) {
	defer l.listeners[i].Close()
	return l.listeners[i].Accept()
}

// client plays the client. Before exchange number run it sends data. said has the answers.
func (l *lab) client(sc *script, run int) (said [][]byte, err error) {
	conn, err := l.clientConn()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for i, e := range sc.exchanges {
		if i == run {
			l.groups.carry()
		}
		if _, err := conn.Write(e.client); err != nil {
			return said, fmt.Errorf("client, exchange %d: %w", i, err)
		}
		answer, err := readOnce(conn, len(e.server))
		if err != nil {
			return said, fmt.Errorf("client, exchange %d: %w", i, err)
		}
		said = append(said, answer)
	}
	return said, sc.leave(conn)
}

// server plays receiver i. asked has the messages to it.
func (l *lab) server(i int, sc *script) (asked [][]byte, err error) {
	conn, err := l.serverConn(i)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for n, e := range sc.exchanges {
		message, err := readOnce(conn, len(e.client))
		if err != nil {
			return asked, fmt.Errorf("server %d, exchange %d: %w", i, n, err)
		}
		asked = append(asked, message)
		if _, err := conn.Write(e.server); err != nil {
			return asked, fmt.Errorf("server %d, exchange %d: %w", i, n, err)
		}
	}
	return asked, sc.leave(conn)
}

func (sc *script) leave(conn net.Conn) error {
	if sc.farewell {
		// The other end may already be closed, which perftest ignores.
		_, _ = conn.Write([]byte(farewell))
	}
	if sc.holds {
		return hungUpOn(conn)
	}
	return nil
}

func hungUpOn(conn net.Conn) error { return testlab.HungUpOn(conn, testlab.Patience) }

func readOnce(conn net.Conn, length int) ([]byte, error) {
	return testlab.ReadOnce(conn, length, testlab.Patience)
}

// fakeGroups records the requests to it.
type fakeGroups struct {
	mu     sync.Mutex
	have   map[string]*groupfile.File
	seen   map[string]Traffic
	made   []*groupfile.File
	refuse error
	saw    string // of each group
	stuck  error  // what Remove returns after it has removed a group
}

func (g *fakeGroups) Create(_ context.Context, f *groupfile.File) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuse != nil {
		return g.refuse
	}
	if g.have[f.Name] != nil {
		return errors.New("is there already")
	}
	g.have[f.Name] = f
	g.made = append(g.made, f)
	return nil
}

func (g *fakeGroups) Remove(ctx context.Context, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.have[name] == nil {
		return errors.New("there is none")
	}
	if ctx.Err() == nil {
		delete(g.have, name)
	}
	return cmp.Or(ctx.Err(), g.stuck)
}

func (g *fakeGroups) Saw(string) string { return g.saw }

func (g *fakeGroups) Traffic(name string) (Traffic, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[name], g.have[name] != nil
}

// carry makes all groups carry one packet of the source, the least that a run has.
func (g *fakeGroups) carry() { g.see(Traffic{FromSource: 1}) }

func (g *fakeGroups) see(t Traffic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range g.have {
		g.seen[name] = t
	}
}

func (g *fakeGroups) names() (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range g.have {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (g *fakeGroups) all() []*groupfile.File {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.made)
}

// held returns the script of a side that stays until the other end disconnects.
func (sc *script) held() *script {
	held := *sc
	held.holds = true
	return &held
}
