package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/rocast/rocast/roce"
	"golang.org/x/sys/unix"
)

// xdpMD is struct xdp_md in the form that BPF_PROG_TEST_RUN expects and returns: offsets into the
// buffer, which begins with the metadata.
type xdpMD struct{ Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32 }

const (
	actionDrop     = 1
	actionPass     = 2
	actionRedirect = 4
)

// bench runs the program of one port on frames that were never on a wire. With a socket, queue 0
// has one.
type bench struct {
	c *Classifier
	p *Port
}

func newBench(t testing.TB, withSocket bool) *bench {
	t.Helper()
	c := load(t)
	p := unattached(t, c, 0)
	if withSocket {
		enterNamespace(t)
		if err := p.SetSocket(0, openSocket(t, loopback).fd); err != nil {
			t.Fatal(err)
		}
	}
	return &bench{c, p}
}

// unattached returns a port to which all frames of BPF_PROG_TEST_RUN come.
func unattached(t testing.TB, c *Classifier, number uint32) *Port {
	t.Helper()
	p := &Port{c: c, name: "rctest", ifindex: loopback, number: number, row: noRow}
	fatal(t, p.register())
	t.Cleanup(func() { fatal(t, p.Close()) })
	return p
}

// outcome is everything the classifier can do with a frame.
type outcome struct {
	Verdict Verdict
	Meta    Meta
}

// run classifies one frame and checks what is true of every frame: exactly one counter moves, the
// action matches the verdict, no byte changes, and there is metadata if and only if the frame is
// redirected.
func (b *bench) run(t testing.TB, frame []byte) outcome {
	t.Helper()
	const largestBuffer = 3072 // less than any kernel's
	return b.runSplit(t, frame, min(len(frame), largestBuffer))
}

// runSplit is run with the first firstBytes bytes in the frame's first buffer.
func (b *bench) runSplit(t testing.TB, frame []byte, firstBytes int) outcome {
	t.Helper()
	before := counters(t, b.c)
	var after xdpMD
	opts := ebpf.RunOptions{
		Data:       frame,
		DataOut:    make([]byte, len(frame)+256),
		Context:    xdpMD{DataEnd: uint32(firstBytes)},
		ContextOut: &after,
		Repeat:     1,
	}
	action, err := b.c.classify().Run(&opts)
	if errors.Is(err, unix.EINVAL) && firstBytes < len(frame) {
		t.Skip("needs a kernel >= 6.18: BPF_PROG_TEST_RUN with the size of the first buffer")
	}
	if err != nil {
		t.Fatalf("run on %d bytes: %v", len(frame), err)
	}
	verdict := b.onlyVerdict(t, before)
	wantAction, wantMeta := uint32(actionPass), 0
	switch {
	case verdict == DropOwnSource:
		wantAction = actionDrop
	case verdict >= RedirectData:
		wantAction, wantMeta = actionRedirect, MetaBytes
	}
	if action != wantAction {
		t.Fatalf("action %d with verdict %s, want %d", action, verdict, wantAction)
	}
	if got := int(after.Data - after.DataMeta); got != wantMeta {
		t.Fatalf("%d bytes of metadata with verdict %s, want %d", got, verdict, wantMeta)
	}
	if !bytes.Equal(opts.DataOut[wantMeta:], frame) {
		t.Fatalf("the frame changed\nfrom %x\nto   %x", frame, opts.DataOut[wantMeta:])
	}
	meta, ok := DecodeMeta(opts.DataOut[:wantMeta])
	if ok != (wantMeta != 0) {
		t.Fatalf("metadata %x does not decode", opts.DataOut[:wantMeta])
	}
	return outcome{verdict, meta}
}

func (b *bench) onlyVerdict(t testing.TB, before Counters) Verdict {
	t.Helper()
	var verdict Verdict
	after := counters(t, b.c)
	if m := moved(before, after); len(m) != 1 {
		t.Fatalf("one frame moved the counters %v", m)
	}
	for v := range after {
		switch after[v] - before[v] {
		case 0:
		case 1:
			verdict = Verdict(v)
		default:
			t.Fatalf("one frame moved the counters %v", moved(before, after))
		}
	}
	return verdict
}

