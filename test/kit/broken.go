package kit

import (
	"iter"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// WantFailures shows that a suite can fail. For each name it runs TestBroken of the re-executed test binary, with the name in the
// environment variable env, and wants the subtest of this name to fail.
func WantFailures(t *testing.T, env string, names iter.Seq[string]) {
	t.Helper()
	for name := range names {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.timeout=4m", "-test.run=^TestBroken$/^"+name+"$")
			cmd.Env = append(os.Environ(), env+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestBroken/"+name) {
				t.Errorf("the suite does not find it: %v\n%s", err, out)
			}
		})
	}
}
