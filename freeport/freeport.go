// Package freeport finds ports for the servers of tests that have to be told theirs.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Find returns a TCP port of 127.0.0.1 that nobody listens on. It is none of those that systems give to outgoing
// connections (from 32768 on Linux, 49152 elsewhere): one of another test would take it while a server is started again.
// Another server may still take it before it is used.
func Find(tb testing.TB) int {
	tb.Helper()
	const first, ports, tries = 10_000, 20_000, 100
	var err error
	for range tries {
		port := first + rand.IntN(ports) //nolint:gosec // nobody must not guess it
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil { //nolint:noctx // loopback
			_ = l.Close()
			return port
		}
	}
	tb.Fatalf("find a free port: %v", err)
	return 0
}
