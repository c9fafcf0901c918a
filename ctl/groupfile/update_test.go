package groupfile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// live is the file of a running group. Each update is the same text with replacements.
const live = `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
memory: {va: 0x10000, rkey: 0xfeedbea7}
members:
  - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}
  - {ip: 10.77.0.2, qpn: 18, psn: 5, regions: [{va: 0x7f0000000000, length: 4096, rkey: 0xfeedbea8}]}
  - {ip: 10.77.0.3, qpn: 19, psn: 7, regions: [{va: 0x7f1000000000, length: 8192, rkey: 0xfeedbea9}]}
`

func TestAnUpdateChangesReceiversAlone(t *testing.T) {
	const (
		receiver2 = "  - {ip: 10.77.0.2, qpn: 18, psn: 5, regions: [{va: 0x7f0000000000, length: 4096, rkey: 0xfeedbea8}]}\n"
		receiver3 = "  - {ip: 10.77.0.3, qpn: 19, psn: 7, regions: [{va: 0x7f1000000000, length: 8192, rkey: 0xfeedbea9}]}\n"
		receiver4 = "  - {ip: 10.77.0.4, qpn: 20, psn: 9, regions: [{va: 0x7f2000000000, length: 4096, rkey: 0xfeedbeaa}]}\n"
		another   = "the member at 10.77.0.2 with remote QPN 1 is another QP, or has another psn, sendPSN, role or regions, than in the running group; update the group without it, and then with it, so that it joins again"
	)
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing", "", "", ""},
		{"one comes", receiver3, receiver3 + receiver4, ""},
		{"one goes", receiver3, "", ""},
		{"another order", receiver2 + receiver3, receiver3 + receiver2, ""},
		{"a default written out", "mtu: 1024", "mtu: 1024\nnak: hold\nsilent-after: 0", ""},
		{"ip", "ip: 10.77.0.100", "ip: 10.77.0.99", "line 2: ip is 10.77.0.99 and the running group has 10.77.0.100; an update may change only receivers and memory: write 10.77.0.100, or remove the group and create it again"},
		{"qpn", "qpn: 1\n", "qpn: 2\n", "line 3: qpn is 2 and the running group has 1; an update may change only receivers and memory: write 1, or remove the group and create it again"},
		{"mtu", "mtu: 1024", "mtu: 512", "line 4: mtu is 512 and the running group has 1024; an update may change only receivers and memory: write 1024, or remove the group and create it again"},
		{"addressing", "mtu: 1024", "mtu: 1024\naddressing: switch-ip", "line 5: addressing is switch-ip and the running group has group-ip; an update may change only receivers and memory: write group-ip, or remove the group and create it again"},
		{"policy", "mtu: 1024", "mtu: 1024\nsilent-after: 1s", "line 5: silent-after is 1s and the running group has 0; an update may change only receivers and memory: write 0, or remove the group and create it again"},
		{"a policy's interval", "mtu: 1024", "mtu: 1024\ncnp-interval: 50us", "line 5: cnp-interval is 50µs and the running group has 0; an update may change only receivers and memory: write 0, or remove the group and create it again"},
		{"repair", "mtu: 1024", "mtu: 1024\nrepair: off", "line 5: repair is off and the running group has local; an update may change only receivers and memory: write local, or remove the group and create it again"},
		{"policy by default of another key", "mtu: 1024", "mtu: 1024\nack: quorum 1", "line 5: ack is quorum 1 and the running group has all; an update may change only receivers and memory: write all, or remove the group and create it again"},
		{"other memory", "0xfeedbea7", "0xfeedbeaf", ""},
		{"another length of the memory", "rkey: 0xfeedbea7", "rkey: 0xfeedbea7, length: 100", "line 5: memory 1 is 100 bytes long and the running group's is 4096; write length: 4096"},
		{"a receiver's place", "va: 0x7f0000000000", "va: 0x7f0000001000", "line 8: " + another},
		{"the receiver with the smallest region leaves", receiver2, "", "line 5: memory 1 is 8192 bytes long and the running group's is 4096; write length: 4096"},
		{"source", "psn: 1000", "psn: 1001", "line 7: QP 17 of 10.77.0.1 with PSN 1001 would be the first source (role source), but the running group's first source is QP 17 of 10.77.0.1 with PSN 1000 (role source); keep it, or remove the group and create it again"},
		{"the source's QP", "qpn: 17", "qpn: 27", "line 7: QP 27 of 10.77.0.1 with PSN 1000 would be the first source (role source), but the running group's first source is QP 17 of 10.77.0.1 with PSN 1000 (role source); keep it, or remove the group and create it again"},
		{"the source's host", "ip: 10.77.0.1,", "ip: 10.77.0.9,", "line 7: QP 17 of 10.77.0.9 with PSN 1000 would be the first source (role source), but the running group's first source is QP 17 of 10.77.0.1 with PSN 1000 (role source); keep it, or remove the group and create it again"},
		{"a receiver's QP", "qpn: 18", "qpn: 28", "line 8: " + another},
		{"a receiver's PSN", "psn: 5", "psn: 6", "line 8: " + another},
		{"a receiver's role", "psn: 5", "psn: 5, sendPSN: 6, role: both", "line 8: " + another},
		{"a receiver's R_Key", "0xfeedbea8", "0xfeedbeaf", "line 8: " + another},
	} {
		t.Run(c.name, func(t *testing.T) {
			running, err := Parse([]byte(live))
			if err != nil {
				t.Fatal(err)
			}
			next, err := Parse([]byte(strings.Replace(live, c.old, c.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := next.CheckUpdate(running); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
			if strings.Contains(got, "feedbea") {
				t.Error("it names an R_Key")
			}
		})
	}
}

// A key that the new file leaves out has no line: the error names the line of the group's name.
func TestAnUpdateThatLeavesAKeyOut(t *testing.T) {
	running, err := Parse([]byte(strings.Replace(live, "mtu: 1024", "mtu: 1024\nsilent-after: 1s", 1)))
	if err != nil {
		t.Fatal(err)
	}
	next, err := Parse([]byte("# a comment\n" + live))
	if err != nil {
		t.Fatal(err)
	}
	const want = "line 2: silent-after is 0 and the running group has 1s; an update may change only receivers and memory: write 1s, or remove the group and create it again"
	if err := next.CheckUpdate(running); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

func TestAnUpdateKeepsEachPSNThatAMemberSends(t *testing.T) {
	running, err := Parse([]byte(bothGroup))
	if err != nil {
		t.Fatal(err)
	}
	next, err := Parse([]byte(strings.Replace(bothGroup, "sendPSN: 3000", "sendPSN: 3001", 1)))
	if err != nil {
		t.Fatal(err)
	}
	const want = "line 8: the member at 10.77.0.3 with remote QPN 1 is another QP, or has another psn, sendPSN, role or regions, than in the running group; update the group without it, and then with it, so that it joins again"
	if err := next.CheckUpdate(running); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	id := running.Receivers[1].ID()
	if i := running.Receiver(id); i != 1 {
		t.Errorf("the receiver is found at %d", i)
	}
	if id.RemoteQPN++; running.Receiver(id) != -1 {
		t.Error("another remote QPN is found")
	}
}

// Each bound of repair must stay as it is.
func TestAnUpdateKeepsTheBoundsOfRepair(t *testing.T) {
	parse := func(keys string) *File {
		f, err := Parse([]byte(strings.Replace(live, "mtu: 1024", "mtu: 1024\nrepair: local"+keys, 1)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const bounds = "\nrepair-window: 1024\nrepair-bytes: 4096KiB\nrepair-attempts: 7\nrepair-timer-floor: 200us\nrepair-timer-cap: 16ms"
	running := parse(bounds)
	for other, want := range map[string]string{
		"repair-window: 1024":     "",
		"repair-window: 1023":     "line 6: repair-window is 1023 and the running group has 1024",
		"repair-bytes: 4MiB":      "",
		"repair-bytes: 4097KiB":   "line 7: repair-bytes is 4097KiB and the running group has 4096KiB",
		"repair-attempts: 8":      "line 8: repair-attempts is 8 and the running group has 7",
		"repair-timer-floor: 1ms": "line 9: repair-timer-floor is 1ms and the running group has 200µs",
		"repair-timer-cap: 160ms": "line 10: repair-timer-cap is 160ms and the running group has 16ms",
	} {
		key, _, _ := strings.Cut(other, ":")
		err := parse(regexp.MustCompile(key+": [0-9a-zA-Z]+").ReplaceAllString(bounds, other)).CheckUpdate(running)
		if got := fmt.Sprint(err); (err != nil || want != "") && !strings.HasPrefix(got, want+";") {
			t.Errorf("%s: %s", other, got)
		}
	}
}

// Ranges come to a running group and leave it, in any order in the file. The receivers keep the
// others where they were. A group without memory stays without memory.
func TestAnUpdateChangesMemory(t *testing.T) {
	file := func(memory, b, c string) *File {
		f, err := Parse(fmt.Appendf(nil, "name: g1\nip: 10.77.0.100\nqpn: 1\nmtu: 1024\n%smembers:\n"+
			"  - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}\n"+
			"  - {ip: 10.77.0.2, qpn: 18, psn: 5, regions: [%s]}\n  - {ip: 10.77.0.3, qpn: 19, psn: 7, regions: [%s]}\n", memory, b, c))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const x, y, bx, by, cx, cy = "{va: 1, length: 2, rkey: 3}", "{va: 3, length: 2, rkey: 3}",
		"{va: 100, length: 2, rkey: 4}", "{va: 200, length: 2, rkey: 5}", "{va: 300, length: 2, rkey: 6}", "{va: 400, length: 2, rkey: 7}"
	list := func(items ...string) string { return "memory: [" + strings.Join(items, ", ") + "]\n" }
	first, both := file(list(x), bx, cx), file(list(y, x), by+", "+bx, cy+", "+cx)
	none, without := file(list(), "", ""), file("", "", "")
	const wrong = "is another QP, or has another psn, sendPSN, role or regions"
	for name, c := range map[string]struct {
		running, next *File
		want          string
	}{
		"one comes, before the other": {first, both, ""},
		"one leaves":                  {both, first, ""},
		"all leave":                   {both, none, ""},
		"the first comes":             {none, both, ""},
		"one comes for another":       {first, file(list(y), by, cy), ""},
		"one is elsewhere":            {both, file(list(x, y), bx+", "+by, cx+", "+cx), wrong},
		"swapped":                     {both, file(list(x, y), by+", "+bx, cy+", "+cx), wrong},
		"no memory any more":          {first, without, "line 1: memory is missing; write memory: [] if none is left, or remove the group and create it again"},
		"memory after all":            {without, none, "line 5: the running group has no memory, so copies keep the addresses and keys of the source; remove memory, or remove the group and create it again"},
	} {
		err := c.next.CheckUpdate(c.running)
		if got := fmt.Sprint(err); (err != nil) != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if again, err := Parse(c.next.Text()); err != nil || !again.HasMemoryOf(c.next) || (again.Memory == nil) != (c.next.Memory == nil) {
			t.Errorf("%s: written and read: %+v, %v", name, again, err)
		}
		if same := c.next.HasMemoryOf(c.running); same != (name == "one is elsewhere" || name == "swapped" || name == "memory after all") {
			t.Errorf("%s: the memory is the same: %v", name, same)
		}
	}
	// Memory and receivers in two updates.
	fewer := file(list(x), bx, cx)
	fewer.Receivers = fewer.Receivers[:1]
	other := file(list(x), bx, cx)
	other.Receivers[0].IP = other.Source.IP
	const two = "line 5: memory and members both differ from the running group's; make two updates, one for the memory and one for the members"
	for _, next := range []*File{fewer, other} {
		if err := next.CheckOneChange(both); err == nil || err.Error() != two {
			t.Errorf("%v", err)
		}
		if err := next.CheckOneChange(first); err != nil {
			t.Errorf("only receivers: %v", err)
		}
	}
	if err := both.CheckOneChange(first); err != nil {
		t.Errorf("only memory: %v", err)
	}
	// A box that was away may find both.
	otherBoth := file(list(y, x), by+", "+bx, cy+", "+cx)
	otherBoth.Receivers[0].IP = otherBoth.Source.IP
	for name, c := range map[string]struct {
		running, next *File
		want          int
	}{
		"the same": {both, both, 1}, "members": {first, other, 1}, "memory": {first, both, 1},
		"less, and others": {both, other, 2}, "more, and fewer": {none, fewer, 2}, "another one, and others": {file(list(y), by, cy), other, 3},
		"more, and others": {first, otherBoth, 2},
	} {
		is, steps := c.running, c.next.Steps(c.running)
		for i, step := range steps {
			if err := errors.Join(step.CheckUpdate(is), step.CheckOneChange(is)); err != nil {
				t.Errorf("%s: step %d: %v", name, i, err)
			}
			if again, err := Parse(step.Text()); err != nil || !bytes.Equal(again.Text(), step.Text()) {
				t.Errorf("%s: step %d, written and read: %v", name, i, err)
			}
			is = step
		}
		if is != c.next || len(steps) != c.want {
			t.Errorf("%s: %d steps, want %d; the last one is the file: %v", name, len(steps), c.want, is == c.next)
		}
	}
}

// The first source keeps its regions where it is a receiver as well.
func TestTheStepsOfAGroupWhoseSourceIsAReceiver(t *testing.T) {
	parsed := func(text string) *File {
		t.Helper()
		f, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const receiver3 = "  - {ip: 10.77.0.3, qpn: 19, psn: 7, regions: [{va: 0x7f1000000000, length: 8192, rkey: 0xfeedbea9}]}\n"
	text := strings.NewReplacer("rkey: 0xfeedbea7", "rkey: 0xfeedbea7, length: 64",
		"role: source", "role: both, sendPSN: 9, regions: {va: 1, length: 4096, rkey: 2}").Replace(live)
	running := parsed(text)
	steps := parsed(strings.NewReplacer("0xfeedbea7", "0xfeedbeaf", receiver3, "").Replace(text)).Steps(running)
	for i, step := range steps {
		again := parsed(string(step.Text()))
		if !slices.Equal(step.Source.Regions, again.Source.Regions) || len(again.Source.Regions) != len(step.Memory) {
			t.Errorf("step %d: %+v, and read again %+v", i, step.Source.Regions, again.Source.Regions)
		}
	}
	if len(steps) != 3 {
		t.Errorf("%d steps", len(steps))
	}
}
