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

// TestTerminalIsNotSteered: what callers have said cannot steer the terminal on which a transcript is printed.
func TestTerminalIsNotSteered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	said := `{"message":{"role":"user","content":"a` + "\u009b31mb\u202ec" + `"}}` + "\n"
	remora := func(stdout *os.File, stdin string, more ...string) *exec.Cmd {
		cmd := exec.Command("remora", append([]string{"transcript", "--session", "s", "--key", "k"}, more...)...) // created by testscript.Main
		cmd.Dir, cmd.Env, cmd.Stdin = dir, []string{"PATH=" + os.Getenv("PATH")}, strings.NewReader(stdin)
		if stdout != nil {
			cmd.Stdout = stdout
		}
		process.DieWithParent(cmd)
		return cmd
	}
	if out, err := remora(nil, said, "--import", "-").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	screen, terminal := openTerminal(t)
	cmd := remora(terminal, "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = terminal.Close()
	lines := bufio.NewScanner(screen)
	for lines.Scan() && !strings.Contains(lines.Text(), `{"item":`) {
	}
	if got := lines.Text(); !strings.Contains(got, `a\u009b31mb\u202ec`) {
		t.Errorf("the terminal gets %q", got)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestScreen: characters that come in pieces are shown whole, and those that steer are escaped.
func TestScreen(t *testing.T) {
	var shown strings.Builder
	s := &screen{w: &shown}
	for _, b := range []byte("{\"é€😀\u009b\u2066\x7f\x1b\xff\"}\n") {
		if _, err := s.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := shown.String(), "{\"é€😀"+`\u009b\u2066\u007f\u001b`+"\ufffd\"}\n"; got != want {
		t.Errorf("%q, want %q", got, want)
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
