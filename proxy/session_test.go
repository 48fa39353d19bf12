package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
	"pgregory.net/rapid"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/providers"
	"remora/wire"
	"remora/wire/dialects"
)

// headOf parses headers as the server does.
func headOf(t *testing.T, o SessionOptions, lines ...string) *head {
	t.Helper()
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.DisableNormalizing()
	raw := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + strings.Join(lines, "\r\n")
	if len(lines) > 0 {
		raw += "\r\n"
	}
	if err := ctx.Request.Header.Read(reader(raw + "\r\n")); err != nil {
		t.Fatal(err)
	}
	var h head
	h.read(newHeaderTable(&o), &ctx.Request.Header)
	return &h
}

func TestIdentityFromHeaders(t *testing.T) {
	type want struct{ session, source, resource, side, credential string }
	f := func(w want, lines ...string) {
		t.Helper()
		id := &headOf(t, defaultSessionOptions(), lines...).id
		got := want{id.session, id.source, id.resource, id.side, string(id.forModels("up").Value)}
		if got != w {
			t.Errorf("%q:\n got %+v\nwant %+v", lines, got, w)
		}
	}
	f(want{})
	f(want{session: "a", source: "x-session-id"}, "X-Session-ID: a")
	f(want{session: "a", source: "x-session-id"}, "thread-id: t", "session-id: b", "x-session-id:  a ", "X-SESSION-ID: second")
	f(want{session: "b", source: "session-id"}, "thread-id: t", "x-session-id: Null", "session-id: b")
	f(want{session: "b", source: "session_id"}, "session_id: b", "x-session-id:")
	f(want{session: "t", source: "thread-id"}, "x-session-id: UNDEFINED", "Thread-Id: t", "x-request-id: no", "x-client-request-id: no", "traceparent: no")
	f(want{session: "{}:\x80/" + strings.Repeat("y", 400), source: "x-session-id"}, "x-session-id: {}:\x80/"+strings.Repeat("y", 400))
	f(want{resource: "r"}, "x-user-id: u", "X-Resource-Id: r")
	f(want{resource: "u"}, "x-user-id: u", "X-Resource-Id: null")
	f(want{credential: "Bearer 1"}, "api-key: 3", "x-api-key: 2", "authorization: Bearer 1")
	f(want{credential: "2"}, "api-key: 3", "X-API-Key: 2", "authorization:")
	f(want{side: "compaction"}, `x-codex-turn-metadata: {"session_id":"s","request_kind":"compaction"}`)
	f(want{}, `x-codex-turn-metadata: {"request_kind":"turn"}`)
	f(want{}, `x-codex-turn-metadata: {"request_kind":`)
	f(want{side: "subagent"}, "x-openai-subagent: review")
}

// TestAnyHeaderNamesTheSession: the operator's header may begin with any character of a token.
func TestAnyHeaderNamesTheSession(t *testing.T) {
	for _, first := range "!#$%&'*+-.^_`|~09AZaz" {
		name := string(first) + "session"
		if id := headOf(t, SessionOptions{Headers: []string{name}}, name+": a").id; id.session != "a" {
			t.Errorf("%s does not name the session", name)
		}
	}
}

func TestTenant(t *testing.T) {
	o := defaultSessionOptions()
	f := func(credential, want string) {
		t.Helper()
		if got := o.Tenant([]byte(credential)); got != want {
			t.Errorf("tenant of %q is %q, want %q", credential, got, want)
		}
	}
	f("", "anonymous")
	a := o.Tenant([]byte("Bearer a"))
	if len(a) != 32 || a == o.Tenant([]byte("Bearer b")) || strings.Contains(a, "Bearer") {
		t.Errorf("tenant %q", a)
	}
	f("Bearer a", a)
	f("bearer  a", a)
	f("a", a) // x-api-key has no scheme
	if ab := o.Tenant([]byte("a"), []byte("Bearer b")); ab == a || ab != o.Tenant([]byte("b"), nil, []byte("a"), []byte("b")) {
		t.Error("two keys are not one owner in any order")
	}
	o.Key = "secret"
	if o.Tenant([]byte("Bearer a")) == a {
		t.Error("the key does not matter")
	}
	o.Tenancy = TenancySingle
	f("Bearer a", "single")
}

