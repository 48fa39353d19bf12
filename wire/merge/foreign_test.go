package merge_test

import (
	"strings"
	"testing"

	"remora/wire"
	"remora/wire/dialects"
	. "remora/wire/merge"
)

// TestNoEventStream: a body in place of an event stream, such as an error, goes to the client unchanged. Where calls
// are judged, a body that may hold some does not pass, and it cannot continue a streamed answer.
func TestNoEventStream(t *testing.T) {
	t.Parallel()
	begun := stream(dialects.Chat, 0, `d {"role":"assistant","content":"x"}`)
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
		"comments without a line":      {": OPENROUTER PROCESSING\r\r: OPEN\r", false},
		"fields alone":                 {"retry: 10\nid: 1\n\nevent: ping\n\n", false},
		"nothing":                      {"", false},
	} {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			for _, o := range []Options{{}, {Hide: hide}, {Hide: hide, HoldCalls: true}, {Hide: hide, HoldAll: true}, {HoldCalls: true, HoldAll: true}} {
				want := tc.body
				if tc.held && o.Judges() {
					want = ""
				}
				p := play{dialect: d, options: o, answers: []string{tc.body}}
				for seed := range uint64(20) {
					if got, s := p.run(pieces(seed)); got != want && strings.TrimSpace(got+want) != "" || s.Illegible() != (tc.held && o.Judges()) {
						t.Errorf("%s, %v, %+v, seed %d: %q becomes %q, illegible %v", name, d, o, seed, tc.body, got, s.Illegible())
					}
				}
				p = play{dialect: d, options: o, answers: []string{begun, tc.body}}
				if got, s := p.run(inOne); s.Illegible() != tc.held || o.Judges() && strings.Contains(got, tc.body) && tc.held {
					t.Errorf("%s, %v, %+v, as the second answer: illegible %v, %q", name, d, o, s.Illegible(), got)
				}
			}
		}
	}
	for _, o := range []Options{{Hide: hide}, {HoldCalls: true}} {
		p := play{dialect: dialects.Chat, options: o, answers: []string{`data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"mem`}}
		if got, s := p.run(inOne); got != "" || s.Illegible() != o.Judges() {
			t.Errorf("%+v: a call that is cut becomes %q, illegible %v", o, got, s.Illegible())
		}
	}
}

// TestBehindTheEnd: what comes after the end passes whole, also the beginning of what never ends. Where calls are judged
// nothing comes there that may hold one.
func TestBehindTheEnd(t *testing.T) {
	t.Parallel()
	for d, end := range map[wire.Dialect]string{
		dialects.Chat:      stream(dialects.Chat, 0, "d {\"content\":\"x\"}\nf stop\n[DONE]"),
		dialects.Responses: stream(dialects.Responses, 0, `{"type":"response.completed","response":{"id":"r","output":[]}}`),
	} {
		call := "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"rm\"}}]}}],\"item\":{\"type\":\"function_call\",\"name\":\"rm\"}}"
		for behind, judged := range map[string]string{
			": by\n":                            ": by\n",
			"data: [DONE]\n\n":                  "data: [DONE]\n\n",
			"data: [DONE]\r\n\r\nid: 1\r\n\r\n": "data: [DONE]\r\n\r\nid: 1\r\n\r\n",
			"x":                                 "",
			"{\"a\":1}":                         "",
			"<p>\n\n</p>":                       "",
			call + "\n\ndata: [DONE]\n\n":       "data: [DONE]\n\n",
			call + "\r\n\r\n":                   "",
			call:                                "",
			call[:40]:                           "",
			"data: [DONE]\n" + call + "\n\n":    "",
		} {
			for _, o := range []Options{{}, {Hide: hide}, {Hide: hide, HoldCalls: true}, {HoldAll: true}} {
				if o.HoldAll && behind[0] == ':' {
					continue // comments overtake what is held
				}
				want := end + behind
				if o.Judges() {
					want = end + judged
				}
				p := play{dialect: d, options: o, answers: []string{end + behind}}
				for seed := range uint64(20) {
					if got, s := p.run(pieces(seed)); got != want || s.Illegible() {
						t.Errorf("%v, %+v: %q becomes %q, illegible %v", d, o, end+behind, got, s.Illegible())
					}
				}
				for at := range len(behind) { // one piece with the end, the others later
					got, s := p.with(end + behind[:at]).run(inOne)
					for _, piece := range pieces(uint64(at))(behind[at:]) {
						got += string(s.AfterEnd([]byte(piece)))
					}
					// A [DONE] that has come may pass before it is seen that its event goes on.
					if goes := strings.HasPrefix(behind, "data: [DONE]\ndata"); got != want && (!goes || strings.Contains(got, "rm")) {
						t.Errorf("%v, %+v: %q, cut at %d, becomes %q", d, o, end+behind, at, got)
					}
				}
			}
		}
	}
}

