package golden_test

import (
	"bytes"
	"flag"
	"fmt"
	"os/exec"
	"testing"

	"remora/test/golden"
	"remora/test/kit"
)

var update = flag.Bool("update", false, "write the scenarios anew from what the proxy does")

// TestGolden plays the scenarios with the binary. cmd/remora plays the same files in its test process.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata", binary{kit.BuildProxy(t)}, *update)
}

// binary is a golden.Launcher.
type binary struct{ path string }

func (binary) Start(tb testing.TB, dir, config string) (string, func()) {
	tb.Helper()
	p := kit.StartProxy(tb, dir, config)
	return p.URL, p.Stop
}

func (b binary) Command(tb testing.TB, dir string, args ...string) (string, error) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), b.path, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(out), nil
}
