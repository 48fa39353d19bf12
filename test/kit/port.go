package kit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreePort returns an unused TCP port of 127.0.0.1. It is outside of the range for outgoing connections (from 32768 on Linux,
// 49152 elsewhere), of which another test could take a port while a server is restarted. The port is reserved for this test
// until its end, also against tests in other processes. Other programs may still take it.
func FreePort(tb testing.TB) int {
	tb.Helper()
	const first, ports, tries = 10_000, 20_000, 100
	var err error
	for range tries {
		port := first + rand.IntN(ports)
		if err = claim(tb, port); err == nil {
			return port
		}
	}
	tb.Fatalf("find a free port: %v", err)
	return 0
}

// FreeAddr returns a loopback address with a [FreePort].
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(tb))
}

// claim reserves a port for the test. The reservation is the UDP port of the same number, which no test uses otherwise: the
// system frees it when the process dies.
func claim(tb testing.TB, port int) error {
	tb.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", port)
	mark, err := net.ListenPacket("udp", address) //nolint:noctx // loopback
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address) //nolint:noctx // loopback
	if err != nil {
		_ = mark.Close()
		return err
	}
	tb.Cleanup(func() { _ = mark.Close() })
	return l.Close()
}
