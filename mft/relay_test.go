package mft

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/roce"
)

// Each receiver has one QPN at the link to the box above, and no other has the same.
func TestEndsOfARelay(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(ends []RelayEnd) []RelayEnd
		want string // a part of the error; "": none
	}{
		"each has its own": {func(ends []RelayEnd) []RelayEnd { return ends }, ""},
		"two QPNs of one":  {func(ends []RelayEnd) []RelayEnd { return append(ends, RelayEnd{QP: ends[0].QP, QPN: 99}) }, "or 10.0.3.232 has two"},
		"one QPN of two":   {func(ends []RelayEnd) []RelayEnd { ends[1].QPN = ends[0].QPN; return ends }, "QPN 60 of the link is not that of one receiver alone"},
		"none":             {func(ends []RelayEnd) []RelayEnd { return ends[:1] }, "the box above has no QPN for it"},
		"that of copies":   {func(ends []RelayEnd) []RelayEnd { ends[1].QPN = 50; return ends }, "QPN 50 of the link"},
		"of nobody":        {func(ends []RelayEnd) []RelayEnd { ends[1].IP = addr(5); return ends }, "the group does not have it"},
	} {
		g := testGroup(addr(100), 7, 2)
		var ends []RelayEnd
		for i := range g.Paths {
			ends = append(ends, RelayEnd{QP: g.Paths[i].QP(), QPN: roce.QPN(60 + i)})
		}
		g.Relay = &Relay{Shared: 50, Ends: tt.edit(ends)}
		_, err := new(Table).With(g)
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
