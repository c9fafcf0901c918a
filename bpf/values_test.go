package bpf

import (
	"net/netip"
	"strings"
	"testing"
)

func TestDecodeMeta(t *testing.T) {
	written := []byte{0x61, 0x63, 0x6f, 0x72, 0x07, 0, 0, 0, 3, 1 | 2<<1, 22, 70, 0, 0, 0, 0}
	want := Meta{Group: 7, Kind: KindCNP, IPv6: true, VLANs: 2, L3Off: 22, BTHOff: 70}
	if got, ok := DecodeMeta(written); !ok || got != want {
		t.Errorf("got %+v, %v, want %+v", got, ok, want)
	}
	foreign := append([]byte(nil), written...)
	foreign[3] = 0x73
	for name, b := range map[string][]byte{
		"none": nil, "short": written[:15], "long": append(written[:16:16], 0), "another program's": foreign,
	} {
		if got, ok := DecodeMeta(b); ok || got != (Meta{}) {
			t.Errorf("%s: got %+v, %v, want nothing", name, got, ok)
		}
	}
}

func TestDecodeMetaDoesNotAllocate(t *testing.T) {
	b := make([]byte, MetaBytes)
	if n := testing.AllocsPerRun(100, func() { DecodeMeta(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKeysThatNoFrameCanMatch(t *testing.T) {
	for _, row := range []struct {
		key  Key
		want string
	}{
		{Key{Match: MatchDst}, "needs a destination"},
		{Key{Match: MatchSrc}, "needs a source"},
		{Key{Dst: groupIP, QPN: 1, Match: MatchPairQPN}, "needs a source"},
		{Key{Src: hostA, QPN: 1, Match: MatchPairQPN}, "needs a destination"},
		{Key{Src: hostA, Dst: groupIP, Match: MatchDst}, "takes no source"},
		{Key{Src: hostA, Dst: groupIP, QPN: 1, Match: MatchDstQPN}, "takes no source"},
		{Key{Src: hostA, Dst: groupIP, Match: MatchSrc}, "takes no destination"},
		{Key{Src: hostA, Dst: group6, QPN: 1, Match: MatchPairQPN}, "different IP versions"},
		{Key{Dst: netip.MustParseAddr("fe80::1%eth0"), Match: MatchDst}, "zone"},
		{Key{Src: netip.MustParseAddr("fe80::1%eth0"), Match: MatchSrc}, "zone"},
		{Key{Dst: groupIP}, "not a known match"},
		{Key{Dst: groupIP, Match: 5}, "not a known match"},
		{Key{Dst: groupIP, QPN: 1, Match: MatchDst}, "takes no QPN"},
		{Key{Src: groupIP, QPN: 1, Match: MatchSrc}, "takes no QPN"},
		{Key{Dst: groupIP, QPN: 1 << 24, Match: MatchDstQPN}, "24 bits"},
	} {
		if _, err := row.key.encode(); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v: %v, want an error with %q", row.key, err, row.want)
		}
	}
}

func TestVerdictNamesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for v := range Verdicts {
		name := Verdict(v).String()
		kind, _, _ := strings.Cut(name, "_")
		want := "pass"
		switch {
		case Verdict(v) == DropOwnSource, Verdict(v) == DropMerged:
			want = "drop"
		case Verdict(v) >= RedirectData:
			want = "redirect"
		}
		if seen[name] || kind != want {
			t.Errorf("verdict %d is named %q", v, name)
		}
		seen[name] = true
	}
}
