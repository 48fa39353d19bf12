package stitch

import (
	"strings"
	"testing"

	"remora/wire"
)

// TestNoEventStream: what is sent in an event stream's place, an error for example, is the client's as it came. Where calls
// are judged nothing of it passes, which may hold some, and it cannot go on with an answer that is a stream.
func TestNoEventStream(t *testing.T) {
	t.Parallel()
	begun := stream(wire.Chat, 0, `d {"role":"assistant","content":"x"}`)
	for name, tc := range map[string]struct {
		body string
		held bool // where calls are judged
	}{
		"JSON":                         {`{"error":{"message":"busy"}}`, true},
		"JSON with a line end":         {`{"choices":[{"message":{"tool_calls":[{"id":"a"}]}}]}` + "\n", true},
		"JSON and an empty line":       {`{"choices":[{"message":{"tool_calls":[{"id":"a"}]}}]}` + "\r\n\r\n", true},
		"JSON behind a mark":           {"\ufeff{\n  \"data\": {\n    \"id\": 1\n  }\n}\n\n\n", true},
		"lines of JSON":                {"{\"a\":1}\n{\"a\":2}\n\n{\"a\":3}", true},
		"a page":                       {"<!doctype html>\n<html>\n\n<h1>Bad gateway</h1>\n\n</html>\n", true},
		"text":                         {"upstream is busy", true},
		"junk":                         {"\x00\xff\r\x1f\x8b\n\r\n\x01", true},
		"text in an event that is cut": {"data: busy", true},
		"comments":                     {": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n", false},
		"comments, the last one cut":   {": OPENROUTER PROCESSING\r\r: OPEN", false},
		"fields alone":                 {"retry: 10\nid: 1\n\nevent: ping\n", false},
		"nothing":                      {"", false},
	} {
		for _, d := range []wire.Dialect{wire.Chat, wire.Responses} {
			for _, o := range []Options{{}, {Hide: hide}, {Hide: hide, HoldCalls: true}, {Hide: hide, HoldAll: true}, {HoldCalls: true, HoldAll: true}} {
				want := tc.body
				if tc.held && o.judges() {
					want = ""
				}
				p := play{dialect: d, options: o, answers: []string{tc.body}}
				for seed := range uint64(20) {
					if got, s := p.run(pieces(seed)); got != want && strings.TrimSpace(got+want) != "" || s.Illegible() != (tc.held && o.judges()) {
						t.Errorf("%s, %v, %+v, seed %d: %q becomes %q, illegible %v", name, d, o, seed, tc.body, got, s.Illegible())
					}
				}
				p = play{dialect: d, options: o, answers: []string{begun, tc.body}}
				if got, s := p.run(inOne); s.Illegible() != tc.held || o.judges() && strings.Contains(got, tc.body) && tc.held {
					t.Errorf("%s, %v, %+v, as the second answer: illegible %v, %q", name, d, o, s.Illegible(), got)
				}
			}
		}
	}
	for _, o := range []Options{{Hide: hide}, {HoldCalls: true}} {
		p := play{dialect: wire.Chat, options: o, answers: []string{`data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"mem`}}
		if got, s := p.run(inOne); got != "" || s.Illegible() != o.judges() {
			t.Errorf("%+v: a call that is cut becomes %q, illegible %v", o, got, s.Illegible())
		}
	}
}

// TestBehindTheEnd: what comes behind the end passes whole, also the beginning of what never ends.
func TestBehindTheEnd(t *testing.T) {
	t.Parallel()
	for d, end := range map[wire.Dialect]string{
		wire.Chat:      stream(wire.Chat, 0, "d {\"content\":\"x\"}\nf stop\n[DONE]"),
		wire.Responses: stream(wire.Responses, 0, `{"type":"response.completed","response":{"id":"r","output":[]}}`),
	} {
		for _, behind := range []string{": by", "x", "\n\r\n: bye\n\ndata: {\"cut", "{\"a\":1}", "<p>\n\n</p>"} {
			for _, o := range []Options{{}, {Hide: hide}, {Hide: hide, HoldCalls: true}, {HoldAll: true}} {
				p := play{dialect: d, options: o, answers: []string{end + behind}}
				if o.HoldAll && strings.HasPrefix(behind, "\n") {
					continue // blank lines and comments overtake what is held
				}
				for seed := range uint64(20) {
					if got, s := p.run(pieces(seed)); got != end+behind || s.Illegible() {
						t.Errorf("%v, %+v: %q becomes %q, illegible %v", d, o, end+behind, got, s.Illegible())
					}
				}
			}
		}
	}
}
