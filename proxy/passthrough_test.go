package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/providers"
)

func crlf(s string) string { return strings.ReplaceAll(strings.TrimPrefix(s, "\n"), "\n", "\r\n") }

func TestRequestHeadPassesByteForByte(t *testing.T) {
	addr, requests := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", noBody)
	r := start(t, rigOptions{upstream: addr})
	r.exchange(t, crlf(`
GET /v1/files//a%2Fb/../%zz?x=1&&y=%20+é HTTP/1.1
accept: */*
HOST: proxy.example
X-Session-ID: s-1
cookie: a="b c"; d=e;f
User-Agent:   spaced  
X-empty:
x-DUP: 1
Connection: close, X-Hop
x-hop: gone
X-Dup: 2
Keep-Alive: 5
TE: trailers
X-Memory: off
X-History: client
Authorization: Bearer k
X-Last: é

`))
	want := crlf(`
GET /v1/files//a%2Fb/../%zz?x=1&&y=%20+é HTTP/1.1
accept: */*
HOST: ` + addr + `
X-Session-ID: s-1
cookie: a="b c"; d=e;f
User-Agent: spaced
X-empty: 
x-DUP: 1
X-Dup: 2
Authorization: Bearer k
X-Last: é

`)
	if diff := cmp.Diff(want, await(t, requests, "request")); diff != "" {
		t.Error(diff)
	}
}

func TestProviderReplacesCredentialAndHeaders(t *testing.T) {
	addr, requests := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", noBody)
	r := start(t, rigOptions{upstream: addr, provider: func(o *providers.Options) {
		o.APIKey = "operator"
		o.Headers = []providers.Header{{Name: "X-Title", Value: "gateway"}}
	}})
	r.exchange(t, crlf(`
GET /api/v1/models HTTP/1.1
Host: proxy.example
AUTHORIZATION: Bearer caller
x-title: caller
Cookie: a="b c"
API-Key: caller
X-Other: stays
Connection: close

`))
	want := crlf(`
GET /v1/models HTTP/1.1
Host: ` + addr + `
X-Other: stays
Authorization: Bearer operator
X-Title: gateway

`)
	if diff := cmp.Diff(want, await(t, requests, "request")); diff != "" {
		t.Error(diff)
	}
}

// TRACE is answered with the head of the request as it arrived.
func TestTraceDoesNotShowTheGatewaysKey(t *testing.T) {
	addr, _ := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", noBody)
	f := func(want string, provider func(o *providers.Options)) {
		t.Helper()
		r := start(t, rigOptions{upstream: addr, provider: provider})
		for _, method := range []string{"TRACE", "trace"} {
			if got := r.exchange(t, method+" /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, want) {
				t.Errorf("%s: got %s", method, got)
			}
		}
	}
	f("HTTP/1.1 403 ", func(o *providers.Options) { o.APIKey = "operator" })
	f("HTTP/1.1 403 ", func(o *providers.Options) { o.Headers = []providers.Header{{Name: "X-Key", Value: "operator"}} })
	f("HTTP/1.1 200 ", nil)
}

