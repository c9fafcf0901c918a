package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/fabric"
)

// The group is created at the first leaf, over bridges and over plain routers between the boxes.
// With a kill in the middle, and without loss and kill, where each link carries each packet hardly
// more than once.
func TestTheDemoHoldsOverBridgesAndRouters(t *testing.T) {
	testlab.NeedRoot(t)
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/rocastd").CombinedOutput(); err != nil {
		t.Fatalf("build rocastd: %v: %s", err, out)
	}
	for between, name := range []string{"bridge", "router"} {
		for _, lossy := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, loss %t", name, lossy), func(t *testing.T) {
				var out strings.Builder
				d := &demo{out: &out, bin: bin, seed: 7, bytes: 8 << 20, between: fabric.Between(between), kill: lossy}
				if lossy {
					d.loss = 1000
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := d.run(ctx); err != nil {
					t.Errorf("%v\n%s", err, out.String())
				}
			})
		}
	}
}
