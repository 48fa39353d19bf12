package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill the server when the test binary dies without running its clean-up.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
