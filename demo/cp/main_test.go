package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/softcast"
)

// The hosts of the demo are processes of the program that shows it: here, of the test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == hostWord {
		os.Exit(softcast.Execute(context.Background(), os.Args[2:]))
	}
	status := m.Run()
	boxes.RemoveProgram()
	os.Exit(status)
}

func TestTheDemoHoldsWhatItPromises(t *testing.T) {
	testlab.NeedRoot(t)
	rocastd := boxes.MustProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := &demo{out: t.Output(), seed: 1, loss: 1000}
	testlab.Must(t, d.run(ctx, rocastd))
}
