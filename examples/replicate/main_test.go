package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab/boxes"
)

func TestMain(m *testing.M) {
	code := m.Run()
	boxes.RemoveProgram()
	os.Exit(code)
}

// The box is killed and comes back, and a link is cut and mended. Each replica applies each item
// once.
func TestTheStreamSurvives(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces and AF_XDP")
	}
	if testing.Short() {
		t.Skip("under the race detector the soft NICs are so slow that the story takes a minute")
	}
	program, err := boxes.Program()
	if err != nil {
		t.Fatal(err)
	}
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
	r := &replica{early: map[uint64][]byte{}}
	for _, n := range []uint64{0, 1, 1, 3, 3, 2, 1, 3, 0, 4} {
		r.take(message(n))
	}
	if r.applied != 4 || r.repeats != 4 || r.check(4) != nil {
		t.Errorf("%+v", r)
	}
}
