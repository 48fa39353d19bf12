package main

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// processCPU returns the user and system time that a process has used. /proc/PID/stat has a resolution of only 10 ms, as much
// as a whole phase at a low rate.
func processCPU(pid int) (time.Duration, error) {
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|schedClock, &ts); err != nil {
		return 0, fmt.Errorf("read CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// ownThread locks the calling goroutine to a thread that sleeps with a precision of microseconds. Go's timers are late by up to a
// millisecond in a program that waits for sockets.
func ownThread() (release func()) {
	runtime.LockOSThread()
	// Best effort: without it a sleep is late by 50 us more.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return runtime.UnlockOSThread
}

// sleepUntil is for goroutines that called ownThread.
func sleepUntil(t time.Time) {
	for d := time.Until(t); d > 0; d = time.Until(t) {
		ts := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&ts, nil) // a signal may end it early
	}
}