// Groups of the table test, named after the match that finds them.
const (
	byDstQPN = 7
	byPair   = 8
	byDst6   = 9
)

func putTestGroups(t testing.TB, c *Classifier) {
	t.Helper()
	put(t, c, Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}, byDstQPN)
	put(t, c, Key{Dst: groupIP, Match: MatchDst}, GroupNone)
	put(t, c, Key{Src: groupIP, Match: MatchSrc}, GroupNone)
	put(t, c, Key{Src: hostA, Dst: hostB, QPN: 0x800001, Match: MatchPairQPN}, byPair)
	put(t, c, Key{Src: hostA, Dst: groupIP, QPN: 0x800001, Match: MatchPairQPN}, byPair)
	put(t, c, Key{Dst: group6, QPN: groupQPN, Match: MatchDstQPN}, byDst6)
	put(t, c, Key{Src: hostA6, Dst: hostB6, QPN: 0x800001, Match: MatchPairQPN}, byPair)
	put(t, c, Key{Src: switch6, Match: MatchSrc}, GroupNone)
}

func TestGoodFrames(t *testing.T) {
	b := newBench(t, true)
	putTestGroups(t, b.c)
	data := frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 16)
	data6 := frame(hostA6, group6, roce.OpSendOnly, groupQPN, 16)
	v4 := Meta{Group: byDstQPN, Kind: KindData, L3Off: 14, BTHOff: 42}
	v6 := Meta{Group: byDst6, Kind: KindData, IPv6: true, L3Off: 14, BTHOff: 62}
	with := func(m Meta, edit func(*Meta)) Meta { edit(&m); return m }
	for _, row := range []struct {
		name  string
		frame []byte
		want  outcome
	}{
		{"IPv4 data", data, outcome{RedirectData, v4}},
		{"IPv6 data", data6, outcome{RedirectData, v6}},
		{"feedback", frame(hostA, groupIP, roce.OpAck, groupQPN, 4),
			outcome{RedirectFeedback, with(v4, func(m *Meta) { m.Kind = KindFeedback })}},
		{"CNP", frame(hostA, groupIP, roce.OpCNP, groupQPN, 16),
			outcome{RedirectCNP, with(v4, func(m *Meta) { m.Kind = KindCNP })}},
		{"CM", frame(hostA, groupIP, udSend, 1, 264),
			outcome{RedirectCM, with(v4, func(m *Meta) { m.Kind, m.Group = KindCM, GroupNone })}},
		{"virtual QPN at a real IP", frame(hostA, hostB, roce.OpWriteOnly, 0x800001, 32),
			outcome{RedirectData, with(v4, func(m *Meta) { m.Group = byPair })}},
		{"virtual QPN at a real IPv6 address", frame(hostA6, hostB6, roce.OpWriteOnly, 0x800001, 32),
			outcome{RedirectData, with(v6, func(m *Meta) { m.Group = byPair })}},
		{"entry of a pair before the destination alone", frame(hostA, groupIP, roce.OpSendOnly, 0x800001, 0),
			outcome{RedirectData, with(v4, func(m *Meta) { m.Group = byPair })}},
		{"unknown QPN at a group's address", frame(hostA, groupIP, roce.OpSendOnly, 0x118, 16),
			outcome{RedirectData, with(v4, func(m *Meta) { m.Group = GroupNone })}},
		{"one tag", tagged(data, 0x8100),
			outcome{RedirectData, with(v4, func(m *Meta) { m.VLANs, m.L3Off, m.BTHOff = 1, 18, 46 })}},
		{"service and customer tag", tagged(data, 0x88a8, 0x8100),
			outcome{RedirectData, with(v4, func(m *Meta) { m.VLANs, m.L3Off, m.BTHOff = 2, 22, 50 })}},
		{"two customer tags, IPv6", tagged(data6, 0x8100, 0x8100),
			outcome{RedirectData, with(v6, func(m *Meta) { m.VLANs, m.L3Off, m.BTHOff = 2, 22, 70 })}},
		{"ends with the BTH", data[:54], outcome{RedirectData, v4}},
		{"Ethernet padding", append(append([]byte(nil), data...), make([]byte, 20)...), outcome{RedirectData, v4}},
	} {
		if diff := cmp.Diff(row.want, b.run(t, row.frame)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}

// A path MTU of 4096 arrives in two buffers. Headers are read from the first one only.
func TestMultiBuffer(t *testing.T) {
	b := newBench(t, true)
	putTestGroups(t, b.c)
	large := frame(hostA, groupIP, roce.OpSendMiddle, groupQPN, 4096)
	want := outcome{RedirectData, Meta{Group: byDstQPN, Kind: KindData, L3Off: 14, BTHOff: 42}}
	for _, firstBytes := range []int{3072, 54} {
		if diff := cmp.Diff(want, b.runSplit(t, large, firstBytes)); diff != "" {
			t.Errorf("first buffer of %d bytes (-want +got):\n%s", firstBytes, diff)
		}
	}
	if got := b.runSplit(t, large, 53).Verdict; got != PassTruncated {
		t.Errorf("BTH across buffers: %s, want %s", got, PassTruncated)
	}
}

func TestOpcodesGetTheirKind(t *testing.T) {
	b := newBench(t, true)
	putTestGroups(t, b.c)
	for opcode := range 256 {
		want := outcome{RedirectData, Meta{Group: byDstQPN, Kind: KindData, L3Off: 14, BTHOff: 42}}
		switch {
		case opcode >= 0x0d && opcode <= 0x12:
			want.Verdict, want.Meta.Kind = RedirectFeedback, KindFeedback
		case opcode == 0x81:
			want.Verdict, want.Meta.Kind = RedirectCNP, KindCNP
		}
		got := b.run(t, frame(hostA, groupIP, roce.Opcode(opcode), groupQPN, 28))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("opcode %#02x (-want +got):\n%s", opcode, diff)
		}
	}
}

