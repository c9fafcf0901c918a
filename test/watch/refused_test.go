package watch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

// raw is a frame that a host sends past its RDMA endpoint.
type raw struct {
	host     int        // that sends it, from 1
	src, dst netip.Addr // not valid: the host's, the group's
	op       roce.Opcode
	qpn      roce.QPN // 0: the group's
	psn      roce.PSN
	hops     uint8 // 0: 64
	vlan     uint16
	payload  int
	reth     *roce.RETH
	syndrome roce.Syndrome
	damaged  bool
	as       roce.Opcode // what the opcode is changed into; 0: it is not changed
	srcPort  uint16      // 0: 0xC123
}

// refusal is a frame that the box refuses, again and again, and what is told of it.
type refusal struct {
	counter string
	first   []raw // that come before
	frame   raw
	member  string // whose trouble it is; "": nobody's of the group
	says    string
	trouble string // "": api.TroubleFrames
}

const (
	refusedQPN   = 7
	thirdsQPN    = 9 // the peer of host 3's QP
	groupMemory  = 0x10000
	sourcesPSN   = 1000 // of host 1
	receiversPSN = 5    // of hosts 2 to 4
	othersPSN    = 3000 // of host 4, which may become the source
)

func data(host int, psn roce.PSN) raw {
	return raw{host: host, op: roce.OpSendOnly, psn: psn, payload: 64}
}

// with changes a frame.
func (r raw) with(change func(*raw)) raw { change(&r); return r }

func answer(host int, psn roce.PSN, s roce.Syndrome) raw {
	return raw{host: host, op: roce.OpAck, psn: psn, syndrome: s}
}

func write(va uint64) *roce.RETH { return &roce.RETH{VA: va, RKey: 0x77, DMABytes: 64} }

var refusals = []refusal{
	{counter: "hop-limit-exceeded", frame: data(1, sourcesPSN).with(func(r *raw) { r.hops = 1 }), member: "10.77.0.1", says: "give its QP a higher one, such as 64"},
	{counter: "over-mtu", frame: data(1, sourcesPSN).with(func(r *raw) { r.payload = 1280 }), member: "10.77.0.1", says: "path MTU 1024; give its QP that path MTU"},
	{counter: "bad-icrc", frame: data(1, sourcesPSN).with(func(r *raw) { r.damaged = true }), member: "10.77.0.1", says: "look at its cable and at the errors of ethtool -S eth1"},
	{counter: "wrong-vlan", frame: data(1, sourcesPSN).with(func(r *raw) { r.vlan = 9 }), member: "10.77.0.1", says: "ethtool -K eth1 rxvlan off"},
	{counter: "outside-window", frame: data(1, sourcesPSN+1<<22), member: "10.77.0.1", says: "its first PSN is not 1000, as the group file says"},
	{counter: "unknown-qpn", frame: data(1, sourcesPSN).with(func(r *raw) { r.qpn = 8 }), member: "10.77.0.1", says: "its packets are for QPN 8, and the peer of its QP is QPN 7"},
	{counter: "connection-management", frame: raw{host: 1, op: roce.OpUDSendOnly, qpn: 1, payload: 256}, member: "10.77.0.1", says: "use rocast cm up there"},
	{counter: "wrong-transport", frame: data(1, sourcesPSN).with(func(r *raw) { r.op = roce.OpUDSendOnly }), member: "10.77.0.1", says: "create its QP as RC"},
	{counter: "unknown-opcode", frame: data(1, sourcesPSN).with(func(r *raw) { r.as = 0x1F }), member: "10.77.0.1", says: "create its QP as RC"},
	{counter: "unmergeable-response", frame: raw{host: 1, op: roce.OpReadRespOnly, psn: sourcesPSN}, member: "10.77.0.1", says: "give it a QP of its own for the group"},
	{counter: "refused", frame: raw{host: 1, op: roce.OpReadRequest, psn: sourcesPSN, reth: write(groupMemory)}, member: "10.77.0.1", says: "let its program WRITE or SEND"},
	{
		counter: "refused-memory", frame: raw{host: 1, op: roce.OpWriteOnly, psn: sourcesPSN, payload: 64, reth: write(groupMemory + 1<<30)}, member: "10.77.0.1",
		says: "compare its VA, length and R_Key with memory: in the group file",
	},
	{counter: "wrong-port", frame: data(3, sourcesPSN).with(func(r *raw) { r.src = hostIP(1) }), member: "10.77.0.1", says: "its frames come by eth3"},
	{counter: "wrong-qpn", first: []raw{data(1, sourcesPSN)}, frame: answer(2, receiversPSN, roce.SyndromeUnlimited).with(func(r *raw) { r.qpn = thirdsQPN }), member: "10.77.0.2", says: "its frames are for QPN 9, and the peer of its QP is QPN 7"},
	{
		counter: "wrong-port", first: []raw{data(1, sourcesPSN)}, frame: answer(3, receiversPSN, roce.SyndromeUnlimited).with(func(r *raw) { r.src = hostIP(2) }),
		member: "10.77.0.2", says: "its frames come by eth3",
	},
	{counter: "not-source", frame: data(2, 1), member: "10.77.0.2", says: "write role: both for it"},
	{
		counter: "not-source", frame: raw{host: 2, op: roce.OpReadRequest, psn: 1, reth: write(groupMemory)}, member: "10.77.0.2",
		says: "it sends READ or atomic requests, and a receiver of a group only gets what the source sends",
	},
	{counter: "source-blocked", first: []raw{data(1, sourcesPSN)}, frame: data(4, othersPSN), member: "10.77.0.4", says: "it waits for its turn as the source"},
	{counter: "source-out-of-step", frame: data(4, othersPSN+100), member: "10.77.0.4", says: "which was 3000 at the start (sendPSN)"},
	{
		counter: "beyond-sent", first: []raw{data(1, sourcesPSN)}, frame: answer(2, receiversPSN+100, roce.SyndromeUnlimited), member: "10.77.0.2",
		says: "the PSN that its QP expects first is not 5",
	},
	{
		counter: "stale", first: []raw{data(1, sourcesPSN)}, frame: answer(2, receiversPSN-4, roce.SyndromeUnlimited), member: "10.77.0.2",
		says: "the PSN that its QP expects first is below 5",
	},
	{counter: "not-member", frame: data(3, 1).with(func(r *raw) { r.src = hostIP(9) }), says: "from 10.77.0.9 by eth3: it sends data to a group of which it is no member; add it to the group file"},
	{
		counter: "not-receiver", frame: answer(3, 1, roce.SyndromeUnlimited).with(func(r *raw) { r.src = hostIP(9) }),
		says: "from 10.77.0.9 by eth3: it answers a group of which it is no receiver; add it to the group file",
	},
	{counter: "malformed", frame: data(3, 1).with(func(r *raw) { r.payload, r.as = 0, roce.OpWriteOnly }), says: "rocast capture shows who sends them"},
	{
		counter: "classifier-drop_own_source", frame: data(3, 1).with(func(r *raw) { r.src, r.dst = groupIP, hostIP(2) }),
		says: "a host sends from an address that only this box sends from",
	},
	fatalAnswer(roce.NAKRemoteAccess, "compare its regions in the group file (va, length, rkey)"),
	fatalAnswer(roce.NAKInvalidRequest, "let its QP have the group's path MTU and remote write access"),
	fatalAnswer(roce.NAKRemoteOperational, "its QP cannot go on by itself: read the errors of its completions"),
}

