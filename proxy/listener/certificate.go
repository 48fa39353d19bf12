package listener

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Certificate is a certificate and its key in PEM files. The files may be replaced at any time; after Load, new connections get
// the new certificate. It is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string

	mu        sync.Mutex
	cert, key []byte // as read
	pair      *tls.Certificate
}

// NewCertificate names the files. Nothing is read yet.
func NewCertificate(certFile, keyFile string) *Certificate {
	return &Certificate{certFile: certFile, keyFile: keyFile}
}

// Load reads the files, and reports whether they have changed. If they cannot be used, the certificate that was read before
// stays in use: a key may be replaced a moment after its certificate.
func (c *Certificate) Load() (changed bool, err error) {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return false, fmt.Errorf("server.tls_cert: %w", err)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return false, fmt.Errorf("server.tls_key: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("server.tls_cert and server.tls_key: %w", err)
	}
	c.cert, c.key, c.pair = cert, key, &pair
	return true, nil
}

// Expiry returns when the certificate expires, the zero time before Load has succeeded.
func (c *Certificate) Expiry() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair == nil {
		return time.Time{}
	}
	return c.pair.Leaf.NotAfter
}

// Listen wraps a listener. Load must have succeeded once before clients are accepted.
func (c *Certificate) Listen(ln net.Listener) net.Listener {
	return &tlsListener{ln, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.pair, nil
		},
	}}
}

// tlsListener is the listener of crypto/tls, with an answer for clients that speak plain HTTP.
type tlsListener struct {
	net.Listener
	config *tls.Config
}

// Accept returns the next connection. Its handshake comes later.
func (l *tlsListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tlsConn{tls.Server(c, l.config)}, nil
}

type tlsConn struct{ *tls.Conn }

// Handshake answers a client that speaks plain HTTP with an explanation, as net/http does.
func (c tlsConn) Handshake() error {
	err := c.Conn.Handshake()
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && isHTTP(header.RecordHeader) {
		const text = "Client sent an HTTP request to an HTTPS server.\n"
		_, _ = fmt.Fprintf(header.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
			"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	}
	return err
}

// isHTTP reports whether the first bytes of a connection are those of an HTTP request.
func isHTTP(begin [5]byte) bool {
	switch string(begin[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	}
	return false
}
