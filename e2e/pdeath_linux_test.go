package e2e

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the process when the tests are killed, so that none is left behind.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
