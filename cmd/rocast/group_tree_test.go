package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func number(n uint32) *uint32 { return &n }

// aTree is leaf1 with a receiver, over spine with leaf2, which waits, and leaf3, which was not
// asked.
func aTree() api.Tree {
	member := func(ip, role string, remoteQPN uint32, link bool, acked *uint32) api.Member {
		m := api.Member{IP: ip, Role: role, RemoteQPN: remoteQPN, Reach: api.Reach{State: api.Ready, Acked: acked}}
		if link {
			m.RemoteIP = "10.9.0.9"
		}
		return m
	}
	link := func(box, ip string, qpn uint32) api.Link {
		return api.Link{Box: box, Remote: api.LinkEnd{IP: ip}, Local: api.LinkEnd{QPN: qpn}}
	}
	engine := &api.Engine{Carrier: api.CarrierKernel}
	leaf2 := api.Tree{Box: "leaf2", Group: api.Group{
		GroupSummary: api.GroupSummary{State: api.Waiting, Reason: "10.2.0.1 does not answer"}, Upper: &api.Upper{Box: "spine"}, Engine: engine,
		Members: []api.Member{member("10.9.0.2", "source", 7, true, nil), member("10.2.0.1", "receiver", 1, false, nil)},
	}}
	spine := api.Tree{Box: "spine", Group: api.Group{
		GroupSummary: api.GroupSummary{State: api.Ready}, Upper: &api.Upper{Box: "leaf1"}, Engine: engine,
		Members:  []api.Member{member("10.9.0.1", "source", 5, true, nil), member("10.9.0.2", "receiver", 501, true, number(1009)), member("10.9.0.2", "receiver", 502, true, number(1000))},
		Links:    []api.Link{link("leaf2", "10.9.0.2", 501), link("leaf3", "10.9.0.2", 502)},
		Progress: &api.Progress{Sent: 1010},
		Goodput:  &api.Goodput{Now: 250000.4, Before: 260000},
	}, Below: []api.Tree{leaf2, {Box: "leaf3", Reason: "box leaf3 does not answer at https://10.9.0.3:7471 (connection refused)"}}}
	repaired := member("10.1.0.2", "receiver", 1, false, number(2))
	repaired.NAKs = 4
	repaired.Repair = &api.Repair{Repaired: 17, Recently: 3}
	uplink := member("10.9.0.5", "receiver", 77, true, number(0xFFFFFF))
	uplink.NAKs = 6
	return api.Tree{Box: "leaf1", Group: api.Group{
		GroupSummary: api.GroupSummary{Name: "g1", State: api.Waiting, Reason: "10.2.0.1 at box leaf2: it does not answer"}, Engine: engine,
		Members:  []api.Member{member("10.1.0.1", "source", 1, false, nil), repaired, uplink},
		Links:    []api.Link{link("spine", "10.9.0.5", 77)},
		Progress: &api.Progress{Sent: 3, Merged: 0xFFFFFF},
	}, Below: []api.Tree{spine}}
}

func TestGroupTree(t *testing.T) {
	d := another(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/trees/g1" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		_ = json.NewEncoder(w).Encode(aTree())
	})
	golden(t, "group_tree.txt", d.must(t, "group", "tree", "g1"))
}

// A box without neighbours has a tree of one box.
func TestGroupTreeOfOneBox(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", writeFile(t, "10.77.0.3", "10.77.0.4"))
	var tree api.Tree
	d.mustJSON(t, &tree, "group", "tree", "g1")
	if tree.Group.Name != "g1" || len(tree.Below) != 0 || tree.Group.Members[1].Regions != nil {
		t.Errorf("%+v", tree)
	}
	if shown := d.must(t, "group", "tree", "g1"); !strings.Contains(shown, "this box") || !strings.Contains(shown, "  10.77.0.1 (source)") {
		t.Errorf("shown is\n%s", shown)
	}
	d.refused(t, exitRefused, api.NotFound, `there is no group "g9"; rocast group ls lists the groups`, "group", "tree", "g9")
}

func TestWhatIsMadeSaysWhoIsMissingBehindABox(t *testing.T) {
	g := api.Group{GroupSummary: api.GroupSummary{Name: "g1", WaitingCount: 1}, Notes: []string{"the quorum counts the 2 receivers behind box leaf2"}}
	g.Links = []api.Link{{Box: "spine", Waiting: []api.Absent{{Box: "leaf2", Member: "10.2.0.1", Reason: "it does not answer on eth1"}}}}
	var out bytes.Buffer
	printMade(&out, g, "created")
	want := "group g1 created; waiting for:\n  10.2.0.1\tat box leaf2: it does not answer on eth1\nthe quorum counts the 2 receivers behind box leaf2\n"
	if out.String() != want {
		t.Errorf("\ngot  %q\nwant %q", out.String(), want)
	}
}

func TestGroupShowOfABranch(t *testing.T) {
	g := aTree().Below[0].Group
	g.Upper.Root, g.Policy, g.Notes = "leaf1", &api.Policy{}, []string{"a note"}
	g.Links[0].State, g.Links[0].Members = api.Ready, []string{"10.2.0.1", "10.2.0.2"}
	g.Links[1].State, g.Links[1].Reason = api.Degraded, "box leaf3 does not answer"
	var out bytes.Buffer
	printGroup(&out, g)
	for _, want := range []string{"note\ta note\n", "part of\tthe group of box leaf1, asked for by box leaf1\n", "leaf2\t10.9.0.2\t-\tready\n  members 10.2.0.1,10.2.0.2\nleaf3\t10.9.0.2\t-\tdegraded: box leaf3 does not answer\n\n"} {
		if !strings.Contains(strings.ReplaceAll(out.String(), "\t0\t", "\t-\t"), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
