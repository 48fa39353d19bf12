package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"remora/providers"
	"remora/proxy/listener"
	"remora/wire"
	"remora/wire/dialects"
)

// exhausted is a listener that fails as one does in a process without free descriptors, then hands out a connection.
type exhausted struct {
	net.Listener
	failures int
	conn     net.Conn
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.conn, nil
}

func TestAcceptOutlastsExhaustion(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer shut(ln)
	want, other := net.Pipe()
	defer shut(want)
	defer shut(other)
	var log bytes.Buffer
	patient := listener.Retrying(&exhausted{ln, 3, want}, slog.New(slog.NewTextHandler(&log, nil)), time.Now)
	got, err := patient.Accept()
	if err != nil || got == nil {
		t.Errorf("got %v, %v", got, err)
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "ulimit -n") || !strings.Contains(log.String(), "server.max_connections") {
		t.Errorf("log: %s", &log)
	}
}

func TestBombsAreForwardedUnread(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	write(z, `{"session_id":"s","messages":[],"x":"`)
	_, _ = io.CopyN(z, zeros{}, 8<<20)
	write(z, `"}`)
	shut(z)
	b := newBook()
	r := start(t, rigOptions{memory: b.begin, upstream: answering(t, func(_ *http.Request, body []byte) string {
		text := fmt.Sprint(bytes.Equal(body, bomb.Bytes()))
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	})})
	got := r.exchange(t, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Session-Id: s\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		bomb.Len(), bomb.Bytes()))
	if !strings.HasSuffix(got, "true") || !strings.Contains(got, "X-Memory: bypass") || len(b.calls) != 0 {
		t.Errorf("got %s, %d turns", got, len(b.calls))
	}
}

// zeros reads as the character 0 for ever.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestDialectOf(t *testing.T) {
	f := func(want wire.Dialect, targets ...string) {
		t.Helper()
		for _, target := range targets {
			if got, unclear := dialectOf([]byte(target)); got != want || unclear {
				t.Errorf("%q is %v, unclear %v, want %v", target, got, unclear, want)
			}
		}
	}
	f(dialects.Chat, "/v1/chat/completions", "/api/v1/chat/completions?a=b", "http://h/v1/chat/completions")
	f(dialects.Responses, "/v1/responses", "/v1/responses?x=/v1/chat/completions", "https://h:1/api/v1/responses?x=1")
	// Where providers have the same endpoints.
	f(dialects.Chat, "/chat/completions", "/openai/v1/chat/completions", "/v1beta/openai/chat/completions", "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21",
		"/OpenAI/Deployments/My-Model_1.5/chat/completions", "/openai//deployments/x/chat/completions/")
	f(dialects.Responses, "/responses", "/responses/", "/openai/v1/responses", "/openai/responses?api-version=2025-04-01-preview")
	f(wire.Dialect{}, "/openai/deployments/x/completions", "/openai/deployments/x/embeddings", "/v1beta/openai/embeddings", "/responses/compact",
		"/openai/v1/responses/resp_1")
	f(wire.Dialect{}, "/v1/responses/compact", "/v1/chat/completions/x", "/", "", "*", "http://h",
		"/x?u=http://h/v1/responses", "/v1/embeddings", "/openai/v1/x")

	// Other spellings of the same.
	f(dialects.Chat, "/v1/ch%61t/completions", "/v1/chat%2Fcompletions", "/%76%31/chat/completions", "/v1/ch%2561t/completions",
		"/v1/ch%%361t/completions", "/v1/chat%252fcompletions", "/v1/chat%5ccompletions", `/v1\chat\completions`,
		"/v1//chat/completions", "//v1/chat/completions", "/v1/chat/completions/", "/v1/./chat/completions/.", "/v1/%2e/chat/completions",
		"/V1/Chat/Completions", "/v1/ch%41t/completions", "/API/v1/chat/completions", "http://h//v1/chat/completions/?x")
	f(dialects.Responses, "/v1/resp%6fnses", "/v1/responses/", "/api//v1/responses")
	// What is taken away.
	f(dialects.Chat, "/v1/x/../chat/completions", "/x/../v1/chat/completions", "/../v1/chat/completions", "/v1/chat/completions/x/..",
		"/v1/x/%2e%2e/chat/completions", "/v1/x%2f..%2fchat/completions", "/v1/../v1/chat/completions", "/v1//../chat/completions",
		"/v1/x%252fy/../chat/completions", "/v1/responses/../chat/completions", "/v1/../../b/v1/chat/completions", `/v1/x\..\chat/completions`)
	// What is cut out, or cuts off.
	f(dialects.Chat, "/v1/chat;a=b/completions", "/v1/chat/completions;x", "/v1/x/..;/chat/completions", "/v1/chat/completions%3Fx", "/v1/chat/completions%2523",
		"/v1/chat/completions#x", "/v1/chat/completions%00.png", "/v1/chat/completions%20", "/v1/chat%EF%BC%8Fcompletions")
	// What is something else, however it is spelled.
	f(wire.Dialect{}, "/v1/responses/r%5f1/cancel", "/v1/responses/compact/", "/v1//responses/compact", "/v1/chat/completions/../models", "/v1/responses/..",
		"/v1/mod%65ls", "/v1/a%20b", "/v1/%63hat", "/completions/chat/v1;", "/v1/responses.", "/v1/chat/completions:x")
}

