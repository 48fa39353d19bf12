package providers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
	"pgregory.net/rapid"

	"remora/providers"
	"remora/secret"
)

func TestAddress(t *testing.T) {
	f := func(o providers.Options, want providers.Address, path, host string) {
		t.Helper()
		p, err := providers.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Address(); got != want || p.Path() != path || p.API().Name != o.Kind {
			t.Errorf("%+v%s of %s\nwant %+v%s", got, p.Path(), p.API().Name, want, path)
		}
		var req fasthttp.Request
		req.Header.SetRequestURI("/v1/models")
		if err := p.Prepare(&req); err != nil || string(req.Header.Host()) != host {
			t.Errorf("Host %q, want %q; %v", req.Header.Host(), host, err)
		}
	}
	compatible := func(url string) providers.Options { return providers.Options{Kind: "compatible", BaseURL: url} }

	f(providers.Options{Kind: "openai"}, providers.Address{Addr: "api.openai.com:443", ServerName: "api.openai.com", TLS: true}, "/v1", "api.openai.com")
	f(providers.Options{Kind: "openrouter"}, providers.Address{Addr: "openrouter.ai:443", ServerName: "openrouter.ai", TLS: true}, "/api/v1", "openrouter.ai")
	f(compatible("http://h"), providers.Address{Addr: "h:80", ServerName: "h"}, "", "h")
	f(compatible("http://h:80/v1"), providers.Address{Addr: "h:80", ServerName: "h"}, "/v1", "h")
	f(compatible("http://h:443/v1"), providers.Address{Addr: "h:443", ServerName: "h"}, "/v1", "h:443")
	f(compatible("https://h:443/v1"), providers.Address{Addr: "h:443", ServerName: "h", TLS: true}, "/v1", "h")
	f(compatible("http://[::1]:8080/v1"), providers.Address{Addr: "[::1]:8080", ServerName: "::1"}, "/v1", "[::1]:8080")
	f(compatible("https://[::1]"), providers.Address{Addr: "[::1]:443", ServerName: "::1", TLS: true}, "", "[::1]")
}

