package testlab

import (
	"runtime"
	"testing"
)

// MeasureHeap reports the memory of n groups that create makes, for each group and for each of its
// receivers. What create returns keeps them alive.
func MeasureHeap(b *testing.B, n, receivers int, create func() (all any)) {
	b.Helper()
	before := HeapBytes()
	all := create()
	perGroup := float64(HeapBytes()-before) / float64(n)
	b.ReportMetric(perGroup, "B/group")
	b.ReportMetric(perGroup/float64(receivers), "B/path")
	runtime.KeepAlive(all)
}

// HeapBytes is the size of what is reachable.
func HeapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
