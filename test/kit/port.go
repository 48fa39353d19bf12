package kit

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	"remora/test/process"
)

// FreePort returns an unused TCP port of 127.0.0.1 (see [process.FreeAddr]), which is reserved until the end of the test.
func FreePort(tb testing.TB) int {
	tb.Helper()
	_, text, err := net.SplitHostPort(FreeAddr(tb))
	if err != nil {
		tb.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// FreeAddr returns a loopback address with a [FreePort].
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	addr, release, err := process.FreeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := release(); err != nil {
			tb.Error(fmt.Errorf("release %s: %w", addr, err))
		}
	})
	return addr
}
