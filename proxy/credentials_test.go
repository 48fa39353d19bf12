package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/providers"
	"remora/proxy/limit"
	"remora/secret"
)

// TestCallersCredentialsStayWithTheirProvider: a provider with a key of its own, as every fallback has, gets nothing that the
// caller proves itself with elsewhere.
func TestCallersCredentialsStayWithTheirProvider(t *testing.T) {
	const callers = "Authorization: Bearer caller\r\nx-api-key: caller\r\nCookie: session=caller\r\nOpenAI-Organization: org-caller\r\nopenai-project: proj-caller\r\n" +
		"X-LiteLLM-API-Key: caller\r\nhelicone-auth: Bearer caller\r\nX-Amz-Security-Token: caller\r\n"
	operators := func(o *providers.Options) { o.APIKey = "operator" }
	for _, c := range []struct {
		name          string
		provider      func(o *providers.Options)
		target, lines string
		wantTarget    string
		want          string
	}{
		{"no key of its own", nil, "/v1/x?key=caller&a=b", callers, "/v1/x?key=caller&a=b", callers},
		{"its own key", operators, "/v1/x?key=caller&a=%62&a&=&api-key=caller", callers, "/v1/x?a=%62&a&=", "Authorization: Bearer operator\r\n"},
		{"nothing but a key", operators, "/v1/x?api_key=caller", "", "/v1/x", "Authorization: Bearer operator\r\n"},
		{"an escaped name", operators, "/v1/x?%6bey=caller&x=1", "", "/v1/x?x=1", "Authorization: Bearer operator\r\n"},
		{"a longer name", operators, "/v1/x?monkey=1&keys=2&key1=3", "", "/v1/x?monkey=1&keys=2&key1=3", "Authorization: Bearer operator\r\n"},
		{"other names of keys", operators, "/v1/x?access_token=caller&max_tokens=1&X-Auth-Token=caller", "Idempotency-Key: 1\r\nx-author: a\r\n", "/v1/x?max_tokens=1", "Idempotency-Key: 1\r\nx-author: a\r\nAuthorization: Bearer operator\r\n"},
		{
			"names that gateways in front give to proofs of who calls", operators, "/v1/x?sig=caller&sign=1&jwt=caller&X-Amz-Credential=caller&X-Amz-Signature=caller",
			"Cf-Access-Jwt-Assertion: caller\r\nX-Amzn-Oidc-Data: caller\r\nx-amzn-oidc-accesstoken: caller\r\nX-Functions-Key: caller\r\nX-Bearer: caller\r\nAuthentication: caller\r\n",
			"/v1/x?sign=1", "Authorization: Bearer operator\r\n",
		},
		{"behind a long word", operators, "/v1/x", "X-" + strings.Repeat("a", 64) + "-Token: caller\r\n", "/v1/x", "Authorization: Bearer operator\r\n"},
		{
			"a WebSocket's key", operators, "/v1/realtime",
			"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.caller, OpenAI-Organization.org-caller, openai-project.proj-caller, openai-beta.realtime-v1\r\n" +
				"sec-websocket-protocol: openai-insecure-api-key.caller\r\n",
			"/v1/realtime", "Sec-WebSocket-Protocol: realtime, openai-beta.realtime-v1\r\nAuthorization: Bearer operator\r\n",
		},
		{
			"a WebSocket's key, no key of its own", nil, "/v1/realtime", "Sec-WebSocket-Protocol: realtime,openai-insecure-api-key.caller\r\n",
			"/v1/realtime", "Sec-WebSocket-Protocol: realtime,openai-insecure-api-key.caller\r\n",
		},
		{"an empty query", operators, "/v1/x?", "", "/v1/x?", "Authorization: Bearer operator\r\n"},
		{"its own project", func(o *providers.Options) {
			o.APIKey, o.Headers = "operator", []providers.Header{{Name: "OpenAI-Project", Value: "proj-operator"}}
		}, "/v1/x", callers, "/v1/x", "Authorization: Bearer operator\r\nOpenAI-Project: proj-operator\r\n"},
		{"another header of its own", func(o *providers.Options) {
			o.Headers = []providers.Header{{Name: "X-Title", Value: "gateway"}}
		}, "/v1/x?key=caller", callers, "/v1/x?key=caller", callers + "X-Title: gateway\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, requests := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", noBody)
			r := start(t, rigOptions{upstream: addr, provider: c.provider})
			r.exchange(t, "GET "+c.target+" HTTP/1.1\r\nHost: x\r\n"+c.lines+"X-Other: stays\r\nConnection: close\r\n\r\n")
			got := await(t, requests, "request")
			line, rest, _ := strings.Cut(got, "\r\n")
			if line != "GET "+c.wantTarget+" HTTP/1.1" {
				t.Errorf("upstream was asked %s", line)
			}
			rest = strings.Replace(strings.TrimPrefix(rest, "Host: "+addr+"\r\n"), "X-Other: stays\r\n", "", 1)
			if diff := cmp.Diff(c.want+"\r\n", rest); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTwoCredentialsNameNoSession: upstream may check either.
func TestTwoCredentialsNameNoSession(t *testing.T) {
	for _, c := range []struct {
		name, target, lines, body string
		status                    int
	}{
		{"one", "/v1/chat/completions", "X-Session-Id: s\r\nAuthorization: Bearer a\r\n", chatBody, 200},
		{"twice the same", "/v1/chat/completions", "X-Session-Id: s\r\nAuthorization: Bearer a\r\nauthorization: Bearer a\r\n", chatBody, 200},
		{"two", "/v1/chat/completions", "X-Session-Id: s\r\nAuthorization: Bearer a\r\nauthorization: Bearer b\r\n", chatBody, 400},
		{"two, the session in the body", "/v1/chat/completions", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", `{"session_id":"s",` + chatBody[1:], 400},
		{"two, without a session", "/v1/chat/completions", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", chatBody, 200},
		{"two, memory off", "/v1/chat/completions", "X-Session-Id: s\r\nX-Memory: off\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n", chatBody, 200},
		{"two keys", "/v1/chat/completions", "X-Session-Id: s\r\nx-api-key: a\r\nX-Api-Key: b\r\n", chatBody, 400},
		{"in two headers", "/v1/chat/completions", "X-Session-Id: s\r\nAuthorization: Bearer a\r\nx-api-key: b\r\n", chatBody, 200},
		{"two beside another", "/v1/chat/completions", "X-Session-Id: s\r\nx-api-key: a\r\nX-Api-Key: b\r\nAuthorization: Bearer c\r\n", chatBody, 400},
		{"in the query", "/v1/chat/completions?key=a&key=b", "X-Session-Id: s\r\n", chatBody, 400},
		{"two cookies", "/v1/chat/completions", "X-Session-Id: s\r\nCookie: a=1\r\nCookie: b=2\r\n", chatBody, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := make(chan struct{}, 1)
			r := start(t, rigOptions{memory: newBook().begin, upstream: answering(t, func(*http.Request, []byte) string {
				asked <- struct{}{}
				return sized(chatAnswer)
			})})
			got := r.exchange(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", c.target, c.lines, len(c.body), c.body))
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", c.status)) || len(asked) != map[int]int{200: 1, 400: 0}[c.status] {
				t.Errorf("upstream was asked %d times; got %s", len(asked), got)
			}
		})
	}
}

// TestAllKeysNameTheTenant: a caller is who has all keys of a request, whichever of them its upstream or a gateway on the way
// checks. Cookies, which change, count only where there is no key.
func TestAllKeysNameTheTenant(t *testing.T) {
	tenants := make(map[string]string)
	o := defaultSessionOptions()
	of := func(target string, lines ...string) string {
		var r request
		r.s = &Server{o: Options{Session: o}}
		r.head = *headOf(t, o, lines...)
		r.head.id.noteQuery([]byte(target))
		return r.tenant()
	}
	for _, lines := range []string{
		"X-Other: 1", "Authorization: Bearer a", "Authorization: Bearer b", "Cookie: c=1", "Cookie: c=2",
		"X-LiteLLM-API-Key: k", "Helicone-Auth: Bearer k2", "cf-aig-authorization: Bearer k3",
		"Authorization: Bearer a|x-litellm-api-key: k", "Authorization: Bearer a|x-litellm-api-key: k2",
		"Authorization: Bearer a|x-api-key: b",
	} {
		tenant := of("/v1/responses", strings.Split(lines, "|")...)
		if other, taken := tenants[tenant]; taken {
			t.Errorf("%q and %q are one tenant", lines, other)
		}
		tenants[tenant] = lines
	}
	for _, lines := range [][2]string{
		{"Authorization: Bearer a|x-api-key: b", "api-key: a|Authorization: bearer b"},
		{"Authorization: Bearer ", "X-Other: 1"}, // as of a client whose variable is empty
		{"Authorization: bearer|Cookie: c=1", "Cookie: c=1"},
		{"Authorization: Bearer a|api-key: a", "Authorization: a"},
		{"Authorization: Bearer a|Cookie: c=1|x-api-key:", "Authorization: Bearer a|Cookie: c=2"},
	} {
		if a, b := of("/", strings.Split(lines[0], "|")...), of("/", strings.Split(lines[1], "|")...); a != b {
			t.Errorf("%q are two tenants", lines)
		}
	}
	if a, b := of("/v1/responses?key=b", "Authorization: Bearer a"), of("/", "Authorization: Bearer a", "x-api-key: b"); a != b || a == of("/", "Authorization: Bearer a") {
		t.Error("a key in the query does not count as one in a header")
	}

	o.CredentialHeaders = []string{"X-User-Key"}
	a := of("/", "Authorization: Bearer first", "X-User-Key: u")
	if a != of("/", "Authorization: Bearer second", "x-user-key: u") || a == of("/", "Authorization: Bearer first", "X-User-Key: v") {
		t.Error("session.credential_headers does not say which headers count")
	}
}

// TestConnectionListsManyHeaders: each header that Connection lists ends here, however many there are.
func TestConnectionListsManyHeaders(t *testing.T) {
	var listed, lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&listed, "X-Hop-%d, ", i)
		fmt.Fprintf(&lines, "x-hop-%d: 1\r\n", i)
	}
	asked := make(chan http.Header, 1)
	r := start(t, rigOptions{upstream: answering(t, func(req *http.Request, _ []byte) string {
		asked <- req.Header
		return sized("{}")
	})})
	r.exchange(t, "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: "+listed.String()+"close\r\n"+lines.String()+"\r\n")
	for name := range await(t, asked, "request") {
		if strings.HasPrefix(name, "X-Hop") {
			t.Errorf("upstream got %s", name)
		}
	}
}

// TestPagesReadOurErrors: without these headers a browser only tells a page that its request failed.
func TestPagesReadOurErrors(t *testing.T) {
	r := start(t, rigOptions{upstream: answering(t, func(*http.Request, []byte) string { return "no HTTP\r\n\r\n" })})
	for origin, want := range map[string]bool{"Origin: https://page.example\r\n": true, "": false} {
		got := r.exchange(t, "GET /v1/models HTTP/1.1\r\nHost: x\r\n"+origin+"Connection: close\r\n\r\n")
		open := strings.Contains(got, "\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: "+own+", Retry-After\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 502 ") || open != want {
			t.Errorf("with %q: %s", origin, got)
		}
	}
}

// TestLimitsCountEachKey: a caller cannot get around the limit of its key with another one beside it that nothing checks.
func TestLimitsCountEachKey(t *testing.T) {
	limits := limit.New(limit.Config{Options: limit.Options{Tenant: limit.Tenant{RequestsPerMinute: 1, Burst: 1}}, Now: fixed})
	r := start(t, rigOptions{
		memory: newBook().begin, upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) }),
		tune: func(o *Options) { o.Limits = limits },
	})
	for _, c := range []struct {
		name, query, lines string
		want               int
	}{
		{"the first", "", "Authorization: Bearer a\r\n", 200},
		{"the second", "", "Authorization: Bearer a\r\n", 429},
		{"with a key of a gateway", "", "Authorization: Bearer a\r\nx-portkey-api-key: 1\r\n", 429},
		{"with a key in the query", "?key=2", "Authorization: Bearer a\r\n", 429},
		{"in another header", "", "x-api-key: a\r\nCookie: 3\r\n", 429},
		{"another caller, with two keys", "?key=2", "Authorization: Bearer b\r\n", 200},
		{"with one of them", "", "x-api-key: 2\r\n", 429},
		{"two keys in one place", "", "Authorization: Bearer c\r\nAuthorization: Bearer d\r\n", 400},
		{"no key", "", "", 200},
		{"no key again", "", "", 429},
	} {
		got := r.exchange(t, fmt.Sprintf("POST /v1/chat/completions%s HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", c.query, c.lines, len(chatBody), chatBody))
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", c.want)) {
			t.Errorf("%s: want %d: %.200s", c.name, c.want, got)
		}
	}
}