// A path that servers take for different endpoints is told, since answers are judged by their form; and so is one that is
// an endpoint's but for its beginning, where the provider may have it.
func TestUnclearPaths(t *testing.T) {
	for _, target := range []string{
		"/v1/chat/completions/responses/%2e%2e/..", "/v1/responses;/../chat/completions", "/v1/chat/completions%3f/../../v1/responses",
		"/openai/deployments/x/y/chat/completions", "/openai/deployments/chat/completions", "/openai/deployments/../chat/completions/x/..",
		"/openai/deployments/..%2f..%2fv1%2fresponses%3f/chat/completions", "/openai/deployments/x%2fy/chat/completions", "/v2/responses", "/api/api/v1/responses", "/apiv1/responses",
		"/v1beta/openai/responses", "/openai/ch%61t/completions", "/openai/deployments/x/responses", "/openai/chat/completions;x", "/x%20/responses",
		"/v1/%zz/responses",
	} {
		if d, unclear := dialectOf([]byte(target)); d.Known() || !unclear {
			t.Errorf("%q is %v, unclear %v", target, d, unclear)
		}
	}
}

// FuzzDialectOf: no spelling is missed that ends up at an endpoint where a path is decoded, once or more, and cleaned.
func FuzzDialectOf(f *testing.F) {
	for _, seed := range []string{
		"/v1/ch%61t/completions", "/v1/x/..//chat/completions/", "http://h/v1/%2572esponses", "/api/v1/x%2f../responses", "/v1/%2e%2e/v1/responses",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, target string) { checkReadings(t, target) })
}

func TestEverySpellingIsKnown(t *testing.T) {
	escape := func(c byte, depth int) string {
		if depth == 0 {
			return string(c)
		}
		return "%" + strings.Repeat("25", depth-1) + fmt.Sprintf("%02x", c)
	}
	slashes := rapid.SampledFrom([]string{"/", "/", "/", "//", "/./", "/x/../", "/%2e/", "/x/%2e%2e/", "/x%2fy/../", "/x%252fy/../", "/x//../", "%2f", "%252f", "/x%2f..%2f", "/../v1/"})
	ends := rapid.SampledFrom([]string{"", "", "/", "/.", "/x/..", "%2f", "/models", "/../models", "?x"})
	depths := rapid.Map(rapid.IntRange(0, 19), func(n int) int { return max(n-17, 0) })
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for segment := range strings.SplitSeq(rapid.SampledFrom([]string{"v1/chat/completions", "v1/responses", "api/v1/responses", "openai/deployments/m/chat/completions", "responses", "openai/v1/responses", "v1beta/openai/chat/completions"}).Draw(t, "endpoint"), "/") {
			b.WriteString(slashes.Draw(t, "slashes"))
			for i := range len(segment) {
				b.WriteString(escape(segment[i], depths.Draw(t, "depth")))
			}
		}
		checkReadings(t, "/"+strings.TrimPrefix(b.String()+ends.Draw(t, "end"), "/"))
	})
}

