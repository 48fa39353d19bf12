package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/providers/retry"
	"remora/proxy/limit"
)

// hanging is an upstream that reads one request, writes begin, and tells when the other end closes.
func hanging(t *testing.T, begin string) (addr string, arrived <-chan struct{}, gone <-chan time.Time) {
	t.Helper()
	in, out := make(chan struct{}, 1), make(chan time.Time, 1)
	return upstream(t, func(c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		drain(req.Body)
		write(c, begin)
		in <- struct{}{}
		_, _ = r.ReadByte()
		out <- time.Now()
	}), in, out
}

const hello = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"

// TestAbortReachesUpstream checks that a client that leaves ends the upstream request at once, before the head of the
// answer and in the middle of a stream, also with unread bytes in the way and below TLS.
func TestAbortReachesUpstream(t *testing.T) {
	streamHead := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndata\r\n"
	try := func(t *testing.T, begin, request string, withTLS bool, leave func(c net.Conn)) time.Duration {
		t.Helper()
		addr, arrived, gone := hanging(t, begin)
		ro := rigOptions{upstream: addr}
		if withTLS {
			ro.list = overTLS(t)
		}
		r := start(t, ro)
		c, br := r.dial(t)
		if withTLS {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			br = bufio.NewReader(c)
		}
		write(c, request)
		await(t, arrived, "request")
		if begin != "" {
			if line, err := br.ReadString('a'); err != nil {
				t.Fatal(line, err)
			}
		}
		left := time.Now()
		leave(c)
		took := await(t, gone, "end of the upstream request").Sub(left)
		r.stop(t)
		if r.upstreamFailures() != 0 {
			t.Errorf("upstream is blamed: %s", r.log)
		}
		return took
	}
	f := func(name, begin, request string, withTLS bool, leave func(c net.Conn)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			// The promise is 100 ms. The machine may be busy, or stand still, in one of the tries.
			took := try(t, begin, request, withTLS, leave)
			for n := 1; n < 5 && took > time.Second; n++ {
				took = min(took, try(t, begin, request, withTLS, leave))
			}
			t.Logf("upstream noticed after %s", took)
			if took > time.Second {
				t.Error("that is too late")
			}
		})
	}
	closed := func(c net.Conn) { c.Close() }
	reset := func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0)
		shut(c)
	}
	half := func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() }
	f("before the head", "", hello, false, closed)
	f("in mid-stream", streamHead, hello, false, closed)
	f("reset before the head", "", hello, false, reset)
	f("reset in mid-stream", streamHead, hello, false, reset)
	f("half closed", streamHead, hello, false, half)
	f("with the next request pending", "", hello+hello, false, closed)
	f("tls before the head", "", hello, true, closed)
	f("tls in mid-stream", streamHead, hello, true, closed)
}

func TestPatientClientIsLeftAlone(t *testing.T) {
	release := make(chan struct{})
	addr := answering(t, func(*http.Request, []byte) string {
		<-release
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	})
	r := start(t, rigOptions{upstream: addr})
	c, br := r.dial(t)
	write(c, hello+hello) // the second one is pending while the first is served
	for r.watcher.sweeps() < 5 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	for range 2 {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != "ok" || err != nil {
			t.Errorf("%q %v", body, err)
		}
	}
}

// sweeps is how often the first shard was looked at.
func (w *watcher) sweeps() uint64 {
	s := &w.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tick
}

func TestStaleConnectionIsReplaced(t *testing.T) {
	var conns atomic.Int32
	closing := make(chan struct{}, 100)
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		conns.Add(1)
		if req, err := http.ReadRequest(r); err == nil {
			drain(req.Body)
			// Without Connection: close, so that the proxy keeps the connection.
			write(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
		shut(c)
		closing <- struct{}{}
	})
	r := start(t, rigOptions{upstream: addr})
	c, br := r.dial(t)
	for range 20 {
		write(c, hello)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		await(t, closing, "close")
	}
	if n := conns.Load(); n != 20 {
		t.Errorf("%d connections", n)
	}
}