// A target that was parsed before, as a server may have done, goes out as it was written all the same.
func TestPrepareForgetsAParsedURI(t *testing.T) {
	p, err := providers.Open(providers.Options{Kind: "compatible", BaseURL: "http://up.example/base"})
	if err != nil {
		t.Fatal(err)
	}
	var req fasthttp.Request
	req.Header.SetHost("client.example")
	req.Header.SetRequestURI("/v1/a//b/%2e")
	_ = req.URI()
	if err := p.Prepare(&req); err != nil {
		t.Fatal(err)
	}
	if got, want := req.String(), "GET /base/a//b/%2e HTTP/1.1\r\nHost: up.example\r\n\r\n"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestSetPick(t *testing.T) {
	option := func(name string, models ...string) providers.Options {
		return providers.Options{Name: name, Kind: "compatible", BaseURL: "http://x/v1", Models: models}
	}
	f := func(list []providers.Options, needsModel bool, want map[string]string) {
		t.Helper()
		s, err := providers.NewSet(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.NeedsModel(); got != needsModel {
			t.Errorf("NeedsModel %v", got)
		}
		if len(s.All()) != len(list) {
			t.Errorf("%d providers", len(s.All()))
		}
		for model, name := range want {
			got := "none"
			if p := s.Pick(model); p != nil {
				got = p.Name()
			}
			if got != name {
				t.Errorf("%q goes to %s, want %s", model, got, name)
			}
		}
	}

	f([]providers.Options{option("a")}, false, map[string]string{"": "a", "x": "a"})
	f([]providers.Options{option("a"), option("b")}, false, map[string]string{"": "a", "x": "a"})
	f([]providers.Options{option("a", "gpt-4*"), option("b", "gpt-4.1", "o*"), option("c"), option("d", "gpt-4.1")}, true,
		map[string]string{"gpt-4.1": "b", "gpt-4": "a", "gpt-4o": "a", "gpt-5": "c", "o3": "b", "": "c", "GPT-4": "c"})
	f([]providers.Options{option("a", "*/x"), option("b", "openai/*-mini*")}, true,
		map[string]string{"y/z/x": "a", "openai/gpt-mini": "b", "openai/-mini-x": "b", "openai/mini": "none", "x": "none", "": "a"})
	f([]providers.Options{option("a", "*"), option("b")}, true, map[string]string{"x": "a", "": "b"})
}

// Patterns agree with a matcher that tries everything.
func TestPatternsAgainstBacktracking(t *testing.T) {
	var naive func(p, s string) bool
	naive = func(p, s string) bool {
		switch {
		case p == "":
			return s == ""
		case p[0] == '*':
			return naive(p[1:], s) || s != "" && naive(p, s[1:])
		}
		return s != "" && s[0] == p[0] && naive(p[1:], s[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{0,4}\*[ab*]{0,4}`).Draw(t, "pattern")
		model := rapid.StringMatching(`[ab]{1,8}`).Draw(t, "model")
		s, err := providers.NewSet([]providers.Options{{Kind: "openai", Models: []string{pattern}}})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := s.Pick(model) != nil, naive(pattern, model); got != want {
			t.Fatalf("%q on %q: %v, want %v", pattern, model, got, want)
		}
	})
}

func TestValidate(t *testing.T) {
	f := func(o providers.Options, want ...string) {
		t.Helper()
		err := providers.Validate([]providers.Options{{Kind: "openai"}, o})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if joined := strings.Join(want, "\n"); got != joined {
			t.Errorf("got  %s\nwant %s", got, joined)
		}
	}
	url := func(base string) providers.Options { return providers.Options{Kind: "compatible", BaseURL: base} }
	const absolute = "providers[1].base_url: must be an absolute http or https URL, such as http://127.0.0.1:11434/v1"
	var kinds []string
	for _, k := range providers.Kinds() {
		kinds = append(kinds, k.Name)
	}
	oneOf := "providers[1].kind: must be one of " + strings.Join(kinds, ", ") + ", is "

	f(providers.Options{Kind: "openrouter", APIKey: "k", Models: []string{"a", "b*"}, Headers: []providers.Header{{Name: "X-A", Value: "b"}}})
	f(url("http://h/v1"))
	f(url(""), "providers[1].base_url: is required for this kind")
	for _, bad := range []string{"h/v1", "ftp://h", "http:/h", "http://", "http://:80", "http:h", "http://a b", "http://h\x00", "http://h/%zz"} {
		f(url(bad), absolute)
	}
	f(url("http://user:pass@h"), "providers[1].base_url: must not hold a credential, use api_key")
	f(url("http://h/?a"), "providers[1].base_url: must not have a query or a fragment")
	f(url("http://h/?"), "providers[1].base_url: must not have a query or a fragment")
	f(url("http://h/#"), "providers[1].base_url: must not have a query or a fragment")
	f(url("http://h:0"), "providers[1].base_url: must have a port from 1 to 65535, or none")
	f(url("http://h:65536"), "providers[1].base_url: must have a port from 1 to 65535, or none")
	f(url("http://300.1.1.1/v1"), "providers[1].base_url: must have a name or an IP address, 300.1.1.1 is neither")
	f(providers.Options{Kind: "opneai"}, oneOf+`"opneai"`)
	f(providers.Options{Kind: "openai"}, `providers[1].name: "openai" is already the name of providers[0]`)

	for _, key := range []secret.String{"Bearer secret", "bearer  secret"} {
		f(providers.Options{Kind: "openrouter", APIKey: key}, "providers[1].api_key: must be the key alone, without the word Bearer")
	}
	f(providers.Options{Kind: "openrouter", APIKey: "bearer-of-secrets"})

	// All problems at once, and no secret in any of them.
	f(providers.Options{
		Name: "a b", Kind: "x", BaseURL: "y", APIKey: "secret\n", Models: []string{"ok", ""},
		Headers: []providers.Header{{Name: "bad name", Value: "v"}, {Name: "Authorization", Value: "secret\r"}, {Name: "Host"}, {Name: "Content-Length"}, {Name: "Accept-Encoding"}},
	},
		`providers[1].name: must be printable ASCII without spaces, has ' '`,
		oneOf+`"x"`,
		absolute,
		`providers[1].api_key: must not hold control characters, has one at byte 6`,
		`providers[1].models[1]: must not be empty`,
		`providers[1].headers[0].name: must be the name of a header, is "bad name"`,
		`providers[1].headers[1].name: is set by api_key`,
		`providers[1].headers[1].value: must not hold control characters, has one at byte 6`,
		`providers[1].headers[2].name: is set from base_url`,
		`providers[1].headers[3].name: must not be a header that frames the message or belongs to one connection`,
		`providers[1].headers[4].name: must not be a header that says how bodies are encoded: the proxy reads them`,
	)
	if err := providers.Validate(nil); err == nil || err.Error() != "providers: must have at least one entry" {
		t.Errorf("no provider: %v", err)
	}
	if _, err := providers.NewSet(nil); err == nil {
		t.Error("NewSet without a provider")
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	const secret = "sk-very-secret"
	o := providers.Options{
		Name: "a", Kind: "openai", APIKey: secret,
		Headers: []providers.Header{{Name: "X-Key", Value: secret}},
	}
	p, err := providers.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, v := range []any{o, &o, o.APIKey, []any{o.APIKey}, errors.Join(fmt.Errorf("x %w", err), fmt.Errorf("%v", o))} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "options", o, "key", o.APIKey, "provider", p.Name())
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "options", o, "key", o.APIKey)
	if err := json.NewEncoder(&out).Encode(o); err != nil {
		t.Fatal(err)
	}
	for _, leak := range []string{secret, "very", fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), "115 107 45"} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%q in %s", leak, out.String())
		}
	}
}

// FuzzTarget holds the safety of the rewriting: one request line, the operator's host, the base path in front.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"/v1/models", "/api/v1", "//evil/x", "http://a/v1/b", "*", "?", "/v1?x", "/v1\r\nX: y", "/v1/\x00"} {
		f.Add(seed)
	}
	p, err := providers.Open(providers.Options{Kind: "compatible", BaseURL: "http://up.example/base/v1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, target string) {
		var req fasthttp.Request
		req.Header.SetRequestURI(target)
		given := string(req.Header.RequestURI())
		if err := p.Prepare(&req); err != nil {
			if !errors.Is(err, providers.ErrTarget) {
				t.Error(err)
			}
			return
		}
		got := string(req.Header.RequestURI())
		if got != "*" && !strings.HasPrefix(got, "/") {
			t.Errorf("%q became %q", given, got)
		}
		if rest, under := strings.CutPrefix(given, "/v1/"); under && got != "/base/v1/"+rest {
			t.Errorf("%q became %q", given, got)
		}
		if strings.ContainsAny(got, "\r\n") {
			t.Errorf("%q breaks the request line", got)
		}
		if string(req.Header.Host()) != "up.example" {
			t.Errorf("Host %q", req.Header.Host())
		}
	})
}

func BenchmarkPrepare(b *testing.B) {
	for _, o := range []providers.Options{
		{Kind: "openai"}, {Kind: "openai", APIKey: "k"}, {Kind: "openrouter"},
	} {
		b.Run(fmt.Sprintf("%s/key=%v", o.Kind, o.APIKey != ""), func(b *testing.B) {
			p, err := providers.Open(o)
			if err != nil {
				b.Fatal(err)
			}
			var req fasthttp.Request
			for i := range 12 {
				req.Header.Set(fmt.Sprintf("X-Header-%d", i), "value")
			}
			req.Header.Set("Authorization", "Bearer client")
			b.ReportAllocs()
			for b.Loop() {
				req.Header.SetRequestURI("/v1/chat/completions")
				if err := p.Prepare(&req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
