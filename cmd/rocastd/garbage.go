package main

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// gcAtStart is the percentage with which garbage is collected first when the heap has 64 MiB.
const gcAtStart = 1600

// putOffGC puts the collection of garbage off until usual is called. Until then the members of a
// daemon that was killed wait, and the garbage of a start is less than a collection costs: it looks
// through the records of all packets that can be retained. A start that reads large tables has its
// garbage collected as usual from 64 MiB on.
func putOffGC() (usual func()) {
	percent := debug.SetGCPercent(gcAtStart)
	usual = sync.OnceFunc(func() { debug.SetGCPercent(percent) })
	first := new([64]byte) // the first collection finds that nobody uses it
	runtime.AddCleanup(first, func(usual func()) { usual() }, usual)
	return usual
}
