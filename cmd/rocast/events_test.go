package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

var times = regexp.MustCompile(`(?m)^\S+ \S+  `)

func TestEvents(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", "testdata/g1.yaml")
	d.must(t, "group", "rm", "g1")
	golden(t, "events.txt", times.ReplaceAllString(d.must(t, "events"), "TIME  "))
	if got := d.must(t, "events", "--group", "g2"); got != "" {
		t.Errorf("g2 has had events: %s", got)
	}
	var list api.Events
	if d.mustJSON(t, &list, "events", "--group", "g1"); len(list.Events) != 2 || list.Events[1].Kind != api.GroupRemoved {
		t.Errorf("%+v", list)
	}
}

// lines hands what is written to it to a channel.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

// With -w events are shown as they happen, until the program is interrupted.
func TestEventsAreWatched(t *testing.T) {
	d := startDaemon(t)
	for _, form := range [][]string{{"-w"}, {"-w", "--json"}} {
		ctx, interrupt := context.WithCancel(t.Context())
		out, errs, done := make(lines), &bytes.Buffer{}, make(chan int)
		e := env{args: append([]string{"events", "--group", "g1", "--socket", d.socket}, form...), stdout: out, stderr: errs}
		before := ""
		d.must(t, "group", "create", "-f", "testdata/g1.yaml")
		go func() { done <- e.run(ctx) }()
		for !strings.Contains(before, "group-created") || len(form) > 1 && strings.Count(before, "group-created") < 2 {
			before += <-out
		}
		d.must(t, "group", "rm", "g1")
		got := <-out
		if len(form) == 1 && !strings.Contains(got, "  group-removed       g1\n") {
			t.Errorf("shown %q", got)
		}
		if e := (api.Event{}); len(form) > 1 && (json.Unmarshal([]byte(got), &e) != nil || e.Kind != api.GroupRemoved) {
			t.Errorf("shown %q", got)
		}
		interrupt()
		if exit := <-done; exit != exitOK || errs.Len() > 0 {
			t.Errorf("exit %d: %s", exit, errs)
		}
	}
}

func TestADaemonThatIsNotThereIsSaidWhileWatching(t *testing.T) {
	d := &daemon{socket: "/nowhere/s"}
	exit, stdout, stderr := d.run("events", "-w")
	if exit != exitUnreachable || stdout != "" || !strings.HasPrefix(stderr, "rocast: no daemon answers on /nowhere/s") {
		t.Errorf("exit %d, %q, %q", exit, stdout, stderr)
	}
}

func TestEventsExplain(t *testing.T) {
	d := startDaemon(t)
	golden(t, "events_explain.txt", d.must(t, "events", "--explain"))
	var kinds eventKinds
	if d.mustJSON(t, &kinds, "events", "--explain"); len(kinds.Kinds) != len(api.EventMeanings()) {
		t.Errorf("%+v", kinds)
	}
}
