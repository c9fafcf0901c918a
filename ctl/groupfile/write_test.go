package groupfile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/feedback"
)

// sameFile compares two files without their lines.
func sameFile(t *testing.T, got, want *File) {
	t.Helper()
	ignoreLines := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Lines" || p.Last().String() == ".Line" }, cmp.Ignore())
	if diff := cmp.Diff(want, got, ignoreLines, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

const bothRepair = `name: g2
ip: fd00::64
qpn: 5
mtu: 1024
silent-after: 0
cnp-interval: 50us
repair: local
repair-window: 7
repair-bytes: 21KiB
repair-attempts: 3
repair-timer-floor: 100us
repair-timer-cap: 5ms
engine: afxdp
copies: own
members:
  - {ip: fd00::1, qpn: 17, psn: 9, sendPSN: 1000, role: both, via: leaf2, confirm: true}
  - {ip: fd00::2, qpn: 18, psn: 5, sendPSN: 3, role: both}
  - {ip: fd00::3, qpn: 19, psn: 5, remoteQPN: 6, receivers: 1}
`

func TestAFileIsWrittenAsItIsRead(t *testing.T) {
	for name, text := range map[string]string{"g1": read(t, "g1.yaml"), "everything": read(t, "everything.yaml"), "link": read(t, "link.yaml"), "both": bothRepair} {
		f, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(name, err)
		}
		again, err := Parse(f.Text())
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, f.Text())
		}
		sameFile(t, again, f)
	}
}

// A box that reads the text of another one must not take the default of repair for a demand.
func TestWhetherAFileAsksForRepairIsWritten(t *testing.T) {
	for keys, asks := range map[string]bool{
		"": false, "repair: off\n": false, "repair: local\n": true, "repair-window: 5\n": true, "repair-bytes: 1MiB\n": true, "repair-attempts: 2\n": true,
		"repair-timer-floor: 60us\n": true, "repair-timer-cap: 9ms\n": true,
	} {
		f, err := Parse([]byte(keys + read(t, "g1.yaml")))
		if err != nil {
			t.Fatalf("%s: %v", keys, err)
		}
		again, err := Parse(f.Text())
		if err != nil || f.AsksForRepair() != asks || again.AsksForRepair() != asks {
			t.Errorf("%q asks for repair: %t, and written: %t, %v", keys, f.AsksForRepair(), again.AsksForRepair(), err)
			continue
		}
		sameFile(t, again, f)
	}
}

