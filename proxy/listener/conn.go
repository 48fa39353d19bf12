package listener

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
)

// Wrap wraps a listener for fasthttp. [ReadError] and [ReplaceHead] work on its connections.
func Wrap(ln net.Listener) net.Listener { return &wrappingListener{Listener: ln} }

type wrappingListener struct {
	net.Listener
	buffers sync.Pool // *[]byte, see replacing
}

// Accept returns the next connection.
func (l *wrappingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	heads := replacing{buffers: &l.buffers}
	switch c := c.(type) {
	case *net.TCPConn:
		return &tcpConn{TCPConn: c, replacing: heads}, nil
	case secureConn:
		return &tlsServerConn{secureConn: c, replacing: heads}, nil
	}
	return &otherConn{Conn: c, replacing: heads}, nil
}

// ReadError returns the error of the last read of a connection of [Wrap], nil if it had none. fasthttp takes the end of the
// connection, and after the last chunk also a reset or a timeout, for the end of a chunked body; ReadError shows the
// difference. Call it from the goroutine that reads.
func ReadError(c net.Conn) error {
	r, ok := c.(interface{ readError() error })
	if !ok {
		return nil
	}
	return r.readError()
}

// ending returns the last bytes and the end of a connection in separate reads.
type ending struct {
	pending bool
	err     error // of the last read
}

func (e *ending) readError() error { return e.err }

// read does one read of a connection. TLS may return the last bytes and the end at once.
func (e *ending) read(from func([]byte) (int, error), p []byte) (n int, err error) {
	if e.pending {
		e.err = io.EOF
		return 0, e.err
	}
	n, err = from(p)
	if n > 0 && errors.Is(err, io.EOF) {
		e.pending, err = true, nil
	}
	e.err = err
	return n, err
}

// Head is the head of an answer, to send in place of the one that a server writes.
type Head interface {
	// Join appends to dst the head to send for the one at the beginning of p, and returns where that ends in p.
	Join(dst, p []byte) (head []byte, end int)
	// Release is called once, after Join.
	Release()
}

// ReplaceHead sends another head with the next answer on a connection of [Wrap]. The next Write must begin with the whole head
// that the server has made. body is how many bytes are written after it without delay: where the first Write has only some of
// them, they leave together with those of the second one. Call it from the goroutine that writes.
func ReplaceHead(c net.Conn, body int, h Head) {
	if r, ok := c.(interface{ replaceHead(body int, h Head) }); ok {
		r.replaceHead(body, h)
	}
}

// replacing replaces the head of an answer as it is written.
type replacing struct {
	head    Head        // for the next answer; nil for the server's own
	body    int         // bytes that follow it
	begin   *[]byte     // the beginning of an answer, which waits for the next write; nil for none
	pair    [2][]byte   // begin and that write, while they are written
	both    net.Buffers // pair, as far as it is not written
	buffers *sync.Pool
}

func (r *replacing) replaceHead(body int, h Head) {
	r.body, r.head = body, h
}

// write does one write of a connection.
func (r *replacing) write(to io.Writer, p []byte) (int, error) {
	if r.begin != nil {
		return r.writeBoth(to, p)
	}
	if r.head == nil {
		return to.Write(p)
	}
	buf, _ := r.buffers.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	head, end := r.head.Join((*buf)[:0], p)
	r.head.Release()
	r.head = nil
	*buf = append(head, p[end:]...)
	if len(p)-end < r.body {
		r.begin = buf
		return len(p), nil
	}
	n, err := to.Write(*buf)
	r.release(buf)
	if err != nil {
		return min(n, len(p)), err
	}
	return len(p), nil
}

// writeBoth writes p after the beginning of its answer: in one system call on a TCP connection.
func (r *replacing) writeBoth(to io.Writer, p []byte) (int, error) {
	begin := r.begin
	r.pair = [2][]byte{*begin, p}
	r.both = r.pair[:]
	n, err := r.both.WriteTo(to)
	n = max(0, n-int64(len(*begin)))
	r.begin, r.both, r.pair = nil, nil, [2][]byte{}
	r.release(begin)
	return int(n), err
}

func (r *replacing) release(buf *[]byte) {
	if cap(*buf) <= MaxPooled {
		r.buffers.Put(buf)
	}
}

// MaxPooled is the size in bytes of the largest buffer of a head that goes back to its pool.
const MaxPooled = 32 << 10

// tcpConn embeds *net.TCPConn rather than net.Conn for the methods that others look for: SyscallConn, CloseWrite, SetLinger.
type tcpConn struct {
	*net.TCPConn
	ending
	replacing
}

func (c *tcpConn) Read(p []byte) (int, error)  { return c.read(c.TCPConn.Read, p) }
func (c *tcpConn) Write(p []byte) (int, error) { return c.write(c.TCPConn, p) }

// secureConn is a *tls.Conn, or a type that embeds one.
type secureConn interface {
	net.Conn
	Handshake() error
	ConnectionState() tls.ConnectionState
	NetConn() net.Conn
	CloseWrite() error
}

type tlsServerConn struct {
	secureConn
	ending
	replacing
}

func (c *tlsServerConn) Read(p []byte) (int, error)  { return c.read(c.secureConn.Read, p) }
func (c *tlsServerConn) Write(p []byte) (int, error) { return c.write(c.secureConn, p) }

type otherConn struct {
	net.Conn
	ending
	replacing
}

func (c *otherConn) Read(p []byte) (int, error)  { return c.read(c.Conn.Read, p) }
func (c *otherConn) Write(p []byte) (int, error) { return c.write(c.Conn, p) }
