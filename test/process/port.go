package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePort returns an unused port of 127.0.0.1. It is outside of the range for outgoing connections (from 32768 on Linux, 49152
// elsewhere), of which another program could take a port while a server is restarted. The port is reserved until release, also
// against FreePort in other processes. Other programs may still take it.
func FreePort() (port int, release func() error, err error) {
	const first, ports, tries = 10_000, 20_000, 100
	for range tries {
		port = first + rand.IntN(ports)
		if release, err = claim(port); err == nil {
			return port, release, nil
		}
	}
	return 0, nil, fmt.Errorf("find a free port: %w", err)
}

// Loopback returns the address of a port of 127.0.0.1.
func Loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// claim reserves a port. The reservation is the UDP port of the same number, which no test uses otherwise: the system frees it
// when the process dies.
func claim(port int) (release func() error, err error) {
	mark, err := net.ListenPacket("udp", Loopback(port)) //nolint:noctx // loopback
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", Loopback(port)) //nolint:noctx // loopback
	if err != nil {
		return nil, errors.Join(err, mark.Close())
	}
	return mark.Close, l.Close()
}
