package main

import (
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func TestLogLevel(t *testing.T) {
	d := startDaemon(t)
	for _, c := range []struct {
		args []string
		want string
	}{{nil, "info"}, {[]string{"debug"}, "debug"}, {nil, "debug"}, {[]string{"error"}, "error"}} {
		if got := d.must(t, append([]string{"log", "level"}, c.args...)...); got != c.want+"\n" {
			t.Errorf("%v: %q, want %q", c.args, got, c.want)
		}
	}
	var log api.Log
	if d.mustJSON(t, &log, "log", "level", "warn"); log.Level != "warn" {
		t.Errorf("%+v", log)
	}
	d.refused(t, exitRefused, api.BadRequest, `"loud" is no level of the log; write one of debug, info, warn, error`, "log", "level", "loud")
	d.refused(t, exitUsage, api.Usage, `"info" is one argument too many; see rocast log level --help`, "log", "level", "debug", "info")
}
