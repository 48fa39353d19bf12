package listener

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
)

// Certificate is a certificate and its key in PEM files, which may be replaced while it is in use: connections that are
// made from then on get the new one. It is safe for concurrent use.
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

// Load reads the files, and tells whether they hold something else than before. Where they cannot be used, what was read
// before stays: a key may be replaced a moment after its certificate.
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

// Listen wraps a listener. Load must have succeeded once before clients are accepted.
func (c *Certificate) Listen(ln net.Listener) net.Listener {
	return tls.NewListener(ln, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.pair, nil
		},
	})
}
