package providers

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// dechunkAll decodes a body that arrives in pieces of the given sizes, as Next would, in a buffer that slides.
func dechunkAll(wire []byte, piece func() int) (body []byte, ended bool, err error) {
	f := framing{kind: bodyChunked}
	var buf []byte
	for len(wire) > 0 && !f.ended() {
		n := min(max(piece(), 1), len(wire))
		buf = append(buf, wire[:n]...)
		wire = wire[n:]
		out, used, err := f.decode(buf)
		if err != nil {
			return body, false, err
		}
		body = append(body, buf[:out]...)
		buf = append([]byte(nil), buf[used:]...)
	}
	return body, f.ended(), nil
}

func TestDechunkInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wire, want []byte
		for range rapid.IntRange(0, 10).Draw(t, "chunks") {
			c := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "chunk")
			ext := rapid.SampledFrom([]string{"", ";a=b", " ", ";a=\"\n\""}).Draw(t, "extension")
			if strings.Contains(ext, "\n") {
				ext = ""
			}
			wire = fmt.Appendf(wire, "%x%s\r\n%s\r\n", len(c), ext, c)
			want = append(want, c...)
		}
		wire = append(wire, rapid.SampledFrom([]string{"0\r\n\r\n", "000\r\nA: b\r\nC: d\r\n\r\n"}).Draw(t, "end")...)
		got, ended, err := dechunkAll(wire, func() int { return rapid.IntRange(1, 50).Draw(t, "piece") })
		if err != nil || !ended || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d, ended %v: %v", len(got), len(want), ended, err)
		}
		// No prefix ends.
		cut := rapid.IntRange(0, len(wire)-1).Draw(t, "cut")
		if got, ended, err := dechunkAll(wire[:cut], func() int { return 7 }); ended || err != nil || !bytes.HasPrefix(want, got) {
			t.Fatalf("cut at %d: %d bytes, ended %v: %v", cut, len(got), ended, err)
		}
	})
}

func TestDechunkRefuses(t *testing.T) {
	for _, wire := range []string{
		"5\nhello\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "g\r\n", "\r\n", "-1\r\n", "0x5\r\n", "1000000000000000\r\n",
		"+5\r\nhello\r\n", "5\r\nhello!\r\n", strings.Repeat("0", 400), "0\r\n" + strings.Repeat("a: b\r\n", 5000) + "\r\n",
	} {
		if body, ended, err := dechunkAll([]byte(wire), func() int { return 100 }); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.30q gave %q, ended %v, %v", wire, body, ended, err)
		}
	}
}

func FuzzDechunk(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\n"), 3)
	f.Add([]byte("1;x\r\na\r\n00\r\nT: u\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, wire []byte, n int) {
		one, endedOne, errOne := dechunkAll(bytes.Clone(wire), func() int { return 1 })
		any, endedAny, errAny := dechunkAll(bytes.Clone(wire), func() int { return n })
		if (errOne == nil) != (errAny == nil) || errOne == nil && (endedOne != endedAny || !bytes.Equal(one, any)) {
			t.Fatalf("by bytes %q %v %v, by %d %q %v %v", one, endedOne, errOne, n, any, endedAny, errAny)
		}
		// An accepted stream reads the same with the standard library.
		if endedOne {
			std, err := io.ReadAll(httpChunked(wire))
			if err == nil && !bytes.Equal(std, one) {
				t.Fatalf("got %q, net/http %q", one, std)
			}
		}
	})
}

func httpChunked(wire []byte) io.Reader {
	head := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(head), bytes.NewReader(wire))), nil)
	if err != nil {
		return strings.NewReader("")
	}
	return resp.Body
}

func client(t *testing.T, tune func(*ClientOptions)) *Client {
	t.Helper()
	o := ClientOptions{
		DialTimeout: 10 * time.Second, ResponseHeaderTimeout: 10 * time.Minute, StreamIdleTimeout: 5 * time.Minute,
		IdleConnTimeout: 10 * time.Second, MaxIdleConns: 1024, MaxHeader: 16 << 10,
	}
	o.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // no proxy
	if tune != nil {
		tune(&o)
	}
	c := NewClient(o)
	t.Cleanup(c.Close)
	return c
}

func at(addr string) Address { return Address{Addr: addr, ServerName: "127.0.0.1"} }