func TestSentPostIsNotRepeated(t *testing.T) {
	var posts atomic.Int32
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		for first := true; ; first = false {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			drain(req.Body)
			if !first {
				posts.Add(1)
				return // the second request of a connection meets its end
			}
			write(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	r := start(t, rigOptions{upstream: addr})
	status := func(method string) int {
		req, err := http.NewRequest(method, "http://"+r.addr+"/v1/x", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		shut(resp.Body)
		return resp.StatusCode
	}
	if a, b := status("POST"), status("POST"); a != 200 || b != 502 || posts.Load() != 1 {
		t.Errorf("answers %d and %d, upstream got %d of the second", a, b, posts.Load())
	}
	if a, b := status("GET"), status("GET"); a != 200 || b != 200 || posts.Load() != 2 {
		t.Errorf("a GET got %d and %d, upstream broke off %d", a, b, posts.Load())
	}
}

// wantError wants an error of the proxy's own, and returns its body.
func wantError(t *testing.T, resp *http.Response, status int, code string) string {
	t.Helper()
	defer shut(resp.Body)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the error: %v", err)
	}
	var e struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if resp.StatusCode != status || e.Error.Code != code || e.Error.Type != "proxy_error" || e.Error.Message == "" {
		t.Errorf("got %d %s, want %d %s", resp.StatusCode, body, status, code)
	}
	if resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", resp.Header)
	}
	return string(body)
}

// TestOutageIsLoggedOnceASecond: in an outage of upstream the log has a line a second, with the number of those that it leaves out.
func TestOutageIsLoggedOnceASecond(t *testing.T) {
	var later atomic.Int64
	began := time.Now()
	r := start(t, rigOptions{upstream: "127.0.0.1:1", now: func() time.Time { return began.Add(time.Duration(later.Load())) }})
	for range 2 {
		for range 3 {
			resp, err := http.Get("http://" + r.addr + "/v1/x")
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, resp, 502, "upstream_unreachable")
		}
		later.Add(int64(time.Second))
	}
	r.stop(t)
	if log := r.log.String(); r.upstreamFailures() != 2 || strings.Count(log, "unlogged=0") != 1 || strings.Count(log, "unlogged=2") != 1 {
		t.Errorf("log %s", log)
	}
}

func TestUpstreamFaults(t *testing.T) {
	silent := upstream(t, func(_ net.Conn, r *bufio.Reader) {
		for {
			if _, err := r.ReadByte(); err != nil {
				return
			}
		}
	})
	noise := upstream(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			write(c, "220 smtp ready\r\n\r\n")
		}
	})
	verbose := upstream(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			write(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 20<<10)+"\r\n\r\n")
		}
	})
	f := func(name, addr string, status int, code string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			r := start(t, rigOptions{upstream: addr, tune: func(o *Options) {
				// Every answer has time enough on a busy machine.
				if o.Upstream.ResponseHeaderTimeout = waitLimit; addr == silent {
					o.Upstream.ResponseHeaderTimeout = 30 * time.Millisecond
				}
			}})
			resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(httptest.NewRequest("GET", "http://"+r.addr+"/v1/x", nil))
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, resp, status, code)
			r.stop(t)
			if log := r.log.String(); r.upstreamFailures() != 1 || !strings.Contains(log, "provider=test code="+code) {
				t.Errorf("log %q", log)
			}
		})
	}
	f("no server listens", "127.0.0.1:1", 502, "upstream_unreachable")
	f("no answer", silent, 504, "upstream_timeout")
	f("no HTTP", noise, 502, "upstream_closed")
	f("endless head", verbose, 502, "upstream_closed")
}

