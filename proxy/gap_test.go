package proxy

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/wire/sse"
)

func TestCommentsStandBetweenEvents(t *testing.T) {
	for stream, want := range map[string]bool{
		"":                                     true,
		"data: a\n\n":                          true,
		"data: a\r\n\r\n":                      true,
		": OPENROUTER PROCESSING\n\n":          true,
		"d":                                    false,
		"data: a":                              false,
		"data: a\n":                            false,
		"data: a\r\n":                          false,
		"data: a\r\n\r":                        false,
		"data: a\n\ndata: b\n":                 false,
		"event: x\ndata: a\n\nevent: y\n":      false,
		"data: {\"a\":\"\\n\\n":                false,
		"\n":                                   false,
		"\n\n":                                 true,
		"data: a\n\n\n":                        true,
		"data: a\n\n: a comment without end\n": false,
	} {
		for piece := 1; piece <= 5; piece++ {
			var g gap
			for rest := []byte(stream); len(rest) > 0; {
				n := min(piece, len(rest))
				g.passed(rest[:n])
				rest = rest[n:]
			}
			var out bytes.Buffer
			c := clientWriter{s: &Server{now: time.Now}, w: &out, gap: g, armed: time.Now()}
			c.s.o.WriteTimeout = time.Hour
			if err := c.fill(); err != nil || out.Len() > 0 != want || g.open() != want {
				t.Errorf("%q in pieces of %d: open %v, wrote %q, %v", stream, piece, g.open(), &out, err)
			}
		}
	}
}

type sseEvent struct{ Name, Data string }

func events(stream []byte) []sseEvent {
	var e sse.Splitter
	var all []sseEvent
	for {
		ev, n, ok := e.Next(stream)
		if !ok {
			return all
		}
		if stream = stream[n:]; ev.Kind != sse.Event {
			continue
		}
		all = append(all, sseEvent{string(ev.Name), string(ev.Data)})
	}
}

// FuzzFill checks that no reader sees a difference, wherever comments were put in. A byte order mark must be the first
// thing of a stream, so one that comes after a comment is left out.
func FuzzFill(f *testing.F) {
	f.Add([]byte("event: a\ndata: 1\n\n: c\n\ndata: 2\r\n\r\ndata: 3\r\rdata: 4\n\r\n\r"), 3)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		if bytes.HasPrefix(stream, []byte("\xef")) {
			return
		}
		piece = min(max(piece, 1), 64)
		var g gap
		var filled []byte
		for rest := stream; len(rest) > 0; {
			if g.open() {
				filled = append(filled, keepAliveComment...)
			}
			n := min(piece, len(rest))
			g.passed(rest[:n])
			filled = append(filled, rest[:n]...)
			rest = rest[n:]
		}
		if diff := cmp.Diff(events(stream), events(filled)); diff != "" {
			t.Errorf("%q\n%q\n%s", stream, filled, diff)
		}
	})
}
