package cm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// Stories are handshakes as text: what the hosts send to the group IP, and what the box answers.
// The source is a, the receivers are b, c and d, and x is a host that is not allowed.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &story{t: t}
			datadriven.RunTest(t, file, s.run)
		})
	}
}

var (
	groupIP  = netip.MustParseAddr("10.77.0.100")
	hostIPs  = map[string]netip.Addr{"a": hostIP(1), "b": hostIP(2), "c": hostIP(3), "d": hostIP(4), "e": hostIP(5), "x": netip.MustParseAddr("10.78.0.1")}
	testSeed = seed{commID: 100, tid: 1000, guid: 0xB0C5, qpn: 0x1FF}
)

func hostIP(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, n}) }

func hostName(ip netip.Addr) string {
	for name, addr := range hostIPs {
		if addr == ip {
			return name
		}
	}
	return ip.String()
}

func testConfig(receivers ...string) Config {
	c := Config{Config: groupip.Config{GroupIP: groupIP, Port: 7174, Allow: []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24")}}}
	for _, name := range receivers {
		c.Receivers = append(c.Receivers, hostIPs[name])
	}
	return c
}

// testREQ is what the kernel of a host sends when a program connects to the group.
func testREQ(from netip.Addr, commID uint32, guid uint64, qpn roce.QPN, psn roce.PSN) *wire.REQ {
	req := &wire.REQ{
		LocalCommID: commID, VendorID: 7, ServiceID: wire.ServiceID(7174), CAGUID: guid, QPN: qpn, Responder: 1, Initiator: 1,
		PeerCMTimeout: 20, FlowControl: true, StartingPSN: psn, CMTimeout: 20, RetryCount: 7, PKey: roce.DefaultPKey, PathMTU: 3, RNRRetry: 7,
		MaxCMRetries: 15, Primary: wire.Path{LocalGID: wire.GIDOf(from), RemoteGID: wire.GIDOf(groupIP), HopLimit: 64, ACKTimeout: 19},
		Second: wire.Path{LocalLID: 9},
	}
	header := wire.IPHeader{Src: from, Dst: groupIP, SrcPort: 50000}
	header.Put(&req.PrivateData)
	copy(req.PrivateData[wire.IPHeaderBytes:], "hello")
	return req
}

// wayTest counts how often the way to each host is held. Packets of every path MTU reach the hosts
// that mtu does not name.
type wayTest struct {
	held map[netip.Addr]int
	mtu  map[netip.Addr]int
}

func newWays() *wayTest { return &wayTest{held: map[netip.Addr]int{}} }

func (w *wayTest) Hold(host netip.Addr, pathMTU int) error {
	w.held[host]++
	if mtu := w.mtu[host]; mtu > 0 && mtu < pathMTU {
		return fmt.Errorf("%v is reached by packets of %d, not of %d", hostName(host), mtu, pathMTU)
	}
	return nil
}

func (w *wayTest) Release(host netip.Addr) {
	if w.held[host]--; w.held[host] == 0 {
		delete(w.held, host)
	}
}

// waysHeld says what is wrong if the ways that a machine holds are not those to the sides of its
// connections.
func waysHeld(m *Machine) string {
	want := map[netip.Addr]int{}
	for _, c := range m.conns {
		for _, s := range c.sides {
			want[s.addr]++
		}
	}
	if held := m.ways.(*wayTest).held; !maps.Equal(held, want) {
		return fmt.Sprintf("ways are held to %v, and the sides are %v", held, want)
	}
	return ""
}

type story struct {
	t    *testing.T
	m    *Machine
	ways *wayTest
	now  time.Duration
	seen Counts
	out  strings.Builder
	tids map[string]uint64    // the newest TID that a host got
	ids  map[string]wire.Pair // of the newest connection of a host, as the host sees it
	made uint64
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	if d.Cmd == "service" {
		s.begin(d)
		return ""
	}
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		s.line(strings.Fields(line))
	}
	for i, n := range s.m.counts {
		if n > s.seen[i] {
			fmt.Fprintf(&s.out, "counted %v: %d\n", Counter(i), n-s.seen[i])
		}
	}
	s.seen = s.m.counts
	if wrong := waysHeld(s.m); wrong != "" {
		t.Error(wrong)
	}
	for _, c := range s.m.all() {
		fmt.Fprintf(&s.out, "connection %d of %s: %v", c.id, hostName(c.key.addr), c.state)
		if c.reason != "" {
			fmt.Fprintf(&s.out, ", %s", c.reason)
		}
		s.out.WriteByte('\n')
	}
	return s.out.String()
}

func (s *story) begin(d *datadriven.TestData) {
	c, keys := testConfig(), ""
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "receivers":
			c.Receivers = testConfig(arg.Vals...).Receivers
		case "quorum":
			keys += fmt.Sprintf(", ack: quorum %s", arg.Vals[0])
		case "memory":
			c.Memory = PrivateData
		case "choose":
			c.Choose = true
		case "policy":
			keys += ", " + strings.Join(arg.Vals, ", ")
		}
	}
	c.Policy = policyOf(s.t, keys)
	*s = story{t: s.t, ways: newWays(), tids: map[string]uint64{}, ids: map[string]wire.Pair{}}
	s.m = newMachine(c, s.ways, inBand, testSeed, usual, time.Time{})
}