func TestStalledStreamIsCut(t *testing.T) {
	addr, _, gone := hanging(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndata\r\n")
	r := start(t, rigOptions{upstream: addr, tune: func(o *Options) { o.Upstream.StreamIdleTimeout = 30 * time.Millisecond }})
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(httptest.NewRequest("GET", "http://"+r.addr+"/v1/x", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	if body, err := io.ReadAll(resp.Body); err == nil || string(body) != "data" {
		t.Errorf("%q %v", body, err)
	}
	await(t, gone, "end of the upstream request")
}

func TestTooMuchIsRefusedReadably(t *testing.T) {
	addr, requests := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", noBody)
	r := start(t, rigOptions{upstream: addr, tune: func(o *Options) { o.MaxBody, o.MaxHeader = 100<<10, 4<<10 }})
	f := func(name string, status int, code string, send func(c net.Conn) error) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			c, br := r.dial(t)
			// A client that writes all of its request before it reads.
			if err := send(c); err != nil {
				t.Fatalf("send: %v", err)
			}
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			wantError(t, resp, status, code)
			if _, err := br.ReadByte(); err == nil {
				t.Error("the connection goes on")
			}
		})
	}
	big := strings.Repeat("x", 5<<20)
	f("length", 413, "body_too_large", func(c net.Conn) error {
		_, err := fmt.Fprintf(c, "POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", 110<<10, big[:110<<10])
		return err
	})
	f("chunked", 413, "body_too_large", func(c net.Conn) error {
		_, err := fmt.Fprintf(c, "POST /v1/responses HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", 150<<10, big[:150<<10])
		return err
	})
	f("expect", 413, "body_too_large", func(c net.Conn) error {
		_, err := fmt.Fprintf(c, "POST /v1/responses HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", 5<<20)
		return err
	})
	f("expect, as Node spells it", 413, "body_too_large", func(c net.Conn) error {
		_, err := fmt.Fprintf(c, "POST /v1/responses HTTP/1.1\r\nHost: x\r\nexpect: 100-Continue\r\nContent-Length: %d\r\n\r\n", 5<<20)
		return err
	})
	f("head", 431, "header_too_large", func(c net.Conn) error {
		_, err := fmt.Fprintf(c, "POST /v1/responses HTTP/1.1\r\nHost: x\r\nX-Big: %s\r\n\r\n", big[:300<<10])
		return err
	})
	f("not HTTP", 400, "bad_request", func(c net.Conn) error {
		_, err := io.WriteString(c, "hello\r\n\r\n")
		return err
	})
	if len(requests) > 0 {
		t.Errorf("upstream got %q", <-requests)
	}
}

// TestCutBodyIsNamed: a body that ends early gets another error than a request that is not HTTP.
func TestCutBodyIsNamed(t *testing.T) {
	addr, _ := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", noBody)
	r := start(t, rigOptions{upstream: addr})
	for _, c := range []struct{ request, want string }{
		{"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab", "request body is incomplete or broken"},
		{"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n" + strings.Repeat("x", 40000), "request body is incomplete or broken"},
		{"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "request body is incomplete or broken"},
		{"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-", "request is not valid HTTP"},
	} {
		conn, br := r.dial(t)
		write(conn, c.request)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil { //nolint:forcetypeassert // it is one
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), c.want) {
			t.Errorf("%.70q: %s %s, want %s", c.request, resp.Status, body, c.want)
		}
		shut(resp.Body)
	}
}

// TestLargeHeadOfUpstream: the client and the log learn which key limits the head of an answer.
func TestLargeHeadOfUpstream(t *testing.T) {
	addr, _ := recording(t, "HTTP/1.1 200 OK\r\nX-Big: "+strings.Repeat("x", 20<<10)+"\r\nContent-Length: 0\r\n\r\n", noBody)
	r := start(t, rigOptions{upstream: addr})
	conn, br := r.dial(t)
	write(conn, hello)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(string(body), "(server.upstream.max_header)") {
		t.Errorf("%s %s", resp.Status, body)
	}
}

func TestSlowRequestTimesOut(t *testing.T) {
	addr, _ := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", noBody)
	const chunked = "POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"
	for _, request := range []string{
		"POST /v1/x HTTP/1.1\r\nHost: x\r\nX-", "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX-",
		"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab",
		chunked, chunked + "0", chunked + "0\r\n", chunked + "0\r\n\r", chunked + "0\r\nX-Sum: 1\r\n",
	} {
		// A connection that has said nothing in that time is closed without a word: on a busy machine it may be none.
		for wait := 30 * time.Millisecond; ; wait *= 4 {
			r := start(t, rigOptions{upstream: addr, tune: func(o *Options) {
				o.ReadTimeout = wait
				o.Limits = limit.New(limit.Config{Options: limit.Options{Global: limit.Global{Concurrent: 1}}, Now: time.Now})
				t.Cleanup(o.Limits.Close)
			}})
			c, br := r.dial(t)
			write(c, request)
			resp, err := http.ReadResponse(br, nil)
			if err != nil && wait < waitLimit/4 {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			text := wantError(t, resp, 408, "request_timeout")
			if !strings.Contains(text, "(server.read_timeout)") {
				t.Errorf("%q names no key", text)
			}
			if strings.Contains(request, "\r\n\r\n") && !strings.Contains(text, "body") {
				t.Errorf("the head of %q was whole, want an error about the body: %q", request, text)
			}
			// Its place is free again: the client has the answer, and its connection is still open.
			next, br := r.dial(t)
			write(next, "GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n")
			if resp, err = http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("the next request: %v %v", resp, err)
			}
			break
		}
	}
}

