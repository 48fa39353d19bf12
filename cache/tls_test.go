package cache_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"remora/cache"
	"remora/test/kit"
)

// authority is a CA with its certificates in a folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// issue writes a certificate to name.crt and its key to name.key. The first one is self-signed, and signs all others.
func (a *authority) issue(name string, c *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if a.key == nil {
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.path(name+file), pem.EncodeToMemory(b), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// TestRedisTLS: the store connects to a Redis that requires client certificates, with a private CA.
func TestRedisTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", &x509.Certificate{DNSNames: []string{"redis.internal"}})
	a.issue("local", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	a.issue("client", &x509.Certificate{})
	serve := func(cert string) string {
		port := kit.FreePort(t)
		kit.StartRedis(t, "--tls-port", fmt.Sprint(port), "--tls-auth-clients", "yes",
			"--tls-cert-file", a.path(cert+".crt"), "--tls-key-file", a.path(cert+".key"), "--tls-ca-cert-file", a.path("ca.crt"))
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	named, local := serve("server"), serve("local")
	full := cache.TLS{CAFile: a.path("ca.crt"), CertFile: a.path("client.crt"), KeyFile: a.path("client.key")}
	with := func(f func(*cache.TLS)) cache.TLS {
		o := full
		f(&o)
		return o
	}
	for _, c := range []struct {
		name, url string
		tls       cache.TLS
		ok        bool
	}{
		{"all that is needed", "rediss://" + local, full, true},
		{"a name of its own", "rediss://" + named, with(func(o *cache.TLS) { o.ServerName = "redis.internal" }), true},
		{"another name", "rediss://" + named, full, false},
		{"no certificate of ours", "rediss://" + local, cache.TLS{CAFile: full.CAFile}, false},
		{"a CA that is not trusted", "rediss://" + local, with(func(o *cache.TLS) { o.CAFile = "" }), false},
		{"any certificate", "rediss://" + named, with(func(o *cache.TLS) { o.CAFile, o.SkipVerify = "", true }), true},
		{"any certificate, in the URL", "rediss://" + named + "?skip_verify=true", with(func(o *cache.TLS) { o.CAFile = "" }), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, c.url, cache.Options{TLS: c.tls})
			defer func() { _ = s.Close() }()
			err := s.Ping(t.Context())
			if (err == nil) != c.ok {
				t.Fatalf("ping: %v", err)
			}
			if fault, _ := cache.FaultOf(err); err != nil && fault != cache.FaultStore {
				t.Errorf("%v is a fault of %s", err, fault)
			}
			if err == nil {
				mustCommit(t, s, put("o", "a", []byte("1")))
			}
		})
	}
}

// TestReplacedCA: a store that is in use verifies servers by the CA that is in the file when it connects, as after the CA of a
// Redis was replaced.
func TestReplacedCA(t *testing.T) {
	before, now := newAuthority(t), newAuthority(t)
	now.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	port := kit.FreePort(t)
	kit.StartRedis(t, "--tls-port", fmt.Sprint(port), "--tls-auth-clients", "no",
		"--tls-cert-file", now.path("server.crt"), "--tls-key-file", now.path("server.key"), "--tls-ca-cert-file", now.path("ca.crt"))
	s := open(t, fmt.Sprintf("rediss://127.0.0.1:%d", port), cache.Options{TLS: cache.TLS{CAFile: before.path("ca.crt")}})
	defer func() { _ = s.Close() }()
	if err := s.Ping(t.Context()); err == nil {
		t.Fatal("the certificate of another CA is accepted")
	}
	if err := os.Rename(now.path("ca.crt"), before.path("ca.crt")); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
