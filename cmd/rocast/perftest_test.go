package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

func TestPerftest(t *testing.T) {
	d := startDaemon(t)
	up := []string{"perftest", "up", "--group-ip", "127.0.0.200", "--receivers", "10.77.0.2,10.77.0.3", "--port", "18598"}
	golden(t, "perftest_up.txt", d.must(t, up...))
	var allowing api.Perftest
	d.mustJSON(t, &allowing, "perftest", "up", "--group-ip", "127.0.0.201", "--receivers", "10.77.0.2", "--port", "18598", "--allow", "127.0.0.0/30,127.0.0.9")
	if want := []string{"127.0.0.0/30", "127.0.0.9/32"}; !slices.Equal(allowing.Allow, want) {
		t.Errorf("allowed are %v, want %v", allowing.Allow, want)
	}
	d.must(t, "perftest", "down", "--group-ip", "127.0.0.201")
	d.refused(t, exitRefused, api.BadRequest, "perftest on 127.0.0.200 is already up; take it down first", up...)
	golden(t, "perftest_ls.txt", d.must(t, "perftest", "ls"))
	var list api.Perftests
	if d.mustJSON(t, &list, "perftest", "ls"); len(list.Perftests) != 1 || list.Perftests[0].Port != 18598 {
		t.Errorf("%+v", list)
	}
	golden(t, "perftest_down.txt", d.must(t, "perftest", "down", "--group-ip", "127.0.0.200"))
	d.refused(t, exitRefused, api.NotFound, "perftest on 127.0.0.200 is not up; rocast perftest ls lists what is up", "perftest", "down", "--group-ip", "127.0.0.200")
	d.refused(t, exitRefused, api.BadRequest, `groupIP "g1" is not an IP address; write one such as 10.77.0.2 or fd00::2`, "perftest", "up", "--group-ip", "g1", "--receivers", "10.77.0.2")
}

// Policy keys are written as in a group file, several in one flag or each in one.
func TestPolicyKeysOfAService(t *testing.T) {
	var keys api.PolicyKeys
	p := policyValue{keys: &keys}
	for _, text := range []string{"nak=lower,evict=true", "repair-window=64", "silent-after=0"} {
		if err := p.Set(text); err != nil {
			t.Error(err)
		}
	}
	if want := (api.PolicyKeys{Nak: "lower", Evict: true, RepairWindow: 64, SilentAfter: "0"}); keys != want || p.String() != "nak=lower,evict=true,repair-window=64,silent-after=0" {
		t.Errorf("%+v, %s", keys, &p)
	}
	for text, want := range map[string]string{
		"repair":           `"repair" is not KEY=VALUE; write one such as repair=off`,
		"evict=maybe":      `evict is "maybe"; docs/reference.md has its values`,
		"repair-window=a":  `repair-window is "a"; docs/reference.md has its values`,
		"source-switch=no": "source-switch is no key of the policy that a service may have; docs/reference.md lists them",
	} {
		if err := p.Set(text); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// What the command line takes reaches the daemon, which refuses values as in a group file.
func TestAServiceRefusesWrongPolicies(t *testing.T) {
	d := startDaemon(t)
	for _, up := range [][]string{
		{"perftest", "up", "--group-ip", "127.0.0.202", "--receivers", "10.77.0.2"},
		{"cm", "up", "--group-ip", "127.0.0.202", "--receivers", "10.77.0.2", "--port", "7174"},
	} {
		d.refused(t, exitRefused, api.BadRequest, `nak "higher" is not one of hold, lower`, append(up, "--policy", "nak=higher")...)
		d.refused(t, exitRefused, api.BadRequest, "repair-bytes is 4KiB, and one packet of path MTU 4096 takes 8KiB; write 8KiB or more", append(up, "--policy", "repair-bytes=4KiB")...)
	}
}

func TestPerftestListShowsTheLastRun(t *testing.T) {
	var out strings.Builder
	a := &app{env: &env{stdout: &out}}
	ended := time.Unix(1, 0)
	first := api.PerftestRun{Client: "10.77.0.1", State: "ended", Version: "6.10", QPs: 2, MTU: 1024, Ended: &ended}
	running := api.PerftestRun{Client: "10.77.0.1", State: "running", Version: "6.10", QPs: 1, MTU: 4096}
	waiting := api.PerftestRun{Client: "10.77.0.4", State: "waiting", Version: "6.06"}
	refused := api.PerftestRun{Client: "10.77.0.1", State: "refused", Ended: &ended, Reason: "it connects by RDMA-CM (-R or -z); run it without these options, or with -R against a group IP of rocast cm up --memory perftest"}
	list := api.Perftests{Perftests: []api.Perftest{
		{GroupIP: "10.77.0.100", Receivers: []string{"10.77.0.2"}, Port: 18515, Runs: []api.PerftestRun{refused, first}},
		{GroupIP: "10.77.0.101", Receivers: []string{"10.77.0.2", "10.77.0.3"}, Port: 18515, Runs: []api.PerftestRun{first, refused}},
		{GroupIP: "10.77.0.102", Receivers: []string{"10.77.0.2"}, Port: 18515, Runs: []api.PerftestRun{running, first, waiting}},
	}}
	if err := a.print(list, func(w io.Writer) { printPerftests(w, list) }); err != nil {
		t.Fatal(err)
	}
	golden(t, "perftest_ls_runs.txt", out.String())
}
