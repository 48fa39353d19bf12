package e2e

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tap is a TCP relay that records the bytes of both directions, to compare the traffic of the SDK with that of upstream without
// an HTTP library.
type tap struct {
	ln     net.Listener
	target string // host:port
	work   sync.WaitGroup

	mu    sync.Mutex
	seq   int // counts reads of all connections: the order in which requests began
	conns []*tapped
	open  map[net.Conn]bool
}

// tapped is one connection.
type tapped struct {
	sent, got []byte
	reads     []readAt // of sent
}

type readAt struct{ offset, seq int }

// startTap starts a relay to the origin target. It is closed when the test ends, or by close.
func startTap(t *testing.T, target string) *tap {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{ln: ln, target: strings.TrimPrefix(target, "http://"), open: make(map[net.Conn]bool)}
	p.work.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.relay(client) })
		}
	})
	t.Cleanup(p.close)
	return p
}

func (p *tap) url() string { return "http://" + p.ln.Addr().String() }

// close closes all connections and waits for their goroutines.
func (p *tap) close() {
	_ = p.ln.Close() // a second close fails, which is harmless
	p.mu.Lock()
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

func (p *tap) track(c net.Conn, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.open[c] = true
		return
	}
	delete(p.open, c)
	_ = c.Close()
}

func (p *tap) relay(client net.Conn) {
	p.track(client, true)
	defer p.track(client, false)
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	p.track(server, true)
	defer p.track(server, false)
	c := &tapped{}
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	var up sync.WaitGroup
	up.Go(func() {
		defer func() { _ = server.Close() }() // after the client has disconnected
		copyChunks(server, client, func(b []byte) {
			p.mu.Lock()
			p.seq++
			c.reads = append(c.reads, readAt{len(c.sent), p.seq})
			c.sent = append(c.sent, b...)
			p.mu.Unlock()
		})
	})
	copyChunks(client, server, func(b []byte) {
		p.mu.Lock()
		c.got = append(c.got, b...)
		p.mu.Unlock()
	})
	_ = client.Close() // upstream closed the connection: close the client's too
	up.Wait()
}

// copyChunks relays until one side ends. It calls see with each piece before forwarding it.
func copyChunks(dst io.Writer, src io.Reader, see func([]byte)) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			see(buf[:n])
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// message is a request or an answer on the wire.
type message struct {
	start   string   // request line or status line
	headers []string // as "Name: value", in order and with their bytes
	framing string   // "length", "chunked", "none" or "close"
	body    []byte   // without transfer coding
	whole   bool     // it is complete
}

// exchange is a request and its answer.
type exchange struct {
	seq       int
	req, resp message
}

// exchanges returns the recorded exchanges, in the order of the starts of requests. The tap must be closed.
func (p *tap) exchanges(t *testing.T) []exchange {
	t.Helper()
	var all []exchange
	for _, c := range p.conns {
		sent, got := c.sent, c.got
		for len(sent) > 0 {
			e := exchange{seq: c.seqAt(len(c.sent) - len(sent))}
			e.req, sent = parseMessage(sent, false)
			if !e.req.whole {
				t.Errorf("a request is not whole: %q", e.req.start)
			}
			bodiless := strings.HasPrefix(e.req.start, "HEAD ")
			e.resp, got = parseMessage(got, bodiless)
			all = append(all, e)
		}
		if len(got) > 0 {
			t.Errorf("bytes behind the last answer: %q", got[:min(len(got), 100)])
		}
	}
	slices.SortFunc(all, func(a, b exchange) int { return a.seq - b.seq })
	return all
}

func (c *tapped) seqAt(offset int) int {
	seq := 0
	for _, r := range c.reads {
		if r.offset <= offset {
			seq = r.seq
		}
	}
	return seq
}

// parseMessage parses one message and returns the bytes after it.
func parseMessage(b []byte, bodiless bool) (message, []byte) {
	head, rest, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	lines := strings.Split(string(head), "\r\n")
	m := message{start: lines[0], headers: lines[1:], framing: "none", whole: ok}
	isAnswer := strings.HasPrefix(m.start, "HTTP/1.1 ")
	status := strings.TrimPrefix(m.start, "HTTP/1.1 ")
	switch {
	case !ok || bodiless || isAnswer && (strings.HasPrefix(status, "204") || strings.HasPrefix(status, "304")):
		return m, rest
	case strings.EqualFold(m.header("Transfer-Encoding"), "chunked"):
		m.framing = "chunked"
		m.body, rest, m.whole = dechunk(rest)
	case m.header("Content-Length") != "":
		m.framing = "length"
		n, err := strconv.Atoi(m.header("Content-Length"))
		m.whole = err == nil && n <= len(rest)
		n = min(n, len(rest))
		m.body, rest = rest[:n], rest[n:]
	case isAnswer:
		m.framing, m.body, rest = "close", rest, nil
	}
	return m, rest
}

func dechunk(b []byte) (body, rest []byte, whole bool) {
	for {
		line, after, ok := bytes.Cut(b, []byte("\r\n"))
		n, err := strconv.ParseInt(string(line), 16, 32)
		if !ok || err != nil {
			return body, nil, false
		}
		if n == 0 {
			return body, bytes.TrimPrefix(after, []byte("\r\n")), bytes.HasPrefix(after, []byte("\r\n"))
		}
		if int(n)+2 > len(after) {
			return append(body, after[:min(int(n), len(after))]...), nil, false
		}
		body, b = append(body, after[:n]...), after[n+2:]
	}
}

// header returns the value of a header, "" if it is absent.
func (m *message) header(name string) string {
	for _, h := range m.headers {
		if k, v, _ := strings.Cut(h, ":"); strings.EqualFold(k, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// without returns the other headers, in order and unchanged.
func (m *message) without(names ...string) []string {
	var out []string
	for _, h := range m.headers {
		k, _, _ := strings.Cut(h, ":")
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, k) }) {
			out = append(out, h)
		}
	}
	return out
}
