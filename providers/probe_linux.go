//go:build linux

package providers

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// tcpEstablished is the one state of TCP_INFO in which both directions are open (include/net/tcp_states.h).
const tcpEstablished = 1

// look asks for one byte without taking it. The call is made raw: it never blocks, so the scheduler need not know,
// and unix.Recvfrom would allocate an address that is not needed.
func look(fd uintptr) Peer {
	var one byte
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd,
		uintptr(unsafe.Pointer(&one)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // the kernel writes one byte
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return PeerQuiet
	case errno != 0 || n == 0:
		return PeerGone
	}
	// Unread bytes hide the end of the stream after them, so the state of the connection has to tell.
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err == nil && info.State != tcpEstablished {
		return PeerGone
	}
	return PeerPending
}