// TestForeignLineOfAnEvent: where calls are judged, an event passes without the lines that are no part of an event stream.
func TestForeignLineOfAnEvent(t *testing.T) {
	t.Parallel()
	const foreign = `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"rm","arguments":"{}"}}]}}]}` + "\n"
	const text = `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}`
	for _, end := range []string{"", "\n\n", "\n\ndata: [DONE]\n\n"} {
		answer := text + "\n\n" + foreign + text + end
		for _, o := range []Options{{}, {HoldCalls: true}, {HoldAll: true}} {
			want := answer
			if o.HoldCalls || o.HoldAll {
				want = text + "\n\n" + text + end
			}
			p := play{dialect: dialects.Chat, options: o, answers: []string{answer}}
			if got, _ := p.run(inOne); got != want {
				t.Errorf("%+v: got %q, want %q", o, got, want)
			}
			if end == "" {
				s := New(dialects.Chat, o)
				got := string(s.Write([]byte(answer))) + string(s.Release(nil)) + string(s.Finish()) + string(s.AfterEnd([]byte("\n\n: x\n\n")))
				if strings.Contains(got, "rm") != (want == answer) || strings.Count(got, "data:") != 2 {
					t.Errorf("%+v, whose end comes behind: got %q", o, got)
				}
			}
		}
	}
}

func (p play) with(answers ...string) play {
	p.answers = answers
	return p
}

// TestApprovalOfAForeignTool: a tool at an MCP server may have the name of a layer's: the client gets the request to approve it.
func TestApprovalOfAForeignTool(t *testing.T) {
	t.Parallel()
	approval := `{"type":"mcp_approval_request","id":"m","server_label":"s","name":"mem_x","arguments":"{}"}`
	answer := stream(dialects.Responses, 0, `{"type":"response.output_item.added","output_index":0,"item":`+approval+`}
{"type":"response.output_item.done","output_index":0,"item":`+approval+`}
{"type":"response.completed","response":{"id":"resp_0","output":[`+approval+`]}}`)
	p := play{dialect: dialects.Responses, options: Options{Hide: hide}, answers: []string{answer}}
	if got, _ := p.run(inOne); got != answer {
		t.Errorf("the client gets %q", got)
	}
}

// TestByteOrderMarkBehindAHiddenCall: the next answer may begin with a byte order mark too. The client gets none in the
// middle of its stream, where it would make the first field unreadable.
func TestByteOrderMarkBehindAHiddenCall(t *testing.T) {
	t.Parallel()
	call := `{"type":"function_call","id":"fc_0","call_id":"a","name":"mem_x","arguments":"{}"}`
	message := `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"first second"}]}`
	for d, answers := range map[wire.Dialect][2]string{
		dialects.Chat: {
			`d {"tool_calls":[{"index":0,"id":"a","function":{"name":"mem_x","arguments":"{}"}}]}` + "\nf tool_calls\n[DONE]",
			`d {"content":"first"}` + "\n" + `d {"content":" second"}` + "\nf stop\n[DONE]",
		},
		dialects.Responses: {
			`{"type":"response.created","response":{"id":"resp_0","output":[]}}
{"type":"response.output_item.added","output_index":0,"item":` + call + `}
{"type":"response.output_item.done","output_index":0,"item":` + call + `}
{"type":"response.completed","response":{"id":"resp_0","status":"completed","output":[` + call + `]}}`,
			`{"type":"response.created","response":{"id":"resp_1","output":[]}}
{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","content":[]}}
{"type":"response.output_item.done","output_index":0,"item":` + message + `}
{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[` + message + `]}}`,
		},
	} {
		hidden, next := stream(d, 0, answers[0]), stream(d, 1, answers[1])
		for _, mark := range []string{"", "\ufeff"} {
			p := play{dialect: d, options: Options{Hide: hide}, answers: []string{hidden, mark + next}}
			for seed := range uint64(20) {
				got, s := p.run(pieces(seed))
				if strings.Contains(got, "\ufeff") || strings.Contains(got, "mem_x") || !strings.Contains(got, "second") {
					t.Errorf("%v, mark %q: the client gets %q", d, mark, got)
				}
				if items := s.Merged().Choices[0]; len(items) != 1 || items[0].Text() != "first second" {
					t.Errorf("%v, mark %q: the client reads %v", d, mark, items)
				}
			}
		}
	}
}