// policyOf returns the policy of a service whose item in the config has these keys besides.
func policyOf(t testing.TB, keys string) feedback.Policy {
	item, err := yamldoc.Parse([]byte("{groupIP: 10.77.0.100, port: 7174, receivers: [10.77.0.2, 10.77.0.3, 10.77.0.4]"+keys+"}"), "the item")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(item)
	if err != nil {
		t.Fatal(err)
	}
	return c.Policy
}

// line plays one line: a host and its message, or wait, made, unmade, down, lost, mtu.
func (s *story) line(words []string) {
	args := map[string]string{}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		args[key] = value
	}
	fmt.Fprintf(&s.out, "%s\n", strings.Join(words, " "))
	switch words[0] {
	case "wait":
		s.wait(words[1])
	case "made":
		s.step(Made{Connection: s.made})
	case "unmade":
		s.step(Made{Connection: s.made, Err: errors.New("no room")})
	case "down":
		s.step(Down{"taken down"})
	case "lost":
		s.step(Lost{words[1]})
	case "list":
		c := s.m.all()[0].seen()
		fmt.Fprintf(&s.out, "  %v: %q\n", c.State, c.Reason)
	case "mtu":
		s.ways.mtu = map[netip.Addr]int{}
		for host := range args {
			s.ways.mtu[hostIPs[host]] = int(number(args, host, 0))
		}
	default:
		s.step(Heard{hostIPs[words[0]], s.message(words[0], words[1], args)})
	}
}

func (s *story) wait(text string) {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	for end := s.now + d; ; {
		at, ok := s.m.Next()
		if !ok || at > end {
			s.now = end
			return
		}
		s.now = max(s.now, at)
		s.step(nil)
	}
}