func TestConnectionsAreReused(t *testing.T) {
	var conns atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/sized":
			_, _ = io.WriteString(w, strings.Repeat("x", 100<<10))
		case "/chunked":
			for range 100 {
				_, _ = io.WriteString(w, strings.Repeat("y", 1000))
				_ = http.NewResponseController(w).Flush()
			}
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	c := client(t, nil)
	up := at(s.Listener.Addr().String())
	var x Exchange
	var answer Head
	for _, path := range []string{"/sized", "/chunked", "/none", "/sized", "/chunked"} {
		body := strings.Repeat("z", 10<<10)
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", path, len(body))
		if err := c.Send(&x, up, []byte(head), []byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			p, err := x.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			n += len(p)
		}
		if want := map[string]int{"/sized": 100 << 10, "/chunked": 100_000, "/none": 0}[path]; n != want {
			t.Errorf("%s: %d bytes, want %d", path, n, want)
		}
		x.Close()
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	// An answer that is not read to its end costs its connection.
	if err := c.Send(&x, up, []byte("GET /chunked HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); err != nil {
		t.Fatal(err)
	}
	x.Close()
	if err := c.Send(&x, up, []byte("GET /none HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); err != nil {
		t.Fatal(err)
	}
	x.Close()
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections after an unread answer", n)
	}
}

// TestTimeoutIsNotRepeated: an upstream that is silent on a pooled connection has the request. Only a connection that it has
// closed is replaced.
func TestTimeoutIsNotRepeated(t *testing.T) {
	var slow atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			slow.Add(1)
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	c := client(t, func(o *ClientOptions) { o.ResponseHeaderTimeout = 100 * time.Millisecond })
	up := at(s.Listener.Addr().String())
	var x Exchange
	var answer Head
	if err := c.Send(&x, up, []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); err != nil {
		t.Fatal(err)
	}
	x.Close()
	if err := c.Send(&x, up, []byte("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); !errors.Is(err, ErrTimeout) {
		t.Errorf("got %v", err)
	}
	x.Close()
	if n := slow.Load(); n != 1 {
		t.Errorf("upstream got %d requests", n)
	}
}

func TestIdleConnectionsExpire(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	c := client(t, func(o *ClientOptions) {
		o.IdleConnTimeout, o.Now, o.ResponseHeaderTimeout = 2*time.Millisecond, clock, 0
	})
	up := at(s.Listener.Addr().String())
	var x Exchange
	var answer Head
	if err := c.Send(&x, up, []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); err != nil {
		t.Fatal(err)
	}
	x.Close()
	p, err := c.pool(up)
	if err != nil {
		t.Fatal(err)
	}
	idle := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.idle)
	}
	if n := idle(); n != 1 {
		t.Fatalf("%d unused connections", n)
	}
	mu.Lock()
	now = now.Add(time.Second)
	mu.Unlock()
	for idle() != 0 {
		time.Sleep(time.Millisecond)
	}
}

// TestAbortAnywhere aborts at every stage; the call under way must return at once, and say so.
func TestAbortAnywhere(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "data")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	// A listener whose queue is full accepts no connection: dialling hangs or is refused, and reading TLS from it
	// hangs.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	c := client(t, nil)
	f := func(name string, up Address, path string) {
		t.Run(name, func(t *testing.T) {
			var x Exchange
			var answer Head
			sent := make(chan struct{})
			x.Sent = func() { close(sent) }
			done := make(chan error, 1)
			go func() {
				err := c.Send(&x, up, []byte("GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer)
				for err == nil {
					_, err = x.Next()
				}
				done <- err
			}()
			if !up.TLS {
				<-sent
			}
			x.Abort()
			select {
			case err := <-done:
				if !errors.Is(err, ErrAborted) {
					t.Errorf("got %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it goes on")
			}
			x.Close()
		})
	}
	f("handshake", Address{Addr: silent.Addr().String(), ServerName: "h", TLS: true}, "/")
	f("before the head", at(s.Listener.Addr().String()), "/")
	f("in the body", at(s.Listener.Addr().String()), "/stream")
}

// TestRefusalOfALargeBody checks that an upstream that answers and reads no further is heard, with its connection left
// open so that nothing else ends the write.
func TestRefusalOfALargeBody(t *testing.T) {
	f := func(name string, withTLS bool, status int) {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var o func(*ClientOptions)
			if withTLS {
				s := httptest.NewUnstartedServer(nil)
				s.StartTLS() // for its certificate
				defer s.Close()
				ln = tls.NewListener(ln, s.TLS)
				o = func(o *ClientOptions) { o.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig }
			}
			over := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = nc.Read(make([]byte, 1000))
				_, _ = fmt.Fprintf(nc, "HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno", status)
				<-over
				_ = nc.Close()
			}()
			defer func() {
				close(over)
				_ = ln.Close()
				<-done
			}()
			c := client(t, o)
			var x Exchange
			defer x.Close()
			defer time.AfterFunc(time.Minute, x.Abort).Stop() // so that a failure does not hang
			var answer Head
			up := Address{Addr: ln.Addr().String(), ServerName: "example.com", TLS: withTLS}
			head := "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n"
			if err := c.Send(&x, up, []byte(head), make([]byte, 30_000_000), &answer); err != nil || answer.Status() != status || x.link.isAborted() {
				t.Fatalf("%d %v", answer.Status(), err)
			}
			if p, err := x.Next(); string(p) != "no" || err != nil {
				t.Errorf("%q %v", p, err)
			}
		})
	}
	f("plain", false, 413)
	f("TLS", true, 413)
	f("redirect", false, 307)
	f("an answer that is complete", false, 200)
}

