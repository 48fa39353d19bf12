package main

import (
	"math"
	"os"
	"runtime/debug"
)

// ballastBytes is the size of an allocation that is never touched, and so never resident. The garbage collector runs when the
// heap has grown by a share of its size. Remora's heap is a few megabytes, so under load it would run hundreds of times a
// second. The ballast saves a sixth of a loaded proxy's processor time (go run ./test/bench).
const ballastBytes = 96 << 20

// heapGrowth is the GOGC value, in percent of the heap including the ballast. A small heap grows as far as with a third of the
// ballast and Go's default of 100; the heap of thousands of open streams stays smaller (make streams).
const heapGrowth = 33

// tuneCollector configures the garbage collector, and returns the ballast, which must stay alive. Operators can set GOGC, which
// replaces heapGrowth, and GOMEMLIMIT, which does not count the ballast.
func tuneCollector() (ballast []byte) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64-ballastBytes {
		debug.SetMemoryLimit(limit + ballastBytes)
	}
	return make([]byte, ballastBytes)
}
