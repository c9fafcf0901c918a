package watch

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/internal/testlab/softgroup"
)

var update = flag.Bool("update", false, "write the outputs into docs/troubleshoot.md")

const faultsPage = "../../docs/troubleshoot.md"

// fault is a fault of docs/troubleshoot.md, and what an operator sees of it.
type fault struct {
	heading string
	file    string // further keys of the group file
	// wrong is what is wrong from the start: "rkey" of host 3, the "qpn" of the source's peer, the
	// group's "mtu", the source's "psn", or the "va" of its WRITEs.
	wrong   string
	loss    int // of a million packets of host 3, when packets have got through
	happens func(l *faulty)
	blocks  [][]look
}

// look is a command, and what its output has. It is repeated until its output has all of it.
type look struct {
	command string // "": the log of the daemon
	keep    string // a pattern of the lines that the page shows; "": all
	wants   []string
	hidden  bool            // the page shows the same in another way
	before  func(l *faulty) // what happens first
}

const third = "10.77.0.3"

// wholeTable is what the page shows of group show: how far the group is, and its members.
const wholeTable = `^(source |goodput|MEMBER|10\.\S+ +\d+ +(source|receiver))`

var faults = []fault{
	{
		heading: "### A receiver's host takes nothing, and its link stays up", loss: 1_000_000,
		blocks: [][]look{
			{
				{command: "rocast group ls", wants: []string{"degraded: packets wait, and none gets on; the last is " + third}},
				{command: "rocast group show g1", keep: wholeTable, wants: []string{"goodput     0 packets/s", third}},
				{command: "rocast events", wants: []string{"member-stalled", "member-returned", third},
					before: func(l *faulty) {
						l.waitFor("it stalls", func() bool { return strings.Contains(l.rocast("rocast events"), "member-stalled") })
						testlab.Must(l.t, l.loss.Lose(0))
					}},
			},
			{{keep: "stands still|gets on again", wants: []string{`"member": "` + third + `"`, "lacksPSN", "a group gets on again"}}},
		},
	},
	{
		heading: "### A receiver's cable is cut", happens: func(l *faulty) { l.cable("down") },
		blocks: [][]look{{
			{command: "rocast status", wants: []string{"1 down", "its link is down", "degraded  " + third + ": eth3 has no carrier", "packets wait, and none gets on"}},
			{command: "rocast events", keep: "port-down|member-(unreachable|stalled)", wants: []string{"port-down", "member-unreachable", "member-stalled", "degraded"}},
		}},
	},
	{
		heading: "### A receiver's R_Key in the group file is wrong", wrong: "rkey",
		blocks: [][]look{{
			{command: "rocast group ls", wants: []string{third + ": it has answered the source's packet", "NAK remote access", "compare its regions in the group file (va, length, rkey)", "packets wait, and none gets on"}},
			{command: "rocast events", keep: "member-refused", wants: []string{"member-refused", "packets wait, and none gets on", third}},
		}},
	},
	{
		heading: "### A receiver's R_Key in the group file is wrong", wrong: "rkey", file: "ack: quorum 2\non-fatal: evict\n",
		blocks: [][]look{{
			{command: "rocast events", keep: "member-evicted|degraded", wants: []string{"member-evicted", "degraded", third}},
			{command: "rocast events", wants: []string{"member-refused"}, hidden: true},
		}},
	},
	{
		heading: "### The source sends to another QPN than the group's", wrong: "qpn",
		blocks: [][]look{{
			{command: "rocast group ls", wants: []string{"10.77.0.1: its packets are for QPN 2, and the peer of its QP is QPN 1; connect its QP to that one"}},
			{command: "rocast stats", keep: "^(classifier-redirect_data|unknown-qpn)", wants: []string{"unknown-qpn", "classifier-redirect_data"}},
		}},
	},
	{
		heading: "### Every packet of the source is refused", wrong: "mtu",
		blocks: [][]look{{
			{command: "rocast status", keep: "^(groups|healthy|PROBLEM|group )", wants: []string{"1 degraded", "10.77.0.1: its packets have more payload than the group's path MTU 512"}},
			{command: "rocast events", wants: []string{"degraded", "path MTU 512"}, hidden: true},
			{command: "rocast drops", wants: []string{"over-mtu"}},
		}},
	},
	{
		heading: "### Every packet of the source is refused", wrong: "psn",
		blocks: [][]look{{{command: "rocast group ls", wants: []string{"10.77.0.1: its packets have PSNs far from what the group has sent", "its first PSN is not 16776960"}}}},
	},
	{
		heading: "### Every packet of the source is refused", wrong: "va",
		blocks: [][]look{{
			{command: "rocast group ls", wants: []string{"10.77.0.1: its WRITE went to memory that the group does not have"}},
			{command: "rocast drops --group g1", wants: []string{"refused-memory"}},
		}},
	},
	{
		heading: "### A receiver's link loses packets", file: "repair: local\n", loss: 200_000,
		blocks: [][]look{{
			{command: "rocast group show g1", keep: `^(name|state|REPAIR|10\.\S+ +\d+ +(yes|no))`, wants: []string{"state       degraded: ", "REPAIR", third + "  19   yes"}},
			{command: "rocast events", wants: []string{"member-repairing", "degraded", third}},
		}},
	},
	{
		heading: "### Another host takes the group's IP",
		happens: func(l *faulty) {
			_, err := l.Hosts[3].NS.Exec("ip", "address", "add", l.GroupIP().String()+"/32", "dev", "eth0")
			testlab.Must(l.t, err)
			_, _ = l.Hosts[3].NS.Exec("ping", "-c", "1", "-W", "1", "-I", l.GroupIP().String(), third) // nothing answers
		},
		blocks: [][]look{{{command: "rocast events", wants: []string{"address-taken", "another host uses its IP"}}}},
	},
}

