package process

import (
	"os/exec"
	"syscall"
)

// DieWithParent lets the kernel kill the command's process when this one is killed and runs no clean-up.
func DieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
