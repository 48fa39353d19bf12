package providers_test

import (
	"bufio"
	"bytes"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"remora/providers"
	"remora/test/scripted"
)

// TestKinds checks each kind against a real upstream on loopback: what arrives there is looked at byte by byte.
func TestKinds(t *testing.T) {
	for _, k := range providers.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			s, err := scripted.Start(scripted.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			b := &bench{Server: s, Kind: k}
			t.Run("default base URL", b.defaultBaseURL)
			t.Run("target", b.target)
			t.Run("refused target", b.refusedTarget)
			t.Run("credential", b.credential)
			t.Run("headers", b.headers)
			t.Run("everything else is untouched", b.untouched)
			t.Run("concurrent use", b.concurrent)
			t.Run("allocations", b.allocations)
		})
	}
}

// bench is an upstream, and the kind of provider that is in front of it.
type bench struct {
	*scripted.Server
	providers.Kind
}

func (b *bench) open(t *testing.T, o providers.Options) *providers.Provider {
	t.Helper()
	o.Kind = b.Name
	if o.BaseURL == "" {
		o.BaseURL = b.URL() + "/v1"
	}
	p, err := providers.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// parse reads a request head as the proxy's server does: names as spelt, path as written.
func parse(t *testing.T, head string) *fasthttp.Request {
	t.Helper()
	var req fasthttp.Request
	req.Header.DisableNormalizing()
	if err := req.Read(bufio.NewReader(strings.NewReader(head))); err != nil {
		t.Fatal(err)
	}
	return &req
}

// send writes a prepared request to its upstream and returns what arrived there.
func (b *bench) send(t *testing.T, p *providers.Provider, req *fasthttp.Request) scripted.Recorded {
	t.Helper()
	if err := p.Prepare(req); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", p.Address().Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := bufio.NewWriter(conn)
	if err := req.Write(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var resp fasthttp.Response
	if err := resp.Read(bufio.NewReader(conn)); err != nil {
		t.Fatal(err)
	}
	all := b.Requests()
	return all[len(all)-1]
}

// defaultBaseURL: without an operator's base URL, requests go to the kind's; a kind without one demands it.
func (b *bench) defaultBaseURL(t *testing.T) {
	p, err := providers.Open(providers.Options{Kind: b.Name})
	if b.BaseURL == "" {
		if err == nil {
			t.Error("opened without a base URL")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(b.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	port := base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[base.Scheme]
	}
	want := providers.Address{Addr: net.JoinHostPort(base.Hostname(), port), ServerName: base.Hostname(), TLS: base.Scheme == "https"}
	if got := p.Address(); got != want || p.Path() != base.Path || p.Name() != b.Name || p.API().Kind != b.Kind {
		t.Errorf("%s at %+v%s, want %+v%s", p.Name(), got, p.Path(), want, base.Path)
	}
}

func (b *bench) target(t *testing.T) {
	f := func(base, target, want string) {
		t.Helper()
		p := b.open(t, providers.Options{BaseURL: b.URL() + base})
		req := parse(t, "GET "+target+" HTTP/1.1\r\nHost: client.example\r\n\r\n")
		got := b.send(t, p, req)
		if got.Target != want {
			t.Errorf("base %q: %s went out as %s, want %s", base, target, got.Target, want)
		}
		if host := strings.TrimPrefix(b.URL(), "http://"); got.Host != host {
			t.Errorf("Host %q, want %q", got.Host, host)
		}
	}

	f("/v1", "/v1/chat/completions", "/v1/chat/completions")
	f("/v1/", "/v1/chat/completions", "/v1/chat/completions")
	f("", "/v1/models", "/models")
	f("/a/b/v9", "/v1/models", "/a/b/v9/models")
	f("/v1", "/chat/completions", "/v1/chat/completions")
	f("/a/v1", "/responses/resp_1?x=1", "/a/v1/responses/resp_1?x=1")
	f("", "/chat/completions", "/chat/completions")
	f("/v1", "/chat/completions2", "/chat/completions2")
	f("/v1", "/api/v1/models", "/v1/models")
	f("/api/v1", "/v1/models", "/api/v1/models")
	f("/api/v1", "/api/v1/models?x=%2F&y=a+b", "/api/v1/models?x=%2F&y=a+b")

	// Only whole segments are a version, and paths outside of it stay as they are.
	f("/x/v1", "/v1", "/x/v1")
	f("/x/v1", "/v1?a", "/x/v1?a")
	f("", "/v1", "/")
	f("", "/v1?a", "/?a")
	f("/x/v1", "/v1beta/models", "/v1beta/models")
	f("/x/v1", "/", "/")
	f("/x/v1", "/other?q", "/other?q")
	f("/x/v1", "/api/v2/models", "/api/v2/models")

	// Nothing is decoded or cleaned, and no path becomes a host.
	f("/x", "/v1//a/../%2e%2E/./b%20c;d?e?f", "/x//a/../%2e%2E/./b%20c;d?e?f")
	f("/x", "//evil.example/v1/models", "//evil.example/v1/models")
	f("/x", "/v1//evil.example/", "/x//evil.example/")
	f("", "/v1//evil.example/", "//evil.example/")
	f("/x", "http://proxy.example/v1/models", "/x/models")
	f("/x", "HTTPS://user@proxy.example:1/other", "/other")
	f("/x", "http://proxy.example", "/")
	f("/x", "http://proxy.example?a=/b", "/?a=/b")
	f("/x", "/v1/"+strings.Repeat("long/", 300), "/x/"+strings.Repeat("long/", 300))
}

func (b *bench) refusedTarget(t *testing.T) {
	p := b.open(t, providers.Options{APIKey: "operator-key"})
	for _, target := range []string{"proxy.example:443", "ftp://x/v1/models", "v1/models"} {
		var req fasthttp.Request
		req.Header.SetMethod("CONNECT")
		req.Header.SetRequestURI(target)
		req.Header.SetHost("client.example")
		before := req.Header.String()
		if err := p.Prepare(&req); err == nil {
			t.Errorf("%s was accepted", target)
		}
		if after := req.Header.String(); after != before {
			t.Errorf("%s: refused and changed:\n%s", target, cmp.Diff(before, after))
		}
	}
}

func (b *bench) credential(t *testing.T) {
	const client = "GET /v1/models HTTP/1.1\r\nHost: c\r\nauthorization: Bearer client-1\r\nAuthorization: Bearer client-2\r\n" +
		"AUTHORIZATION: Bearer client-3\r\nX-Api-Key: client-4\r\nx-api-key: client-5\r\napi-key: client-6\r\nX-Other: kept\r\n\r\n"

	passed := b.send(t, b.open(t, providers.Options{}), parse(t, client))
	for _, want := range []string{
		"authorization: Bearer client-1", "Authorization: Bearer client-2", "AUTHORIZATION: Bearer client-3",
		"X-Api-Key: client-4", "x-api-key: client-5", "api-key: client-6",
	} {
		if !bytes.Contains(passed.RawHeader, []byte(want+"\r\n")) {
			t.Errorf("without a key of its own, %q is lost: %q", want, passed.RawHeader)
		}
	}

	replaced := b.send(t, b.open(t, providers.Options{APIKey: "operator-key"}), parse(t, client))
	if bytes.Contains(replaced.RawHeader, []byte("client-")) {
		t.Errorf("the client's credential went on: %q", replaced.RawHeader)
	}
	if diff := cmp.Diff([]string{"Bearer operator-key"}, replaced.Header["Authorization"]); diff != "" {
		t.Errorf("Authorization:\n%s", diff)
	}
	if replaced.Header.Get("X-Other") != "kept" {
		t.Error("another header is lost")
	}
	anonymous := b.send(t, b.open(t, providers.Options{APIKey: "operator-key"}), parse(t, "GET /v1/models HTTP/1.1\r\nHost: c\r\n\r\n"))
	if anonymous.Header.Get("Authorization") != "Bearer operator-key" {
		t.Errorf("without a client's credential: %q", anonymous.RawHeader)
	}
}

func (b *bench) headers(t *testing.T) {
	p := b.open(t, providers.Options{Headers: []providers.Header{{Name: "X-Title", Value: "operator's"}, {Name: "x-new", Value: "1"}}})
	got := b.send(t, p, parse(t, "GET /v1/models HTTP/1.1\r\nHost: c\r\nx-title: client's\r\nX-TITLE: client's\r\n\r\n"))
	if diff := cmp.Diff([]string{"operator's"}, got.Header["X-Title"]); diff != "" || got.Header.Get("X-New") != "1" {
		t.Errorf("%q\n%s", got.RawHeader, diff)
	}
}

func (b *bench) untouched(t *testing.T) {
	const fields = "X-Session-Id: s\r\nx-lower: 1\r\nHTTP-Referer: https://x.example/?a=b\r\nX-Twice: 1\r\nX-Twice: 2\r\nCookie: a=\"b c\"; d=e\r\n"
	body := `{"model": "m",  "messages":[]}`
	got := b.send(t, b.open(t, providers.Options{}), parse(t,
		"POST /v1/unknown HTTP/1.1\r\nHost: c\r\n"+fields+"Content-Type: application/json\r\nContent-Length: 30\r\n\r\n"+body))
	for line := range strings.SplitSeq(strings.TrimSuffix(fields, "\r\n"), "\r\n") {
		if !bytes.Contains(got.RawHeader, []byte("\r\n"+line+"\r\n")) {
			t.Errorf("%q is lost: %q", line, got.RawHeader)
		}
	}
	if string(got.Body) != body || got.Method != "POST" {
		t.Errorf("%s with body %q", got.Method, got.Body)
	}
}

func (b *bench) concurrent(t *testing.T) {
	p := b.open(t, providers.Options{APIKey: "k", BaseURL: b.URL() + "/other", Headers: []providers.Header{{Name: "A", Value: "b"}}})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				var req fasthttp.Request
				req.Header.SetRequestURI("/v1/models")
				if err := p.Prepare(&req); err != nil || string(req.Header.RequestURI()) != "/other/models" {
					t.Errorf("%v, %s", err, req.Header.RequestURI())
				}
			}
		})
	}
	all.Wait()
}

// allocations holds Prepare to none on a request object that has been used before, as pooled ones are.
func (b *bench) allocations(t *testing.T) {
	for _, o := range []providers.Options{{}, {APIKey: "operator-key"}, {BaseURL: b.URL() + "/other/base"}} {
		p := b.open(t, o)
		req := parse(t, "POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: client.example\r\nauthorization: Bearer client\r\n\r\n")
		got := testing.AllocsPerRun(200, func() {
			req.Header.SetRequestURI("/v1/chat/completions?x=1")
			if err := p.Prepare(req); err != nil {
				t.Error(err)
			}
		})
		if got > 0 {
			t.Errorf("Prepare with %v allocates %.1f times", o, got)
		}
	}
}