func TestPanicAtTheEdge(t *testing.T) {
	addr, _ := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", noBody)
	r := start(t, rigOptions{upstream: addr, memory: func(context.Context, memory.Call) (*turn, error) { panic("secret content") }})
	c, br := r.dial(t)
	write(c, chatIn("s", chatBody))
	if _, err := br.Peek(1); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, resp, 500, "internal_error")
	write(c, "GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp, err = http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("the next request: %v %v", resp, err)
	}
	r.stop(t)
	if log := r.log.String(); r.panics() != 1 || !strings.Contains(log, "recovered from a panic") || strings.Contains(log, "secret") {
		t.Errorf("log %s", log)
	}
}

func TestPanicInTheAnswer(t *testing.T) {
	addr, _, gone := hanging(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndata\r\n")
	r := start(t, rigOptions{upstream: addr, memory: func(_ context.Context, c memory.Call) (*turn, error) {
		return newTurn("T1", c.Request.Items(), memory.Summary{}, &fakeTurn{commit: func(memory.Answer) { panic("secret content") }}), nil
	}})
	c, br := r.dial(t)
	write(c, chatIn("s", chatBody))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	c.Close() // the commit of the rest panics
	await(t, gone, "end of the upstream request")
	r.stop(t)
	if r.panics() != 1 {
		t.Errorf("log %s", r.log)
	}
}

// TestShutdownBeforeServe: a signal in the first moment of the process ends it too, and no request is served any more.
func TestShutdownBeforeServe(t *testing.T) {
	r := start(t, rigOptions{upstream: answering(t, func(*http.Request, []byte) string { return sized("{}") })})
	r.stop(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer shut(ln)
	served := make(chan error, 1)
	go func() { served <- r.Serve(ln) }()
	if err := await(t, served, "the end of Serve"); err != nil {
		t.Error(err)
	}
}

// TestDrain: while a load balancer takes a proxy out, each answer is whole and closes its connection.
func TestDrain(t *testing.T) {
	const events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata: \r\n0\r\n\r\n"
	r := start(t, rigOptions{upstream: answering(t, func(req *http.Request, _ []byte) string {
		if req.URL.Path == "/v1/events" {
			return events
		}
		return sized("{}")
	})})
	for _, path := range []string{"/v1/x", "/v1/events", "/v1/%zz"} {
		c, br := r.dial(t)
		for _, draining := range []bool{false, true} {
			r.draining.Store(false)
			if draining {
				r.Drain()
			}
			write(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(path, draining, err)
			}
			if _, err := io.ReadAll(resp.Body); err != nil || resp.Close != draining {
				t.Errorf("%s, draining %v: status %d, close %v, %v", path, draining, resp.StatusCode, resp.Close, err)
			}
		}
		if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection is still open: %v", path, err)
		}
	}
}

func TestShutdownLetsAnswersFinish(t *testing.T) {
	finish := make(chan struct{})
	started := make(chan struct{})
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		write(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
		close(started)
		<-finish
		write(c, "3\r\ntwo\r\n0\r\n\r\n")
	})
	r := start(t, rigOptions{upstream: addr})
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(httptest.NewRequest("GET", "http://"+r.addr+"/v1/x", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	await(t, started, "request")
	down := make(chan error, 1)
	go func() { down <- r.Shutdown(context.Background()) }()
	for { // until nobody is accepted any more
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			break
		}
		shut(c)
	}
	select {
	case err := <-down:
		t.Fatalf("shut down under a stream: %v", err)
	default:
	}
	close(finish)
	if body, err := io.ReadAll(resp.Body); string(body) != "onetwo" || err != nil {
		t.Errorf("%q %v", body, err)
	}
	if err := await(t, down, "shutdown"); err != nil {
		t.Error(err)
	}
}

func TestShutdownCutsWhatOutlivesTheGrace(t *testing.T) {
	addr, arrived, gone := hanging(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
	r := start(t, rigOptions{upstream: addr, tune: func(o *Options) { o.ShutdownGrace = time.Millisecond }})
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(httptest.NewRequest("GET", "http://"+r.addr+"/v1/x", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	await(t, arrived, "request")
	if err := r.Shutdown(context.Background()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown: %v", err)
	}
	await(t, gone, "end of the upstream request")
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a clean end: %q", body)
	}
	if n := r.watcher.len(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestTunnel(t *testing.T) {
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if req.Header.Get("Upgrade") != "websocket" || req.Header.Get("Sec-Websocket-Key") != "k" || req.Host == "x" {
			write(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			return
		}
		write(c, "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: a\r\n\r\nearly ")
		_, _ = io.Copy(c, r)
		_ = c.(*net.TCPConn).CloseWrite()
	})
	r := start(t, rigOptions{upstream: addr})
	upgrade := "GET /v1/realtime?model=m HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n"
	t.Run("bytes pass both ways", func(t *testing.T) {
		c, br := r.dial(t)
		write(c, upgrade+"\r\n\x00frame")
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 101 || resp.Header.Get("Sec-Websocket-Accept") != "a" || resp.Header.Get("Connection") != "Upgrade" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
		for range 3 {
			write(c, strings.Repeat("y", 100<<10))
		}
		_ = c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(br)
		if want := "early \x00frame" + strings.Repeat("y", 300<<10); string(got) != want || err != nil {
			t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
		}
	})
	t.Run("refusal passes", func(t *testing.T) {
		c, br := r.dial(t)
		write(c, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 400 {
			t.Errorf("%v %v", resp, err)
		}
	})
	t.Run("a remembered one is refused", func(t *testing.T) {
		for _, path := range []string{"/v1/responses", "/v1/resp%6fnses", "/v1//responses/"} {
			c, br := r.dial(t)
			write(c, strings.Replace(upgrade, "/v1/realtime", path, 1)+"Session-Id: s\r\n\r\n")
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, resp, fasthttp.StatusUpgradeRequired, "websocket_not_remembered")
		}
	})
	t.Run("shutdown ends it", func(t *testing.T) {
		c, br := r.dial(t)
		write(c, upgrade+"\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		r.stop(t)
		if _, err := io.Copy(io.Discard, br); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Logf("the client saw %v", err)
		}
	})
}

// TestTunnelsCount: a WebSocket is a connection, and a request under way, until it ends.
func TestTunnelsCount(t *testing.T) {
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		switch {
		case err != nil:
		case req.Header.Get("Upgrade") == "":
			write(c, sized("ok"))
		default:
			write(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
			drain(r)
		}
	})
	for name, tune := range map[string]func(*Options){
		"max_connections": func(o *Options) { o.MaxConnections = 1 },
		"limits.global.concurrent": func(o *Options) {
			o.Limits = limit.New(limit.Config{Options: limit.Options{Global: limit.Global{Concurrent: 1}}, Now: time.Now})
			t.Cleanup(o.Limits.Close)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, rigOptions{upstream: addr, tune: tune})
			status := func(headers string) (net.Conn, int) {
				c, br := r.dial(t)
				write(c, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n")
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatal(err)
				}
				return c, resp.StatusCode
			}
			tunnel, got := status("Connection: Upgrade\r\nUpgrade: websocket\r\n")
			if got != http.StatusSwitchingProtocols {
				t.Fatalf("status %d", got)
			}
			if c, got := status("Connection: close\r\n"); got != http.StatusServiceUnavailable {
				t.Errorf("beside a tunnel: status %d", got)
				shut(c)
			}

			shut(tunnel)
			for begun := time.Now(); ; {
				c, got := status("Connection: close\r\n")
				shut(c)
				if got == http.StatusOK {
					break
				}
				if time.Since(begun) > waitLimit {
					t.Fatalf("after the tunnel: status %d", got)
				}
			}
		})
	}
}

func TestIdleTunnelEnds(t *testing.T) {
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			write(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
			drain(r)
		}
	})
	r := start(t, rigOptions{upstream: addr, tune: func(o *Options) { o.IdleTimeout = 50 * time.Millisecond }})
	got := r.exchange(t, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 101 ") {
		t.Errorf("%q", got)
	}
}