// Each row changes one thing in a valid frame.
func TestMutations(t *testing.T) {
	b := newBench(t, true)
	putTestGroups(t, b.c)
	v4 := func() []byte { return frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 16) }
	v6 := func() []byte { return frame(hostA6, group6, roce.OpSendOnly, groupQPN, 16) }
	tripleTag := tagged(v4(), 0x88a8, 0x8100, 0x8100)
	mapped := netip.AddrFrom16(groupIP.As16())
	for _, row := range []struct {
		name  string
		frame []byte
		want  Verdict
	}{
		{"ARP", set(v4(), 12, 0x08, 0x06), PassNotIP},
		{"RoCEv1", set(v4(), 12, 0x89, 0x15), PassNotIP},
		{"IPv6 type, IPv4 header", set(v4(), 12, 0x86, 0xdd), PassNotIP},
		{"IPv4 type, IPv6 header", set(v6(), 12, 0x08, 0x00), PassNotIP},
		{"third tag", tripleTag, PassNotIP},
		{"tag of another kind", tagged(v4(), 0x9100), PassNotIP},
		{"ARP behind a tag", set(tagged(v4(), 0x8100), 16, 0x08, 0x06), PassNotIP},
		{"IPv4 first fragment", set(v4(), 20, 0x20, 0x00), PassFragment},
		{"IPv4 last fragment", set(v4(), 20, 0x00, 0x01), PassFragment},
		{"IPv4 far fragment", set(v4(), 20, 0x1f, 0x00), PassFragment},
		{"IPv4 without DF", set(v4(), 20, 0x00, 0x00), RedirectData},
		{"IPv4 options", set(v4(), 14, 0x46), PassIPOptions},
		{"IPv4 header too short", set(v4(), 14, 0x44), PassIPOptions},
		{"IPv4 TCP", set(v4(), 23, 6), PassNotUDP},
		{"IPv6 fragment", set(v6(), 20, 44), PassFragment},
		{"IPv6 hop-by-hop options", set(v6(), 20, 0), PassIPOptions},
		{"IPv6 routing header", set(v6(), 20, 43), PassIPOptions},
		{"IPv6 destination options", set(v6(), 20, 60), PassIPOptions},
		{"IPv6 ICMP", set(v6(), 20, 58), PassNotUDP},
		{"port 4792", set(v4(), 36, 0x12, 0xb8), PassNotRoCE},
		{"4791 as source port only", set(v4(), 34, 0x12, 0xb7, 0xc1, 0x23), PassNotRoCE},
		{"IPv6 port 4790", set(v6(), 56, 0x12, 0xb6), PassNotRoCE},
		{"another destination", set(v4(), 33, 101), PassNoGroup},
		{"IPv6 another destination", set(v6(), 53, 1), PassNoGroup},
		{"IPv6 another QPN, no entry for the address", set(v6(), 69, 0x18), PassNoGroup},
		{"virtual QPN from another source", frame(hostC, hostB, roce.OpSendOnly, 0x800001, 0), PassNoGroup},
		{"virtual QPN to another destination", frame(hostA, hostC, roce.OpSendOnly, 0x800001, 0), PassNoGroup},
		{"virtual QPN the other way", frame(hostB, hostA, roce.OpSendOnly, 0x800001, 0), PassNoGroup},
		{"another QPN between the pair", frame(hostA, hostB, roce.OpSendOnly, 0x800002, 0), PassNoGroup},
		{"IPv6 virtual QPN to another destination", frame(hostA6, switch6, roce.OpSendOnly, 0x800001, 0), PassNoGroup},
		{"acknowledgement from the group's address", frame(groupIP, hostA, roce.OpAck, 0x17, 4), DropOwnSource},
		{"data from the group's address", frame(groupIP, hostB, roce.OpSendOnly, 0x17, 4), DropOwnSource},
		{"CM from the group's address", frame(groupIP, hostA, udSend, 1, 264), DropOwnSource},
		{"IPv6 acknowledgement from an address of the box", frame(switch6, hostA6, roce.OpAck, 0x17, 4), DropOwnSource},
		{"acknowledgement to an address of the box", frame(hostA6, switch6, roce.OpAck, 0x17, 4), PassNoGroup},
		{"IPv4 group's address as an IPv6 source", frame(mapped, hostA6, roce.OpAck, 0x17, 4), PassNoGroup},
		{"DNS from the group's address", set(frame(groupIP, hostA, roce.OpAck, 0x17, 4), 36, 0, 53), PassNotRoCE},
		{"first fragment from the group's address", set(frame(groupIP, hostA, roce.OpAck, 0x17, 4), 20, 0x20, 0x00), DropOwnSource},
		{"last fragment from the group's address", set(frame(groupIP, hostA, roce.OpAck, 0x17, 4), 20, 0x00, 0x03), DropOwnSource},
		{"options from the group's address", set(frame(groupIP, hostA, roce.OpAck, 0x17, 4), 14, 0x46), DropOwnSource},
		{"IPv6 fragment from an address of the box", set(frame(switch6, hostA6, roce.OpAck, 0x17, 4), 20, 44), DropOwnSource},
		{"IPv6 options from an address of the box", set(frame(switch6, hostA6, roce.OpAck, 0x17, 4), 20, 60), DropOwnSource},
		{"ICMP from the group's address", set(frame(groupIP, hostA, roce.OpAck, 0x17, 4), 23, 1), PassNotUDP},
		{"fragment to the group's address", set(v4(), 20, 0x20, 0x00), PassFragment},
		{"CM past the group's address", frame(hostA, hostB, udSend, 1, 264), PassNoGroup},
		{"CM to a member of a pair", frame(hostA, hostB, udSend, 1, 264), PassNoGroup},
		{"CM to an address that has QPN entries only", frame(hostA6, group6, udSend, 1, 264), PassNoGroup},
		{"IPv4 group's address as IPv6", frame(hostA6, mapped, roce.OpSendOnly, groupQPN, 16), PassNoGroup},
		{"high byte of the QPN word is no part of it", set(v4(), 46, 0xff), RedirectData},
		{"UD to another QP is no CM", frame(hostA, groupIP, udSend, groupQPN, 264), RedirectData},
		{"cut in the Ethernet header's successor", v4()[:14], PassTruncated},
		{"cut in the IPv4 header", v4()[:33], PassTruncated},
		{"cut in the IPv6 header", v6()[:53], PassTruncated},
		{"cut in the UDP header", v4()[:41], PassTruncated},
		{"cut in the BTH", v4()[:53], PassTruncated},
		{"IPv6 cut in the BTH", v6()[:73], PassTruncated},
		{"cut in the first tag", tagged(v4(), 0x8100)[:17], PassTruncated},
		{"cut in the second tag", tagged(v4(), 0x8100, 0x8100)[:21], PassTruncated},
		{"DNS, cut where a BTH would be", set(v4(), 36, 0, 53)[:42], PassNotRoCE},
	} {
		if got := b.run(t, row.frame).Verdict; got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

// Without a socket on its queue, a group's frame goes to the kernel unchanged and without metadata
// (run checks this).
func TestNoSocket(t *testing.T) {
	b := newBench(t, false)
	putTestGroups(t, b.c)
	for _, f := range [][]byte{
		frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 16),
		frame(hostA, groupIP, roce.OpAck, groupQPN, 4),
		frame(hostA6, group6, roce.OpSendMiddle, groupQPN, 1024),
	} {
		if got := b.run(t, f).Verdict; got != PassNoSocket {
			t.Errorf("%s, want %s", got, PassNoSocket)
		}
	}
}