func TestHistoryOf(t *testing.T) {
	o := defaultSessionOptions()
	f := func(header string, want memory.History, ok bool) {
		t.Helper()
		id := identity{history: header}
		if got, err := id.historyOf(&o); got != want || (err == nil) != ok {
			t.Errorf("%q is %v, %v", header, got, err)
		}
	}
	f("", memory.HistoryAuto, true)
	f(" Server ", memory.HistoryServer, true)
	f("client", memory.HistoryClient, true)
	f("both", 0, false)
	o.History = "server"
	f("", memory.HistoryServer, true)
	f("auto", memory.HistoryAuto, true)
}

// TestSafeValue checks that no id can end a header line or grow beyond bounds.
func TestSafeValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := string(rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "id"))
		v := safeValue(id)
		if len(v) > 256 {
			t.Fatalf("%d bytes", len(v))
		}
		for i := range len(v) {
			if v[i] < ' ' || v[i] > '~' {
				t.Fatalf("%q of %q", v, id)
			}
		}
	})
	if got := safeValue("plain id-1"); got != "plain id-1" {
		t.Errorf("%q", got)
	}
}

func FuzzHead(f *testing.F) {
	f.Add("X-Session-Id: a\r\nConnection: close, x-y\r\nX-Y: 1\r\nCookie: a=\"b\"\r\n folded")
	f.Add("Content-Length: 3\r\nExpect: 100-continue\r\nUpgrade: x\r\nConnection: upgrade")
	table := newHeaderTable(&SessionOptions{Headers: []string{"x-session-id"}})
	f.Fuzz(func(t *testing.T, lines string) {
		var in, out, back fasthttp.RequestHeader
		in.DisableNormalizing()
		if in.Read(reader("GET / HTTP/1.1\r\nHost: x\r\n"+lines+"\r\n\r\n")) != nil {
			return
		}
		var h head
		h.read(table, &in)
		out.DisableNormalizing()
		out.SetHost("upstream")
		out.SetRequestURI("/v1")
		sent := h.appendHead(nil, &out, rewrite{})
		// Upstream must get exactly one request that the strict parser accepts, without our headers.
		back.DisableNormalizing()
		r := reader(string(sent))
		if err := back.Read(r); err != nil || r.Buffered() > 0 {
			t.Fatalf("%q became %q: %v, %d bytes behind it", lines, sent, err, r.Buffered())
		}
		if string(back.Host()) != "upstream" || back.ContentLength() > 0 || len(back.Peek("Transfer-Encoding")) > 0 {
			t.Fatalf("%q became %q", lines, sent)
		}
	})
}

func TestOptionsValidate(t *testing.T) {
	o := defaultOptions()
	if err := o.Validate(); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	o.MaxBody, o.MaxHeader, o.MaxConnections, o.WriteTimeout, o.TLSCert = 0, 1, 0, -1, "x"
	o.Upstream = providers.ClientOptions{DialTimeout: -1, MaxHeader: 16 << 10}
	o.Session = SessionOptions{
		Headers: []string{"ok", "Authorization", "a b", "s\u00e9ance", "x/y", "X-Fine_1~"}, Fields: []string{"", "a.b.c", ".a", "a.", "fine.too"},
		ResourceHeaders: []string{"\x7f"}, Tenancy: "both", History: "some",
	}
	err := o.Validate()
	if err == nil {
		t.Fatal("impossible options are fine")
	}
	for _, want := range []string{
		"server.max_body: ", "server.max_header: ", "server.max_connections: ", "server.write_timeout: ", "server.tls_cert: ",
		"server.upstream.dial_timeout: ", "session.headers[1]: ", "session.headers[2]: ", "session.headers[3]: ",
		"session.headers[4]: ", "session.fields[0]: ", "session.fields[1]: ", "session.fields[2]: ", "session.fields[3]: ",
		"session.resource_headers[0]: ", "session.tenancy: ", "session.history: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if text := err.Error(); strings.Contains(text, "fine") || strings.Contains(text, "Fine") {
		t.Errorf("what is fine is refused:\n%s", text)
	}
}

