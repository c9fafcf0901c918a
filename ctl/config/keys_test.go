package config

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
)

var update = flag.Bool("update", false, "write the table in docs/reference.md")

// texts has a text for each key that holds other keys, with all keys that are needed and %s for one
// more.
var texts = map[string]string{
	"":            "%s",
	"egress":      "egress: [{port: eth1, kmin: 1KiB, kmax: 2KiB, %s}]",
	"log":         "log: {%s}",
	"perftest":    "perftest: [{groupIP: 10.0.0.9, receivers: 10.0.0.2, %s}]",
	"cm":          "cm: [{groupIP: 10.0.0.9, port: 7174, receivers: 10.0.0.2, %s}]",
	"neighbours":  "neighbours: [{name: leaf2, address: 10.9.0.2, url: \"https://h:1\", %s}]\napi: {listen: \"10.0.0.1:1\", cert: /c, key: /k, ca: /a}",
	"api":         "api: {listen: \"10.0.0.1:1\", cert: /c, key: /k, ca: /a, %s}",
	"hosts":       "hosts: {listen: \"10.0.0.1:1\", groupIPs: 10.0.0.9, %s}",
	"edges":       "hosts: {listen: \"10.0.0.1:1\", groupIPs: 10.0.0.9}\nedges: {addresses: 239.77.0.0/28, %s}",
	"edges.wires": "hosts: {listen: \"10.0.0.1:1\", groupIPs: 10.0.0.9}\nedges: {addresses: 239.77.0.0/28, wires: [{ip: 10.0.0.3, host: 10.0.0.2, %s}]}",
	"etcd":        "store: etcd\netcd: {endpoints: [\"http://h:1\"], %s}",
}

func parseWith(t *testing.T, holder, key string) (Config, error) {
	t.Helper()
	text := fmt.Sprintf(texts[holder], key)
	if holder != "" || !strings.HasPrefix(key, "ports:") {
		text = "ports: [eth1]\n" + text
	}
	return Parse([]byte(text + "\n"))
}

// The list of keys has those that the parser knows, in its order. The policy keys of a group file
// stand with those of group files.
func TestTheListOfKeysIsWhole(t *testing.T) {
	var listed, policy []string
	for _, f := range groupfile.PolicyFields(&feedback.Policy{}, nil) {
		policy = append(policy, f.Key)
	}
	for _, k := range Keys {
		listed = append(listed, k.Name)
		if (k.value == nil) != (strings.Contains(k.Name, ".") && !strings.HasPrefix(k.Name, "log.")) {
			t.Errorf("%s: a reload does not see it, or sees it twice", k.Name)
		}
	}
	var known []string
	for holder := range texts {
		_, err := parseWith(t, holder, "no: 1")
		_, keys, found := strings.Cut(fmt.Sprint(err), "the known keys are ")
		if !found {
			t.Fatalf("%s: %v", holder, err)
		}
		for key := range strings.SplitSeq(keys, ", ") {
			name := strings.TrimPrefix(holder+"."+key, ".")
			if isPolicy := slices.Contains(policy, key) && name != "cm.ack"; name != "log" && !isPolicy {
				known = append(known, name)
			}
		}
	}
	slices.Sort(known)
	slices.Sort(listed)
	if !slices.Equal(known, listed) {
		t.Errorf("\nknown  %v\nlisted %v", known, listed)
	}
}

// A key that is written with its default says nothing new.
func TestTheDefaultsOfTheListAreTheParsers(t *testing.T) {
	words := []string{"the ", "none", "off", "what "} // not values, but what happens
	checked := 0
	for _, k := range Keys {
		if k.Default == "" || slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(k.Default, w) }) {
			continue
		}
		holder, key := "", k.Name
		if before, after, nested := strings.Cut(k.Name, "."); nested {
			holder, key = before, after
		}
		without, err := parseWith(t, holder, "")
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		with, err := parseWith(t, holder, key+": "+k.Default)
		if diff := Differences(&without, &with); err != nil || len(diff) > 0 {
			t.Errorf("%s: %s is not the default: %v, %v", k.Name, k.Default, diff, err)
		}
		checked++
	}
	if checked < 15 {
		t.Errorf("only %d defaults were checked", checked)
	}
}

// Whatever changes in a config, a reload notices it.
func TestADifferenceOfEveryFieldIsSeen(t *testing.T) {
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Name
		var a, b Config
		f := reflect.ValueOf(&b).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int:
			f.SetInt(5)
		case reflect.Uint64:
			f.SetUint(5)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		default:
			continue // api, etcd, metrics: below
		}
		if got := Differences(&a, &b); len(got) != 1 && name != "File" || name == "File" && len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	base := "ports: [eth1]\n"
	for text, want := range map[string]string{
		"metrics: 127.0.0.1:1": "metrics", "api: {listen: \"10.0.0.1:1\", cert: /c, key: /k, ca: /a}": "api",
		"store: etcd\netcd: {endpoints: [\"http://h:1\"]}": "store etcd", "wait: busy": "wait", "log: {level: debug}": "log.level",
		"log: {format: json}": "log.format", "workers: 1": "", "workers: 2": "workers", "repairMemory: 64MiB": "", "ports: [eth1]": "",
	} {
		a, err := Parse([]byte(base))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(text, "ports") {
			base = ""
		}
		b, err := Parse([]byte(base + text + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		base = "ports: [eth1]\n"
		var names []string
		for _, k := range Differences(&a, &b) {
			names = append(names, k.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// -update writes the table.
func TestTheReferenceHasTheListOfKeys(t *testing.T) {
	rows := [][]string{{"key", "default", "value", "a reload takes it over"}}
	for _, k := range Keys {
		reloads := k.Reloads
		if holder, _, nested := strings.Cut(k.Name, "."); nested && k.value == nil {
			reloads = "as " + holder
		} else if reloads == "" {
			reloads = "no: restart"
		}
		rows = append(rows, []string{"`" + k.Name + "`", k.Default, k.Unit, reloads})
	}
	testlab.Table(t, "../../docs/reference.md", "## Config", *update, rows...)
}
