package providers

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// dial makes a new connection. Its errors wrap ErrUnreachable and name the address, never a credential.
func (p *pool) dial(ctx context.Context) (*conn, error) {
	if d := p.client.o.DialTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	nc, err := p.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: dial %s: %w", ErrUnreachable, p.addr.Addr, err)
	}
	cn := &conn{Conn: nc, pool: p}
	cn.probe.Attach(nc)
	if p.tls == nil {
		return cn, nil
	}
	tc := tls.Client(nc, p.tls)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("%w: TLS handshake with %s: %w", ErrUnreachable, p.addr.Addr, err)
	}
	cn.Conn = tc
	return cn, nil
}

// connect opens the TCP connection, through a forward proxy if the environment names one.
func (p *pool) connect(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{KeepAlive: 30 * time.Second}
	if p.proxy == nil {
		return d.DialContext(ctx, "tcp", p.addr.Addr)
	}
	return connectVia(ctx, &d, p.proxy, p.addr.Addr)
}

// connectVia asks an HTTP proxy for a tunnel, for upstreams without TLS too: so there is one kind of connection, and the
// forward proxy sees no bodies.
func connectVia(ctx context.Context, d *net.Dialer, via *url.URL, addr string) (net.Conn, error) {
	if via.Scheme != "http" {
		return nil, fmt.Errorf("forward proxy scheme %q is not supported, only http", via.Scheme)
	}
	port := cmp.Or(via.Port(), "80")
	nc, err := d.DialContext(ctx, "tcp", net.JoinHostPort(via.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("dial the forward proxy: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(past()) })
	defer stop()
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{}}
	if u := via.User; u != nil {
		password, _ := u.Password()
		auth := http.Request{Header: http.Header{}}
		auth.SetBasicAuth(u.Username(), password)
		req.Header.Set("Proxy-Authorization", auth.Header.Get("Authorization"))
	}
	if err := tunnel(nc, req); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return nc, nil
}

func tunnel(nc net.Conn, req *http.Request) error {
	if err := req.Write(nc); err != nil {
		return fmt.Errorf("ask the forward proxy for a tunnel: %w", err)
	}
	// One byte at a time is slow and exact: nothing of what follows the head may be taken from the connection.
	resp, err := http.ReadResponse(bufio.NewReaderSize(byteReader{nc}, 1), req)
	if err != nil {
		return fmt.Errorf("read the forward proxy's answer: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("forward proxy refused CONNECT with status %d", resp.StatusCode)
	}
	return nil
}

// byteReader hands out single bytes, which keeps a bufio.Reader above it from reading ahead.
type byteReader struct{ net.Conn }

func (r byteReader) Read(p []byte) (int, error) { return r.Conn.Read(p[:min(len(p), 1)]) }

// past is a deadline that ends every pending read and write.
func past() time.Time { return time.Unix(1, 0) }