// TestAnswerWhileItReads: an upstream that begins to answer before it has read all is not cut off.
func TestAnswerWhileItReads(t *testing.T) {
	const size = 30_000_000
	for name, tc := range map[string]struct{ head, begin, rest string }{
		"short":  {"Content-Length: 4", "be", "en"},
		"chunks": {"Transfer-Encoding: chunked", "2\r\nbe\r\n", "2\r\nen\r\n0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			read := make(chan int64, 1)
			go func() {
				nc, err := ln.Accept()
				if err != nil {
					read <- -1
					return
				}
				br := bufio.NewReader(nc)
				for line := ""; line != "\r\n" && err == nil; {
					line, err = br.ReadString('\n')
				}
				_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\n"+tc.head+"\r\n\r\n"+tc.begin)
				n, _ := io.CopyN(io.Discard, br, size)
				_, _ = io.WriteString(nc, tc.rest)
				read <- n
				_, _ = br.ReadByte() // until the other end closes
				_ = nc.Close()
			}()
			defer func() { _ = ln.Close() }()
			c := client(t, nil)
			var x Exchange
			defer x.Close()
			defer time.AfterFunc(time.Minute, x.Abort).Stop() // so that a failure does not hang
			var answer Head
			head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size)
			if err := c.Send(&x, Address{Addr: ln.Addr().String()}, []byte(head), make([]byte, size), &answer); err != nil {
				t.Fatal(err)
			}
			got := ""
			for p, err := x.Next(); ; p, err = x.Next() {
				if got += string(p); err != nil {
					break
				}
			}
			x.Close()
			if n := <-read; n != size || got != "been" {
				t.Errorf("upstream has read %d bytes, and answered %q", n, got)
			}
		})
	}
}

// TestTLS checks a real handshake, reuse, the stale check below TLS and that a foreign certificate is refused.
func TestTLS(t *testing.T) {
	var conns atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.StartTLS()
	defer s.Close()
	up := Address{Addr: s.Listener.Addr().String(), ServerName: "example.com", TLS: true}
	post := func(c *Client) error {
		var x Exchange
		defer x.Close()
		var answer Head
		if err := c.Send(&x, up, []byte("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"), []byte("hello"), &answer); err != nil {
			return err
		}
		var got []byte
		for {
			p, err := x.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			got = append(got, p...)
		}
		if string(got) != "hello" {
			return fmt.Errorf("got %q", got)
		}
		return nil
	}
	c := client(t, func(o *ClientOptions) { o.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig })
	for range 3 {
		if err := post(c); err != nil {
			t.Fatal(err)
		}
	}
	// Session tickets may come late and cost a connection, no more.
	if n := conns.Load(); n > 2 {
		t.Errorf("%d connections", n)
	}
	s.CloseClientConnections()
	if err := post(c); err != nil {
		t.Errorf("after upstream closed: %v", err)
	}
	if err := post(client(t, nil)); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a certificate of nobody: %v", err)
	}
}

// gathered holds what TLS writes until flush, so that several records arrive at once.
type gathered struct {
	net.Conn
	held []byte
}

func (g *gathered) Write(p []byte) (int, error) {
	g.held = append(g.held, p...)
	return len(p), nil
}

func (g *gathered) Read(p []byte) (int, error) {
	if _, err := g.Conn.Write(g.held); err != nil {
		return 0, err
	}
	g.held = g.held[:0]
	return g.Conn.Read(p)
}

// TestBytesBehindAnAnswerOverTLS: TLS takes them from the kernel together with the answer and keeps them to itself.
func TestBytesBehindAnAnswerOverTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS() // for its certificate
	defer s.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	var conns atomic.Int32
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			n := conns.Add(1)
			go func() {
				defer func() { _ = nc.Close() }()
				tc := tls.Server(&gathered{Conn: nc}, s.TLS)
				r := bufio.NewReader(tc)
				for {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					_, _ = fmt.Fprintf(tc, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", n)
					_, _ = io.WriteString(tc, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
				}
			}()
		}
	}()
	c := client(t, func(o *ClientOptions) { o.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig })
	up := Address{Addr: ln.Addr().String(), ServerName: "example.com", TLS: true}
	for want := range 3 {
		var x Exchange
		var answer Head
		if err := c.Send(&x, up, []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); err != nil {
			t.Fatal(err)
		}
		got, err := x.Next()
		if err != nil || string(got) != fmt.Sprint(want+1) {
			t.Errorf("got %q, %v", got, err)
		}
		x.Close()
	}
}

func TestHeadsThatAreNone(t *testing.T) {
	f := func(head string) {
		t.Helper()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		done := make(chan struct{})
		defer close(done)
		go func() {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			defer func() { _ = nc.Close() }()
			_, _ = http.ReadRequest(bufio.NewReader(nc))
			_, _ = io.WriteString(nc, head)
			<-done // it has no more to say, and does not close
		}()
		c := client(t, nil)
		var x Exchange
		defer x.Close()
		defer time.AfterFunc(time.Minute, x.Abort).Stop() // rather than wait with an upstream that waits
		var answer Head
		if err := c.Send(&x, at(ln.Addr().String()), []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", head, err)
		}
	}
	f("HTTP/1.1 200 OK\nContent-Length: 0\n\n")
	f("HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n")
	f("HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n")
	f("HTTP/1.\r\n\r\n")
	f("HTTP/1.1 \r\n\r\n")
	f("\r\n\r\n")
}