// If only its provider can serve a request, the client gets that provider's refusal; others go elsewhere. The decision
// uses the client's body, not the rewritten one.
func TestFallbackNeedsAPortableRequest(t *testing.T) {
	says := func(status, body string) string {
		return answering(t, func(*http.Request, []byte) string {
			return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
		})
	}
	first, second := says("503 Busy", "busy"), says("200 OK", "elsewhere")
	entry := func(name, addr string, fallback ...retry.Target) retry.Entry {
		return retry.Entry{
			Provider:   providers.Options{Name: name, Kind: "compatible", BaseURL: "http://" + addr + "/v1", APIKey: "k"},
			Resilience: retry.Options{Fallback: fallback},
		}
	}
	list := []retry.Entry{entry("first", first, retry.Target{Provider: "second", Model: "small"}), entry("second", second)}
	r := start(t, rigOptions{upstream: first})
	r.route(t, list)
	for body, want := range map[string]string{
		`{"model":"m","messages":[]}`: "elsewhere",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]}`: "busy",
	} {
		got := r.exchange(t, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		if !strings.HasSuffix(got, "\r\n\r\n"+want) {
			t.Errorf("%s:\n%s\nwant %s", body, got, want)
		}
	}
}

// TestFallbackIsShortened: if a fallback refuses the length of a request, the shorter one goes to it, and names its model.
func TestFallbackIsShortened(t *testing.T) {
	for name, elsewhere := range map[string]bool{"at another provider": true, "another model": false} {
		t.Run(name, func(t *testing.T) {
			u := &refuser{refuse: func(body string) string {
				switch {
				case !strings.Contains(body, `"small"`):
					return refused(503, "busy")
				case strings.Contains(body, `"x"`):
					return refused(400, `{"error":{"code":"context_length_exceeded"}}`)
				}
				return ""
			}}
			addr := answering(t, u.answer)
			entry := func(name string) retry.Entry {
				return retry.Entry{Provider: providers.Options{Name: name, Kind: "compatible", BaseURL: "http://" + addr + "/v1", APIKey: "k"}}
			}
			list := []retry.Entry{entry("first"), entry("second")}
			target := retry.Target{Model: "small"}
			if elsewhere {
				target.Provider = "second"
			}
			list[0].Resilience = retry.Options{Fallback: []retry.Target{target}}
			r := start(t, rigOptions{upstream: addr, memory: newBook().shortened})
			r.route(t, list)
			resp := ask(t, r, plainChat)
			_ = bodyText(t, resp)
			sent := u.sent()
			if resp.StatusCode != http.StatusOK || len(sent) != 3 || !strings.Contains(sent[2], `"small"`) {
				t.Errorf("status %d, upstream got %q", resp.StatusCode, sent)
			}
		})
	}
}

// TestPanicInTheLastCommit: the turn of a client that has left is committed last of all; a panic in it ends nothing else.
func TestPanicInTheLastCommit(t *testing.T) {
	addr, arrived, gone := hanging(t, "")
	r := start(t, rigOptions{upstream: addr, memory: func(_ context.Context, c memory.Call) (*turn, error) {
		return newTurn("T1", c.Request.Items(), memory.Summary{}, &fakeTurn{commit: func(memory.Answer) { panic("secret content") }}), nil
	}})
	c, _ := r.dial(t)
	write(c, chatIn("s", chatBody))
	await(t, arrived, "the request")
	c.Close()
	await(t, gone, "end of the upstream request")
	r.stop(t)
	if r.panics() != 1 {
		t.Errorf("log %s", r.log)
	}
}

// TestAnswerOfAFallbackIsKept: a fallback that has taken the request has answered it, and the refusal of the first model begins nothing
// anew, so that nothing is paid for twice. Before the second request the fallback is known to take less than it is sent now.
func TestAnswerOfAFallbackIsKept(t *testing.T) {
	const long = `{"error":{"code":"context_length_exceeded"}}`
	u := &refuser{refuse: func(body string) string {
		if !strings.Contains(body, `"small"`) {
			return refused(400, long)
		}
		return ""
	}}
	addr := answering(t, u.answer)
	entry := func(name string) retry.Entry {
		return retry.Entry{Provider: providers.Options{Name: name, Kind: "compatible", BaseURL: "http://" + addr + "/v1", APIKey: "k"}}
	}
	list := []retry.Entry{entry("first"), entry("second")}
	list[0].Resilience = retry.Options{Retry: retry.Retry{On: []any{400}}, Fallback: []retry.Target{{Model: "small"}}}
	b := newBook()
	r := start(t, rigOptions{upstream: addr, memory: b.shortened})
	r.route(t, list)
	resp := ask(t, r, plainChat)
	_ = bodyText(t, resp)
	a := await(t, b.answers, "commit")
	if sent := u.sent(); resp.StatusCode != http.StatusOK || len(sent) != 2 || len(a.Reply.Choices) == 0 || len(b.answers) > 0 {
		t.Errorf("status %d, %d requests, first commit: status %d, %d choices; %d more commits", resp.StatusCode, len(sent), a.HTTPStatus, len(a.Reply.Choices), len(b.answers))
	}
}