// A driver without room for metadata is simulated by a frame that already has as much metadata as
// the kernel allows.
func TestMetaFailed(t *testing.T) {
	b := newBench(t, true)
	putTestGroups(t, b.c)
	good := frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 16)
	for metaBytes := 240; metaBytes >= 20; metaBytes -= 4 {
		before := counters(t, b.c)
		data := append(make([]byte, metaBytes), good...)
		action, err := b.c.classify().Run(&ebpf.RunOptions{
			Data:    data,
			DataOut: make([]byte, len(data)+256),
			Context: xdpMD{Data: uint32(metaBytes), DataEnd: uint32(len(data))},
			Repeat:  1,
		})
		if err != nil {
			continue // more metadata than this kernel takes
		}
		if !b.p.NoRoom() {
			t.Error("the port does not tell that there is no room")
		}
		if got := b.onlyVerdict(t, before); got != PassMetaFailed || action != actionPass {
			t.Errorf("with %d bytes in the way: verdict %s, action %d; want %s, pass", metaBytes, got, action, PassMetaFailed)
		}
		return
	}
	t.Fatal("this kernel took no metadata at all")
}

// The first frame shows whether there is room, and takes no metadata to the kernel.
func TestTheFirstFrameShowsTheRoom(t *testing.T) {
	b := newBench(t, true)
	for round := range 2 {
		data := make([]byte, 60) // no IP packet
		context := xdpMD{DataEnd: uint32(len(data))}
		action, err := b.c.classify().Run(&ebpf.RunOptions{
			Data: data, DataOut: make([]byte, len(data)+256), Context: context, ContextOut: &context, Repeat: 1,
		})
		fatal(t, err)
		if action != actionPass || context.Data != 0 {
			t.Errorf("frame %d: action %d, %d bytes of metadata", round, action, context.Data)
		}
		if room := b.p.entry().Room; room != 1 || b.p.NoRoom() {
			t.Errorf("frame %d: room %d, NoRoom %t; there is room", round, room, b.p.NoRoom())
		}
	}
}

