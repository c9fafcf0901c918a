package feedback

import (
	"slices"
	"testing"
)

// causesOf is why the source of some stories is sent NAKs and RNR NAKs.
var causesOf = map[string][]Cause{
	"hold": {CauseReceiver}, "lower": {CauseReceiver, CauseNotReady}, "rnr-after-nak": {CauseNotReady},
	"gap": {CauseGap}, "gap-again": {CauseGap},
	"silent-source-pauses": {CauseSilentSource}, "silent-source-called": {CauseSilentSource, CauseUnheard},
	"gap-first": {CauseGap, CauseUnheard}, "fatal-first": {CauseEnd}, "read": {CauseEnd}, "nobody-left": {CauseEnd},
	"filter": nil, "repair-nak": nil,
}

// checkCauses checks why the source of a story was sent NAKs.
func checkCauses(t *testing.T, story string, told [NumCauses]int) {
	t.Helper()
	want, known := causesOf[story]
	if !known {
		return
	}
	var got []Cause
	for cause := CauseReceiver; cause < NumCauses; cause++ {
		if told[cause] > 0 {
			got = append(got, cause)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the source was sent NAKs because of %v, want %v", got, want)
	}
}