// fatalAnswer is no frame that the box refuses, but one by which a receiver refuses the source's.
func fatalAnswer(with roce.Syndrome, says string) refusal {
	return refusal{first: []raw{data(1, sourcesPSN)}, frame: answer(2, receiversPSN, with), member: "10.77.0.2", says: with.String() + ", which ends its QP; " + says, trouble: api.TroubleRefused}
}

func hostIP(i byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, i}) }

var groupIP = netip.MustParseAddr("10.77.3.100")

// What the box refuses is told by each of its views, with what mends it: a member's trouble makes
// the group and the box ill, and what strangers send is a note.
func TestEveryRefusalIsTold(t *testing.T) {
	if testing.Short() {
		t.Skip("makes more than twenty refusals, each of which has to last for a second")
	}
	l := &faulty{lab: newBareLab(t), program: rocast(t)}
	for i := range refusals {
		r := &refusals[i]
		name := fmt.Sprintf("r%d", i)
		t.Run(r.counter+r.trouble, func(t *testing.T) {
			l.lab.t = t
			r.isTold(l, name)
		})
	}
}

// The rows are those of the reasons for which frames are refused, but for those that need a race or
// a NIC that a veth is not.
func TestTheRowsOfRefusals(t *testing.T) {
	rows := map[string]bool{
		"group-gone":        true, // for a moment behind the end of a group
		"wrong-destination": true, // the classifier finds a group by its address: with addressing switch-ip and two addresses alone
		"handoff-full":      true, // two workers, of which one does not get on
		"source-waits":      true, // for a moment, while a turn is stored
		"not-taking-part":   true, // told with what became of the receiver
	}
	for i := range refusals {
		rows[refusals[i].counter] = true
	}
	for r := range dataplane.NumReasons {
		if r.Refuses() && !rows[r.String()] {
			t.Errorf("%v has no row", r)
		}
	}
}

