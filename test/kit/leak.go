package kit

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leakPatience bounds the time that goroutines take to end. goleak itself waits for less than half a second, which is too short
// for net/http's server and for a busy machine.
const leakPatience = time.Minute

// RunWithoutLeaks runs the tests of a package and returns the exit code for TestMain: the code of the tests, or 1 if they
// passed but goroutines still run a minute later. It ignores goroutines with one of the ignored functions, fully qualified, on
// their stack.
func RunWithoutLeaks(m *testing.M, ignored ...string) int {
	code := m.Run()
	if code != 0 {
		return code // failed tests may not have cleaned up
	}
	options := make([]goleak.Option, len(ignored))
	for i, f := range ignored {
		options[i] = goleak.IgnoreAnyFunction(f)
	}
	var err error
	for deadline := time.Now().Add(leakPatience); time.Now().Before(deadline); {
		if err = goleak.Find(options...); err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, "goroutines of the tests are left:", err)
	return 1
}
