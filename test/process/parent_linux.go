package process

import (
	"os/exec"
	"syscall"
)

// DieWithParent makes the kernel kill the command's process when this process dies, even if it is killed.
func DieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
