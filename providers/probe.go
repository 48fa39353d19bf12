package providers

import (
	"net"
	"syscall"
)

// Peer is what the other end of a connection has done, as a [Probe] sees it.
type Peer uint8

// States of a peer.
const (
	// PeerUnknown: this system or this connection gives no answer.
	PeerUnknown Peer = iota
	// PeerQuiet: connected, nothing unread.
	PeerQuiet
	// PeerPending: connected, and it has sent what nobody has read yet.
	PeerPending
	// PeerGone: it has closed at least its sending direction, or the connection broke.
	PeerGone
)

// Probe looks at what the other end of a connection has done, without taking a byte and without waiting. A deadline or
// a read under way does not matter to it. The zero value knows nothing; it must not be copied once it is attached.
type Probe struct {
	raw   syscall.RawConn
	check func(fd uintptr) // made once: a closure per look would be garbage
	state Peer
}

// Attach makes p look at c, or at what is below c if that is TLS. Without a descriptor, p still knows nothing.
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

// Attached tells whether p can tell anything.
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
