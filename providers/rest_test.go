package providers

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow is the rest of a request of which a piece comes now and then. With the last one, or after it, comes err.
type slow struct {
	every   time.Duration
	pieces  []string
	err     error
	stopped chan struct{}
}

var errNotWanted = errors.New("the rest is not wanted")

func (s *slow) Next() ([]byte, error) {
	select {
	case <-time.After(s.every):
	case <-s.stopped:
		return nil, errNotWanted
	}
	if len(s.pieces) == 0 {
		return nil, s.err
	}
	p := s.pieces[0]
	s.pieces = s.pieces[1:]
	if len(s.pieces) == 0 && errors.Is(s.err, io.EOF) {
		return []byte(p), s.err
	}
	return []byte(p), nil
}

func (s *slow) Stop() { close(s.stopped) }

// TestTheRestOfARequest: it may take any time to arrive. Upstream has its time from each piece on, and never gets an incomplete request
// as a complete one.
func TestTheRestOfARequest(t *testing.T) {
	const limit = time.Minute
	const head, all = "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "onetwosix"
	cut := errors.New("the client has gone")
	for _, c := range []struct {
		name   string
		every  time.Duration
		rest   error
		reads  int    // bytes of the body that upstream reads, -1 for all
		answer string // after those
		want   error
		status int
		took   time.Duration
	}{
		{"slow", 5 * limit, io.EOF, -1, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", nil, 200, 10 * limit},
		{"upstream does not answer", 0, io.EOF, 9, "", ErrTimeout, 0, limit},
		{"upstream does not read on", time.Second, io.EOF, 5, "", ErrTimeout, 0, limit + 2*time.Second},
		{"cut", time.Second, cut, -1, "", cut, 0, 3 * time.Second},
		{"refused while nothing comes", time.Hour, io.EOF, 3, "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", nil, 400, 0},
		{"answered while nothing comes", time.Hour, io.EOF, 3, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", nil, 200, time.Second},
		{"answered in part while nothing comes", time.Hour, cut, 3, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", cut, 200, 3 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := client(t, func(o *ClientOptions) { o.ResponseHeaderTimeout, o.IdleConnTimeout = limit, 0 })
				near, far := net.Pipe()
				got := make(chan string, 1)
				go func() {
					r := bufio.NewReaderSize(far, 16)
					_, _ = io.ReadFull(r, make([]byte, len(head)))
					body := make([]byte, len(all))
					if c.reads >= 0 {
						body = body[:c.reads]
					}
					n, _ := io.ReadFull(r, body)
					got <- string(body[:n])
					_, _ = io.WriteString(far, c.answer)
					if strings.Contains(c.answer, "chunked") {
						_, _ = io.Copy(io.Discard, r)
					}
				}()

				x := Exchange{client: client, Rest: &slow{c.every, []string{all[3:6], all[6:]}, c.rest, make(chan struct{})}}
				if _, err := x.acquire(nil, &conn{Conn: near}); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				var answer Head
				_, err := x.roundTrip([]byte(head), []byte(all[:3]), &answer)
				if err != nil {
					err = x.explain(err)
				}
				if took := time.Since(begun); !errors.Is(err, c.want) || answer.Status() != c.status || took != c.took {
					t.Errorf("%v, status %d after %s, want %v, %d after %s", err, answer.Status(), took, c.want, c.status, c.took)
				}
				if err == nil && x.keep != (c.name == "slow") {
					t.Errorf("the connection can be used again: %v", x.keep)
				}
				x.drop()
				<-got
			})
		})
	}
}
