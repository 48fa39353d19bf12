package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"remora/test/process"
)

// TestTerminalIsGreeted: who starts a proxy by hand reads where it listens, and a request to try.
func TestTerminalIsGreeted(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	screen, terminal := openTerminal(t)
	cmd := exec.Command("remora", "--listen", "127.0.0.1:0") // created by testscript.Main
	cmd.Dir, cmd.Env, cmd.Stderr = t.TempDir(), append([]string{"PATH=" + os.Getenv("PATH"), providerAt(up)}, patientStore...), terminal
	process.DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	_ = terminal.Close()

	lines := bufio.NewScanner(screen)
	for _, want := range []string{"remora listens on http://127.0.0.1:", "try: curl http://127.0.0.1:"} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Errorf("have %q, want %q", lines.Text(), want)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// openTerminal opens a terminal, and returns also the side that reads what is written to it.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err) // some containers have none
	}
	t.Cleanup(func() { _ = screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, terminal
}
