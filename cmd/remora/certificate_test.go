package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"remora/test/kit"
)

// TestCertificateIsReplaced: new connections get the replaced certificate, an old connection stays open, and a key that does not
// match its certificate changes nothing.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	firstCert, firstKey := newCertificate(t, "first", 2*expiryNotice)
	secondCert, secondKey := newCertificate(t, "second", time.Hour)
	write := func(name string, pem []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cert.pem", firstCert)
	write("key.pem", firstKey)
	p := kit.StartProxy(t, dir, "server: {tls_cert: cert.pem, tls_key: key.pem}\nstore: {url: \"memory:\"}\n")
	plain, err := http.Post(strings.Replace(p.URL, "https://", "http://", 1)+"/v1/responses", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Body.Close() }()
	if text, err := io.ReadAll(plain.Body); plain.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "to an HTTPS server") || err != nil {
		t.Errorf("plain HTTP: %s %s, %v", plain.Status, text, err)
	}
	old := dialTLS(t, p)
	if name := nameOf(old); name != "first" {
		t.Fatalf("certificate of %q", name)
	}
	hangUp := func(mark string) {
		t.Helper()
		for deadline := time.Now().Add(waitLimit); !strings.Contains(p.Log(), mark); time.Sleep(10 * time.Millisecond) {
			if err := syscall.Kill(p.PID(), syscall.SIGHUP); err != nil || time.Now().After(deadline) {
				t.Fatalf("log does not hold %q: %v\n%s", mark, err, p.Log())
			}
		}
	}
	write("cert.pem", secondCert)
	hangUp("certificate not reloaded")
	if name := nameOf(dialTLS(t, p)); name != "first" {
		t.Errorf("with a key that does not fit: certificate of %q", name)
	}
	write("key.pem", secondKey)
	if log := p.Log(); strings.Contains(log, "expires soon") {
		t.Errorf("a certificate that is new is reported as expiring:\n%s", log)
	}
	hangUp("certificate reloaded")
	hangUp("expires soon, or has expired")
	if n := strings.Count(p.Log(), "expires soon"); n != 1 {
		t.Errorf("%d lines about one certificate that expires", n)
	}
	if name := nameOf(dialTLS(t, p)); name != "second" {
		t.Errorf("after both were replaced: certificate of %q", name)
	}
	if _, err := old.Write([]byte("GET /nowhere HTTP/1.1\r\nHost: x\r\nX-Memory: off\r\nbroken\r\n\r\n")); err != nil {
		t.Error(err)
	}
	answer := make([]byte, 9)
	if _, err := old.Read(answer); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 ")) {
		t.Errorf("on the old connection: %q, %v", answer, err)
	}
}

func dialTLS(t *testing.T, p *kit.Proxy) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.URL, "http://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func nameOf(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].Subject.CommonName }

// newCertificate returns a self-signed certificate.
func newCertificate(t *testing.T, name string, left time.Duration) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(left),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}
