//go:build !linux

package process

import "os/exec"

// DieWithParent does nothing: only Linux supports it.
func DieWithParent(*exec.Cmd) {}
