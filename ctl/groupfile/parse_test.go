package groupfile

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var compareAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestParseFillsInTheDefaults(t *testing.T) {
	got, err := Parse([]byte(read(t, "g1.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Name: "g1", Addressing: mft.ByGroupIP, IP: netip.MustParseAddr("10.77.0.100"), QPN: 1, PathMTU: 1024,
		DegradedBelow: 10, DegradedAfter: 3 * time.Second,
		Policy: feedback.Policy{Repair: feedback.RepairLocal, RepairBytes: 4 << 20}.WithDefaults(),
		Memory: []mft.VirtualRegion{{VA: 0x10000, Length: 67108864, RKey: 0x77}},
		Source: Member{IP: netip.MustParseAddr("10.77.0.1"), QPN: 17, FirstPSN: 1000, Role: Source, RemoteQPN: 1, Line: 9},
		Receivers: []Member{
			{IP: netip.MustParseAddr("10.77.0.2"), QPN: 18, FirstPSN: 5, RemoteQPN: 1, Line: 10,
				Regions: []mft.Region{{VA: 0x7f0000000000, Length: 67108864, RKey: 0x1234}}},
		},
		Lines: map[string]int{"name": 1, "ip": 2, "qpn": 3, "mtu": 4, "ack": 5, "nak": 6, "memory": 7, "members": 9},
	}
	if diff := cmp.Diff(want, got, compareAddr); diff != "" {
		t.Error(diff)
	}
}

func TestParseTakesEveryKey(t *testing.T) {
	got, err := Parse([]byte(read(t, "everything.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	if got.DegradedBelow != 25 || got.DegradedAfter != 5*time.Second {
		t.Errorf("degraded below %d %% for %v", got.DegradedBelow, got.DegradedAfter)
	}
	if got.Hosts != HostsJoin {
		t.Error("hosts may not join")
	}
	if got.Copies != CopiesOwn {
		t.Error("receivers may share copies")
	}
	if got.Addressing != mft.BySwitchIP || got.Engine != mft.EngineAFXDP || got.Policy != WithRepair(feedback.Policy{
		Ack: 2, Nak: feedback.NakLower, OnFatal: feedback.FatalFail, CNP: feedback.CNPAll,
		Credits: feedback.CreditsMerge, Switch: feedback.SwitchForce, SilentAfter: 250 * time.Millisecond, Evict: true,
	}, got.PathMTU) {
		t.Errorf("addressing %v, policy %+v", got.Addressing, got.Policy)
	}
	if len(got.Memory) != 2 || got.Memory[0].Length != 4096 || got.Memory[1].Length != 1<<20 {
		t.Errorf("memory %+v: the first is as given, the second as long as the shortest region", got.Memory)
	}
	if r := got.Receivers; len(r) != 2 || r[0].RemoteQPN != 0x500 || r[1].RemoteQPN != 0x501 || len(r[1].Regions) != 2 {
		t.Errorf("receivers %+v", r)
	}
}

// Each bad file is the good file with a replacement.
func TestBadFileIsRefusedWithLineAndMend(t *testing.T) {
	good := read(t, "g1.yaml")
	receiver := "  - {ip: 10.77.0.2, qpn: 18, psn: 5, regions: [{va: 0x7f0000000000, length: 67108864, rkey: 0x1234}]}\n"
	for _, c := range []struct{ name, old, new, want string }{
		{"unknown key", "ack: all", "acks: all", `line 5: key "acks" is unknown here; the known keys are name, ip, qpn, mtu, addressing, engine, copies, degraded-below, degraded-after, hosts, hosts-secret, memory, members, ack, nak, on-fatal, silent-after, evict, cnp, cnp-interval, credits, source-switch, repair, on-slow, repair-window, repair-bytes, repair-attempts, repair-timer-floor, repair-timer-cap`},
		{"unknown member key", "psn: 5", "spn: 5", `line 10: member 2: key "spn" is unknown here; the known keys are ip, qpn, psn, sendPSN, role, remoteQPN, remoteIP, receivers, relayQPN, relayShares, via, confirm, regions`},
		{"key twice", "ack: all", "mtu: 1024", `line 5: key "mtu" was already given on line 4; keep one of them`},
		{"no name", "name: g1", "", "line 2: the group file has no name; add name: WORD, what the group is called"},
		{"name as a path", "name: g1", "name: ../g1", `line 1: name "../g1" is not a valid group name; write 1 to 63 letters, digits, '.', '_' or '-', a letter or digit first`},
		{"name too long", "name: g1", "name: " + strings.Repeat("a", 64), `line 1: name "` + strings.Repeat("a", 64) + `" is not a valid group name; write 1 to 63 letters, digits, '.', '_' or '-', a letter or digit first`},
		{"hosts", "qpn: 1", "qpn: 1\nhosts: leave", "line 4: hosts is neither true nor false nor end; write one of them, without quotes"},
		{"half a secret", "qpn: 1", "qpn: 1\nhosts-secret: 9f86d081", "line 4: hosts-secret is not a SHA-256 in hex; printf %s SECRET | sha256sum prints it"},
		{"a long secret", "qpn: 1", "qpn: 1\nhosts-secret: \"" + strings.Repeat("9f", 33) + "\"", "line 4: hosts-secret is not a SHA-256 in hex; printf %s SECRET | sha256sum prints it"},
		{"no secret", "qpn: 1", "qpn: 1\nhosts-secret: \"" + strings.Repeat("9g", 32) + "\"", "line 4: hosts-secret is not a SHA-256 in hex; printf %s SECRET | sha256sum prints it"},
		{"class D", "ip: 10.77.0.100", "ip: 224.1.2.3", "line 2: ip 224.1.2.3 is class D (multicast): hosts drop the ACKs that come from such an address; write a unicast address of the members' subnet"},
		{"IPv6 multicast", "ip: 10.77.0.100", "ip: ff05::1", "line 2: ip ff05::1 is multicast: hosts drop the ACKs that come from such an address; write a unicast address of the members' subnet"},
		{"loopback", "ip: 10.77.0.100", "ip: 127.0.0.1", "line 2: ip 127.0.0.1 is not an address that a host can have; write a unicast address"},
		{"broadcast", "ip: 10.77.0.100", "ip: 255.255.255.255", "line 2: ip 255.255.255.255 is not an address that a host can have; write a unicast address"},
		{"class E", "ip: 10.77.0.100", "ip: 240.0.0.1", "line 2: ip 240.0.0.1 is not an address that a host can have; write a unicast address"},
		{"0.0.0.0/8", "ip: 10.77.0.100", "ip: 0.1.2.3", "line 2: ip 0.1.2.3 is not an address that a host can have; write a unicast address"},
		{"a member in class E", "ip: 10.77.0.1,", "ip: 255.0.0.1,", "line 9: member 1: ip 255.0.0.1 is not an address that a host can have; write a unicast address"},
		{"link-local", "ip: 10.77.0.100", "ip: fe80::1", "line 2: ip fe80::1 is link-local, and a link-local address has no route; write a global or unique local address"},
		{"not an address", "ip: 10.77.0.100", "ip: g1.example", `line 2: ip "g1.example" is not an IP address; write one such as 10.77.0.2 or fd00::2`},
		{"families", "ip: 10.77.0.100", "ip: fd00::100", "line 9: member 1 is IPv4 and the group's ip is IPv6; a frame has one of them, so write all addresses in the same family"},
		{"group QPN 0", "qpn: 1 ", "qpn: 0 ", "line 3: qpn is 0x0, to which no RC queue pair can send; write a number from 1 to 16777214"},
		{"group QPN multicast", "qpn: 1 ", "qpn: 0xffffff ", "line 3: qpn is 0xffffff, to which no RC queue pair can send; write a number from 1 to 16777214"},
		{"QPN beyond 24 bits", "qpn: 1 ", "qpn: 0x1000000 ", "line 3: qpn is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"QP1 as a host's", "qpn: 18", "qpn: 1", "line 10: member 2: qpn is 0x1, which is reserved for management and multicast; write the number of the host's QP"},
		{"PSN beyond 24 bits", "psn: 5", "psn: 16777216", "line 10: member 2: psn is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"no PSN", "psn: 5, ", "", "line 10: member 2 has no psn; add psn: N, the first PSN a source's QP sends or a receiver's expects"},
		{"MTU", "mtu: 1024", "mtu: 1500", "line 4: mtu is not a path MTU; write 256, 512, 1024, 2048 or 4096, the path MTU of the members' QPs"},
		{"MTU too big", "mtu: 1024", "mtu: 8192", "line 4: mtu is not a path MTU; write 256, 512, 1024, 2048 or 4096, the path MTU of the members' QPs"},
		{"addressing", "ack: all", "addressing: by-name", `line 5: addressing "by-name" is not one of ["group-ip" "virtual-qpn" "switch-ip"]`},
		{"MTU as a word", "mtu: 1024", "mtu: big", "line 4: mtu is not a path MTU; write 256, 512, 1024, 2048 or 4096, the path MTU of the members' QPs"},
		{"ack policy as a list", "ack: all", "ack: [all]", "line 5: ack is a list; write one word"},
		{"silent-after as a list", "nak: hold", "silent-after: [1s]", "line 6: silent-after is a list; write one word"},
		{"ack policy", "ack: all", "ack: most", `line 5: ack "most" is neither all nor quorum N with N from 1`},
		{"quorum beyond the receivers", "ack: all", "ack: quorum 2", "line 5: ack waits for 2 receivers and the group has 1; write a smaller quorum or all"},
		{"nak policy", "nak: hold", "nak: keep", `line 6: nak "keep" is not one of hold, lower`},
		{"on-fatal policy", "nak: hold", "on-fatal: ignore", `line 6: on-fatal "ignore" is not one of fail, evict`},
		{"cnp policy", "nak: hold", "cnp: none", `line 6: cnp "none" is not one of filter, all`},
		{"repair policy", "nak: hold", "repair: source", `line 6: repair "source" is not one of off, local`},
		{"no window", "nak: hold", "repair: local\nrepair-window: 0", "line 7: repair-window is not a whole number from 1 to 65536 (0x10000); write one, without quotes"},
		{"window too large", "nak: hold", "repair: local\nrepair-window: 65537", "line 7: repair-window is not a whole number from 1 to 65536 (0x10000); write one, without quotes"},
		{"no bytes", "nak: hold", "repair: local\nrepair-bytes: 0", "line 7: repair-bytes is 0KiB, and one packet of path MTU 1024 takes 4KiB; write 4KiB or more"},
		{"too few bytes", "mtu: 1024", "mtu: 4096\nrepair: local\nrepair-bytes: 7KiB", "line 6: repair-bytes is 7KiB, and one packet of path MTU 4096 takes 8KiB; write 8KiB or more"},
		{"bytes without a unit", "nak: hold", "repair: local\nrepair-bytes: 4096", `line 7: repair-bytes "4096" is not a size; write one such as 64MiB (KiB, MiB or GiB)`},
		{"bytes as a list", "nak: hold", "repair: local\nrepair-bytes: [1MiB]", "line 7: repair-bytes is a list; write one word"},
		{"more bytes than any window takes", "nak: hold", "repair: local\nrepair-bytes: 524289KiB", "line 7: repair-bytes is above 512MiB, which the largest repair-window takes; write a smaller size"},
		{"bytes without repair", "nak: hold", "repair: off\nrepair-bytes: 1MiB", "line 7: repair-bytes has no effect with repair: off; remove one of them"},
		{"no attempts", "nak: hold", "repair: local\nrepair-attempts: 0", "line 7: repair-attempts is not a whole number from 1 to 100 (0x64); write one, without quotes"},
		{"attempts with a leading zero", "nak: hold", "repair: local\nrepair-attempts: 017", "line 7: repair-attempts has a leading zero; write it in decimal without one, or in hexadecimal with 0x"},
		{"too many attempts", "nak: hold", "repair: local\nrepair-attempts: 101", "line 7: repair-attempts is not a whole number from 1 to 100 (0x64); write one, without quotes"},
		{"attempts as a list", "nak: hold", "repair: local\nrepair-attempts: [1]", "line 7: repair-attempts is not a whole number from 1 to 100 (0x64); write one, without quotes"},
		{"timer of zero", "nak: hold", "repair: local\nrepair-timer-floor: 0", `line 7: repair-timer-floor "0" is not a time from 20us to 1s; write one such as 400us`},
		{"timer too short", "nak: hold", "repair: local\nrepair-timer-floor: 19us", `line 7: repair-timer-floor "19us" is not a time from 20us to 1s; write one such as 400us`},
		{"timer too long", "nak: hold", "repair: local\nrepair-timer-cap: 1001ms", `line 7: repair-timer-cap "1001ms" is not a time from 20us to 1s; write one such as 400us`},
		{"timers crossed", "nak: hold", "repair-timer-cap: 1ms\nrepair: local\nrepair-timer-floor: 2ms", "line 8: repair-timer-floor is 2ms and repair-timer-cap is 1ms; write a floor that is not above the cap"},
		{"cap below the default floor", "nak: hold", "repair-timer-cap: 20us\nrepair: local", fmt.Sprintf("line 6: repair-timer-floor is %v and repair-timer-cap is 20µs; write a floor that is not above the cap", feedback.DefaultRepairTimerFloor)},
		{"window without repair", "nak: hold", "repair: off\nrepair-window: 5", "line 7: repair-window has no effect with repair: off; remove one of them"},
		{"attempts without repair", "nak: hold", "repair: off\nrepair-attempts: 5", "line 7: repair-attempts has no effect with repair: off; remove one of them"},
		{"floor without repair", "nak: hold", "repair: off\nrepair-timer-floor: 1ms", "line 7: repair-timer-floor has no effect with repair: off; remove one of them"},
		{"cap without repair", "nak: hold", "repair: off\nrepair-timer-cap: 1ms", "line 7: repair-timer-cap has no effect with repair: off; remove one of them"},
		{"force without repair", "nak: hold", "source-switch: force\nrepair: off", "line 7: source-switch is force, which needs repair, and repair is off; use repair: local"},
		{"cnp-interval without a unit", "nak: hold", "cnp-interval: 50", `line 6: cnp-interval "50" is not a time from 1us to 100ms; write one such as 20us, or 0 for no limit`},
		{"cnp-interval too short", "nak: hold", "cnp-interval: 999ns", `line 6: cnp-interval "999ns" is not a time from 1us to 100ms; write one such as 20us, or 0 for no limit`},
		{"cnp-interval too long", "nak: hold", "cnp-interval: 100001us", `line 6: cnp-interval "100001us" is not a time from 1us to 100ms; write one such as 20us, or 0 for no limit`},
		{"cnp-interval without a filter", "nak: hold", "cnp: all\ncnp-interval: 50us", "line 7: cnp-interval has no effect with cnp: all, which passes every notification; remove one of them"},
		{"engine", "nak: hold", "engine: kernel", `line 6: engine "kernel" is not one of ["auto" "afxdp"]`},
		{"copies", "nak: hold", "copies: shared", `line 6: copies "shared" is not one of ["auto" "own"]`},
		{"credits policy", "nak: hold", "credits: 4", `line 6: credits "4" is not one of unlimited, merge`},
		{"source-switch policy", "nak: hold", "source-switch: off", `line 6: source-switch "off" is not one of guard, force`},
		{"silent-after without a unit", "nak: hold", "silent-after: 200", `line 6: silent-after "200" is not a time from 10ms to 1h; write one such as 200ms, or 0 for never`},
		{"silent-after too short", "nak: hold", "silent-after: 9999us", `line 6: silent-after "9999us" is not a time from 10ms to 1h; write one such as 200ms, or 0 for never`},
		{"silent-after too long", "nak: hold", "silent-after: 1h1ns", `line 6: silent-after "1h1ns" is not a time from 10ms to 1h; write one such as 200ms, or 0 for never`},
		{"evict as a word", "nak: hold", "evict: yes please", "line 6: evict is neither true nor false; write one of them, without quotes"},
		{"degraded-below without %", "nak: hold", "degraded-below: 25", `line 6: degraded-below "25" is not a part from 0% to 100%; write one such as 25%`},
		{"degraded-below as a list", "nak: hold", "degraded-below: [1%]", "line 6: degraded-below is a list; write one word"},
		{"degraded-below too high", "nak: hold", "degraded-below: 101%", `line 6: degraded-below "101%" is not a part from 0% to 100%; write one such as 25%`},
		{"degraded-below negative", "nak: hold", "degraded-below: -1%", `line 6: degraded-below "-1%" is not a part from 0% to 100%; write one such as 25%`},
		{"degraded-below no number", "nak: hold", "degraded-below: x%", `line 6: degraded-below "x%" is not a part from 0% to 100%; write one such as 25%`},
		{"degraded-after too short", "nak: hold", "degraded-after: 999ms", `line 6: degraded-after "999ms" is not a time from 1s to 1h; write one such as 3s, or 0 for never`},
		{"degraded-after as a list", "nak: hold", "degraded-after: [3s]", "line 6: degraded-after is a list; write one word"},
		{"degraded-after with a leading zero", "nak: hold", "degraded-after: 03s", "line 6: degraded-after has a leading zero; write it in decimal without one"},
		{"degraded-below with a leading zero", "nak: hold", "degraded-below: 010%", "line 6: degraded-below has a leading zero; write it in decimal without one"},
		{"degraded-after too long", "nak: hold", "degraded-after: 61m", `line 6: degraded-after "61m" is not a time from 1s to 1h; write one such as 3s, or 0 for never`},
		{"degraded-below where nothing degrades", "nak: hold", "degraded-below: 10%\ndegraded-after: 0", "line 6: degraded-below has no effect with degraded-after: 0, with which the group never counts as degraded for its rate; remove one of them"},
		{"a secret of nobody", "nak: hold", "hosts-secret: " + strings.Repeat("ab", 32), "line 6: hosts-secret has no effect without hosts: true, with which programs on hosts may join; add that, or remove hosts-secret"},
		{"the source confirms", "role: source}", "role: source, confirm: true}", "line 9: member 1 is the source and has confirm, but its own program waits for the others; remove confirm"},
		{"a box confirms", "qpn: 18, psn: 5,", "qpn: 18, psn: 5, confirm: true, remoteIP: 10.77.0.200,", "line 10: member 2 has remoteIP, which makes it another box, and confirm, which a program does; remove one of them"},
		{"on-slow without a quorum", "nak: hold", "on-slow: go-on", "line 6: on-slow has no effect with ack: all; remove it, or write ack: quorum and how many have to acknowledge"},
		{"evict without silent-after", "nak: hold", "evict: true", "line 6: evict has no effect without silent-after, which says when a receiver counts as silent; add silent-after: 200ms, or remove evict"},
		{"evict with silent-after never", "nak: hold", "silent-after: 0\nevict: true", "line 7: evict has no effect without silent-after, which says when a receiver counts as silent; add silent-after: 200ms, or remove evict"},
		{"role", "role: source", "role: boss", `line 9: member 1: role "boss" is not one of ["receiver" "source" "both"]`},
		{"both without sendPSN", "psn: 5", "psn: 5, role: both", "line 10: member 2 has role both and no sendPSN; add sendPSN: N, the first PSN that its QP sends"},
		{"both to another QPN", "psn: 5", "psn: 5, sendPSN: 6, role: both, remoteQPN: 9", "line 10: member 2 is both and has remoteQPN 9; it sends to the group's qpn 1, so remove it"},
		{"both alone", ", role: source}\n" + receiver, ", sendPSN: 6, role: both, regions: [{va: 1, length: 1, rkey: 1}]}\n", "line 9: members has no receiver besides the source; add one"},
		{"both on the source's host", receiver, strings.Replace(strings.Replace(receiver, "psn: 5", "psn: 5, sendPSN: 6, role: both", 1), "10.77.0.2", "10.77.0.1", 1) + receiver, "line 10: member 2 has role both and is on the host of the source (line 9), so their data cannot be told apart; give it role: receiver, or remove the source"},
		{"two boths on a host", receiver, strings.Replace(receiver, "psn", "role: both, sendPSN: 6, psn", 1) + strings.Replace(receiver, "18, psn", "19, role: both, sendPSN: 6, psn", 1), "line 11: member 3 and the member on line 10 are both at 10.77.0.2 with remote QPN 1, so their feedback cannot be told apart; change the remoteQPN of one"},
		{"source with sendPSN", "psn: 1000", "psn: 1000, sendPSN: 1", "line 9: member 1 is the source, whose psn is the first it sends; remove sendPSN, or write role: both"},
		{"receiver with sendPSN", "psn: 5", "psn: 5, sendPSN: 1", "line 10: member 2 is a receiver, which sends nothing; remove sendPSN, or write role: both"},
		{"sendPSN beyond 24 bits", "psn: 5", "psn: 5, sendPSN: 16777216, role: both", "line 10: member 2: sendPSN is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"},
		{"no source", ", role: source", "", "line 9: members has no source; give one of them role: source, or role: both"},
		{"two sources", "psn: 5", "psn: 5, role: source", "line 10: member 2 is a second source, the first is on line 9; a group has one"},
		{"source alone", receiver, "", "line 9: members has no receiver besides the source; add one"},
		{"source's remoteQPN", "role: source", "role: source, remoteQPN: 9", "line 9: member 1 is the source and has remoteQPN 9; it sends to the group's qpn 1, so remove it"},
		{"a host's address as remoteIP", "psn: 5", "psn: 5, remoteIP: 10.77.0.1", "line 10: member 2 has remoteIP 10.77.0.1, which is the ip of the member on line 9; write an address of this box"},
		{"its own address as remoteIP", "psn: 5", "psn: 5, remoteIP: 10.77.0.2", "line 10: member 2 has remoteIP 10.77.0.2, which is the ip of the member on line 10; write an address of this box"},
		{"the group's IP as remoteIP", "psn: 5", "psn: 5, remoteIP: 10.77.0.100", "line 10: member 2 has the group's own ip as remoteIP, which is the default; remove remoteIP"},
		{"multicast as remoteIP", "psn: 5", "psn: 5, remoteIP: 224.0.0.1", "line 10: member 2: remoteIP 224.0.0.1 is class D (multicast): hosts drop the ACKs that come from such an address; write a unicast address of the members' subnet"},
		{"remoteIP of another family", "psn: 5", "psn: 5, remoteIP: fd00::1", "line 10: member 2 has an IPv6 remoteIP and the group's ip is IPv4; a frame has one of them, so write all addresses in the same family"},
		{"two with one remote QPN and two remoteIPs", receiver, strings.Replace(receiver, "psn: 5", "psn: 5, remoteIP: 10.9.0.1", 1) + strings.Replace(receiver, "18, psn: 5", "19, psn: 5, remoteIP: 10.9.0.2", 1), "line 11: member 3 and the member on line 10 are both at 10.77.0.2 with remote QPN 1, so their feedback cannot be told apart; change the remoteQPN of one"},
		{"source's receivers", "role: source", "role: source, receivers: 1", "line 9: member 1 is the source, and a quorum counts receivers only; remove receivers, or write role: both"},
		{"no receivers", "psn: 5", "psn: 5, receivers: 0", "line 10: member 2: receivers is not a whole number from 1 to 65535 (0xffff); write one, without quotes"},
		{"too many receivers", "psn: 5", "psn: 5, receivers: 65536", "line 10: member 2: receivers is not a whole number from 1 to 65535 (0xffff); write one, without quotes"},
		{"source's regions", "role: source", "role: source, regions: [{va: 1, length: 1, rkey: 1}]", "line 9: member 1 is the source and has regions; a source is not written to, so remove them, or write role: both"},
		{"same QP", receiver, receiver + receiver, "line 11: member 3 is QP 18 of 10.77.0.2, as is the member on line 10; keep one of them"},
		{"same peer", receiver, receiver + strings.Replace(receiver, "18", "19", 1), "line 11: member 3 and the member on line 10 are both at 10.77.0.2 with remote QPN 1, so their feedback cannot be told apart; change the remoteQPN of one"},
		{"member with the group's ip", "ip: 10.77.0.2", "ip: 10.77.0.100", "line 10: member 2 has the group's own ip 10.77.0.100; give the group an address that no host has (or addressing: virtual-qpn)"},
		{"virtual-qpn with a free ip", "ack: all", "addressing: virtual-qpn", "line 2: ip 10.77.0.100 is not a receiver's address, but with addressing virtual-qpn the source reaches the group by the address of a receiver; write one of those"},
		{"memory without va", "va: 0x10000, ", "", "line 7: memory 1 has no va; add va: N, where it starts"},
		{"no region", "regions: [{va: 0x7f0000000000, length: 67108864, rkey: 0x1234}]", "regions: []", "line 7: memory 1 has no length, and no member has a region that could supply it; add length: BYTES"},
		{"regions do not pair up", "rkey: 0x1234}]", "rkey: 0x1234}, {va: 0, length: 1, rkey: 2}]", "line 10: member 2 has 2 regions and the group's memory has 1; write one region for each memory, in the same order"},
		{"regions without memory", "memory: {va: 0x10000, rkey: 0x77}", "", "line 10: member 2 has 1 regions and the group's memory has 0; write one region for each memory, in the same order"},
		{"region without length", "length: 67108864, ", "", "line 10: member 2: region 1 has no length; add length: BYTES"},
		{"empty region", "length: 67108864", "length: 0", "line 10: member 2: region 1 has length 0; write its length in bytes"},
		{"region too short", "rkey: 0x77", "length: 67108865, rkey: 0x77", "line 10: member 2: region 1 is 67108864 bytes long, memory 1 is 67108865: the source could write beyond it; make the memory's length 67108864 or the region longer"},
		{"region that ends one byte beyond the address space", "va: 0x7f0000000000, length: 67108864", "va: 0xfffffffffc000001, length: 67108864", "line 10: member 2: region 1 ends beyond 2^64; write a smaller va or length"},
		{"region of two bytes at the last one", "va: 0x7f0000000000, length: 67108864", "va: 0xffffffffffffffff, length: 2", "line 10: member 2: region 1 ends beyond 2^64; write a smaller va or length"},
		{"region beyond the address space", "va: 0x7f0000000000", "va: 0xffffffffffffffff", "line 10: member 2: region 1 ends beyond 2^64; write a smaller va or length"},
		{"memory beyond the address space", "va: 0x10000", "va: 0xffffffffffff0000", "line 7: memory 1 ends beyond 2^64; write a smaller va or length"},
		{"memory overlaps", "memory: {va: 0x10000, rkey: 0x77}", "memory: [{va: 0x10000, length: 10, rkey: 0x77}, {va: 0x10009, length: 1, rkey: 0x77}]", "line 10: member 2 has 1 regions and the group's memory has 2; write one region for each memory, in the same order"},
		{"two documents", "ack: all", "---", "line 5: a second document starts here, and the group file holds only one; remove it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := strings.Replace(good, c.old, c.new, 1)
			if bad == good {
				t.Fatalf("%q is not in the good file", c.old)
			}
			_, err := Parse([]byte(bad))
			if err == nil {
				t.Fatal("taken")
			}
			if err.Error() != c.want {
				t.Errorf("\ngot  %v\nwant %s", err, c.want)
			}
		})
	}
}

// A whole file may stand on its first line, and an error still names the line.
func TestAFileOfOneLineIsRefusedAsAnyOther(t *testing.T) {
	const source, receiver = "{ip: 10.77.0.1, qpn: 17, psn: 1, role: source}", "{ip: 10.77.0.2, qpn: 18, psn: 5}"
	for members, want := range map[string]string{
		source + ", " + receiver: "",
		strings.Replace(source, "}", ", receivers: 1}", 1) + ", " + receiver:        "line 1: member 1 is the source, and a quorum counts receivers only; remove receivers, or write role: both",
		source + ", " + strings.Replace(receiver, "}", ", remoteIP: 10.77.0.1}", 1): "line 1: member 2 has remoteIP 10.77.0.1, which is the ip of the member on line 1; write an address of this box",
	} {
		_, err := Parse([]byte("{name: g1, ip: 10.77.0.100, qpn: 1, mtu: 1024, members: [" + members + "]}"))
		if got := fmt.Sprint(err); got != want && (err != nil || want != "") {
			t.Errorf("\ngot  %s\nwant %s", got, want)
		}
	}
}

// A member with role both does not receive while it sends. A quorum of all others can be met, and
// one of one more cannot.
func TestAQuorumOfAllWhoMayReceive(t *testing.T) {
	const a, b, c = "{ip: 10.77.0.1, qpn: 17, psn: 1, sendPSN: 3, role: both}", "{ip: 10.77.0.2, qpn: 18, psn: 5, role: receiver}", "{ip: 10.77.0.3, qpn: 18, psn: 5, receivers: 5}"
	for _, q := range []struct {
		members string
		most    int
	}{{a + ", " + b + ", " + c, 6}, {strings.Replace(a, "both}", "source}", 1) + ", " + b + ", " + c, 6}} {
		members := strings.Replace(q.members, "sendPSN: 3, role: source", "role: source", 1)
		for quorum := q.most; quorum <= q.most+1; quorum++ {
			_, err := Parse(fmt.Appendf(nil, "{name: g1, ip: 10.77.0.100, qpn: 1, mtu: 1024, ack: quorum %d, members: [%s]}", quorum, members))
			if (err == nil) != (quorum <= q.most) {
				t.Errorf("a quorum of %d with %s: %v", quorum, members, err)
			}
		}
	}
}

// The bounds of repair that are left out have their defaults.
func TestRepairHasDefaults(t *testing.T) {
	for keys, want := range map[string]feedback.Policy{
		"":              feedback.Policy{Repair: feedback.RepairLocal, RepairBytes: 4 << 20}.WithDefaults(),
		"repair: off":   {},
		"repair: local": feedback.Policy{Repair: feedback.RepairLocal, RepairBytes: 4 << 20}.WithDefaults(),
		"repair: local\nrepair-window: 10\nmtu: 4096": feedback.Policy{Repair: feedback.RepairLocal, RepairWindow: 10, RepairBytes: 80 << 10}.WithDefaults(),
		"repair: local\nrepair-bytes: 4KiB":           feedback.Policy{Repair: feedback.RepairLocal, RepairBytes: 4 << 10}.WithDefaults(),
		"repair: local\nrepair-bytes: 512MiB":         feedback.Policy{Repair: feedback.RepairLocal, RepairBytes: 512 << 20}.WithDefaults(),
		"repair: local\nrepair-window: 65536\nrepair-attempts: 100\nrepair-timer-floor: 1s\nrepair-timer-cap: 1s": {
			Repair: feedback.RepairLocal, RepairWindow: 65536, RepairBytes: 256 << 20, RepairAttempts: 100, RepairTimerFloor: time.Second, RepairTimerCap: time.Second},
		"repair: local\nrepair-window: 1\nrepair-attempts: 1\nrepair-timer-floor: 20us\nrepair-timer-cap: 20us": {
			Repair: feedback.RepairLocal, RepairWindow: 1, RepairBytes: 4 << 10, RepairAttempts: 1, RepairTimerFloor: 20 * time.Microsecond, RepairTimerCap: 20 * time.Microsecond},
	} {
		text := strings.Replace(read(t, "g1.yaml"), "nak: hold", keys, 1)
		if strings.Contains(keys, "mtu") {
			text = strings.Replace(text, "mtu: 1024\n", "", 1)
		}
		f, err := Parse([]byte(text))
		if err != nil || f.Policy != want {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", keys, err, f.Policy, want)
		}
	}
}

// The shortest and the longest times that the errors name are valid.
func TestTimesAtTheirLimits(t *testing.T) {
	good := read(t, "g1.yaml")
	for _, key := range []string{
		"silent-after: 0", "degraded-below: 0%", "degraded-below: 100%", "degraded-after: 0", "degraded-after: 1s", "degraded-after: 1h", "silent-after: 10ms", "silent-after: 1h", "cnp-interval: 0", "cnp-interval: 1us", "cnp-interval: 100ms",
	} {
		if _, err := Parse([]byte(strings.Replace(good, "nak: hold", key, 1))); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A value at a limit is valid.
func TestValuesAtTheirLimits(t *testing.T) {
	good := read(t, "g1.yaml")
	for old, values := range map[string][]string{
		"mtu: 1024":                            {"mtu: 256", "mtu: 512", "mtu: 2048", "mtu: 4096"},
		"qpn: 18":                              {"qpn: 2", "qpn: 0xfffffe"},
		"qpn: 1 ":                              {"qpn: 0xfffffe "},
		"psn: 5":                               {"psn: 0", "psn: 0xffffff"},
		"name: g1":                             {"name: " + strings.Repeat("a", 63)},
		"va: 0x10000,":                         {"va: 0xfffffffffc000000,"},
		"ip: 10.77.0.100":                      {"ip: 223.255.255.254", "ip: 1.0.0.1"},
		"va: 0x7f0000000000, length: 67108864": {"va: 0xffffffffffffffff, length: 1"},
	} {
		for _, value := range values {
			if _, err := Parse([]byte(strings.Replace(good, old, value, 1))); err != nil {
				t.Errorf("%s: %v", value, err)
			}
		}
	}
}

// A program may write a group file as JSON, on one line.
func TestAFileOnOneLine(t *testing.T) {
	const file = `{"name": "g1", "ip": "10.77.0.100", "qpn": 1, "mtu": 1024, "members": [` +
		`{"ip": "10.77.0.1", "qpn": 17, "psn": 1000, "role": "source"}, {"ip": "10.77.0.2", "qpn": 18, "psn": 5}]}`
	if f, err := Parse([]byte(file)); err != nil || f.Source.FirstPSN != 1000 || len(f.Receivers) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	for psn, want := range map[string]string{
		`"psn": 1000`: "line 1: member 1 is the source, whose psn is the first it sends; remove sendPSN, or write role: both",
		`"psn": 5`:    "line 1: member 2 is a receiver, which sends nothing; remove sendPSN, or write role: both",
	} {
		if _, err := Parse([]byte(strings.Replace(file, psn, psn+`, "sendPSN": 3`, 1))); err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
}

// The default of on-fatal depends on the ack policy (docs/merging.md).
func TestOnFatalDefaultsByTheAckPolicy(t *testing.T) {
	two := strings.Replace(read(t, "g1.yaml"), "nak: hold\n", "", 1) +
		"  - {ip: 10.77.0.3, qpn: 18, psn: 5, regions: [{va: 0x7f0000000000, length: 67108864, rkey: 0x1234}]}\n"
	for _, c := range []struct {
		keys string
		want feedback.FatalPolicy
	}{
		{"ack: all", feedback.FatalFail},
		{"ack: quorum 1", feedback.FatalEvict},
		{"ack: quorum 1\non-fatal: fail", feedback.FatalFail},
		{"ack: all\non-fatal: evict", feedback.FatalEvict},
	} {
		f, err := Parse([]byte(strings.Replace(two, "ack: all", c.keys, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if f.Policy.OnFatal != c.want {
			t.Errorf("%q: on-fatal %v, want %v", c.keys, f.Policy.OnFatal, c.want)
		}
	}
}

func TestMemoryOverlapIsRefusedUnderOneRKeyOnly(t *testing.T) {
	text := read(t, "everything.yaml")
	if _, err := Parse([]byte(strings.Replace(text, "va: 0x20000", "va: 0x10fff", 1))); err != nil {
		t.Errorf("two rkeys: %v", err)
	}
	text = strings.Replace(text, "va: 0x20000, rkey: 0x78", "va: 0x10fff, rkey: 0x77", 1)
	want := "line 19: memory 2 overlaps memory 1 under the same rkey, so an address in both would be ambiguous; move it or give it another rkey"
	if _, err := Parse([]byte(text)); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

// Two regions with the same R_Key may touch but not overlap, in either order.
func TestMemoryThatTouches(t *testing.T) {
	const (
		first, second = "{va: 0x10000, length: 4096, rkey: 0x77}", "{va: 0x20000, rkey: 0x78}"
		want          = "line 19: memory 2 overlaps memory 1 under the same rkey, so an address in both would be ambiguous; move it or give it another rkey"
	)
	text := read(t, "everything.yaml")
	for _, c := range []struct {
		first, second string
		taken         bool
	}{
		{"{va: 0x10000, length: 16, rkey: 1}", "{va: 0x10010, length: 16, rkey: 1}", true},
		{"{va: 0x10010, length: 16, rkey: 1}", "{va: 0x10000, length: 16, rkey: 1}", true},
		{"{va: 0x10000, length: 16, rkey: 1}", "{va: 0x1000f, length: 16, rkey: 1}", false},
		{"{va: 0x1000f, length: 16, rkey: 1}", "{va: 0x10000, length: 16, rkey: 1}", false},
		{"{va: 0x1000f, length: 16, rkey: 1}", "{va: 0x10000, length: 16, rkey: 2}", true},
		{"{va: 0x10000, length: 16, rkey: 1}", "{va: 0x10000, length: 16, rkey: 1}", false},
	} {
		_, err := Parse([]byte(strings.NewReplacer(first, c.first, second, c.second).Replace(text)))
		if c.taken && err != nil || !c.taken && (err == nil || err.Error() != want) {
			t.Errorf("%s and %s: %v", c.first, c.second, err)
		}
	}
}

// bothGroup is a group of three members with role both.
const bothGroup = `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
members:
  - {ip: 10.77.0.1, qpn: 17, psn: 5}
  - {ip: 10.77.0.2, qpn: 18, psn: 6, sendPSN: 2000, role: both}
  - {ip: 10.77.0.3, qpn: 19, psn: 7, sendPSN: 3000, role: both}
`

func TestTheFirstThatIsBothSendsFirstWhereNobodyIsTheSource(t *testing.T) {
	f, err := Parse([]byte(bothGroup))
	if err != nil {
		t.Fatal(err)
	}
	if s := f.Source; s.IP.String() != "10.77.0.2" || s.Role != Both || s.FirstPSN != 2000 {
		t.Errorf("source %+v: its FirstPSN is what it sends", s)
	}
	if r := f.Receivers; len(r) != 3 || r[1].FirstPSN != 6 || r[1].SendPSN != 2000 || len(f.Members()) != 3 {
		t.Errorf("receivers %+v", r)
	}
	f, err = Parse([]byte(bothGroup + "  - {ip: 10.77.0.4, qpn: 20, psn: 4000, role: source}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Source.IP.String() != "10.77.0.4" || f.Source.FirstPSN != 4000 || len(f.Receivers) != 3 || len(f.Members()) != 4 {
		t.Errorf("%+v", f)
	}
}

func TestWhatDoesNotGoWithBoth(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"mtu: 1024", "mtu: 1024\nack: quorum 3", "line 5: ack waits for 3 receivers and the group has 2; write a smaller quorum or all"},
		{"mtu: 1024", "mtu: 1024\nack: quorum 1\nrepair: off", "line 6: ack is a quorum and several members may send, which needs repair, and repair is off; use repair: local"},
		{"ip: 10.77.0.100", "addressing: virtual-qpn\nip: 10.77.0.1", "line 8: member 2 has role both, but with addressing virtual-qpn the group is found by the address of its only source; use addressing: group-ip, or give it role: receiver"},
	} {
		if _, err := Parse([]byte(strings.Replace(bothGroup, c.old, c.new, 1))); err == nil || err.Error() != c.want {
			t.Errorf("\ngot  %v\nwant %s", err, c.want)
		}
	}
}

// A group without repair may have a quorum while one member sends, and several that send while it
// waits for all. What an older release has accepted is still read: control says what is wrong.
func TestWhatAGroupWithoutRepairMayBe(t *testing.T) {
	const off, quorum = "mtu: 1024\nrepair: off", "mtu: 1024\nack: quorum 1\nrepair: off"
	receives := strings.NewReplacer(", sendPSN: 3000, role: both", "", "mtu: 1024", quorum).Replace(bothGroup)
	for _, text := range []string{receives, strings.Replace(bothGroup, "mtu: 1024", off, 1)} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Error(err)
		}
	}
	f, err := ParseStored([]byte(strings.Replace(bothGroup, "mtu: 1024", quorum, 1)))
	if err != nil || f.CheckNoRepair() == nil {
		t.Error(err)
	}
}

// With virtual-qpn a copy keeps the source's address, and a host drops packets that come from one
// of its own addresses (martian source).
func TestVirtualQPNRefusesAReceiverOnTheSourcesHost(t *testing.T) {
	text := strings.NewReplacer("ack: all", "addressing: virtual-qpn", "ip: 10.77.0.100", "ip: 10.77.0.1",
		"ip: 10.77.0.2", "ip: 10.77.0.1").Replace(read(t, "g1.yaml"))
	_, err := Parse([]byte(text))
	if yamldoc.Line(err) != 10 || !strings.Contains(err.Error(), "use addressing: group-ip") {
		t.Error(err)
	}
}

// With virtual-qpn the source's QP accepts what comes from the named receiver's host. While the
// daemon does not run, nothing keeps an ACK of that receiver from a QP that it names.
func TestVirtualQPNRefusesAReceiverThatAnswersTheSourcesQP(t *testing.T) {
	text := strings.NewReplacer("ack: all", "addressing: virtual-qpn", "ip: 10.77.0.100", "ip: 10.77.0.2").Replace(read(t, "g1.yaml")) +
		"  - {ip: 10.77.0.3, qpn: 19, psn: 9, regions: [{va: 0, length: 67108864, rkey: 1}]}\n"
	const want = "line 10: member 2 has the source's own QP (qpn 17) as its remote QP, and with addressing virtual-qpn its ACKs would " +
		"reach the source as answers of all receivers whenever rocastd does not run; give it another remoteQPN"
	for _, c := range []struct {
		change []string
		want   string
	}{
		{[]string{"qpn: 18", "qpn: 18, remoteQPN: 17"}, want},
		{[]string{"\nqpn: 1 ", "\nqpn: 17 "}, want},
		{[]string{"qpn: 18", "qpn: 18, remoteQPN: 16"}, ""},
		{[]string{"qpn: 19", "qpn: 19, remoteQPN: 17"}, ""}, // the source's QP has another peer
		{
			[]string{"\nqpn: 1 ", "\nqpn: 17 ", "10.77.0.1", "10.77.0.2"},
			"line 10: member 2 is on the source's host, and with addressing virtual-qpn copies keep the source's address, and a " +
				"host drops frames that come from its own address; use addressing: group-ip",
		},
	} {
		_, err := Parse([]byte(strings.NewReplacer(c.change...).Replace(text)))
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
			t.Errorf("%q\ngot  %s\nwant %s", c.change, got, c.want)
		}
	}
}

func TestNoErrorHoldsAnRKey(t *testing.T) {
	good := read(t, "g1.yaml")
	for _, secret := range []string{"0xdeadbeef1", "3735928559.5", "'0xdeadbeef'", "[0xdeadbeef]", "!!str 0xdeadbeef", "{0xdeadbeef: 1}"} {
		for _, old := range []string{"0x77", "0x1234"} {
			if _, err := Parse([]byte(strings.Replace(good, old, secret, 1))); err == nil {
				t.Errorf("%s was taken", secret)
			} else if strings.Contains(err.Error(), "dead") || strings.Contains(err.Error(), "37359") {
				t.Errorf("%v", err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"g1.yaml", "everything.yaml"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err != nil {
			if yamldoc.Line(err) < 1 {
				t.Errorf("no line in %v", err)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("not one line of text: %q", err)
			}
			return
		}
		for _, r := range file.Receivers {
			if len(r.Regions) != len(file.Memory) {
				t.Errorf("%d regions for %d memory", len(r.Regions), len(file.Memory))
			}
		}
	})
}

// largest returns the file of a group with this many receivers and regions for each.
func largest(receivers, regions int) []byte {
	var b strings.Builder
	b.WriteString("name: g1\nip: 10.0.0.100\nqpn: 1\nmtu: 1024\nmemory:\n")
	for i := range regions {
		fmt.Fprintf(&b, "  - {va: %#x, rkey: 1}\n", i<<12)
	}
	b.WriteString("members:\n  - {ip: 10.0.0.1, qpn: 17, psn: 1000, role: source}\n")
	for i := range receivers {
		fmt.Fprintf(&b, "  - {ip: 10.1.%d.%d, qpn: 18, psn: 5, regions: [", i>>8, i&0xFF)
		for range regions {
			b.WriteString("{va: 0x7f0000000000, length: 4096, rkey: 0x12345678}, ")
		}
		b.WriteString("]}\n")
	}
	return []byte(b.String())
}

func TestTheLargestGroupIsRead(t *testing.T) {
	f, err := Parse(largest(mft.MaxPaths, 8))
	if err != nil || len(f.Receivers) != mft.MaxPaths || len(f.Receivers[0].Regions) != 8 {
		t.Fatal(err)
	}
	const want = "line 1040: member 1026 is one more than the 1024 receivers that a group can have; make another group"
	if _, err := Parse(largest(mft.MaxPaths+1, 8)); err == nil || err.Error() != want {
		t.Errorf("one more: %v", err)
	}
}

func TestTheMostMemoryIsRead(t *testing.T) {
	if f, err := Parse(largest(1, MaxRegions)); err != nil || len(f.Memory) != 4096 {
		t.Error(err)
	}
	const want = "line 4102: memory 4097 is one more than a group file can have (4096); join regions, or write memory: table and load them with rocast region load"
	if _, err := Parse(largest(1, MaxRegions+1)); err == nil || err.Error() != want {
		t.Errorf("one more: %v", err)
	}
}