func TestEntriesComeAndGo(t *testing.T) {
	b := newBench(t, true)
	good := frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 16)
	key := Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}
	expect := func(when string, want outcome) {
		t.Helper()
		if diff := cmp.Diff(want, b.run(t, good)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	redirected := func(group uint32) outcome {
		return outcome{RedirectData, Meta{Group: group, Kind: KindData, L3Off: 14, BTHOff: 42}}
	}
	expect("before", outcome{Verdict: PassNoGroup})
	put(t, b.c, key, 1)
	expect("after put", redirected(1))
	put(t, b.c, Key{Dst: netip.AddrFrom16(groupIP.As16()), QPN: groupQPN, Match: MatchDstQPN}, 2)
	expect("after put of the address in its other form", redirected(2))
	if err := b.c.DeleteGroup(key); err != nil {
		t.Fatal(err)
	}
	expect("after delete", outcome{Verdict: PassNoGroup})
	if err := b.c.DeleteGroup(key); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("second delete: %v, want ErrKeyNotExist", err)
	}
}

func TestSetSocketErrors(t *testing.T) {
	b := newBench(t, false)
	for _, row := range []struct {
		name  string
		queue uint32
		want  string
	}{
		{"a queue beyond the map", QueuesMax, "ethtool -L rctest combined 1024"},
		{"a file that is no socket", 0, "fd 0"},
	} {
		if err := b.p.SetSocket(row.queue, 0); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want an error with %q", row.name, err, row.want)
		}
	}
}

