package afxdp

import (
	"testing"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// The classifier's numbers are converted to those of the table and of the dataplane, not translated.
func TestTheClassifiersNumbersAreTheDataplanes(t *testing.T) {
	for got, want := range map[any]any{
		uint32(mft.NoGroup): bpf.GroupNone,

		bpf.Match(mft.MatchDstQPN): bpf.MatchDstQPN, bpf.Match(mft.MatchPairQPN): bpf.MatchPairQPN,
		bpf.Match(mft.MatchDst): bpf.MatchDst, bpf.Match(mft.MatchSrc): bpf.MatchSrc,

		bpf.Kind(dataplane.KindData): bpf.KindData, bpf.Kind(dataplane.KindFeedback): bpf.KindFeedback,
		bpf.Kind(dataplane.KindCNP): bpf.KindCNP, bpf.Kind(dataplane.KindCM): bpf.KindCM,
	} {
		if got != want {
			t.Errorf("%v is %v to the classifier", got, want)
		}
	}
}
