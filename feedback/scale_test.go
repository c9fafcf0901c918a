package feedback

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/rocast/rocast/internal/testlab"
)

// TestPathStaysSmall: there is one path for each receiver of each group. If the size grows, measure
// the figures of docs/evaluation.md#memory again.
func TestPathStaysSmall(t *testing.T) {
	if n := unsafe.Sizeof(path{}); n > 32 {
		t.Errorf("path has %d bytes", n)
	}
	if n := unsafe.Sizeof(leg{}); n > 112 {
		t.Errorf("the repair of a path has %d bytes", n)
	}
}

// BenchmarkMemory measures the memory of a group's merging state.
func BenchmarkMemory(b *testing.B) {
	const paths = 300_000
	for _, receivers := range []int{3, 64, 512} {
		b.Run(fmt.Sprint(receivers), func(b *testing.B) {
			for b.Loop() {
				groups := make([]*Group, paths/receivers)
				testlab.MeasureHeap(b, len(groups), receivers, func() any {
					for i := range groups {
						groups[i] = New(Config{Paths: receivers})
					}
					return groups
				})
			}
		})
	}
}