// TestPagesReadAndSendOurHeaders: a browser shows a page no header that the answer does not expose, and sends none that the
// answer to its preflight does not allow.
func TestPagesReadAndSendOurHeaders(t *testing.T) {
	const open = "Access-Control-Allow-Origin: https://page.example\r\n"
	post := func(lines string) string {
		return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", lines, len(chatBody), chatBody)
	}
	preflight := func(path, headers string) string {
		return "OPTIONS " + path + " HTTP/1.1\r\nHost: x\r\nOrigin: https://page.example\r\nAccess-Control-Request-Method: POST\r\n" +
			"Access-Control-Request-Headers: " + headers + "\r\nConnection: close\r\n\r\n"
	}
	for _, c := range []struct {
		name, request, answer string
		want                  string // of our own CORS headers
	}{
		{"a page", post("X-Session-Id: s\r\nOrigin: https://page.example\r\n"), open, "Access-Control-Expose-Headers: " + own},
		{"upstream exposes some", post("X-Session-Id: s\r\nOrigin: https://page.example\r\n"), open + "access-control-expose-headers: X-Request-Id\r\n", "access-control-expose-headers: X-Request-Id|Access-Control-Expose-Headers: " + own},
		{"a session that is bypassed", strings.Replace(post("X-Session-Id: s\r\nOrigin: https://page.example\r\n"), "chat/completions", "embeddings", 1), open, "Access-Control-Expose-Headers: " + own},
		{"no page", post("X-Session-Id: s\r\n"), open, ""},
		{"no session", post("Origin: https://page.example\r\n"), open, ""},
		{"upstream is for no page", post("X-Session-Id: s\r\nOrigin: https://page.example\r\n"), "", ""},
		{"a preflight", preflight("/v1/chat/completions", "authorization,content-type,x-session-id"), open + "Access-Control-Allow-Headers: authorization, content-type\r\n", "Access-Control-Allow-Headers: authorization, content-type|Access-Control-Allow-Headers: x-session-id"},
		{"of several", preflight("/v1/responses", "X-Memory, x-session-id , x-resource-id"), open + "access-control-allow-headers: X-Session-ID\r\n", "access-control-allow-headers: X-Session-ID|Access-Control-Allow-Headers: X-Memory, x-resource-id"},
		{"that asks for none of ours", preflight("/v1/chat/completions", "authorization"), open, ""},
		{"that upstream refuses", preflight("/v1/chat/completions", "x-session-id"), "", ""},
		{"of another path", preflight("/v1/models", "x-session-id"), open, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, rigOptions{memory: newBook().begin, upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer, c.answer) })})
			got := r.exchange(t, c.request)
			var lines []string
			for line := range strings.SplitSeq(got, "\r\n") {
				name, _, _ := strings.Cut(strings.ToLower(line), ":")
				if name == "access-control-expose-headers" || name == "access-control-allow-headers" {
					lines = append(lines, line)
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(lines, "|")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPagesThatDidNotAsk: a browser sends some requests to any site without a preflight, which upstream would have refused. Such a
// request writes no memory, and uses no key of the proxy's own.
func TestPagesThatDidNotAsk(t *testing.T) {
	const page = "Origin: https://evil.example\r\n"
	const body = `{"session_id":"s","model":"m","messages":[{"role":"user","content":"x"}]}`
	const stored, passed, refused = "\r\nX-Memory: ok;", "\r\nX-Memory: bypass;", "HTTP/1.1 415 "
	for _, c := range []struct {
		name, lines   string
		without, with string // of the answer, for a provider without a key and one with a key
	}{
		{"text", page + "Content-Type: text/plain;charset=UTF-8\r\n", passed, refused},
		{"a form", page + "content-type:  Application/X-WWW-Form-Urlencoded\r\n", passed, refused},
		{"an upload", page + "Content-Type: multipart/form-data; boundary=x\r\n", passed, refused},
		{"no type", page, passed, refused},
		{"a sandboxed page", "Origin: null\r\n", passed, refused},
		{"JSON", page + "Content-Type: application/json\r\n", stored, stored},
		{"a caller's key", page + "Content-Type: text/plain\r\nAuthorization: Bearer k\r\n", stored, stored},
		{"a header of ours", page + "Content-Type: text/plain\r\nX-Session-Id: s\r\n", stored, stored},
		{"no page", "Content-Type: text/plain\r\n", stored, stored},
	} {
		for key, want := range map[string]string{"": c.without, "operators": c.with} {
			t.Run(c.name+" "+key, func(t *testing.T) {
				r := start(t, rigOptions{
					memory:   newBook().begin,
					tune:     func(o *Options) { o.Session.Fields = []string{"session_id"} },
					provider: func(o *providers.Options) { o.APIKey = secret.String(key) },
					upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer, "") }),
				})
				got := r.exchange(t, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", c.lines, len(body), body))
				if !strings.Contains(got, want) {
					t.Errorf("want %q in %s", want, got)
				}
			})
		}
	}
}

