package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
)

// With loss and without.
func TestTheDemoHolds(t *testing.T) {
	testlab.NeedRoot(t)
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/rocastd", "../../cmd/rocast-edge").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	for _, loss := range []int{0, 1000} {
		t.Run(fmt.Sprintf("loss %d", loss), func(t *testing.T) {
			var out strings.Builder
			d := &demo{out: &out, bin: bin, seed: 7, loss: loss, bytes: 16 << 20}
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			if err := d.run(ctx); err != nil {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
}
