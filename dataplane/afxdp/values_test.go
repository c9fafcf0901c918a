package afxdp

import (
	"slices"
	"testing"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// The kernel has room for each block.
func TestTheKernelsBoundsAreThoseOfABlock(t *testing.T) {
	kernel := []int{bpf.SlotPaths, bpf.SlotPorts, bpf.SlotRegions}
	if block := []int{mft.BlockPaths, mft.BlockPorts, mft.BlockRegions}; !slices.Equal(kernel, block) {
		t.Errorf("the kernel has room for %v paths, ports and regions, and a block has %v", kernel, block)
	}
}

// Each value means the same to the classifier, to the table and to the dataplane.
func TestTheClassifiersValuesAreTranslated(t *testing.T) {
	if bpf.GroupNone != uint32(mft.NoGroup) {
		t.Errorf("no group is %#x to the classifier and %#x to the dataplane", bpf.GroupNone, mft.NoGroup)
	}
	for _, m := range []struct {
		match mft.Match
		want  bpf.Match
	}{
		{mft.MatchDstQPN, bpf.MatchDstQPN},
		{mft.MatchPairQPN, bpf.MatchPairQPN},
		{mft.MatchDst, bpf.MatchDst},
		{mft.MatchSrc, bpf.MatchSrc},
	} {
		if got := bpfKey(mft.Key{Match: m.match}).Match; got != m.want {
			t.Errorf("%v is %v to the classifier, want %v", m.match, got, m.want)
		}
	}
	for _, k := range []struct {
		kind bpf.Kind
		want dataplane.Kind
	}{
		{bpf.KindData, dataplane.KindData},
		{bpf.KindFeedback, dataplane.KindFeedback},
		{bpf.KindCNP, dataplane.KindCNP},
		{bpf.KindCM, dataplane.KindCM},
		{bpf.KindCM + 1, 0},
		{255, 0},
	} {
		if got := kinds[k.kind]; got != k.want {
			t.Errorf("%v is %d to the dataplane, want %d", k.kind, got, k.want)
		}
	}
}