// TestAnswersThatCannotBeRead: the client gets answers that cannot be read unchanged, and X-Memory says that they are not stored.
// Known encodings are decoded, and stored.
func TestAnswersThatCannotBeRead(t *testing.T) {
	const (
		reason     = `bypass;reason="the Content-Encoding of the answer is unknown";items=`
		unreadable = `bypass;reason="the answer cannot be read";items=`
	)
	for _, c := range []struct {
		name, encoding, body string
		stream               bool
		memory               string
		complete, unread     bool
	}{
		{"br", "br", "\x0b\x02\x80hello\x03", false, reason, false, true},
		{"deflate, streamed", "deflate", "x\x9c\xcb", true, reason, false, true},
		{"br, streamed", "br", "\x0b\x02\x80hello\x03", true, reason, false, true},
		{"several", "gzip, br", "x", false, reason, false, true},
		{"gzip", "gzip", gzipped(chatAnswer), false, "ok;", true, false},
		{"gzip, streamed", "gzip", gzipped(strings.Join(chatEvents, "") + chatDone), true, "ok;", true, false},
		{"identity", "identity", chatAnswer, false, "ok;", true, false},
		{"no gzip", "gzip", chatAnswer, false, unreadable, false, false},
		{"no JSON", "identity", "<html></html>", false, unreadable, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBook()
			r := start(t, rigOptions{memory: b.begin, upstream: answering(t, func(*http.Request, []byte) string {
				if c.stream {
					return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: " + c.encoding + "\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(c.body) + chunk("")
				}
				return sized(c.body, "Content-Encoding: "+c.encoding+"\r\n")
			})})
			got := r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n"))
			if !strings.Contains(got, "\r\nX-Memory: "+c.memory) || !strings.Contains(got, c.body) {
				t.Errorf("got %q", got)
			}
			if a := await(t, b.answers, "answer"); a.Reply.Complete != c.complete || a.Reply.Truncated != c.unread {
				t.Errorf("complete %v, truncated %v", a.Reply.Complete, a.Reply.Truncated)
			}
		})
	}
}

