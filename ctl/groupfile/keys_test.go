package groupfile

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
)

var update = flag.Bool("update", false, "write the table in docs/reference.md")

// listed is a key of a group file, for the reference. other is a value that is not the default.
type listed struct{ name, fallback, value, meaning, other string }

// keys are the keys of a group file but for those of a policy, which follow (feedback.Keys).
var keys = []listed{
	{"name", "", "up to 63 letters, digits, '.', '_', '-'", "what the group is called", "g2"},
	{"ip", "", "IP", "the peer IP of the members' QPs", "10.77.0.99"},
	{"qpn", "", "1 to 16777214", "the remote QPN of the source's QP, and of all others without remoteQPN", "2"},
	{"mtu", "", "256, 512, 1024, 2048 or 4096", "the path MTU of the members' QPs", "512"},
	{"addressing", "group-ip", "group-ip, virtual-qpn or switch-ip", "how hosts address the group", "switch-ip"},
	{"engine", "auto", "auto or afxdp", "what carries the group: with auto the kernel where it can", "afxdp"},
	{"copies", "auto", "auto or own", "whether receivers whose hosts have edges may share a copy (docs/edge.md); own: each has its own", "own"},
	{"degraded-below", "10%", "percent, 0% to 100%", "the group is degraded if packets wait and fewer get on than this part of the best rate", "20%"},
	{"degraded-after", "3s", "duration, 1s to 1h, or 0", "for so long; also the time after which a receiver has stalled; 0: never", "9s"},
	{"hosts", "false", "true, false or end", "whether programs on hosts may join the group and leave it (docs/host.md); end: they may end it too, as the groups that they make", "end"},
	{"hosts-secret", "none", "SHA-256 in hex", "what such a program has to show besides (docs/host.md)", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\nhosts: true"},
	{"memory", "none", "region, or list of regions", "what the source may WRITE to; none: addresses stay as they are", ""},
	{"memory.va", "", "number", "where a region starts, as the source sees it", ""},
	{"memory.length", "that of the shortest receiver's", "bytes", "how long it is", ""},
	{"memory.rkey", "", "32-bit number", "its R_Key, as the source sees it", ""},
	{"members", "", "list", "one source and its receivers", ""},
	{"members.ip", "", "IP", "the host's", ""},
	{"members.qpn", "", "2 to 16777214", "the number of the host's QP", ""},
	{"members.psn", "", "0 to 16777215", "the first PSN that a source's QP sends, or that a receiver's expects", ""},
	{"members.sendPSN", "", "0 to 16777215", "with role: both, the first PSN that the QP sends", ""},
	{"members.role", "receiver", "receiver, source or both", "both: a receiver that may become the source", ""},
	{"members.remoteQPN", "that of the group", "1 to 16777214", "the remote QPN of the member's QP", ""},
	{"members.remoteIP", "as addressing says", "IP of the box", "the peer IP of the member's QP, if the member is the end of a link", ""},
	{"members.receivers", "1", "1 to 65535", "how many receivers a quorum counts for the member, if it is another box", ""},
	{"members.relayQPN", "none", "1 to 16777214", "in a part of a group, the member's QPN on the link to the box above, if that box merges (boxes write it)", ""},
	{"members.relayShares", "false", "true or false", "whether copies that come once for several members are for this one too (boxes write it)", ""},
	{"members.via", "as the routes say", "name of a neighbour", "the box that the member is behind", ""},
	{"members.confirm", "false", "true or false", "whether the group waits until the member's program says that its QP is ready", ""},
	{"members.regions", "none", "region, or list of regions", "where a receiver has the memory: as many regions as memory has", ""},
	{"members.regions.va", "", "number", "where the region starts at the receiver", ""},
	{"members.regions.length", "", "bytes", "how long it is there", ""},
	{"members.regions.rkey", "", "32-bit number", "its R_Key at the receiver", ""},
}

// otherPolicies are values of the keys of a policy that are not the default.
var otherPolicies = map[string]string{
	"ack": "quorum 1", "nak": "lower", "on-fatal": "evict", "silent-after": "200ms", "evict": "true", "cnp": "all", "cnp-interval": "50us",
	"credits": "merge", "source-switch": "force", "repair": "off", "repair-window": "64", "repair-bytes": "1MiB", "repair-attempts": "3",
	"on-slow": "go-on", "repair-timer-floor": "90us", "repair-timer-cap": "9ms",
}

func init() {
	for _, k := range feedback.Keys {
		keys = append(keys, listed{k.Name, k.Default, k.Values, k.Meaning, otherPolicies[k.Name]})
	}
}

// with is the live file with one key more, and with what that key needs.
func with(key string) string {
	needs := ""
	switch name, _, _ := strings.Cut(key, ":"); {
	case name == "evict":
		needs = "silent-after: 1s\n"
	}
	return strings.Replace(live, "mtu: 1024\n", "mtu: 1024\n"+needs+key, 1)
}

// The list has the keys that the parser knows.
func TestTheListOfKeysIsWhole(t *testing.T) {
	var listed, known []string
	for _, k := range keys {
		listed = append(listed, k.name)
	}
	for holder, text := range map[string]string{
		"": with("no: 1\n"), "memory.": strings.Replace(live, "{va: 0x10000", "{no: 1, va: 0x10000", 1),
		"members.": strings.Replace(live, "{ip: 10.77.0.2", "{no: 1, ip: 10.77.0.2", 1), "members.regions.": strings.Replace(live, "[{va", "[{no: 1, va", 1),
	} {
		_, err := Parse([]byte(text))
		_, list, found := strings.Cut(fmt.Sprint(err), "the known keys are ")
		if !found {
			t.Fatalf("%s: %v", holder, err)
		}
		for key := range strings.SplitSeq(list, ", ") {
			known = append(known, holder+key)
		}
	}
	slices.Sort(listed)
	slices.Sort(known)
	if diff := cmp.Diff(known, listed); diff != "" {
		t.Error(diff)
	}
}

// A key that is written with its default says nothing new, and one with another value does.
func TestTheDefaultsOfTheListAreTheParsers(t *testing.T) {
	parse := func(text string) *File {
		f, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return f
	}
	content := []cmp.Option{cmpopts.IgnoreFields(File{}, "Lines"), cmpopts.IgnoreFields(Member{}, "Line"), cmpopts.EquateComparable(netip.Addr{})}
	checked := 0
	for _, k := range keys {
		if strings.Contains(k.name, ".") || k.other == "" || k.fallback == "" || k.name == "repair-bytes" {
			continue
		}
		fallback, _, _ := strings.Cut(k.fallback, ";")
		beside := ""
		if k.name == feedback.KeyOnSlow {
			beside = "ack: quorum 1\n" // else it has no effect
		}
		without := parse(strings.Replace(with(beside+k.name+": 1\n"), k.name+": 1\n", "", 1))
		if diff := cmp.Diff(without, parse(with(beside+k.name+": "+fallback+"\n")), content...); diff != "" {
			t.Errorf("%s: %s is not the default: %s", k.name, fallback, diff)
		}
		next := parse(with(beside + k.name + ": " + k.other + "\n"))
		if cmp.Equal(without, next, content...) {
			t.Errorf("%s: %s changes nothing", k.name, k.other)
		}
		if changes := slices.Contains([]string{"engine", "copies", "degraded-below", "degraded-after"}, k.name); changes != (next.CheckUpdate(without) == nil) {
			t.Errorf("%s: an update: %v", k.name, next.CheckUpdate(without))
		}
		checked++
	}
	if checked < 18 {
		t.Errorf("only %d defaults were checked", checked)
	}
}

// -update writes the table.
func TestTheReferenceHasTheListOfKeys(t *testing.T) {
	rows := [][]string{{"key", "default", "value", "meaning"}}
	for _, k := range keys {
		rows = append(rows, []string{"`" + k.name + "`", k.fallback, k.value, k.meaning})
	}
	testlab.Table(t, "../../docs/reference.md", "## Group file", *update, rows...)
}
