//go:build !linux

package redistest

import "os/exec"

// dieWithParent has no counterpart here.
func dieWithParent(*exec.Cmd) {}
