package main

import (
	"context"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/softcast"
)

// The hosts of the demo are processes of the program that shows it: here, of the test.
func TestMain(m *testing.M) {
	softcast.BeHost()
	boxes.Main(m)
}

func TestTheDemoHoldsWhatItPromises(t *testing.T) {
	testlab.NeedRoot(t)
	rocastd := boxes.MustProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := &demo{out: t.Output(), seed: 1, loss: 1000}
	testlab.Must(t, d.run(ctx, rocastd))
}
