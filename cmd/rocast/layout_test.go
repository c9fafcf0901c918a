package main

import (
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rocast/rocast/ctl/api"
)

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		what  string
		width int
		text  string
		want  string
	}{
		{"cells are aligned", 40, "NAME\tN\tSTATE\ng1\t100\tready\n", "NAME  N    STATE\ng1    100  ready\n"},
		{"each table has columns of its own", 40, "a\tb\n\nlong\tb\n", "a  b\n\nlong  b\n"},
		{"a sentence among rows has no cells", 40, "a\tb\nthis is a sentence\nc\td\n", "a  b\nthis is a sentence\nc  d\n"},
		{"a row may have fewer cells", 40, "a\tbb\tc\nlonger\tb\n", "a       bb  c\nlonger  b\n"},
		{"a character counts, not its bytes", 40, "äöü\tb\nabc\td\n", "äöü  b\nabc  d\n"},
		{"a line may be as long as the screen is wide", 11, "12345 78901\n", "12345 78901\n"},
		{"a sentence goes on, indented", 11, "12345 789012 ab\n", "12345\n    789012\n    ab\n"},
		{"an indented sentence goes on behind its indent", 14, "  12345 7890 2345\n", "  12345 7890\n      2345\n"},
		{"an indent leaves room for its text", 20, "                    789 234 x\n", "\n              789\n              234 x\n"},
		{"a text goes on where its cell begins", 50, "k\tone two three four five six seven eight nine ten eleven\n",
			"k  one two three four five six seven eight nine\n   ten eleven\n"},
		{"a text with little room goes on at the indent", 40, "a-name\tone two three four five six seven eight\n",
			"a-name  one two three four five six\n    seven eight\n"},
		{"a word without room in its cell goes on at the indent", 50, "abcdef\tis\ta-word-of-more-than-forty-characters-in-a-row\n",
			"abcdef  is\n    a-word-of-more-than-forty-characters-in-a-row\n"},
		{"a list is broken behind a comma", 20, "at 10.0.0.1,10.0.0.2,10.0.0.3\n", "at 10.0.0.1,\n    10.0.0.2,\n    10.0.0.3\n"},
		{"a word that no line can hold is broken", 10, "0123456789abcdef 1\n", "0123456789\n    abcdef\n    1\n"},
		{"a cell that is too long ends its line", 30, "NAME\tN\tSTATE\na-name-with-twenty-cs\t1\tready\ng1\t2\tdegraded: x\n",
			"NAME            N  STATE\na-name-with-twenty-cs\n                1  ready\ng1              2  degraded: x\n"},
		{"a cell that is too long for its column and the rest of the line begins before its column", 30, "NAME\tIP\tGROUP\tSTATE\na\t10.0.0.1\ta-group-with-a-long-name\tup\n",
			"NAME  IP        GROUP    STATE\na     10.0.0.1\n      a-group-with-a-long-name\n                         up\n"},
		{"the widest column gives way first", 30, "NAME\tIP\tSTATE\na-name-with-twenty-cs\t10.0.0.1\tup\ng1\t10.0.0.1\tup\n",
			"NAME           IP        STATE\na-name-with-twenty-cs\n               10.0.0.1  up\ng1             10.0.0.1  up\n"},
	} {
		if got := layout(c.text, c.width); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.what, got, c.want)
		}
	}
}

func TestAFileIsAsWideAsANarrowTerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := (&app{screen: f}).width(); got != narrow {
		t.Errorf("%d columns", got)
	}
}

const (
	longName = "a-group-with-the-longest-name-that-a-group-file.may_have.123456"
	longIP   = "2001:db8:1234:5678:9abc:def0:1234:5678"
	longPort = "enp129s0f0np0v1"
)

// longText is what a text of the API is at its longest, by the key of JSON; another one is a
// sentence.
var longText = map[string]string{
	"name": longName, "group": longName, "box": longName, "root": longName, "neighbour": longName,
	"ip": longIP, "member": longIP, "members": longIP, "groupIP": longIP, "remoteIP": longIP, "receivers": longIP, "client": longIP,
	"source": longIP, "waiting": longIP, "port": longPort, "mac": "52:54:00:77:01:01", "addressing": "virtual-qpn", "role": "receiver",
	"state": api.Degraded, "part": "out-of-step", "pending": "RNR NAK", "carrier": api.CarrierKernel, "wanted": "afxdp", "attach": "generic",
	"mode": "zero-copy", "ack": "quorum 1024", "status": api.Missing, "since": "6.17", "kind": string(api.MemberUnreachable), "version": "v1.2.3-rc1-45-g0123456789ab",
	"commit": "0123456789abcdef0123456789abcdef01234567", "go": "go1.26.0", "of": api.OfGroup, "allow": "2001:db8:1234:5678::/64",
	"trouble": api.TroubleUnreachable, "direction": api.In, "opcode": "SEND_LAST_WITH_INVALIDATE", "syndrome": "NAK remote operational", "verdict": "forward",
	"reason": longSentence, "class": api.ToGroup, "file": "/etc/rocast/rocastd.yaml", "run": "0123456789abcdef",
}

const longSentence = "packets wait, and none gets on; the last is " + longIP + ", which lacks the source's packet 16432278; rocast group show " + longName + " says more"