func TestResponseHeadPassesByteForByte(t *testing.T) {
	f := func(name, answer, want string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			addr, _ := recording(t, crlf(answer), noBody)
			r := start(t, rigOptions{upstream: addr})
			method := "GET"
			if name == "head" {
				method = "HEAD"
			}
			got := r.exchange(t, method+" /v1/models HTTP/1.1\r\nHost: x\r\nX-Session-Id: s\r\nConnection: close\r\n\r\n")
			if diff := cmp.Diff(crlf(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
	f("order, case, date, reason", `
HTTP/1.1 299 Quite Fine
x-ratelimit-remaining: 7
Connection: keep-alive, x-hop
X-Hop: gone
Date: Tue, 15 Nov 1994 08:12:31 GMT
retry-After: 3
Keep-Alive: timeout=5
X-Request-ID: r1
Content-Length: 2

ok`, `
HTTP/1.1 299 Quite Fine
x-ratelimit-remaining: 7
Date: Tue, 15 Nov 1994 08:12:31 GMT
retry-After: 3
X-Request-ID: r1
Content-Length: 2
Connection: close

ok`)
	f("head", `
HTTP/1.1 200 OK
Content-Length: 77
ETag: "x"

`, `
HTTP/1.1 200 OK
Content-Length: 77
ETag: "x"
Connection: close

`)
	f("no content", `
HTTP/1.1 204 No Content
X-A: b

`, `
HTTP/1.1 204 No Content
X-A: b
Connection: close

`)
	f("not modified", `
HTTP/1.1 304 Not Modified
Content-Length: 12
ETag: "x"

`, `
HTTP/1.1 304 Not Modified
Content-Length: 12
ETag: "x"
Connection: close

`)
	f("interim answers are passed over", `
HTTP/1.1 103 Early Hints
Link: x

HTTP/1.1 200 OK
Content-Length: 2

ok`, `
HTTP/1.1 200 OK
Content-Length: 2
Connection: close

ok`)
	f("empty, several cookies", `
HTTP/1.1 500 Oh no
Content-Length: 0
set-cookie: a=b
set-cookie: c="d e"

`, `
HTTP/1.1 500 Oh no
Content-Length: 0
set-cookie: a=b
set-cookie: c="d e"
Connection: close

`)
}

// TestBodiesPass checks bodies of every framing and size through the standard library at both ends.
func TestBodiesPass(t *testing.T) {
	seen := make(chan *http.Request, 1)
	bodies := make(chan []byte, 1)
	answer := make(chan []byte, 1)
	mux := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		seen <- req
		bodies <- body
		out := <-answer
		h := w.Header()
		h.Set("Content-Type", "application/x-strange")
		if e := req.Header.Get("X-Encoding"); e != "" {
			h.Set("Content-Encoding", e)
		}
		if req.Header.Get("X-Sized") != "" {
			h.Set("Content-Length", fmt.Sprint(len(out)))
		}
		w.WriteHeader(http.StatusTeapot)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		for len(out) > 0 {
			n := min(len(out), 1000)
			if _, err := w.Write(out[:n]); err != nil {
				t.Error(err)
			}
			out = out[n:]
		}
	})
	addr := listen(t, (&http.Server{Handler: mux, ReadHeaderTimeout: waitLimit}).Serve)
	r := start(t, rigOptions{upstream: addr})
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(client.CloseIdleConnections)
	methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"}
	paths := []string{"/v1/chat/completions", "/v1/responses", "/v1/responses/compact", "/api/v1/embeddings", "/v1/audio/speech", "/"}
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "body")
		body = bytes.Repeat(body, rapid.SampledFrom([]int{1, 1, 1, 100}).Draw(t, "times"))
		out := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "answer")
		out = bytes.Repeat(out, rapid.SampledFrom([]int{1, 1, 1, 100}).Draw(t, "answer times"))
		method := rapid.SampledFrom(methods).Draw(t, "method")
		path := rapid.SampledFrom(paths).Draw(t, "path")
		reader := io.Reader(bytes.NewReader(body))
		if rapid.Bool().Draw(t, "chunked request") && len(body) > 0 {
			reader = io.MultiReader(reader)
		}
		req, err := http.NewRequest(method, "http://"+r.addr+path, reader)
		if err != nil {
			t.Fatal(err)
		}
		encoding := rapid.SampledFrom([]string{"", "gzip", "zstd", "br"}).Draw(t, "encoding")
		if encoding != "" {
			req.Header.Set("Content-Encoding", encoding)
			req.Header.Set("X-Encoding", encoding)
		}
		if rapid.Bool().Draw(t, "sized answer") {
			req.Header.Set("X-Sized", "1")
		}
		answer <- out
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer shut(resp.Body)
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if in := <-seen; in.Method != method || in.URL.Path != strings.TrimPrefix(path, "/api") || in.Header.Get("Content-Encoding") != encoding {
			t.Fatalf("upstream saw %s %s %v", in.Method, in.URL, in.Header)
		}
		if in := <-bodies; !bytes.Equal(in, body) {
			t.Fatalf("upstream got %d bytes, sent were %d", len(in), len(body))
		}
		if !bytes.Equal(got, out) {
			t.Fatalf("client got %d bytes, sent were %d", len(got), len(out))
		}
		if resp.Header.Get("Content-Encoding") != encoding || resp.Header.Get("Content-Type") != "application/x-strange" {
			t.Fatalf("headers %v", resp.Header)
		}
		for _, own := range []string{"X-Memory", "X-Session-Id", "X-Turn-Id", "Server-Timing", "Server", "Via"} {
			if v := resp.Header.Get(own); v != "" {
				t.Fatalf("an answer without a session has %s: %s", own, v)
			}
		}
	})
}

