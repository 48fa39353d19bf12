package providers

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// speak accepts one connection, reads a request and writes each piece that comes through say, until say is closed.
func speak(t *testing.T, withTLS bool) (up Address, say chan string, tune func(*ClientOptions)) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if withTLS {
		s := httptest.NewUnstartedServer(nil)
		s.StartTLS() // for its certificate
		t.Cleanup(s.Close)
		ln = tls.NewListener(ln, s.TLS)
		tune = func(o *ClientOptions) { o.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig }
	}
	say = make(chan string)
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = nc.Close() }()
		if _, err := http.ReadRequest(bufio.NewReader(nc)); err != nil {
			return
		}
		for s := range say {
			_, _ = io.WriteString(nc, s)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return Address{Addr: ln.Addr().String(), ServerName: "example.com", TLS: withTLS}, say, tune
}

// TestSilenceIsReported checks that a silent upstream wakes its reader, wherever it fell silent, and that no byte is
// lost by that.
func TestSilenceIsReported(t *testing.T) {
	for _, withTLS := range []bool{false, true} {
		up, say, tune := speak(t, withTLS)
		c := client(t, tune)
		x := Exchange{Silence: 3 * time.Millisecond}
		go func() { say <- "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" }()
		var answer Head
		if err := c.Send(&x, up, []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); err != nil {
			t.Fatal(err)
		}
		var got []byte
		// Before anything, inside a chunk's line, inside a chunk, before its end, between chunks.
		for _, piece := range []string{"", "1", "0\r", "\nhello", " silent wor", "\r", "\n", "3\r\nend\r\n"} {
			if piece != "" {
				say <- piece
			}
			for idle := 0; idle < 2; {
				p, err := x.Next()
				if got = append(got, p...); errors.Is(err, ErrIdle) {
					idle++
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}
		say <- "0\r\n\r\n"
		close(say)
		for {
			_, err := x.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil && !errors.Is(err, ErrIdle) {
				t.Fatal(err)
			}
		}
		if want := "hello silent worend"; string(got) != want {
			t.Errorf("TLS %v: got %q, want %q", withTLS, got, want)
		}
		x.Close()
	}
}

// TestSilenceEnds checks that reports of silence do not keep a dead stream alive, nor outlast an abort.
func TestSilenceEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		limit time.Duration
		abort bool
		want  error
	}{
		"stream_idle_timeout":  {limit: 300 * time.Millisecond, want: ErrTimeout},
		"shorter than silence": {limit: time.Millisecond, want: ErrTimeout},
		"abort":                {abort: true, want: ErrAborted},
	} {
		silence := func(limit time.Duration) (idle int, err error) {
			up, say, _ := speak(t, false)
			defer close(say)
			c := client(t, func(o *ClientOptions) { o.StreamIdleTimeout = limit })
			x := Exchange{Silence: 3 * time.Millisecond}
			defer x.Close()
			go func() { say <- "HTTP/1.1 200 OK\r\n\r\n" }()
			var answer Head
			if err := c.Send(&x, up, []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); err != nil {
				t.Fatal(err)
			}
			for err = ErrIdle; errors.Is(err, ErrIdle); _, err = x.Next() {
				if idle++; idle == 3 && tc.abort {
					x.Abort()
				}
			}
			return idle, err
		}
		t.Run(name, func(t *testing.T) {
			idle, err := silence(tc.limit)
			// A machine that stands still for as long as the limit leaves no time for reports.
			for limit := tc.limit; limit > 10*time.Millisecond && limit < time.Minute && errors.Is(err, tc.want) && idle < 2; {
				limit *= 4
				idle, err = silence(limit)
			}
			if !errors.Is(err, tc.want) || tc.limit > 10*time.Millisecond && idle < 2 {
				t.Errorf("%v after %d reports of silence", err, idle)
			}
		})
	}
}

// TestAgain checks that an exchange can be tried once more, that an abort ends the wait for it, and that one which came
// in between is not forgotten.
func TestAgain(t *testing.T) {
	up, say, _ := speak(t, false)
	defer close(say)
	c := client(t, nil)
	var x Exchange
	defer x.Close()
	sent := 0
	x.Sent = func() { sent++ }
	var answer Head
	head := []byte("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
	if err := c.Send(&x, Address{Addr: "127.0.0.1:1"}, head, nil, &answer); !errors.Is(err, ErrUnreachable) || sent != 0 {
		t.Fatal(err, sent)
	}
	if err := x.Again(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	go func() { say <- "HTTP/1.1 429 Slow down\r\nContent-Length: 2\r\n\r\nno" }()
	if err := c.Send(&x, up, head, nil, &answer); err != nil || answer.Status() != 429 || sent != 1 {
		t.Fatal(err, answer.Status(), sent)
	}
	if err := x.Again(0); err != nil {
		t.Fatal(err)
	}
	if p, err := c.pool(up); err != nil || len(p.idle) != 1 {
		t.Error("the connection of a short answer was not kept", err)
	}
	done := make(chan error)
	go func() { done <- x.Again(time.Hour) }()
	x.Abort()
	if err := <-done; !errors.Is(err, ErrAborted) {
		t.Errorf("a wait that was aborted: %v", err)
	}
	if err := c.Send(&x, up, head, nil, &answer); !errors.Is(err, ErrAborted) {
		t.Errorf("after the abort: %v", err)
	}
}

// TestEventsArriveAsTheyCome: a wait ends with all bytes that have come, at any size of the buffer, and no buffer of
// one stream holds bytes of another.
func TestEventsArriveAsTheyCome(t *testing.T) {
	const streams = 3
	for _, withTLS := range []bool{false, true} {
		var xs [streams]Exchange
		var says [streams]chan string
		for i := range xs {
			up, say, tune := speak(t, withTLS)
			says[i] = say
			go func() { say <- "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" }()
			var answer Head
			c := client(t, tune)
			if i > 0 && !withTLS {
				c = xs[0].client // buffers go from one to the other
			}
			if err := c.Send(&xs[i], up, []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), nil, &answer); err != nil {
				t.Fatal(err)
			}
		}
		for _, size := range []int{1, 300, napBytes - 10, napBytes, napBytes + 1, 20 << 10, 1, 5 << 10, 40} {
			for i := range xs {
				want := strings.Repeat(string(rune('a'+i)), size)
				go func() { says[i] <- fmt.Sprintf("%x\r\n%s\r\n", size, want) }()
				got := ""
				for pieces := 0; len(got) < size; pieces++ {
					p, err := xs[i].Next()
					if err != nil {
						t.Fatal(err)
					}
					if got += string(p); pieces > 0 && size < napBytes-10 {
						t.Errorf("TLS %v: %d bytes came in pieces", withTLS, size)
					}
				}
				if got != want {
					t.Errorf("TLS %v: stream %d got other %d bytes than were sent", withTLS, i, size)
				}
			}
		}
		for i := range xs {
			go func() {
				says[i] <- "0\r\n\r\n"
				close(says[i])
			}()
			if _, err := xs[i].Next(); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			xs[i].Close()
		}
	}
}
