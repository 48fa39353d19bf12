package cache

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// ErrNoTLS is returned for a store with a TLS that its URL has no use for.
var ErrNoTLS = errors.New("has no TLS, so store.tls has no use: begin it with rediss, or leave store.tls out")

// TLS configures the certificates of this process and of the servers of store.url, for the schemes rediss, rediss+sentinel
// and rediss+cluster.
type TLS struct {
	// CAFile holds the CA certificates, in PEM, to verify the servers' certificates. Empty means the system's. All files are read
	// for each connection, so that they can be replaced.
	CAFile string `mapstructure:"ca_file"`
	// CertFile and KeyFile are the client certificate, in PEM, for servers that require one.
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
	// ServerName is the name in the servers' certificates, if it is not the one in store.url.
	ServerName string `mapstructure:"server_name"`
	// SkipVerify accepts any certificate.
	SkipVerify bool `mapstructure:"skip_verify"`
}

// Apply sets the certificates and the server name in c. Errors name the configuration key.
func (o TLS) Apply(c *tls.Config) error {
	c.InsecureSkipVerify = c.InsecureSkipVerify || o.SkipVerify
	if o.ServerName != "" {
		c.ServerName = o.ServerName
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return fmt.Errorf("store.tls.ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("store.tls.ca_file: want certificates in PEM, %s holds none", o.CAFile)
		}
	}
	if o.CertFile == "" && o.KeyFile == "" {
		return nil
	}
	if o.CertFile == "" || o.KeyFile == "" {
		return errors.New("store.tls: cert_file and key_file must be set together")
	}
	if _, err := o.certificate(nil); err != nil {
		return err
	}
	c.GetClientCertificate = o.certificate
	return nil
}

// Dialer returns a function that connects to a server within timeout, TLS included. It applies o to a copy of c each time: a
// tls.Config in use has the CA certificates that its file had before.
func (o TLS) Dialer(c *tls.Config, timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: timeout}, Config: c.Clone()}
		if err := o.Apply(d.Config); err != nil {
			return nil, err
		}
		return d.DialContext(ctx, network, addr)
	}
}

// certificate reads the client certificate.
func (o TLS) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("store.tls.cert_file and store.tls.key_file: %w", err)
	}
	return &pair, nil
}
