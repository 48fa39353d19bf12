package merge_test

import (
	"testing"

	"remora/wire"
	"remora/wire/dialects"
	. "remora/wire/merge"
)

// TestEchoedTools lets upstream repeat what it was offered: the client sees its own tools, and every other byte as it is.
func TestEchoedTools(t *testing.T) {
	const layers = `{"type":"function","name":"mem_update","parameters":{"tools":[]}}`
	for _, c := range [][2]string{
		{`{"id":"r","tools":[` + layers + `],"output":[]}`, `{"id":"r","tools":[],"output":[]}`},
		{`{"id":"r","tools":[{"type":"web_search"},` + layers + `],"output":[]}`, `{"id":"r","tools":[{"type":"web_search"}],"output":[]}`},
		{`{"id":"r","tools":[{"name":"f"}, {"name":1}, 7],"output":[]}`, `{"id":"r","tools":[{"name":"f"}, {"name":1}, 7],"output":[]}`},
		{`{"id":"r","tools":null,"output":[]}`, `{"id":"r","tools":null,"output":[]}`},
	} {
		answer := []byte(c[0])
		if got := WithoutTools(dialects.Responses, answer, hide); string(got) != c[1] || (c[0] == c[1]) != wire.SameBytes(got, answer) {
			t.Errorf("%s: got %s", c[0], got)
		}
		stream := func(response string) string {
			return "data: {\"type\":\"response.created\",\"response\":" + response + "}\n\n" +
				"data: {\"type\":\"response.completed\",\"response\":" + response + "}\n\n"
		}
		p := play{dialect: dialects.Responses, options: Options{Hide: hide}, answers: []string{stream(c[0])}}
		if got, _ := p.run(inOne); got != stream(c[1]) {
			t.Errorf("streamed: got\n%s\nwant\n%s", got, stream(c[1]))
		}
		p.options = Options{}
		if got, _ := p.run(inOne); got != stream(c[0]) {
			t.Errorf("without layers: got\n%s", got)
		}
	}
}