// The bytes of the object must not depend on the directory in which it was compiled.
func TestObjectNamesNoDirectory(t *testing.T) {
	if path := regexp.MustCompile(`\x00/\w[^\x00]+`).Find(_ProgramsBytes); path != nil {
		t.Errorf("the object holds the path %q", path)
	}
}

func TestMapLayout(t *testing.T) {
	spec, err := loadPrograms()
	if err != nil {
		t.Fatal(err)
	}
	if n := spec.Maps[programsMapGroups].MaxEntries; n != GroupEntriesMax {
		t.Errorf("groups holds %d entries, GroupEntriesMax says %d", n, GroupEntriesMax)
	}
	if n := spec.Maps[programsMapXsks].MaxEntries; n != portsMax*QueuesMax {
		t.Errorf("xsks holds %d queues, want %d of each of %d ports", n, QueuesMax, portsMax)
	}
	if n := binary.Size(programsRocastKey{}); n != 40 {
		t.Errorf("a key has %d bytes, want 40", n)
	}
}

// A group that a CPU has found is found again without a look-up, by all that the look-up compared,
// until any group changes.
func TestWhatAProgramRemembersOfGroups(t *testing.T) {
	b := newBench(t, true)
	stayOnCPU(t)
	v4 := frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 64)
	other := frame(hostA, groupIP, roce.OpSendOnly, groupQPN+1<<6, 64) // at the same place
	finds := func(what string, f []byte, want uint32) {
		t.Helper()
		for range 2 { // looked up, then remembered
			if got := b.run(t, f); got.Verdict < RedirectData || got.Meta.Group != want {
				t.Errorf("%s: %v of group %d, want group %d", what, got.Verdict, got.Meta.Group, want)
			}
		}
	}
	passes := func(what string, f []byte) {
		t.Helper()
		for range 2 {
			if got := b.run(t, f); got.Verdict != PassNoGroup {
				t.Errorf("%s: %v", what, got.Verdict)
			}
		}
	}
	key := Key{Dst: groupIP, QPN: groupQPN, Match: MatchDstQPN}
	passes("no group yet", v4)
	put(t, b.c, key, 1)
	finds("a new group", v4, 1)
	isRemembered := func(what string, group uint32) {
		t.Helper()
		var found []programsRocastFound
		if err := b.c.maps.Found.Lookup(uint32((groupQPN^1)%64), &found); err != nil {
			t.Fatal(err)
		}
		is := func(f programsRocastFound) bool { // from hostA, or hostA6
			return f.Group == group && f.Changes == b.c.counted().Load() && f.Src[3]>>24 == 1
		}
		if order() == nil && !slices.ContainsFunc(found, is) {
			t.Errorf("%s: no CPU remembers the group: %+v", what, found)
		}
	}
	isRemembered("a new group", 1)
	put(t, b.c, Key{Dst: group6, QPN: groupQPN, Match: MatchDstQPN}, 9)
	v6 := frame(hostA6, group6, roce.OpSendOnly, groupQPN, 64)
	finds("IPv6", v6, 9)
	finds("IPv4 at the same place", v4, 1)
	isRemembered("IPv4 at the same place", 1)
	finds("IPv6 again", v6, 9)
	if err := b.c.maps.Groups.Delete(encoded(t, Key{Dst: group6, QPN: groupQPN, Match: MatchDstQPN})); err != nil {
		t.Fatal(err)
	}
	if order() == nil {
		finds("IPv6 without a look-up", v6, 9)
	}
	put(t, b.c, key, 2)
	finds("the key has another group", v4, 2)
	put(t, b.c, Key{Dst: groupIP, QPN: groupQPN + 1<<6, Match: MatchDstQPN}, 3)
	for range 2 {
		finds("a QPN at the same place", other, 3)
		finds("the first QPN again", v4, 2)
	}
	answer := frame(hostB, groupIP, roce.OpAck, groupQPN, 4)
	finds("an answer with the same QPN", answer, 2)
	isRemembered("the group after an answer", 2)
	passes("another address", frame(hostA, hostB, roce.OpSendOnly, groupQPN, 64))
	finds("another source", frame(hostB, groupIP, roce.OpSendOnly, groupQPN, 64), 2)
	put(t, b.c, Key{Src: hostA, Dst: groupIP, QPN: groupQPN, Match: MatchPairQPN}, 4)
	remove(t, b.c, key)
	finds("of this source", v4, 4)
	passes("of another source", frame(hostB, groupIP, roce.OpSendOnly, groupQPN, 64))
	mapped := netip.AddrFrom16(groupIP.As16())
	for _, src := range []netip.Addr{hostA, hostB} {
		passes("IPv6 with the bytes of the IPv4 addresses", frame(netip.AddrFrom16(src.As16()), mapped, roce.OpSendOnly, groupQPN, 64))
	}
	remove(t, b.c, Key{Src: hostA, Dst: groupIP, QPN: groupQPN, Match: MatchPairQPN})
	passes("the group is gone", v4)

	// A connection's messages are not those of a group whose QPN is 1.
	put(t, b.c, Key{Dst: groupIP, QPN: 1, Match: MatchDstQPN}, 5)
	finds("QPN 1", frame(hostA, groupIP, roce.OpSendOnly, 1, 64), 5)
	passes("a CM datagram", frame(hostA, groupIP, udSend, 1, 64))
	put(t, b.c, Key{Dst: groupIP, Match: MatchDst}, 8)
	for range 2 {
		finds("a CM datagram to a group's address", frame(hostA, groupIP, udSend, 1, 64), 8)
		finds("QPN 1 behind a CM datagram", frame(hostA, groupIP, roce.OpSendOnly, 1, 64), 5)
	}

	// Without the number of changes all is looked up.
	put(t, b.c, key, 6)
	b.c.counted().Store(0)
	finds("nothing is remembered", v4, 6)
	if err := b.c.maps.Groups.Update(encoded(t, key), uint32(7), ebpf.UpdateAny); err != nil {
		t.Fatal(err)
	}
	finds("another group of the key", v4, 7)

	// The number of changes never says that nothing is remembered, not even after 2^32 changes.
	b.c.counted().Store(math.MaxUint32)
	put(t, b.c, key, 6)
	finds("after 2^32 changes", v4, 6)
	if n := b.c.counted().Load(); n != 1 {
		t.Errorf("the number of changes is %d", n)
	}
}

// The cost of the classifier for the kernel's own traffic. A redirected frame cannot be measured
// like this, because each run would add metadata to it again.
func BenchmarkClassify(b *testing.B) {
	bench := newBench(b, false)
	putTestGroups(b, bench.c)
	for name, f := range map[string][]byte{
		"NoSocket": frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 1024),
		"NoGroup":  frame(hostA, hostA, roce.OpSendOnly, 0x123456, 1024),
		"NotRoCE":  append(frame(hostA, groupIP, roce.OpSendOnly, groupQPN, 1024)[:36], 0, 53, 0, 0, 0, 0),
	} {
		b.Run(name, func(b *testing.B) {
			_, perRun, err := bench.c.classify().Benchmark(f, b.N, b.ResetTimer)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(perRun.Nanoseconds()), "ns/frame")
		})
	}
}