func (r *refusal) isTold(l *faulty, name string) {
	t := l.lab.t
	file := fmt.Sprintf("name: %s\nip: %v\nqpn: %d\nmtu: 1024\nmemory: {va: %d, rkey: 0x77}\nmembers:\n", name, groupIP, refusedQPN, groupMemory)
	file += fmt.Sprintf("  - {ip: 10.77.0.1, qpn: 17, psn: %d, role: source}\n", sourcesPSN)
	for i := 2; i <= 4; i++ {
		more := map[int]string{3: fmt.Sprintf("remoteQPN: %d, ", thirdsQPN), 4: fmt.Sprintf("role: both, sendPSN: %d, ", othersPSN)}[i]
		file += fmt.Sprintf("  - {ip: 10.77.0.%d, qpn: %d, psn: %d, %sregions: [{va: 0x7f0000000000, length: 65536, rkey: 0x%d}]}\n", i, 16+i, receiversPSN, more, 100+i)
	}
	_, err := l.daemon.Client().CreateGroup(t.Context(), []byte(file))
	testlab.Must(t, err)
	defer func() {
		_, err := l.daemon.Client().RemoveGroup(t.Context(), name)
		testlab.Must(t, err)
	}()
	for _, f := range r.first {
		l.send(f)
	}
	says := r.says
	if r.member != "" {
		says = r.member + ": " + says
	}
	var status string
	var code int
	l.waitFor("status says "+says, func() bool {
		l.send(r.frame)
		status, code = l.status()
		return strings.Contains(status, r.says) && strings.Contains(status, r.member)
	})
	if ill := r.member != ""; code == 4 != ill || strings.Contains(status, "degraded") != ill {
		t.Errorf("exit status %d:\n%s", code, status)
	}
	l.waitFor("the events say "+says, func() bool {
		l.send(r.frame)
		events := unbroken(l.rocast("rocast events"))
		return strings.Contains(events, r.says) && (r.member != "" || strings.Contains(events, "frames-refused"))
	})
	metrics := l.metrics()
	if r.member != "" {
		want := fmt.Sprintf(`(?m)^rocast_member_trouble\{group="%s",member="%s",remote_qpn="%d",trouble="%s"\} 1$`, name, r.member, refusedQPN, r.kind())
		if !regexp.MustCompile(want).MatchString(metrics) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if r.counter == "" {
		return
	}
	label, counter, is := "frames_total{reason", r.counter, false
	if counter, is = strings.CutPrefix(counter, "classifier-"); is {
		label = "classified_frames_total{verdict"
	}
	if !regexp.MustCompile(`(?m)^rocast_` + label + `="` + counter + `"\} [1-9]`).MatchString(metrics) {
		t.Errorf("the metrics do not count %s", r.counter)
	}
	// Answers that come late are stale in every group.
	if drops := l.rocast("rocast drops"); r.counter != "stale" && !strings.Contains(drops, r.counter+" ") {
		t.Errorf("rocast drops lacks %s:\n%s", r.counter, drops)
	}
}

func (r *refusal) kind() string {
	if r.trouble != "" {
		return r.trouble
	}
	return api.TroubleFrames
}

// status returns what rocast status prints, in one line, and its exit status.
func (l *faulty) status() (text string, code int) {
	l.lab.t.Helper()
	output, err := exec.Command(l.program, "status", "--socket", l.daemon.Socket).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		testlab.Must(l.lab.t, err)
	}
	return unbroken(string(output)), code
}

func unbroken(output string) string { return goesOn.ReplaceAllString(output, " ") }

func (l *faulty) metrics() string {
	answer, err := l.web.Get(box + "/metrics")
	testlab.Must(l.lab.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	testlab.Must(l.lab.t, err)
	return string(text)
}

// send sends a frame from the interface of its host.
func (l *faulty) send(r raw) {
	t := l.lab.t
	t.Helper()
	from := l.Hosts[r.host-1].End
	testlab.Must(t, from.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, r.bytes(t, roce.MAC(from.MAC), roce.MAC(l.Hosts[r.host-1].Port.MAC)), 0, &unix.SockaddrLinklayer{Ifindex: from.Index})
	}))
}

func (r *raw) bytes(t *testing.T, from, to roce.MAC) []byte {
	ip := roce.IPUDP{Src: r.src, Dst: r.dst, HopLimit: cmp.Or(r.hops, 64), SrcPort: cmp.Or(r.srcPort, 0xC123)}
	if !ip.Src.IsValid() {
		ip.Src = hostIP(byte(r.host))
	}
	if !ip.Dst.IsValid() {
		ip.Dst = groupIP
	}
	bth := roce.BTH{Opcode: r.op, PKey: roce.DefaultPKey, DestQPN: cmp.Or(r.qpn, refusedQPN), PSN: r.psn}
	transport := bth.Append(nil)
	switch {
	case r.reth != nil:
		transport = r.reth.Append(transport)
	case r.op.Headers().Has(roce.HasAETH):
		transport = (&roce.AETH{Syndrome: r.syndrome}).Append(transport)
	case r.op.Headers().Has(roce.HasDETH):
		transport = (&roce.DETH{SrcQPN: 1, QKey: 0x80010000}).Append(transport)
	}
	transport = append(transport, make([]byte, r.payload)...)
	var frame []byte
	if r.vlan > 0 {
		frame = roce.AppendVLAN(nil, to, from, r.vlan, ip.EtherType())
	} else {
		frame = roce.AppendEthernet(nil, to, from, ip.EtherType())
	}
	frame = ip.Append(frame, len(transport))
	at := len(frame)
	frame, err := roce.AppendICRC(append(frame, transport...))
	testlab.Must(t, err)
	if r.as > 0 {
		frame[at] = byte(r.as)
	}
	if r.damaged {
		frame[len(frame)-1]++
	}
	return frame
}
