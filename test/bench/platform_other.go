//go:build !linux

package main

import (
	"errors"
	"time"
)

func processCPU(int) (time.Duration, error) {
	return 0, errors.New("read CPU clock of a process: only done on Linux")
}

func ownThread() (release func()) { return func() {} }

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