func checkReadings(t interface{ Errorf(string, ...any) }, target string) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return
	}
	if _, ok := providers.OriginForm([]byte(target)); !ok {
		return // refused
	}
	got, unclear := dialectOf([]byte(target))
	for read, depth := u.Path, 1; depth < 5; depth++ {
		want := endpoint([]byte(path.Clean(read)))
		if want.Known() && got != want && !unclear {
			t.Errorf("%q is %v, and %v when decoded %d times", target, got, want, depth)
		}
		decoded, err := url.PathUnescape(read)
		if err != nil {
			return
		}
		if read = decoded; depth%2 == 0 {
			read = path.Clean(decoded) // by a proxy on the way
		}
	}
}

func TestPathsAreForwardedAsTheyCame(t *testing.T) {
	b := newBook()
	r := start(t, rigOptions{memory: b.begin, upstream: answering(t, func(r *http.Request, _ []byte) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Target: %s\r\nContent-Length: %d\r\n\r\n%s", r.RequestURI, len(chatAnswer), chatAnswer)
	})})
	for _, target := range []string{"/v1/ch%61t/completions?a=%62", "/v1/x/..//chat/completions/", "/v1/chat;a/completions"} {
		got := r.exchange(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Session-Id: s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			target, len(chatBody), chatBody))
		if !strings.Contains(got, "X-Target: "+target+"\r\n") || !strings.Contains(got, "X-Memory: ok") {
			t.Errorf("%s: got %s", target, got)
		}
		await(t, b.calls, "turn")
		await(t, b.answers, "answer")
	}
}

