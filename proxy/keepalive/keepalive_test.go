package keepalive_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/proxy/keepalive"
	"remora/wire"
)

func TestOnlyBetweenEvents(t *testing.T) {
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
			var g keepalive.Gap
			for rest := []byte(stream); len(rest) > 0; {
				n := min(piece, len(rest))
				g.Passed(rest[:n])
				rest = rest[n:]
			}
			wrote := false
			_ = g.Fill(func(p []byte) error { wrote = len(p) > 0; return nil })
			if g.Open() != want || wrote != want {
				t.Errorf("%q in pieces of %d: open %v, wrote %v", stream, piece, g.Open(), wrote)
			}
		}
	}
}

func TestErrorOfTheWriter(t *testing.T) {
	var g keepalive.Gap
	gone := errors.New("client has gone")
	if err := g.Fill(func([]byte) error { return gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
}

type event struct{ Name, Data string }

func events(stream []byte) []event {
	var e wire.Events
	var all []event
	for {
		ev, n, ok := e.Next(stream)
		if !ok {
			return all
		}
		all = append(all, event{string(ev.Name), string(ev.Data)})
		stream = stream[n:]
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
		var g keepalive.Gap
		var filled []byte
		for rest := stream; len(rest) > 0; {
			_ = g.Fill(func(p []byte) error { filled = append(filled, p...); return nil })
			n := min(piece, len(rest))
			g.Passed(rest[:n])
			filled = append(filled, rest[:n]...)
			rest = rest[n:]
		}
		if diff := cmp.Diff(events(stream), events(filled)); diff != "" {
			t.Errorf("%q\n%q\n%s", stream, filled, diff)
		}
	})
}
