package softroce

import (
	"net/netip"
	"testing"
)

func TestGIDTextIsWhatSysfsPrints(t *testing.T) {
	for addr, want := range map[string]string{
		"10.77.0.1": "0000:0000:0000:0000:0000:ffff:0a4d:0001",
		"fd77::2":   "fd77:0000:0000:0000:0000:0000:0000:0002",
	} {
		if got := gidText(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func TestParsePerftest(t *testing.T) {
	const out = `---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      200              0.35               0.31   		   0.000595
---------------------------------------------------------------------------------------
`
	got, err := parsePerftest(out)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Perftest{Bytes: 65536, Iterations: 200, PeakGbps: 0.35, Gbps: 0.31, Output: out}); got != want {
		t.Errorf("got %+v", got)
	}
	if _, err := parsePerftest("Unable to init the socket connection\n"); err == nil {
		t.Error("a failed run was read as a result")
	}
}
