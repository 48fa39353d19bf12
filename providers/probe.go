package providers

import (
	"net"
	"syscall"
)

// Peer is the state of the other end of a connection, as a [Probe] sees it.
type Peer uint8

// States of a peer.
const (
	// PeerUnknown: this system or this connection gives no answer.
	PeerUnknown Peer = iota
	// PeerQuiet: connected, nothing unread.
	PeerQuiet
	// PeerPending: connected, and bytes that it sent are unread.
	PeerPending
	// PeerGone: it has closed at least its sending direction, or the connection is broken.
	PeerGone
)

// Probe checks whether the other end of a connection is still there, without reading a byte and without blocking. Deadlines and
// pending reads do not affect it. The zero value is not attached. A Probe must not be copied once it is attached.
type Probe struct {
	raw   syscall.RawConn
	check func(fd uintptr) // made once: a closure per check would be an allocation
	state Peer
}

// Attach makes p check c, or the connection below c if that is TLS. It has no effect if c has no descriptor.
func (p *Probe) Attach(c net.Conn) {
	p.raw = nil
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	p.raw = raw
	if p.check == nil {
		p.check = func(fd uintptr) { p.state = look(fd) }
	}
}

// Detach makes p forget its connection.
func (p *Probe) Detach() { p.raw = nil }

// Attached reports whether p has a connection to check.
func (p *Probe) Attached() bool { return p.raw != nil }

// Look asks the kernel.
func (p *Probe) Look() Peer {
	if p.raw == nil {
		return PeerUnknown
	}
	if err := p.raw.Control(p.check); err != nil {
		return PeerGone
	}
	return p.state
}