func TestSize(t *testing.T) {
	for size, want := range map[Size]string{0: "0B", 512: "512B", 16 << 10: "16KiB", 64 << 20: "64MiB", 1 << 30: "1GiB", 1025 << 10: "1025KiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is %q, want %q", size, got, want)
		}
	}
}

// TestHintsCoverEveryField: a body is left unread only if no field of the options can be in it.
func TestHintsCoverEveryField(t *testing.T) {
	o := defaultSessionOptions()
	o.Fields = append(o.Fields, "conversation", "conversation.id", "metadata.thread_id", "client_metadata.session_id")
	hints := o.hints()
	for _, field := range append(o.Fields, previousResponse) {
		body := `{"messages":[],"` + strings.ReplaceAll(field, ".", `":{"`) + `":"s"` + strings.Repeat("}", 1+strings.Count(field, "."))
		r, err := wire.Parse(dialects.Chat, []byte(body))
		if err != nil || r.Text(field) != "s" {
			t.Fatalf("%s: %v", body, err)
		}
		if !hints.In([]byte(body)) {
			t.Errorf("%s is left unread", body)
		}
	}
	const usual = `{"messages":[{"role":"user","content":"\u00a7 \"session_id\": \"s\""},{"role":"assistant","tool_calls":[{"id":"c",
		"type":"function","function":{"name":"f","arguments":"{\"conversation\":1}"}}]}],"model":"m"}`
	if hints.In([]byte(usual)) {
		t.Error("a body that names no session is read")
	}
}

// A request that names nothing but the response that it follows belongs to that response's session, and no other
// credential finds it.
func TestPreviousResponseNamesTheSession(t *testing.T) {
	const answer = `{"id":"resp_1","object":"response","status":"completed","output":[]}`
	up := answering(t, func(*http.Request, []byte) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
	})
	store, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mem := memory.New(store, nil, memory.Options{CommitWait: waitLimit, ReadWait: waitLimit})
	t.Cleanup(func() {
		mem.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	r := start(t, rigOptions{upstream: up, memory: adapt(mem)})
	r.response = mem.Response
	ask := func(key, header, body string) string {
		return r.exchange(t, fmt.Sprintf("POST /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n%sContent-Length: %d\r\n\r\n%s",
			key, header, len(body), body))
	}
	ask("k", "X-Session-Id: s\r\n", `{"model":"m","input":"one"}`)
	const follow = `{"model":"m","input":"two","previous_response_id":"resp_1"}`
	if got := ask("k", "", follow); !strings.Contains(got, "X-Session-Id: s\r\n") || !strings.Contains(got, `source="previous_response_id"`) {
		t.Errorf("the session was not found:\n%s", got)
	}
	if got := ask("other", "", follow); strings.Contains(got, "X-Memory") {
		t.Errorf("another credential found the session:\n%s", got)
	}
}

// An exchange serves requests with different credentials, one after the other: each keeps its own tenant.
func TestOwnerIsOfTheCredential(t *testing.T) {
	r := request{s: &Server{o: defaultOptions()}}
	for _, credential := range []string{"", "Bearer a", "Bearer a", "Bearer b", "Bearer ab", "", "Bearer a"} {
		r.head.id.cookie = []byte(credential)
		if got, want := r.tenant(), r.s.o.Session.Tenant([]byte(credential)); got != want {
			t.Errorf("credential %q is of %s, want %s", credential, got, want)
		}
		r.reset()
	}
}
