// Package keepalive fills the silence of an event stream with comments, so that load balancers on the way to the client
// do not take a model that thinks for a dead connection.
package keepalive

import "bytes"

// Comment is what is written: a comment and an empty line, which every reader of server-sent events skips.
const Comment = ": keep-alive\n\n"

// Gap knows whether a stream stands between two events, where alone a comment may be put without changing what a reader
// sees. It looks at the last bytes only. The zero value stands at the beginning of a stream, which is such a place.
type Gap struct {
	tail [3]byte // the last bytes that passed, the newest at the end
	seen int     // how many of them count
}

// Passed notes bytes that went to the client.
func (g *Gap) Passed(p []byte) {
	if len(p) >= len(g.tail) {
		copy(g.tail[:], p[len(p)-len(g.tail):])
		g.seen = len(g.tail)
		return
	}
	for _, c := range p {
		g.tail[0], g.tail[1], g.tail[2] = g.tail[1], g.tail[2], c
		g.seen = min(g.seen+1, len(g.tail))
	}
}

// Open tells that the stream stands between two events: nothing passed yet, or an empty line was the last that did. A
// carriage return at the very end may be half a line end, and does not count.
func (g *Gap) Open() bool {
	t := g.tail[len(g.tail)-g.seen:]
	return g.seen == 0 || bytes.HasSuffix(t, []byte("\n\n")) || bytes.HasSuffix(t, []byte("\n\r\n"))
}

// Fill writes a comment if the stream stands between two events, and nothing otherwise. The error is that of write.
func (g *Gap) Fill(write func(p []byte) error) error {
	if !g.Open() {
		return nil
	}
	return write([]byte(Comment))
}
