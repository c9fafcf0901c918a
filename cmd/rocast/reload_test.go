package main

import (
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func TestReloadSaysWhatItHasTakenOver(t *testing.T) {
	d := startDaemon(t)
	for want, done := range map[string]api.Reloaded{
		"no key has changed\n": {},
		"log.level changed\n":  {Changed: []string{"log.level"}},
		"ports, log.level changed; ports added: eth3, eth4; ports removed: e1\n": {Changed: []string{"ports", "log.level"}, Added: []string{"eth3", "eth4"}, Removed: []string{"e1"}},
	} {
		d.config.done = done
		if got := d.must(t, "reload"); got != want {
			t.Errorf("got %swant %s", got, want)
		}
	}
	var done api.Reloaded
	d.config.done = api.Reloaded{Added: []string{"eth3"}}
	if d.mustJSON(t, &done, "reload"); len(done.Added) != 1 || done.Added[0] != "eth3" {
		t.Errorf("%+v", done)
	}
	d.config.refuse = api.Errorf(api.BadFile, "f.yaml: mode changes only at a restart")
	d.refused(t, exitRefused, api.BadFile, "f.yaml: mode changes only at a restart", "reload")
}

func TestStatusSaysWhetherTheFileIsWhatRuns(t *testing.T) {
	d := startDaemon(t)
	d.config.state.Stale, d.config.state.Reason = true, "ports: the file has changed since; rocast reload takes the change over"
	d.config.state.Refused = "f.yaml: mode changes only at a restart"
	golden(t, "status_stale.txt", statusText(d.must(t, "status")))
}
