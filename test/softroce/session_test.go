package softroce

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sessionPage shows the session, as make operate-story printed it last.
const sessionPage = "../../docs/operate.md"

// The lines of the page around the session.
const (
	sessionBegin = "<!-- make operate-story UPDATE=1 writes this session -->\n```\n"
	sessionEnd   = "```\n<!-- end of the session -->\n"
)

// step is a command of the session, or something that happens in the lab.
type step struct {
	at      string // "box", or "host 1" and so on; "": command says in words what happens
	command string
	// wants is what the output has: the step is repeated until it has all of it, because rocast
	// needs some seconds to notice. The page shows the last output.
	wants []string
	lacks []string // what the output does not have
	keep  string   // a pattern of the lines that the page shows; "": all
	// meanwhile lets the command run while the next ones do. wait, on the same host, ends it.
	meanwhile bool
	happen    event // if at is ""
	readme    bool  // README.md has the same command
	hidden    bool  // the page leaves the step out: it shows in another way what the page shows already
	unhealthy bool  // the exit status says that the box is not healthy
}

type event int

const (
	pullOut event = iota + 1
	plugIn
)

const waitCommand = "wait"

// groupOfSession stands for the name of the group, which ends with a number of the daemon's choice.
const groupOfSession = "cm-10.77.0.100"

// wellHosts are the receivers whose cable stays.
var wellHosts = []string{"10.77.0.2", "10.77.0.4"}

var groupName = regexp.MustCompile(regexp.QuoteMeta(groupOfSession) + `-[0-9]+`)

// session is what an operator does: the install of README.md, perftest to three receivers, and the
// search for the reason when nothing arrives any more.
var session = []step{
	{at: "box", command: "ip link add br0 type bridge && ip link set br0 up", readme: true},
	{at: "box", command: "for p in eth1 eth2 eth3 eth4; do ip link set $p master br0 up; done", readme: true},
	{at: "box", command: "ip address add 10.77.0.254/24 dev br0", readme: true},
	{at: "box", command: "apt install ./rocast_*_amd64.deb", readme: true, wants: []string{"Setting up rocast"}, keep: "^Setting up rocast"},
	{at: "box", command: "sed -i 's/^ports:.*/ports: [eth1, eth2, eth3, eth4]/' /etc/rocast/rocastd.yaml", readme: true},
	{at: "box", command: "systemctl enable --now rocastd && rocast port ls", readme: true, wants: []string{"eth1", "eth4"}},
	{at: "box", command: "rocast cm up --group-ip 10.77.0.100 --port 18515 --receivers 10.77.0.2,10.77.0.3,10.77.0.4 --memory perftest", readme: true},
	{at: "box", command: "rocast status", wants: []string{"4 up", "healthy  yes"}, hidden: true},
	{at: "host 2", command: "ib_write_bw -R -n 500", meanwhile: true},
	{at: "host 3", command: "ib_write_bw -R -n 500", meanwhile: true},
	{at: "host 4", command: "ib_write_bw -R -n 500", meanwhile: true},
	{at: "host 1", command: "ib_write_bw -R -n 500 10.77.0.100", meanwhile: true},
	{at: "box", command: "rocast group ls", wants: []string{groupOfSession + "-", "ready"}},
	{at: "box", command: "rocast group show " + groupOfSession + " | head -20", wants: []string{"10.77.0.2", "10.77.0.3", "10.77.0.4", "packets/s"}},
	{at: "box", command: "rocast top --once " + groupOfSession, wants: []string{"is ready", "10.77.0.2", "10.77.0.3", "10.77.0.4"}},
	// The trouble of host 3 is "stalled" first, and "no-answer" when the kernel has asked in vain
	// for its MAC. How many commands fit in between depends on the machine.
	{command: "the cable of host 3 is pulled out at the host's end", happen: pullOut},
	{at: "box", command: "rocast status", wants: []string{"degraded", "10.77.0.3"}, unhealthy: true},
	{at: "box", command: "rocast top --once " + groupOfSession, wants: []string{"is degraded", "slowest: 10.77.0.3"}, hidden: true},
	{at: "box", command: "rocast events", wants: []string{"member-stalled", "degraded", "10.77.0.3"}},
	{at: "box", command: "curl -sSf 127.0.0.1:7470/v1/traffic/" + groupOfSession + ` | tr '{' '\n' | grep trouble`,
		wants: []string{`"ip":"10.77.0.3"`, `"trouble":"`}, lacks: wellHosts, hidden: true},
	{at: "box", command: "curl -sSf 127.0.0.1:7470/ui/ | grep title", wants: []string{"<title>rocast</title>"}, hidden: true},
	{at: "box", command: "curl -sSf 127.0.0.1:7470/metrics | awk '/^rocast_(groups|member_lag|member_trouble)/ && $2 > 0'",
		wants: []string{`rocast_groups{state="degraded"} 1`, "rocast_member_lag_packets{", "rocast_member_lag_seconds{", `member="10.77.0.3"`, `trouble="`}, lacks: wellHosts},
	{at: "box", command: "rocast group show " + groupOfSession + " | head -20", wants: []string{"degraded", "10.77.0.3"}, hidden: true},
	{at: "box", command: "rocast capture --count 6 --group " + groupOfSession, wants: []string{"(resent)", "to   10.77.0.3"}},
	{command: "the cable of host 3 is plugged in again", happen: plugIn},
	{at: "host 1", command: waitCommand, wants: []string{"BW average"}, keep: "^ (#bytes|65536)"},
	{at: "box", command: "rocast events", wants: []string{"member-returned", "restored"}},
	{at: "box", command: "rocast status", wants: []string{"healthy  yes"}},
}

