package config

import (
	"slices"
	"testing"
)

func TestBadEgressIsRefusedWithTheNumberThatFits(t *testing.T) {
	for _, c := range []struct{ entry, want string }{
		{"{kmin: 1KiB, kmax: 2KiB}", "line 2: egress 1 has no port; add port: NAME or GLOB"},
		{"{port: 'e[', limit: 1MiB}", `line 2: egress 1: port "e[" is not a valid glob; close its brackets`},
		{"{port: e}", "line 2: egress 1 bounds nothing; add limit: SIZE, or kmin: SIZE and kmax: SIZE"},
		{"{port: e, kmin: 1MiB}", "line 2: egress 1 has only one of kmin and kmax; add the other one"},
		{"{port: e, kmax: 1MiB}", "line 2: egress 1 has only one of kmin and kmax; add the other one"},
		{"{port: e, kmin: 401KiB, kmax: 400KiB}", "line 2: egress 1 has kmin 401 KiB above kmax 400 KiB; write a kmin of at most 400 KiB"},
		{"{port: e, kmin: 0, kmax: 400KiB}", `line 2: egress 1: kmin "0" is not a size; write one such as 64MiB (KiB, MiB or GiB), or leave the key out`},
		{"{port: e, limit: [1KiB]}", "line 2: egress 1: limit is a list; write one word"},
		{"{port: e, limit: 2GiB}", "line 2: egress 1: limit is above 1GiB; write a smaller size"},
		{"{port: e, limit: 31KiB}", "line 2: egress 1 has limit 31 KiB, which is too little for the longest frames; write 32KiB or more"},
		{"{port: e, kmin: 1KiB, kmax: 65KiB, limit: 64KiB}", "line 2: egress 1 has limit 64 KiB below kmax 65 KiB, so that frames would be lost before all are marked; write a limit of 65KiB or more"},
		{"{port: e, kmin: 1KiB, kmax: 65KiB, percent: 0}", "line 2: egress 1 has percent 0; write 1 to 100, or leave out kmin and kmax to mark nothing"},
		{"{port: e, kmin: 1KiB, kmax: 65KiB, percent: 101}", "line 2: egress 1: percent is not a whole number from 0 to 100 (0x64); write one, without quotes"},
	} {
		if _, err := Parse([]byte("ports: [eth1]\negress: [" + c.entry + "]\n")); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.entry, err, c.want)
		}
	}
	for _, entry := range []string{
		"{port: e, kmin: 64KiB, kmax: 64KiB, limit: 64KiB}", "{port: e, limit: 1GiB}", "{port: e, kmin: 1KiB, kmax: 1KiB, percent: 100}",
	} {
		if _, err := Parse([]byte("ports: [eth1]\negress: [" + entry + "]\n")); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

func TestTheFirstEntryThatMatchesAPortCounts(t *testing.T) {
	bounds := []Egress{{Port: "eth1", Limit: 1}, {Port: "eth[12]", Limit: 2}, {Port: "br[", Limit: 3}}
	ports := []string{"eth2", "eth1", "eth3", "br["}
	var got []int
	for _, e := range PortEgress(bounds, ports) {
		got = append(got, e.Limit)
	}
	if !slices.Equal(got, []int{2, 1, 0, 3}) {
		t.Error(got)
	}
	if err := CheckEgress(bounds, ports); err != nil {
		t.Error(err)
	}
	want := `egress: no port matches eth[12]; the ports are ["eth3" "eth1x"]`
	if err := CheckEgress(bounds[1:], []string{"eth3", "eth1x"}); err == nil || err.Error() != want {
		t.Error(err)
	}
}
