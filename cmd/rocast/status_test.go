package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/dataplane"
)

// statusText replaces the times in the answer, which differ between runs.
func statusText(text string) string {
	text = regexp.MustCompile(`up \d+m?s`).ReplaceAllString(sameEverywhere(text), "up 3s")
	text = regexp.MustCompile(`"started": "[^"]+Z"`).ReplaceAllString(text, `"started": "2026-01-02T03:04:05Z"`)
	return regexp.MustCompile(`"uptimeSeconds": \d+`).ReplaceAllString(text, `"uptimeSeconds": 3`)
}

func TestStatusOfAHealthyBox(t *testing.T) {
	d := startDaemon(t)
	golden(t, "status.txt", statusText(d.must(t, "status"))) // no group yet
	d.must(t, "group", "create", "-f", writeFile(t))
	var s api.Status
	if d.mustJSON(t, &s, "status"); !s.Healthy || !s.Ready || s.Problems == nil || s.Groups[api.Ready] != 1 || s.Ports[api.PortUp] != 3 || s.Workers != 2 {
		t.Errorf("%+v", s)
	}
}

func TestStatusNamesWhatDoesNotWork(t *testing.T) {
	sw := ctltest.NewSwitch("eth1", "eth2", "eth3")
	sw.SetPort(0, dataplane.PortDown, 1)
	sw.SetPort(1, dataplane.PortGone, 0)
	d := startDaemonOver(t, sw)
	d.must(t, "group", "create", "-f", writeFile(t, "10.77.0.3", "10.77.0.9"))
	exit, text, stderr := d.run("status")
	if exit != exitUnhealthy || stderr != "" {
		t.Errorf("exit %d, %s", exit, stderr)
	}
	golden(t, "status_unhealthy.txt", statusText(text))
	exit, text, stderr = d.run("status", "--json")
	var s api.Status
	if err := json.Unmarshal([]byte(text), &s); err != nil || exit != exitUnhealthy || stderr != "" || s.Healthy || s.Ready {
		t.Errorf("exit %d, %v, %s\n%s", exit, err, stderr, text)
	}
	golden(t, "status_json.txt", statusText(text))
}

func TestStatusOfAStuckWorkerAndOfManyProblems(t *testing.T) {
	var out strings.Builder
	printStatus(&out, &api.Status{Problems: []api.Problem{{Of: api.OfWorker, State: api.Stuck, Reason: "r", Blocks: true}}, More: 7})
	want := "workers\t0\nports\tunknown\ngroups\tunknown\nready\tno\nhealthy\tno\n\nPROBLEM\tNAME\tSTATE\tREASON\nworker\t-\tstuck\tr\nand 7 more\n"
	if _, got, _ := strings.Cut(out.String(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestStatusWithoutADaemonIsNotHealthy(t *testing.T) {
	if exit, _, _ := (&daemon{socket: "/nowhere"}).run("status"); exit != exitUnreachable {
		t.Errorf("exit %d", exit)
	}
}
