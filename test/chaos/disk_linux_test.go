package chaos

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk returns a folder on a new file system of a size such as "1m". A process mounts it in its own namespace, which needs
// no privileges if users may create namespaces. It disappears with that process; other processes access it through /proc.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	spaces := []*syscall.SysProcAttr{
		{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		},
		{Unshareflags: syscall.CLONE_NEWNS}, // as root, if users may not
	}
	var last error
	for _, space := range spaces {
		cmd := exec.Command("sh", "-c", `mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat`, "sh", size, dir)
		space.Pdeathsig = syscall.SIGKILL
		cmd.SysProcAttr, cmd.Stderr = space, os.Stderr
		in, err := cmd.StdinPipe() // cat waits for its end
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if last = cmd.Start(); last != nil {
			continue
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			last = fmt.Errorf("mount: %q, %w", line, err)
			_ = cmd.Wait()
			continue
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
		return filepath.Join(fmt.Sprintf("/proc/%d/root", cmd.Process.Pid), dir)
	}
	t.Skipf("a small disk needs user name spaces, or root that may mount: %v", last)
	return ""
}