// faulty is a lab with a group whose source writes without a pause.
type faulty struct {
	*lab
	program string // rocast
	loss    *lossy.Link
}

// TestFaults makes each fault of docs/troubleshoot.md, and looks at it as the page does. With
// -update it writes what it saw into the page.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("makes seven faults, each of which takes some seconds to show")
	}
	program := rocast(t)
	page, err := os.ReadFile(faultsPage)
	testlab.Must(t, err)
	text := string(page)
	blocks := map[string]int{}
	for _, f := range faults {
		t.Run(strings.TrimPrefix(f.heading, "### "), func(t *testing.T) {
			l := newFaulty(t, program, &f)
			for _, looks := range f.blocks {
				shown := ""
				for _, k := range looks {
					shown += l.see(k)
				}
				text = replaceBlock(t, text, f.heading, blocks[f.heading], shown)
				blocks[f.heading]++
			}
		})
	}
	if *update && !t.Failed() {
		testlab.Must(t, os.WriteFile(faultsPage, []byte(text), 0o644))
	}
}

// rocast builds the command line, and returns its path.
func rocast(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "rocast")
	if output, err := exec.Command("go", "build", "-o", program, "../../cmd/rocast").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return program
}

func newFaulty(t *testing.T, program string, f *fault) *faulty {
	t.Helper()
	l := &faulty{lab: newBareLab(t), program: program}
	if f.loss > 0 {
		var err error
		l.loss, err = lossy.Attach(l.Hosts[2].End, 7, 0)
		testlab.Must(t, err)
		t.Cleanup(func() { testlab.Must(t, l.loss.Close()) })
	}
	g := l.group()
	g.Keys, g.Timeout, g.RetryCount = f.file, 18, 7 // 1 s: the fault is to be seen, and not the end of the QP
	_, err := l.daemon.Client().CreateGroup(t.Context(), []byte(f.groupFile(g)))
	testlab.Must(t, err)
	g.Connect(t, g.Members[1:]...)
	source, va := g.Members[0], uint64(softgroup.VA)
	switch f.wrong {
	case "qpn":
		g.QPN = 2
	case "psn":
		source.First -= 1<<23 - 9
	case "va":
		va += memoryBytes
	}
	g.Connect(t, source)
	l.writeOn(source.QP, va)
	if f.wrong == "" {
		l.waitFor("packets get through", func() bool { return l.traffic().Packets > 20_000 })
	}
	if l.loss != nil {
		testlab.Must(t, l.loss.Lose(f.loss))
	}
	if f.happens != nil {
		f.happens(l)
	}
	return l
}

// groupFile is the group file, with what is wrong in it.
func (f *fault) groupFile(g *softgroup.Group) string {
	switch f.wrong {
	case "mtu":
		return strings.Replace(g.File(), "mtu: 1024", "mtu: 512", 1)
	case "rkey":
		m := g.Members[2]
		m.RKey++
		defer func() { m.RKey-- }()
	}
	return g.File()
}

// writeOn lets the source write until the test ends, or its QP does.
func (l *faulty) writeOn(source *endpoint.QP, va uint64) {
	ctx, stop := context.WithCancel(l.t.Context())
	ended := make(chan struct{})
	data := make([]byte, 64<<10)
	go func() {
		defer close(ended)
		// It ends with the test, or with the QP that the fault has ended.
		_ = bed.Post(ctx, source, 1<<30, func(n int) error {
			return source.PostWrite(uint64(n), data, rnic.Remote{VA: va, RKey: softgroup.RKey})
		}, nil)
	}()
	l.t.Cleanup(func() { stop(); <-ended })
}

