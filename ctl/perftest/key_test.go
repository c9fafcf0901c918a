package perftest

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rocast/rocast/internal/testlab"
)

const capturedLine = "0000:0001:000042:bc99a2:00005580:00005590c93c5000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01:00000000:\x00"

func TestKeyFields(t *testing.T) {
	k, err := parseKey([]byte(capturedLine))
	want := key{OutReads: 1, QPN: 0x42, PSN: 0xbc99a2, RKey: 0x5580, VA: 0x5590c93c5000, GID: netip.MustParseAddr("10.77.0.1")}
	if err != nil || k != want {
		t.Errorf("got %+v, %v; want %+v", k, err, want)
	}
	k = key{LID: 0xffff, OutReads: 0xff, QPN: 0xfffffe, PSN: 0xffffff, RKey: 0xffffffff, VA: 1<<64 - 1, GID: netip.MustParseAddr("fd77::1"), SRQN: 7}
	k.RKey = 0xfedcba98
	upper := strings.ToUpper(string(k.line()))
	if again, err := parseKey([]byte(upper)); err != nil || again != k {
		t.Errorf("%q is read as %+v, %v", upper, again, err)
	}
	if again, err := parseKey(k.line()); err != nil || again != k || len(k.line()) != keyBytes {
		t.Errorf("%q is read as %+v, %v", k.line(), again, err)
	}
}

func TestDamagedKeyIsRefusedWithoutRepeatingIt(t *testing.T) {
	for name, line := range map[string]string{
		"empty":            "",
		"cut":              capturedLine[:107],
		"no NUL":           strings.Replace(capturedLine, "\x00", ":", 1),
		"longer":           capturedLine + "\x00",
		"not hexadecimal":  strings.Replace(capturedLine, "5580", "55g0", 1),
		"sign":             strings.Replace(capturedLine, "00005580", "-0005580", 1),
		"other separators": strings.ReplaceAll(capturedLine, ":", ";"),
		"a field moved":    strings.Replace(capturedLine, "000042:bc99a2", "0000042:bc99a", 1),
	} {
		if _, err := parseKey([]byte(line)); err != errNotAKey {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysNoGroupCanHave(t *testing.T) {
	good, err := parseKey([]byte(capturedLine))
	if err != nil {
		t.Fatal(err)
	}
	at := good.GID
	if err := checkKey("client 10.77.0.1", at, good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*key){
		"the first QP":        func(k *key) { k.QPN = 2 },
		"the last QP":         func(k *key) { k.QPN = 0xfffffe },
		"the end of memory":   func(k *key) { k.VA = ^(regionBytes - 1) },
		"the start of memory": func(k *key) { k.VA = 0 },
	} {
		k := good
		change(&k)
		if err := checkKey("client 10.77.0.1", at, k); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*key)
		want   string
	}{
		{"READ", func(k *key) { k.OutReads = 16 }, "client 10.77.0.1 wants to have 16 READs or atomics outstanding; a group cannot merge their responses, so run ib_write_bw or ib_send_bw"},
		{"XRC", func(k *key) { k.SRQN = 3 }, "client 10.77.0.1 uses XRC or DC (-c); a group connects RC queue pairs only"},
		{"QP1", func(k *key) { k.QPN = 1 }, "client 10.77.0.1 names queue pair 0x1, which no RC connection has"},
		{"multicast QP", func(k *key) { k.QPN = 0xffffff }, "client 10.77.0.1 names queue pair 0xffffff, which no RC connection has"},
		{"other device", func(k *key) { k.GID = netip.MustParseAddr("10.78.0.1") }, "client 10.77.0.1 has the GID of 10.78.0.1, and packets go by GID; choose the GID of 10.77.0.1 there (-x), or connect from 10.78.0.1"},
		{"IPv6 GID", func(k *key) { k.GID = netip.MustParseAddr("fe80::1") }, "client 10.77.0.1 has the GID of fe80::1, and packets go by GID; choose the GID of 10.77.0.1 there (-x), or connect from fe80::1"},
		{"address space", func(k *key) { k.VA = ^(regionBytes - 1) + 1 }, "client 10.77.0.1 names memory beyond 2^64"},
	} {
		k := good
		c.change(&k)
		if err := checkKey("client 10.77.0.1", at, k); err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte(capturedLine))
	f.Fuzz(func(t *testing.T, line []byte) {
		k, err := parseKey(line)
		if err != nil {
			return
		}
		if got := string(k.line()); got != strings.ToLower(string(line)) {
			t.Errorf("%q is written as %q", line, got)
		}
	})
}

// The soft hosts of other tests speak as perftest does.
func TestKeysOfSoftHosts(t *testing.T) {
	k := testlab.PerftestKey{QPN: 0x42, PSN: 0xbc99a2, RKey: 0x5580, VA: 0x5590c93c5000, IP: netip.MustParseAddr("10.77.0.1")}
	if got := string(k.Line()); got != capturedLine {
		t.Errorf("got  %q\nwant %q", got, capturedLine)
	}
	if got, err := testlab.ReadPerftestKey([]byte(capturedLine)); err != nil || got != k {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := testlab.ReadPerftestKey([]byte(capturedLine[:60])); err == nil {
		t.Error("half a line is read")
	}
}
