package http

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"remora/memory/layer"
	"remora/secret"
)

// Errors of hooks wrap one of these, or the error of the context.
var (
	// ErrUnreachable: no connection to the server could be made, or it broke off.
	ErrUnreachable = errors.New("the layer's server cannot be reached")
	// ErrStatus: the server answered with a status other than 200 and 204.
	ErrStatus = errors.New("the layer's server refuses")
	// ErrAnswer: the answer is not what docs/custom-layer.md says, or too large.
	ErrAnswer = errors.New("the answer of the layer's server is unusable")
)

// client posts requests to the layer's server and reads its answers.
type client struct {
	*http.Client
	o Options
}

func newClient(o Options) *client {
	return &client{o: o, Client: &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			MaxConnsPerHost:        maxConnections,
			MaxIdleConnsPerHost:    maxConnections / 4,
			IdleConnTimeout:        4 * time.Second, // Node closes them after 5
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: maxHeader,
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
		},
		// A redirect would send content with a valid signature to a server that the operator has not configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ask sends a request and reads its answer. The context's deadline is the only one.
func (c *client) ask(ctx context.Context, r *request) (*answer, error) {
	body, err := r.encode(c.o.MaxRequest)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.o.URL, bytes.NewReader(body))
	if err != nil {
		return nil, safe("%w: url", ErrUnreachable) // New has checked it
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "remora")
	// It is not sent, but lets net/http retry after a closed idle connection: hooks may be called twice anyway.
	req.Header["Idempotency-Key"] = []string{}
	c.sign(req.Header, body)
	resp, err := c.Do(req)
	if err != nil {
		return nil, explain(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent:
		return &answer{}, nil
	default:
		return nil, safe("%w: status %d", ErrStatus, resp.StatusCode)
	}
	data, err := c.read(resp)
	if err != nil {
		if errors.Is(err, ErrAnswer) {
			return nil, err
		}
		return nil, explain(ctx, err)
	}
	return decode(data)
}

// read reads at most max_answer bytes. A longer answer is left unread and closes the connection.
func (c *client) read(resp *http.Response) ([]byte, error) {
	tooLarge := safe("%w: more than %d bytes (max_answer)", ErrAnswer, c.o.MaxAnswer)
	if resp.ContentLength > int64(c.o.MaxAnswer) {
		return nil, tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.o.MaxAnswer)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > c.o.MaxAnswer {
		return nil, tooLarge
	}
	return data, nil
}

// Names of the headers that let a server check who calls it, and when.
const (
	headerTimestamp = "X-Remora-Timestamp" // seconds since 1970
	headerSignature = "X-Remora-Signature" // "sha256=" and a HMAC in hexadecimal
)

func (c *client) sign(h http.Header, body []byte) {
	at := strconv.FormatInt(c.o.Now().Unix(), 10)
	h.Set(headerTimestamp, at)
	if c.o.Secret != "" {
		h.Set(headerSignature, signature(c.o.Secret, at, body))
	}
}

// signature is the value of headerSignature: a HMAC with SHA-256 over the timestamp, a dot and the body.
func signature(key secret.String, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// explain describes a transport error. It does not pass on the texts of net/http, which quote URLs and bytes of
// answers.
func explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the layer's server: %w", context.Cause(ctx))
	}
	return safe("%w: %s", ErrUnreachable, broken(err))
}

// broken describes why a connection broke, in Remora's own words.
func broken(err error) string {
	var header tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection before its answer was complete"
	case errors.As(err, &name):
		return "the name in url cannot be resolved"
	case errors.As(err, &header):
		return "it does not speak TLS, which https in url asks for"
	case errors.As(err, &certificate):
		return "its certificate is not valid"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it does not answer in time"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + " failed"
	}
	return "the connection or the answer is not valid HTTP"
}

// safe makes an error that may be logged: its arguments must hold nothing of a request or an answer.
func safe(format string, a ...any) error { return layer.Safe(fmt.Errorf(format, a...)) }