// fill sets all that an answer of the API has to the longest and largest that it may be.
func fill(v reflect.Value, key string, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), key, depth)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 23, 12, 30, 45, 123456789, time.UTC)))
			return
		}
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			fill(v.Field(i), name, depth)
		}
	case reflect.Slice:
		n := 20
		if key == "below" { // the boxes of a tree
			n = max(0, 2-depth)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(v.Index(i), key, depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, name := range []string{"unmergeable-response", "fan-out-copy_malformed", "rx-fill-empty", "tx-withdrawn"} {
			n := reflect.New(v.Type().Elem()).Elem()
			fill(n, name, depth)
			v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), n)
		}
	case reflect.String:
		text, known := longText[key]
		if !known {
			text = longSentence
		}
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(key != "healthy")
	case reflect.Int, reflect.Int64:
		v.SetInt(1 << 20)
	case reflect.Uint8:
		v.SetUint(255)
	case reflect.Uint16:
		v.SetUint(65535)
	case reflect.Uint32:
		v.SetUint(1<<24 - 1)
	case reflect.Uint64:
		v.SetUint(1<<50 + 1)
	case reflect.Float64:
		v.SetFloat(12345678.9)
	}
}

func filled[T any]() (answer T) {
	fill(reflect.ValueOf(&answer).Elem(), "", 0)
	return answer
}

// longAnswers are answers of a daemon whose names and numbers are as long as they may be.
var longAnswers = map[string]func() any{
	api.GroupsPath:                  func() any { return filled[api.Groups]() },
	api.GroupsPath + "/g1":          func() any { return filled[api.Group]() },
	api.GroupsPath + "/" + longName: func() any { return filled[api.Group]() },
	api.GroupsPath + "/g1/regions":  func() any { return filled[api.Regions]() },
	api.GroupsPath + "/g1/ready":    func() any { return filled[api.Group]() },
	api.TreesPath + "/g1":           func() any { return filled[api.Tree]() },
	api.PerftestPath:                func() any { return filled[api.Perftests]() },
	api.CMPath:                      func() any { return filled[api.CMs]() },
	api.StatusPath:                  func() any { return filled[api.Status]() },
	api.PortsPath:                   func() any { return filled[api.Ports]() },
	api.StatsPath:                   func() any { return filled[api.Stats]() },
	api.TrafficPath:                 func() any { return filled[api.Traffic]() },
	api.TrafficPath + "/g1":         func() any { t := filled[api.Traffic](); t.Groups = t.Groups[:1]; return t },
	api.EventsPath:                  func() any { return filled[api.Events]() },
	api.FeaturesPath:                func() any { return filled[api.Features]() },
	api.VersionPath:                 func() any { return filled[api.Version]() },
	api.CapturePath:                 func() any { return filled[api.CaptureLine]() },
	api.TracePath:                   func() any { return filled[api.Trace]() },
	api.ReloadPath:                  func() any { return filled[api.Reloaded]() },
}

// Whatever the names of groups, boxes and ports and however large the numbers: no table has more
// columns than a narrow terminal, and no name and no address is cut.
func TestEveryTableFitsANarrowTerminal(t *testing.T) {
	d := another(t, func(w http.ResponseWriter, r *http.Request) {
		answer := longAnswers[r.URL.Path]
		if answer == nil {
			t.Errorf("asked for %s", r.URL.Path)
			return
		}
		_ = json.NewEncoder(w).Encode(answer())
	})
	d.every = time.Millisecond
	tables := map[string][]string{ // by command, with names that have to be in it
		"group ls":                    {longName, longIP},
		"group show g1":               {longName, longIP, longPort, "out-of-step"},
		"group tree g1":               {longName, longIP},
		"region ls g1 --count 20":     {longIP},
		"perftest ls":                 {longIP},
		"cm ls":                       {longName, longIP, "quorum 1024"},
		"port ls":                     {longName},
		"status":                      {longName},
		"top --once":                  {longName, longIP},
		"top --once g1":               {longName, longPort},
		"stats":                       {"unmergeable-response"},
		"stats --explain":             {"unmergeable-response"},
		"drops":                       {"unmergeable-response"},
		"drops --group g1":            {"unmergeable-response"},
		"events":                      {longName, longIP, longPort},
		"events --explain":            {"member-unreachable"},
		"doctor":                      {longName, longIP},
		"features":                    {"6.17"},
		"version":                     {"v1.2.3-rc1-45-g0123456789ab"},
		"reload":                      {},
		"capture --count 1":           {longName, longIP, longPort},
		"trace inject 00 --port eth1": {longIP, longPort},
		"trace group g1 --count 1":    {longIP, longPort},
		"member ready g1 --ip 10.77.0.2 --qpn 18 --state RTR": {},
	}
	for _, command := range commands {
		changes := []string{"group create", "group update", "group rm", "region add", "region load", "region rm", "perftest up", "perftest down", "cm up", "cm down", "bundle"}
		isNoun := slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(c, command+" ") }) || command == ""
		if _, tried := findPrefix(tables, command); !tried && !isNoun && !slices.Contains(changes, command) {
			t.Errorf("no table of rocast %s is tried", command)
		}
	}
	for command, names := range tables {
		exit, text, stderr := d.run(strings.Fields(command)...)
		if exit != exitOK && exit != exitUnhealthy || strings.Contains(stderr, "rocast:") {
			t.Errorf("rocast %s: exit %d, %s", command, exit, stderr)
		}
		if len(text) == 0 {
			t.Errorf("rocast %s says nothing", command)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > narrow {
				t.Errorf("rocast %s has a line of %d columns: %s", command, n, line)
			}
		}
		for _, name := range names {
			if !strings.Contains(text, name) {
				t.Errorf("rocast %s lacks %q", command, name)
			}
		}
	}
}

func findPrefix(tables map[string][]string, command string) (found string, ok bool) {
	for c := range tables {
		if c == command || strings.HasPrefix(c, command+" ") {
			return c, true
		}
	}
	return "", false
}