// rocast runs a command line as the page has it.
func (l *faulty) rocast(line string) string {
	l.t.Helper()
	words := append(strings.Fields(line)[1:], "--socket", l.daemon.Socket)
	output, err := exec.Command(l.program, words...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !(strings.HasPrefix(line, "rocast status") && errors.As(err, &exit) && exit.ExitCode() == 4) {
		l.t.Fatalf("%s: %v\n%s", line, err, output)
	}
	return strings.ReplaceAll(string(output), l.daemon.Config, "/etc/rocast/rocastd.yaml")
}

// see repeats a command until its output has what it must have, and returns what the page shows.
func (l *faulty) see(k look) string {
	l.t.Helper()
	if k.before != nil {
		k.before(l)
	}
	var output string
	l.waitFor(fmt.Sprintf("%s shows %q", k.command, k.wants), func() bool {
		if k.command == "" {
			output = l.daemon.Log()
		} else {
			output = l.rocast(k.command)
		}
		return k.lacks(output) == ""
	})
	shown := abridged(output, k.keep)
	switch {
	case k.hidden:
		return ""
	case k.command == "":
		return shown
	}
	return "$ " + k.command + "\n" + shown
}

// goesOn is where a line is broken that is too long.
var goesOn = regexp.MustCompile(`\n {4,}`)

// lacks returns the first of what an output should have and has not.
func (k *look) lacks(output string) string {
	output = unbroken(output)
	for _, want := range k.wants {
		if !strings.Contains(output, want) {
			return want
		}
	}
	return ""
}

// abridged keeps the lines that match, with the lines in which they go on, and writes ... for those
// that were left out between or in front of them; without a pattern it keeps all.
func abridged(output, keep string) string {
	pattern, shown, left := regexp.MustCompile(keep), "", false
	for line := range strings.Lines(output) {
		if more := shown != "" && !left && strings.HasPrefix(line, "    "); !more && !pattern.MatchString(line) {
			left = left || strings.TrimSpace(line) != ""
			continue
		}
		if left && !strings.HasPrefix(keep, "stands") {
			shown += "...\n"
		}
		shown, left = shown+strings.TrimRight(line, " \n")+"\n", false
	}
	return shown
}

// codeBlocks returns where the contents of the blocks of code below a heading begin and end.
func codeBlocks(t *testing.T, page, heading string) (places [][2]int) {
	t.Helper()
	begin := strings.Index(page, heading+"\n")
	if begin < 0 {
		t.Fatalf("%s has no heading %q", faultsPage, heading)
	}
	begin += len(heading) + 1
	end := len(page)
	if next := strings.Index(page[begin:], "\n##"); next >= 0 {
		end = begin + next
	}
	fences := regexp.MustCompile("(?m)^```\n").FindAllStringIndex(page[begin:end], -1)
	for i := 0; i+1 < len(fences); i += 2 {
		places = append(places, [2]int{begin + fences[i][1], begin + fences[i+1][0]})
	}
	return places
}

func replaceBlock(t *testing.T, page, heading string, n int, text string) string {
	t.Helper()
	places := codeBlocks(t, page, heading)
	if n >= len(places) {
		t.Fatalf("%s has %d blocks below %q, and the test has more", faultsPage, len(places), heading)
	}
	return page[:places[n][0]] + text + page[places[n][1]:]
}

// The page has the commands of each fault, and outputs that have what they must have.
func TestThePageShowsTheFaults(t *testing.T) {
	page, err := os.ReadFile(faultsPage)
	testlab.Must(t, err)
	blocks := map[string]int{}
	for _, f := range faults {
		places := codeBlocks(t, string(page), f.heading)
		for _, looks := range f.blocks {
			n := blocks[f.heading]
			blocks[f.heading]++
			if n >= len(places) {
				t.Fatalf("%q has %d blocks", f.heading, len(places))
			}
			text := string(page)[places[n][0]:places[n][1]]
			var commands []string
			for _, k := range looks {
				if k.hidden {
					continue
				}
				if k.command != "" {
					commands = append(commands, "$ "+k.command)
				}
				if lacks := k.lacks(text); lacks != "" {
					t.Errorf("%q lacks %q", f.heading, lacks)
				}
			}
			if got := regexp.MustCompile(`(?m)^\$ .*$`).FindAllString(text, -1); !slices.Equal(got, commands) {
				t.Errorf("%q has the commands %q, want %q", f.heading, got, commands)
			}
		}
	}
	for heading, n := range blocks {
		if places := codeBlocks(t, string(page), heading); len(places) != n {
			t.Errorf("%q has %d blocks, and the test makes %d", heading, len(places), n)
		}
	}
}