func TestPipelinedRequests(t *testing.T) {
	addr := answering(t, func(req *http.Request, body []byte) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s %s", len(req.URL.Path)+1+len(body), req.URL.Path, body)
	})
	r := start(t, rigOptions{upstream: addr})
	got := r.exchange(t, crlf(`
POST /v1/a HTTP/1.1
Host: x
Transfer-Encoding: chunked

3;ext=1
one
0
Trailer-Field: x

POST /v1/b HTTP/1.1
Host: x
Content-Length: 3

twoGET /v1/c HTTP/1.1
Host: x
Connection: close

`))
	want := crlf(`
HTTP/1.1 200 OK
Content-Length: 9

/v1/a oneHTTP/1.1 200 OK
Content-Length: 9

/v1/b twoHTTP/1.1 200 OK
Content-Length: 6
Connection: close

/v1/c `)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOldAndOddRequests(t *testing.T) {
	addr, requests := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", func(head string) int {
		if strings.Contains(head, "Content-Length: 4") {
			return 4
		}
		return 0
	})
	r := start(t, rigOptions{upstream: addr})
	f := func(request, want string) {
		t.Helper()
		r.exchange(t, crlf(request))
		if diff := cmp.Diff(crlf(want), await(t, requests, "request")); diff != "" {
			t.Error(diff)
		}
	}
	f("\nGET /v1/x HTTP/1.0\nHost: h\n\n", "\nGET /v1/x HTTP/1.1\nHost: "+addr+"\n\n")
	f("\nGET http://elsewhere/v1/x?y HTTP/1.1\nHost: h\nConnection: close\n\n", "\nGET /v1/x?y HTTP/1.1\nHost: "+addr+"\n\n")
	f("\nDELETE /v1/x HTTP/1.1\nHost: h\nConnection: close\n\n", "\nDELETE /v1/x HTTP/1.1\nHost: "+addr+"\n\n")
	f("\nGET /v1/x HTTP/1.1\nHost: h\nConnection: close\nContent-Length: 4\n\nbody", "\nGET /v1/x HTTP/1.1\nHost: "+addr+"\nContent-Length: 4\n\nbody")
	// HTTP/2 over plain TCP is offered by some clients with every request.
	f("\nPOST /v1/x HTTP/1.1\nHost: h\nConnection: Upgrade, HTTP2-Settings, close\nUpgrade: h2c\nHTTP2-Settings: x\nContent-Length: 4\n\nbody",
		"\nPOST /v1/x HTTP/1.1\nHost: "+addr+"\nContent-Length: 4\n\nbody")
	if got := r.exchange(t, "CONNECT example.com:443 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("CONNECT got %q", got)
	}
}

