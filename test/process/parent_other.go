//go:build !linux

package process

import "os/exec"

// DieWithParent does nothing: only Linux has it.
func DieWithParent(*exec.Cmd) {}
