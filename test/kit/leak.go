package kit

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leakPatience is how long goroutines may take to end. goleak by itself waits for less than half a second, which net/http's
// server spends on the last of a connection's life, and a busy machine on anything.
const leakPatience = time.Minute

// RunWithoutLeaks runs the tests of a package and returns the exit code for TestMain: the code of the tests, or 1 if
// they passed and goroutines are still there a minute later. A goroutine with one of the ignored functions, fully
// qualified, anywhere on its stack does not count.
func RunWithoutLeaks(m *testing.M, ignored ...string) int {
	code := m.Run()
	if code != 0 {
		return code // what failed has not cleaned up
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
