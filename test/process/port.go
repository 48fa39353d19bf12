package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddr returns an unused address of 127.0.0.1. Its port is outside of the range for outgoing connections (from 32768 on
// Linux, 49152 elsewhere), of which another program could take a port while a server is restarted. The port is reserved until
// release, also against FreeAddr in other processes. Other programs may still take it.
func FreeAddr() (addr string, release func() error, err error) {
	const first, ports, tries = 10_000, 20_000, 100
	for range tries {
		addr = fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(ports))
		if release, err = claim(addr); err == nil {
			return addr, release, nil
		}
	}
	return "", nil, fmt.Errorf("find a free port: %w", err)
}

// claim reserves a port. The reservation is the UDP port of the same number, which no test uses otherwise: the system frees it
// when the process dies.
func claim(addr string) (release func() error, err error) {
	mark, err := net.ListenPacket("udp", addr) //nolint:noctx // loopback
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr) //nolint:noctx // loopback
	if err != nil {
		return nil, errors.Join(err, mark.Close())
	}
	return mark.Close, l.Close()
}
