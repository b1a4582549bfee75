package bench

import (
	"crypto/sha256"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// calibrationBytes is the input of the calibration loop: a fixed amount of
// work that needs the CPU alone.
const calibrationBytes = 256 << 20

// calibrate returns the CPU time of the calibration loop, in seconds.
func calibrate() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	block := make([]byte, 64<<10)
	before := threadTime()
	h := sha256.New()
	for range calibrationBytes / len(block) {
		h.Write(block) // never fails
	}
	return (threadTime() - before).Seconds()
}

func threadTime() time.Duration {
	var t unix.Timespec
	// It fails for an unknown clock only.
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