// RFC 9112, 2.2 and 5: such a line is no header, and one that is passed on is read otherwise by the next.
func TestHeaderNamesWithSpacesAreRefused(t *testing.T) {
	r := start(t, rigOptions{upstream: answering(t, func(*http.Request, []byte) string { return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" })})
	got := r.exchange(t, "GET /v1/models HTTP/1.1\r\nHost: x\r\nX Bad: a\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "Connection: close") || strings.Contains(got, "X Bad") {
		t.Errorf("got %s", got)
	}
}

// A tunnel of HTTP/2, or of TLS, would bring upstream requests that no rule, limit or memory has seen.
func TestOnlyWebSocketsAreOffered(t *testing.T) {
	r := start(t, rigOptions{upstream: answering(t, func(r *http.Request, _ []byte) string {
		text := fmt.Sprint(r.Header["Upgrade"])
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	})})
	f := func(want, offers string) {
		t.Helper()
		got := r.exchange(t, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\n"+offers+"\r\n")
		if !strings.HasSuffix(got, "\r\n\r\n"+want) {
			t.Errorf("%q: got %s", offers, got)
		}
	}
	f("[WebSocket]", "Upgrade: WebSocket\r\n")
	f("[]", "Upgrade: h2c, websocket\r\n")
	f("[]", "Upgrade: h2c\r\nUpgrade: websocket\r\n")
	f("[]", "Upgrade: websocket\r\nUpgrade: h2c\r\n")
	f("[]", "Upgrade: HTTP/2.0\r\n")
	f("[]", "Upgrade: TLS/1.2\r\n")
	f("[]", "Upgrade:\r\n")
}

func TestMethodInAnyCaseIsRemembered(t *testing.T) {
	b := newBook()
	r := start(t, rigOptions{memory: b.begin, upstream: answering(t, func(r *http.Request, _ []byte) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Method: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", r.Method, len(chatAnswer), chatAnswer)
	})})
	got := r.exchange(t, fmt.Sprintf("pOsT /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Session-Id: s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		len(chatBody), chatBody))
	if !strings.Contains(got, "X-Method: pOsT") || len(b.calls) != 1 {
		t.Errorf("%d turns, got %s", len(b.calls), got)
	}
}

func TestKeysOutsideOfAuthorizationSeparateTenants(t *testing.T) {
	b := newBook()
	r := start(t, rigOptions{memory: b.begin, upstream: answering(t, func(*http.Request, []byte) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(chatAnswer), chatAnswer)
	})})
	seen := map[string]string{}
	f := func(query, header string) {
		t.Helper()
		r.exchange(t, fmt.Sprintf("POST /v1/chat/completions%s HTTP/1.1\r\nHost: x\r\n%sX-Session-Id: s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			query, header, len(chatBody), chatBody))
		tenant := await(t, b.calls, "turn").Scope.Tenant
		if other, ok := seen[tenant]; ok || tenant == "anonymous" {
			t.Errorf("%s%s is tenant %s, as %s is", query, header, tenant, other)
		}
		seen[tenant] = query + header
		await(t, b.answers, "answer")
	}
	f("?api-key=one", "")
	f("?api-key=two", "")
	f("?a=b&key=three", "")
	f("", "X-Goog-Api-Key: four\r\n")
	f("", "Ocp-Apim-Subscription-Key: five\r\n")
	f("", "Cookie: s=six\r\n")
}

// A client that has only closed its sending side gets no invented answer.
func TestHalfClosedClientGetsNoEmptyAnswer(t *testing.T) {
	r := start(t, rigOptions{upstream: upstream(t, func(_ net.Conn, r *bufio.Reader) { drain(r) })})
	conn, _ := r.dial(t)
	write(conn, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(conn); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}

// TestClientsBeyondTheLimitLearnWhy: those for whom there is no connection left get the proxy's envelope and when to come
// back, over TLS too, and also when so many come that no request of theirs is read. A connection that ends makes room.
func TestClientsBeyondTheLimitLearnWhy(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			addr := answering(t, func(*http.Request, []byte) string { return sized("ok") })
			ro := rigOptions{upstream: addr, tune: func(o *Options) { o.MaxConnections = 2 }}
			if secure {
				ro.list = overTLS(t)
			}
			r := start(t, ro)
			dial := func() (net.Conn, *bufio.Reader) {
				c, br := r.dial(t)
				if secure {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
					br = bufio.NewReader(c)
				}
				return c, br
			}
			const get = "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n"
			served := func(c net.Conn, br *bufio.Reader) bool {
				write(c, get)
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatal(err)
				}
				drain(resp.Body)
				return resp.StatusCode == 200
			}
			first, firstReader := dial()
			second, secondReader := dial()
			if !served(first, firstReader) || !served(second, secondReader) {
				t.Fatal("clients within the limit are refused")
			}
			refused := func(c net.Conn, br *bufio.Reader) {
				t.Helper()
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(br) // up to the end of the connection
				const want = `{"error":{"message":"limit of 2 connections is reached (server.max_connections)","type":"proxy_error","param":null,"code":"overloaded"}}`
				if err != nil || string(body) != want || resp.StatusCode != 503 || !resp.Close || resp.Header.Get("Retry-After") != "1" ||
					resp.Header.Get("Content-Type") != "application/json" || resp.ContentLength != int64(len(want)) {
					t.Errorf("%d %v %q %v", resp.StatusCode, resp.Header, body, err)
				}
				shut(c)
			}
			third, thirdReader := dial()
			write(third, chatIn("s", strings.Repeat(" ", 300<<10)))
			refused(third, thirdReader)
			if !served(first, firstReader) {
				t.Error("a client within the limit is refused")
			}
			if !secure {
				var silent []net.Conn
				for range listener.Spare {
					c, _ := dial()
					silent = append(silent, c)
				}
				refused(dial())
				for _, c := range silent {
					shut(c)
				}
			}
			shut(first)
			for c, br := dial(); !served(c, br); c, br = dial() { // the proxy has to notice
				shut(c)
			}
		})
	}
}

// TestNobodyGetsTheTunnelOfAnother: a connection on which upstream was asked for a tunnel is not used for anybody else.
func TestNobodyGetsTheTunnelOfAnother(t *testing.T) {
	seen := make(chan string, 2)
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		for n := 1; ; n++ {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			seen <- fmt.Sprintf("%s %d", req.Method, n)
			write(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	r := start(t, rigOptions{upstream: addr})
	for _, method := range []string{"CONNECT", "GET"} {
		if got := r.exchange(t, method+" /v1/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("%s got %q", method, got)
		}
		if got, want := await(t, seen, "request"), method+" 1"; got != want {
			t.Errorf("upstream got %q, want %q: the number counts requests of one connection", got, want)
		}
	}
}