func TestStreamIsLive(t *testing.T) {
	addr, next := speaking(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	r := start(t, rigOptions{upstream: addr})
	c, br := r.dial(t)
	write(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	resp, err := http.ReadResponse(br, nil) // the head comes before any event
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	buf := make([]byte, 100)
	for _, step := range []struct{ send, want string }{
		{"7\r\n: hello\r\n", ": hello"},                 // one chunk
		{"1\r\na\r\n2\r\nbc\r\n3\r\ndef\r\n", "abcdef"}, // several at once
		{"5\r\nsp", "sp"},                               // a part of one
		{"lit\r", "lit"},
		{"\n1\r\n!\r\n", "!"},
	} {
		next <- step.send
		var got string
		for len(got) < len(step.want) {
			n, err := resp.Body.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			got += string(buf[:n])
		}
		if got != step.want {
			t.Errorf("after %q the client read %q", step.send, got)
		}
	}
	next <- "0\r\n\r\n"
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("end: %q %v", rest, err)
	}
	close(next)
}

func TestTruncatedAnswerIsTruncated(t *testing.T) {
	f := func(name, answer string, wantStatus int) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err == nil {
					write(c, answer)
				}
			})
			r := start(t, rigOptions{upstream: addr})
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Get("http://" + r.addr + "/v1/x")
			if err != nil {
				t.Fatal(err)
			}
			defer shut(resp.Body)
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != wantStatus {
				t.Errorf("status %d", resp.StatusCode)
			}
			if wantStatus == http.StatusOK && err == nil {
				t.Errorf("a clean end after %d bytes", len(body))
			}
			if wantStatus == http.StatusBadGateway && !strings.Contains(string(body), `"code":"upstream_closed"`) {
				t.Errorf("body %s", body)
			}
			r.stop(t)
			if r.upstreamFailures() != 1 {
				t.Errorf("log %s", r.log)
			}
		})
	}
	long := strings.Repeat("x", 40<<10)
	f("chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 200)
	f("in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello", 200)
	f("bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello world\r\n", 502)
	f("no chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n<html>\r\n", 502)
	f("an absurd chunk", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 502)
	f("long", "HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n"+long, 200)
	f("short", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", 502)
	f("nothing", "", 502)
	f("half a head", "HTTP/1.1 200 OK\r\nContent-", 502)
}

// TestAnswerUntilClose checks that the end of upstream's connection ends the answer and not the client's connection.
func TestAnswerUntilClose(t *testing.T) {
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			write(c, "HTTP/1.0 200 OK\r\nX-A: b\r\n\r\nall of it")
		}
	})
	r := start(t, rigOptions{upstream: addr})
	got := r.exchange(t, "GET /v1/x HTTP/1.1\r\nHost: h\r\n\r\nGET /v1/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	one := "\nHTTP/1.1 200 OK\nX-A: b\nTransfer-Encoding: chunked\n%s\n9\nall of it\n0\n\n"
	want := crlf(fmt.Sprintf(one, "")) + crlf(fmt.Sprintf(one, "Connection: close\n"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEventStreamWithLengthIsLive(t *testing.T) {
	finish := make(chan struct{})
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			write(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 8\r\n\r\none ")
			<-finish
			write(c, "two ")
		}
	})
	r := start(t, rigOptions{upstream: addr})
	c, br := r.dial(t)
	write(c, "GET /v1/x HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	close(finish)
	if rest, err := io.ReadAll(resp.Body); string(rest) != "two " || err != nil {
		t.Errorf("%q %v", rest, err)
	}
}

func TestNothingIsAddedUpstreamByTheSystem(t *testing.T) {
	// A bare client sends next to nothing; so does the proxy.
	addr, requests := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", func(string) int { return 2 })
	r := start(t, rigOptions{upstream: addr})
	r.exchange(t, "POST /v1/x HTTP/1.1\r\nhost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
	want := "POST /v1/x HTTP/1.1\r\nhost: " + addr + "\r\nContent-Length: 2\r\n\r\nhi"
	if diff := cmp.Diff(want, await(t, requests, "request")); diff != "" {
		t.Error(diff)
	}
}

func TestForwardProxyOfTheEnvironment(t *testing.T) {
	addr, requests := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", noBody)
	asked := make(chan string, 1)
	via := upstream(t, func(c net.Conn, br *bufio.Reader) {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		asked <- req.Method + " " + req.Host + " " + req.Header.Get("Proxy-Authorization")
		up, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer shut(up)
		write(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(c, up)
			shut(c)
		}()
		_, _ = io.Copy(up, br)
		shut(up)
		<-done
	})
	r := start(t, rigOptions{upstream: addr, tune: func(o *Options) {
		o.Upstream.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://u:p@" + via) }
	}})
	r.exchange(t, "GET /v1/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if got, want := await(t, asked, "CONNECT"), "CONNECT "+addr+" Basic dTpw"; got != want {
		t.Errorf("forward proxy was asked %q, want %q", got, want)
	}
	await(t, requests, "request")
}
