package listener

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// one is a listener that hands out one connection.
type one struct {
	net.Listener
	c net.Conn
}

func (l one) Accept() (net.Conn, error) { return l.c, nil }

// noted is a connection that notes each write, and fails from the write fails on, counted from 1.
type noted struct {
	net.Conn
	writes []string
	fails  int
}

var errBroken = errors.New("broken")

func (c *noted) Write(p []byte) (int, error) {
	if c.writes = append(c.writes, string(p)); len(c.writes) == c.fails {
		return 1, errBroken
	}
	return len(p), nil
}

// fixed is a head to send in place of the server's own.
type fixed struct {
	own, sent string
	released  int
}

func (h *fixed) Join(dst, _ []byte) (head []byte, end int) { return append(dst, h.sent...), len(h.own) }
func (h *fixed) Release()                                  { h.released++ }

// TestHeadLeavesWithItsBody: a head that is followed by its body without delay does not leave alone.
func TestHeadLeavesWithItsBody(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n"
	const sent = "HTTP/1.1 200 OK\r\nX: b\r\n\r\n"
	for name, c := range map[string]struct {
		body  int
		write []string
		want  []string // after each write, all that has left
	}{
		"a stream":                    {0, []string{head, "abc"}, []string{sent, sent + "abc"}},
		"all at once":                 {3, []string{head + "abc", "next"}, []string{sent + "abc", sent + "abcnext"}},
		"the rest comes":              {6, []string{head + "abc", "def", "next"}, []string{"", sent + "abcdef", sent + "abcdefnext"}},
		"the body is written apart":   {3, []string{head, "abc"}, []string{"", sent + "abc"}},
		"more than one write of rest": {9, []string{head, "abc", "def"}, []string{"", sent + "abc", sent + "abcdef"}},
	} {
		to := &noted{}
		conn, err := Wrap(one{c: to}).Accept()
		if err != nil {
			t.Fatal(err)
		}
		other := &fixed{own: head, sent: sent}
		ReplaceHead(conn, c.body, other)
		var got []string
		for _, p := range c.write {
			if n, err := io.WriteString(conn, p); n != len(p) || err != nil {
				t.Errorf("%s: %d of %d bytes, %v", name, n, len(p), err)
			}
			all := ""
			for _, w := range to.writes {
				all += w
			}
			got = append(got, all)
		}
		if d := cmp.Diff(c.want, got); d != "" || other.released != 1 {
			t.Errorf("%s: released %d times\n%s", name, other.released, d)
		}
	}
}

// TestHeadThatCannotLeave: the write that fails returns the error, and counts nothing that was not sent.
func TestHeadThatCannotLeave(t *testing.T) {
	t.Parallel()
	for fails, want := range map[int]int{1: 0, 2: 1} {
		conn, err := Wrap(one{c: &noted{fails: fails}}).Accept()
		if err != nil {
			t.Fatal(err)
		}
		const head = "HTTP/1.1 200 OK\r\n\r\n"
		ReplaceHead(conn, 3, &fixed{own: head, sent: head})
		if n, err := io.WriteString(conn, head); err != nil {
			t.Errorf("the head alone: %d, %v", n, err)
		}
		if n, err := io.WriteString(conn, "abc"); n != want || !errors.Is(err, errBroken) {
			t.Errorf("write %d fails: %d bytes of the body, %v; want %d", fails, n, err, want)
		}
	}
}
