package driver

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// startHeap is the memory that the first cycle may use beside the live heap before the garbage collector runs. Without
	// it, the collector takes a sixth of the CPU time of a restart.
	startHeap = 128 << 20
	// startPercent bounds it for a small heap, as GOGC does.
	startPercent = 400
)

// growHeap collects the garbage, and lets the heap grow more than usual until the returned function is called.
//
// The memory that receiving and compiling the objects took is garbage before the first cycle. The first
// cycle renders everything and reads everything from the kernel. A collection in between
// keeps the two peaks of a start from adding up.
func growHeap() (restore func()) {
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	usual := debug.SetGCPercent(startPercent)
	if bytes := live[0].Value.Uint64(); usual < 0 || usual > startPercent {
		debug.SetGCPercent(usual)
	} else if bytes*startPercent > 100*startHeap {
		debug.SetGCPercent(max(usual, int(100*startHeap/bytes)))
	}
	return func() { debug.SetGCPercent(usual) }
}
