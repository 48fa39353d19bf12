package kit

import (
	"testing"

	"remora/test/process"
)

// FreePort returns an unused TCP port of 127.0.0.1 (see [process.FreePort]), which is reserved until the end of the test.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, release, err := process.FreePort()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := release(); err != nil {
			tb.Errorf("release port %d: %v", port, err)
		}
	})
	return port
}

// FreeAddr returns a loopback address with a [FreePort].
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	return process.Loopback(FreePort(tb))
}