// TestFetchedAnswerThatCannotBeRead: an answer that was made in the background and that a client fetches is asked for without an
// encoding. If it has one nevertheless, the log says that it is not kept.
func TestFetchedAnswerThatCannotBeRead(t *testing.T) {
	accepted := make(chan string, 1)
	r := start(t, rigOptions{memory: newBook().begin, upstream: answering(t, func(req *http.Request, _ []byte) string {
		accepted <- req.Header.Get("Accept-Encoding")
		return sized("\x0b\x02\x80hello\x03", "Content-Encoding: br\r\n")
	})})
	r.response = func(context.Context, string, string) (memory.Response, error) { return memory.Response{}, nil }
	r.late = func(string, string, memory.Response) *memory.Late { return new(memory.Late) }

	got := r.exchange(t, "GET /v1/responses/resp_1 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip, br\r\nConnection: close\r\n\r\n")
	if !strings.HasSuffix(got, "hello\x03") || strings.Contains(got, "X-Memory") {
		t.Errorf("got %q", got)
	}
	if a := <-accepted; a != "identity" {
		t.Errorf("upstream may answer in %q", a)
	}
	r.stop(t)
	if !strings.Contains(r.log.String(), "passed on and not kept") {
		t.Errorf("log %s", r.log)
	}
}
