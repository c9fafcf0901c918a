package replicate

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab/boxes"
)

func TestMain(m *testing.M) { boxes.Main(m) }

// The box is killed and comes back, and a link is cut and mended. Each replica applies each item
// once.
func TestTheStreamSurvives(t *testing.T) {
	program := boxes.NeedProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	if err := run(ctx, &out, program); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
}

// Items may come again and in another order, and are applied once and in order.
func TestAReplicaAppliesEachItemOnce(t *testing.T) {
	r := NewReplica(nil)
	for _, n := range []uint64{0, 1, 1, 3, 3, 2, 1, 3, 0, 4} {
		r.take(message(n))
	}
	if r.applied != 4 || r.repeats != 4 || r.check(4) != nil {
		t.Errorf("%+v", r)
	}
}