// prompt is the line that shows the step.
func (s step) prompt() string {
	switch {
	case s.at == "":
		return "(" + s.command + ")"
	case s.meanwhile:
		return strings.ReplaceAll(s.at, " ", "") + "# " + s.command + " &"
	default:
		return strings.ReplaceAll(s.at, " ", "") + "# " + s.command
	}
}

// isPrompt reports whether a line of the page is that of a step.
func isPrompt(line string) bool {
	for _, at := range []string{"box# ", "host1# ", "host2# ", "host3# ", "host4# ", "(the "} {
		if strings.HasPrefix(line, at) {
			return true
		}
	}
	return false
}

// The page shows the steps of the session in their order, and every output has what it must have.
func TestThePageShowsTheSession(t *testing.T) {
	page, err := os.ReadFile(sessionPage)
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := cutPage(string(page), sessionBegin, sessionEnd)
	if err != nil {
		t.Fatal(err)
	}
	var prompts, outputs []string
	for line := range strings.Lines(text) {
		if isPrompt(line) {
			prompts, outputs = append(prompts, groupName.ReplaceAllString(strings.TrimSuffix(line, "\n"), groupOfSession)), append(outputs, "")
		} else if len(outputs) > 0 {
			outputs[len(outputs)-1] += line
		}
	}
	var want []string
	steps := slices.DeleteFunc(slices.Clone(session), func(s step) bool { return s.hidden })
	for _, s := range steps {
		want = append(want, s.prompt())
	}
	if !slices.Equal(prompts, want) {
		t.Fatalf("%s shows\n%s\nand make operate-story runs\n%s", sessionPage, strings.Join(prompts, "\n"), strings.Join(want, "\n"))
	}
	for i, s := range steps {
		if wrong := s.wrong(outputs[i]); wrong != "" {
			t.Errorf("%s: the output of %q %s", sessionPage, s.prompt(), wrong)
		}
		if again := s.page(outputs[i]); again != outputs[i] {
			t.Errorf("%s: of the output of %q it shows %q", sessionPage, s.prompt(), again)
		}
	}
}

func TestThePageLeavesLinesOut(t *testing.T) {
	s := step{keep: "^b"}
	for output, want := range map[string]string{
		"":                   "",
		"b\nbb\n":            "b\nbb\n",
		"a\na\nb\na\nb\na\n": "...\nb\n...\nb\n...\n",
		"...\nb\n...\n":      "...\nb\n...\n", // it is shown already
	} {
		if got := s.page(output); got != want {
			t.Errorf("%q: %q", output, got)
		}
	}
	if got := (step{}).page("a\nb\n"); got != "a\nb\n" {
		t.Errorf("without a pattern: %q", got)
	}
}

// The box is set up by the commands of README.md, in the same order.
func TestTheSessionBeginsAsTheReadmeSays(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```\nsudo ")
	block, _, _ := strings.Cut("sudo "+rest, "```")
	var got, want []string
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, " # ")
		got = append(got, strings.TrimSpace(strings.ReplaceAll(command, "sudo ", "")))
	}
	for _, s := range session {
		if s.readme {
			want = append(want, s.command)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("README.md has\n%s\nand the session\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// page returns what the page shows of an output: ... stands for lines that are left out.
func (s step) page(output string) string {
	if s.keep == "" {
		return output
	}
	var b strings.Builder
	keep, left := regexp.MustCompile(s.keep), false
	for line := range strings.Lines(output) {
		keeps := keep.MatchString(line)
		if keeps {
			b.WriteString(line)
		} else if !left {
			b.WriteString("...\n")
		}
		left = !keeps
	}
	return b.String()
}

// wrong says what the output of the step lacks, or has and should not; "": the output is right.
func (s step) wrong(output string) string {
	for _, want := range s.wants {
		if !strings.Contains(output, want) {
			return fmt.Sprintf("lacks %q", want)
		}
	}
	for _, word := range s.lacks {
		if strings.Contains(output, word) {
			return fmt.Sprintf("has %q", word)
		}
	}
	return ""
}
