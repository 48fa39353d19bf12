package kit

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/test/process"
)

// BuildProxy builds the binary of this source tree, once per test process, and returns its path. With E2E_RACE=1 it has the race
// detector.
func BuildProxy(tb testing.TB) string {
	tb.Helper()
	bin, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

var build = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // one build for all tests of a process
	_, here, _, _ := runtime.Caller(0)
	source := filepath.Dir(filepath.Dir(filepath.Dir(here)))

	// One file per source tree, which all test processes share: files do not accumulate.
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("remora-proxy-%x", crc32.ChecksumIEEE([]byte(source))))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "remora")
	var flags []string
	if os.Getenv("E2E_RACE") == "1" {
		bin, flags = bin+"-race", append(flags, "-race")
	}
	built := fmt.Sprintf("%s.%d", bin, os.Getpid())

	// Go does not link a program again that is up to date: start from the binary of another test process.
	if last, err := os.ReadFile(bin); err == nil {
		if err := os.WriteFile(built, last, 0o700); err != nil {
			return "", err
		}
	}
	if err := process.Build(context.Background(), built, flags...); err != nil {
		return "", err
	}
	return bin, errors.Join(noteSources(), os.Rename(built, bin))
})

// noteSources opens each folder of the source tree. The go command takes a result of a test from its cache unless something that the
// test has opened has changed, and it does not see what the build opens.
func noteSources() error {
	root := "."
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if len(root) > maxDepth*len("../") {
			return errors.New("the folder of this test is in no module")
		}
		root = filepath.Join(root, "..")
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return fs.SkipDir // of an error: another test has removed the folder
		}
		return nil
	})
}

// maxDepth is more folders than a path has within the module.
const maxDepth = 16

// CheckConfig checks a configuration with `remora --check`, in the environment of this process and with additional variables.
func CheckConfig(tb testing.TB, text string, environ ...string) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), BuildProxy(tb), "--check", "--config", file)
	cmd.Env = append(os.Environ(), environ...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Errorf("%v\n%s\n%s", err, out, text)
	}
}

// maxTries is the number of starts tried: another program may take the port for a moment.
const maxTries = 5

// Proxy is a proxy process of a test.
type Proxy struct {
	*process.Child // the last process

	// URL is the origin of the proxy, without a path. Restarts do not change it.
	URL string
	// Dir is its working directory; Config the path of its configuration there.
	Dir, Config string

	tb      testing.TB
	addr    string
	environ []string // additional variables
	running bool
}

// StartProxy writes config into dir and starts a proxy there, with additional variables in its environment. It is stopped at the
// end of the test, and must then exit with 0 if it still runs.
func StartProxy(tb testing.TB, dir, config string, environ ...string) *Proxy {
	tb.Helper()
	p := &Proxy{tb: tb, Dir: dir, Config: filepath.Join(dir, "config.yaml"), environ: environ}
	if err := os.WriteFile(p.Config, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	p.addr = FreeAddr(tb)
	p.URL = "http://" + p.addr
	p.Restart()
	tb.Cleanup(p.Stop)
	return p
}

// Restart starts a proxy that does not run, and waits until it accepts connections.
func (p *Proxy) Restart() {
	p.tb.Helper()
	for try := 1; ; try++ {
		cmd := exec.Command(BuildProxy(p.tb), "--config", p.Config, "--listen", p.addr)
		cmd.Dir, cmd.Env = p.Dir, append(process.Environ(), p.environ...)
		process.DieWithParent(cmd)

		started, err := process.Start(cmd)
		if p.Child, p.running = started.Child, err == nil; p.running {
			return
		}
		if try == maxTries || !strings.Contains(p.Log(), "address already in use") {
			p.tb.Fatalf("%v\n%s", err, p.Log())
		}
		time.Sleep(time.Second)
	}
}

// Stop stops the process with SIGTERM if it still runs. The test fails unless it exits with 0.
func (p *Proxy) Stop() {
	p.tb.Helper()
	if !p.running {
		return
	}
	p.running = false
	if err := p.Child.Stop(); err != nil {
		p.tb.Errorf("%v\n%s", err, p.Log())
	}
}

// Kill kills the process with SIGKILL.
func (p *Proxy) Kill() {
	p.tb.Helper()
	p.running = false
	if err := p.Child.Kill(); err != nil {
		p.tb.Error(err)
	}
}

// Logged waits until the log contains want a number of times, and returns it: an answer may arrive before the lines about it.
func (p *Proxy) Logged(want string, times int) (log string) {
	p.tb.Helper()
	Eventually(p.tb, func() error {
		if log = p.Log(); strings.Count(log, want) < times {
			return fmt.Errorf("the log does not contain %q %d times:\n%s", want, times, log)
		}
		return nil
	})
	return log
}