// A key that is added to the group file has to be written too.
func TestEveryKeyIsWritten(t *testing.T) {
	f, err := Parse([]byte(strings.Replace(read(t, "everything.yaml"), "members:", "repair: local\non-slow: go-on\nmembers:", 1)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse([]byte("zzz: 1\n"))
	_, known, _ := strings.Cut(text(err), "the known keys are ")
	keys := strings.Split(known, ", ")
	if len(keys) < 20 {
		t.Fatalf("known keys %q", keys)
	}
	for _, key := range keys {
		if !strings.Contains("\n"+string(f.Text()), "\n"+key+":") {
			t.Errorf("%s is not written", key)
		}
	}
	m := Member{IP: netip.MustParseAddr("10.0.0.1"), RemoteIP: netip.MustParseAddr("10.0.0.2"), Behind: 2, Via: "leaf2", RelayQPN: 7, RelayShares: true, Role: Both, Confirm: true, Regions: f.Receivers[0].Regions}
	_, err = Parse([]byte("name: g\nip: 10.0.0.9\nqpn: 1\nmtu: 1024\nmembers: [{zzz: 1}]\n"))
	_, known, _ = strings.Cut(text(err), "the known keys are ")
	for _, key := range strings.Split(known, ", ") {
		if !strings.Contains(m.text(), key+": ") {
			t.Errorf("%s is not written: %s", key, m.text())
		}
	}
}

// A branch is a file without source. The upper box's end of the link becomes its source.
func TestABranchHasTheLinkAsItsSource(t *testing.T) {
	f, err := Parse([]byte(read(t, "everything.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	f.Addressing, f.Policy.Ack = 0, feedback.AckAll
	upper := Member{IP: netip.MustParseAddr("fd00:9::1"), QPN: 600, FirstPSN: 7, Role: Source, RemoteIP: netip.MustParseAddr("fd00:9::2"), RemoteQPN: 601}
	text := f.BranchText(f.Receivers[1:])
	if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), "members has no source") {
		t.Errorf("without the link: %v", err)
	}
	b, err := ParseBranch(text, upper)
	if err != nil {
		t.Fatal(err)
	}
	want := *f
	want.Source, want.Receivers = upper, f.Receivers[1:]
	sameFile(t, b, &want)
	again, err := Parse(b.Text())
	if err != nil {
		t.Fatal(err)
	}
	sameFile(t, again, &want)
}

// Where a member behind the branch may send, the link is a receiver too, with the group's memory as
// it is.
func TestALinkMayBecomeTheSource(t *testing.T) {
	f, err := Parse([]byte(bothRepair))
	if err != nil {
		t.Fatal(err)
	}
	upper := Member{IP: netip.MustParseAddr("fd00:9::1"), QPN: 600, FirstPSN: 7, SendPSN: 9, Role: Both, RemoteIP: netip.MustParseAddr("fd00:9::2"), RemoteQPN: 601}
	b, err := ParseBranch(f.BranchText(f.Receivers), upper)
	if err != nil {
		t.Fatal(err)
	}
	if b.Source.IP != upper.IP || b.Source.FirstPSN != 9 || len(b.Receivers) != 4 || b.Receivers[0].FirstPSN != 7 {
		t.Errorf("%+v", b)
	}
	again, err := Parse(b.Text())
	if err != nil {
		t.Fatal(err)
	}
	sameFile(t, again, b)
	withMemory := strings.NewReplacer("engine: afxdp", "memory: {va: 0x10000, length: 64, rkey: 7}", "}\n", ", regions: {va: 1, length: 64, rkey: 8}}\n")
	if f, err = Parse([]byte(withMemory.Replace(bothRepair))); err != nil {
		t.Fatal(err)
	}
	if b, err = ParseBranch(f.BranchText(f.Receivers), upper); err != nil {
		t.Fatal(err)
	}
	if got := b.Receivers[0].Regions; !slices.Equal(got, SameRegions(f.Memory)) || len(got) != 1 {
		t.Errorf("the link's regions are %+v", got)
	}
}

func TestViaIsForReceiversOnly(t *testing.T) {
	for change, want := range map[string]string{
		"role: source, via: leaf2":                 `line 9: member 1 is the source and has via "leaf2", but a group is created on the box where its source is; remove via, or create the group on the other box`,
		"role: source, remoteIP: 10.9.0.3, via: x": `line 9: member 1 is the source and has via "x", but a group is created on the box where its source is; remove via, or create the group on the other box`,
	} {
		_, err := Parse([]byte(strings.Replace(read(t, "g1.yaml"), "role: source", change, 1)))
		if text(err) != want {
			t.Errorf("%s\ngot  %v\nwant %s", change, err, want)
		}
	}
	link := strings.Replace(read(t, "link.yaml"), "remoteQPN: 601", "remoteQPN: 601, via: leaf2", 1)
	if _, err := Parse([]byte(link)); text(err) != `line 11: member 3 has remoteIP, which makes it the other end of a link, and via "leaf2"; remove one of them` {
		t.Error(err)
	}
}

// A text that an older release has stored may have a key without effect: its group goes on. What is
// written has none, so that a group's text can be created again.
func TestAStoredKeyWithoutEffectIsRead(t *testing.T) {
	text := []byte(with("degraded-below: 20%\ndegraded-after: 0\n"))
	if _, err := Parse(text); err == nil {
		t.Error("created with a key that has no effect")
	}
	f, err := ParseStored(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse(f.Text()); err != nil || again.DegradedAfter != 0 {
		t.Errorf("%v\n%s", err, f.Text())
	}
}

// An older release wrote the key into every file that it stored or sent to a box behind it.
func TestAKeyThatHasGoneIsReadWhereItWasAccepted(t *testing.T) {
	text := read(t, "g1.yaml")
	want, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	older := strings.Replace(text, "ack: all", "ack: all\nspeak: rnr", 1)
	got, err := ParseStored([]byte(older))
	if err != nil || got.Policy != want.Policy {
		t.Errorf("%v, policy %+v", err, got)
	}
	_, err = Parse([]byte(older))
	if want := `line 6: key "speak" is no longer known; repair: local, which is the default, sends a packet again that a silent receiver lacks; remove the key`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