func number(args map[string]string, key string, otherwise uint64) uint64 {
	if text, ok := args[key]; ok {
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	return otherwise
}

func storyGUID(index uint32) uint64 { return uint64(index)<<32 | uint64(index) }

// message is what a host sends. Without arguments it fits the host's newest connection.
func (s *story) message(host, kind string, args map[string]string) wire.MAD {
	index := uint32(host[0] - 'a' + 1)
	pair := s.ids[host]
	pair.Local, pair.Remote = uint32(number(args, "id", uint64(pair.Local))), uint32(number(args, "to", uint64(pair.Remote)))
	if pair.Local == 0 {
		pair.Local = index * 10
	}
	mad := wire.MAD{Header: wire.Header{TID: s.tids[host]}}
	qpn := roce.QPN(number(args, "qpn", uint64(index*0x10)))
	psn := roce.PSN(number(args, "psn", uint64(index*1000)))
	switch kind {
	case "req":
		mad.TID = number(args, "tid", 77)
		req := testREQ(hostIPs[host], pair.Local, storyGUID(index), qpn, psn)
		req.PathMTU = uint8(number(args, "mtu", 3))
		req.Transport = uint8(number(args, "transport", 0))
		req.ServiceID = wire.ServiceID(uint16(number(args, "port", 7174)))
		if name := args["gid"]; name != "" {
			req.Primary.LocalGID = wire.GIDOf(hostIPs[name])
		}
		if name := args["for"]; name != "" {
			header := wire.IPHeader{Src: hostIPs[host], Dst: hostIPs[name]}
			header.Put(&req.PrivateData)
		}
		if name := args["as"]; name != "" {
			header := wire.IPHeader{Src: hostIPs[name], Dst: groupIP}
			header.Put(&req.PrivateData)
		}
		if names, ok := args["names"]; ok { // as the source's program writes them; 0: none
			clear(req.PrivateData[wire.IPHeaderBytes:])
			for i, name := range strings.Split(names, ",") {
				if name == "0" {
					continue
				}
				ip := hostIPs[name].As4()
				copy(req.PrivateData[wire.IPHeaderBytes+4*i:], ip[:])
			}
		}
		mad.Message = req
		s.ids[host] = wire.Pair{Local: pair.Local}
	case "rep":
		rep := &wire.REP{Pair: pair, QPN: qpn, StartingPSN: psn, CAGUID: uint64(index), Responder: uint8(number(args, "responder", 4)),
			Initiator: uint8(number(args, "initiator", 4)), RNRRetry: uint8(number(args, "rnr", 7)), ACKDelay: uint8(number(args, "delay", 15)), SRQ: args["srq"] != ""}
		if va, ok := args["va"]; ok {
			n, _ := strconv.ParseUint(va, 0, 64)
			binary.BigEndian.PutUint64(rep.PrivateData[:], n)
			binary.BigEndian.PutUint32(rep.PrivateData[8:], uint32(number(args, "rkey", 0)))
			binary.BigEndian.PutUint32(rep.PrivateData[12:], uint32(number(args, "length", 0)))
		}
		copy(rep.PrivateData[regionBytes:], args["private"])
		mad.Message = rep
		s.ids[host] = pair
	case "rtu":
		mad.Message = &wire.RTU{Pair: pair}
	case "mra":
		mad.Message = &wire.MRA{Pair: pair, ServiceTimeout: uint8(number(args, "timeout", 20))}
	case "rej":
		rej := &wire.REJ{Pair: pair, Reason: wire.Reason(number(args, "reason", 28))}
		copy(rej.PrivateData[:], args["private"])
		if guid, ok := args["guid"]; ok {
			rej.InfoBytes = 8
			binary.BigEndian.PutUint64(rej.Info[:], storyGUID(uint32(guid[0]-'0')))
		}
		mad.Message = rej
	case "dreq":
		mad.Message = &wire.DREQ{Pair: pair, RemoteQPN: roce.QPN(number(args, "qpn", 0x200))}
	case "drep":
		mad.Message = &wire.DREP{Pair: pair}
	case "lap":
		mad.Message = &wire.LAP{Pair: pair}
	case "apr":
		mad.Message = &wire.APR{Pair: pair}
	case "sidr-req":
		mad.Message = &wire.SIDRREQ{RequestID: pair.Local, ServiceID: wire.ServiceID(7174)}
	case "sidr-rep":
		mad.Message = &wire.SIDRREP{RequestID: pair.Remote}
	default:
		s.t.Fatalf("unknown message %s", kind)
	}
	return mad
}

func (s *story) step(e Event) {
	for _, a := range s.m.Step(s.now, e) {
		switch a := a.(type) {
		case Send:
			name := hostName(a.To)
			s.tids[name] = a.MAD.TID
			fmt.Fprintf(&s.out, "  %v to %s: %s\n", s.now, name, s.show(name, &a.MAD))
		case Make:
			s.made = a.Connection
			f := a.File
			fmt.Fprintf(&s.out, "  make %s: %v qpn=%#x mtu=%d ack=%v on-fatal=%v repair=%v degraded=%d%%/%v memory=%v source %v qpn=%#x first=%d\n", f.Name, f.Addressing, uint32(f.QPN), f.PathMTU,
				f.Policy.Ack, f.Policy.OnFatal, f.Policy.Repair, f.DegradedBelow, f.DegradedAfter, f.Memory, hostName(f.Source.IP), uint32(f.Source.QPN), f.Source.FirstPSN)
			for _, r := range f.Receivers {
				fmt.Fprintf(&s.out, "    %s qpn=%#x first=%d remote=%#x regions=%v\n", hostName(r.IP), uint32(r.QPN), r.FirstPSN, uint32(r.RemoteQPN), r.Regions)
			}
		case Remove:
			fmt.Fprintf(&s.out, "  remove %s\n", a.Group)
		}
	}
}

// show prints what the box sends, and learns the comm IDs by which the host answers.
func (s *story) show(host string, m *wire.MAD) string {
	learn := func(p wire.Pair) string {
		pair := s.ids[host]
		pair.Remote = p.Local
		if p.Local != 0 {
			s.ids[host] = pair
		}
		return fmt.Sprintf("%d/%d", p.Local, p.Remote)
	}
	text := fmt.Sprintf("%v tid=%d ", m.Message.Attribute(), m.TID)
	switch v := m.Message.(type) {
	case *wire.REQ:
		s.ids[host] = wire.Pair{Remote: v.LocalCommID}
		var header wire.IPHeader
		header.Decode(&v.PrivateData)
		text += fmt.Sprintf("%d qpn=%#x guid=%#x psn=%d vendor=%d flow=%v gids=%s>%s alternate=%v ip=%v>%v:%d private=%q", v.LocalCommID, uint32(v.QPN), v.CAGUID,
			v.StartingPSN, v.VendorID, v.FlowControl, hostName(netip.AddrFrom16(v.Primary.LocalGID).Unmap()), hostName(netip.AddrFrom16(v.Primary.RemoteGID).Unmap()), v.Second != wire.Path{},
			hostName(header.Src), hostName(header.Dst), header.SrcPort, strings.TrimRight(string(v.PrivateData[wire.IPHeaderBytes:]), "\x00"))
	case *wire.REP:
		text += fmt.Sprintf("%s qpn=%#x guid=%#x psn=%d responder=%d initiator=%d delay=%d rnr=%d srq=%v private=%x %q", learn(v.Pair), uint32(v.QPN), v.CAGUID,
			v.StartingPSN, v.Responder, v.Initiator, v.ACKDelay, v.RNRRetry, v.SRQ, v.PrivateData[:regionBytes], strings.TrimRight(string(v.PrivateData[regionBytes:]), "\x00"))
	case *wire.RTU:
		text += learn(v.Pair)
	case *wire.MRA:
		text += fmt.Sprintf("%s timeout=%d", learn(v.Pair), v.ServiceTimeout)
	case *wire.REJ:
		text += fmt.Sprintf("%d/%d answers=%d reason=%v info=%x private=%q", v.Pair.Local, v.Pair.Remote, v.Answers, v.Reason, v.Info[:v.InfoBytes],
			strings.TrimRight(string(v.PrivateData[:]), "\x00"))
	case *wire.DREQ:
		text += fmt.Sprintf("%s qpn=%#x", learn(v.Pair), uint32(v.RemoteQPN))
	case *wire.DREP:
		text += fmt.Sprintf("%d/%d", v.Pair.Local, v.Pair.Remote)
	case *wire.APR:
		text += fmt.Sprintf("%d/%d status=%d", v.Pair.Local, v.Pair.Remote, v.Status)
	case *wire.SIDRREP:
		text += fmt.Sprintf("%d status=%d service=%#x", v.RequestID, v.Status, v.ServiceID)
	}
	return text
}

// What is counted has one name each.
func TestCounterNames(t *testing.T) {
	counts := Counts{Stranger: 1, NotSent: 2}
	if got := fmt.Sprint(counts.Named()); got != "map[not-sent:2 stranger:1]" {
		t.Error(got)
	}
	names := map[string]bool{}
	for i := range counters {
		names[i.String()] = true
	}
	if len(names) != int(counters) || names[""] {
		t.Error(slices.Sorted(maps.Keys(names)))
	}
}
