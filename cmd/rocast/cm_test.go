package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

func TestCM(t *testing.T) {
	d := startDaemon(t)
	up := []string{"cm", "up", "--group-ip", "127.0.0.230", "--receivers", "10.77.0.2,10.77.0.3", "--port", "7174"}
	golden(t, "cm_up.txt", d.must(t, up...))
	var quorum api.CM
	d.mustJSON(t, &quorum, "cm", "up", "--group-ip", "127.0.0.231", "--receivers", "10.77.0.2", "--port", "7174", "--ack", "quorum 1", "--memory", "private-data", "--allow", "127.0.0.1", "--choose")
	if quorum.Ack != "quorum 1" || quorum.Memory != "private-data" || !quorum.Choose || strings.Join(quorum.Allow, " ") != "127.0.0.1/32" {
		t.Errorf("%+v", quorum)
	}
	d.must(t, "cm", "down", "--group-ip", "127.0.0.231")
	d.refused(t, exitRefused, api.BadRequest, "the request is refused: choose is set, and a request names receivers by IPv4 addresses, but group IP ::1 is an IPv6 address; leave choose out",
		"cm", "up", "--group-ip", "::1", "--receivers", "fd00::2", "--port", "7174", "--choose")
	d.refused(t, exitRefused, api.BadRequest, "the request is refused: choose is set, and perftest's requests name no receivers; leave choose out", "cm", "up", "--group-ip", "127.0.0.232", "--receivers", "10.77.0.2", "--port", "18515", "--memory", "perftest", "--choose")
	d.refused(t, exitRefused, api.BadRequest, "RDMA-CM on 127.0.0.230 is already up; take it down first", up...)
	golden(t, "cm_ls.txt", d.must(t, "cm", "ls"))
	var list api.CMs
	if d.mustJSON(t, &list, "cm", "ls"); len(list.CMs) != 1 || list.CMs[0].Port != 7174 {
		t.Errorf("%+v", list)
	}
	golden(t, "cm_down.txt", d.must(t, "cm", "down", "--group-ip", "127.0.0.230"))
	d.refused(t, exitRefused, api.NotFound, "RDMA-CM on 127.0.0.230 is not up; rocast cm ls lists what is up", "cm", "down", "--group-ip", "127.0.0.230")
}

func TestTheStateOfACMConnection(t *testing.T) {
	now := time.Unix(1000, 0)
	soon, past := now.Add(11600*time.Millisecond), now.Add(-time.Second)
	for want, c := range map[string]api.CMConnection{
		"established": {State: "established"},
		"established, holds the run, ends in 12s unless source 10.77.0.1 answers": {State: "established", HoldsRun: true, Ends: &soon, Unless: "source 10.77.0.1 answers"},
		"ending, ends in 0s": {State: "ending", Ends: &past},
	} {
		if got := connectionState(&c, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCMListShowsWhatIsNotOver(t *testing.T) {
	var out strings.Builder
	a := &app{env: &env{stdout: &out}}
	over := time.Unix(0, 0)
	refused := api.CMConnection{Source: "10.77.0.1", State: "over", Reason: "receiver 10.77.0.3 does not answer", Ended: &over}
	on := api.CMConnection{Source: "10.77.0.1", State: "established", Group: "cm-10.77.0.100-512", Receivers: 2}
	service := api.CM{GroupIP: "10.77.0.100", Receivers: []string{"10.77.0.2", "10.77.0.3"}, Port: 7174, Ack: "all", Connections: []api.CMConnection{refused, on, refused}}
	other := service
	other.GroupIP, other.Connections = "10.77.0.101", []api.CMConnection{refused}
	list := api.CMs{CMs: []api.CM{service, other}}
	if err := a.print(list, func(w io.Writer) { printCMs(w, list) }); err != nil {
		t.Fatal(err)
	}
	golden(t, "cm_ls_connections.txt", out.String())
}
