package wire_test

import (
	"testing"

	. "remora/wire"
)

// TestUnclear: an answer whose calls some clients read otherwise is unclear, and similar ones are not.
func TestUnclear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d       Dialect
		body    string
		unclear bool
	}{
		{Chat, `{"choices":[{"index":0,"message":{"content":"x","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}}]}`, false},
		{Chat, `{"ID":"x","Usage":{},"choices":[{"message":{"Content":"x","tool_calls":null}}],"choice":1}`, false},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"function":{"NAME":"f"}}]}}]}`, true},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"function":{"n\u0061me":"f","name":"g"}}]}}]}`, true},
		{Chat, `{"choices":[{"message":{"function_call":{"name":"f"},"Function_Call":null}}]}`, true},
		{Chat, `{"choices":[{"message":{}}],"choices":[]}`, true},
		{Chat, `{"choices":[[{"message":{}}]]}`, true},
		{Responses, `{"output":[{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}]}`, false},
		{Responses, `{"output":[],"tools":[{"Name":"x","name":"x","parameters":{"Type":"object","type":"object"}}],"metadata":{"Output":"x"}}`, false},
		{Responses, `{"output":[{"type":"message","content":[{"Type":"x"}]}],"Output":[]}`, true},
		{Responses, `{"output":[{"type":"function_call","\u017farguments":1,"Call_ID":"a"}]}`, true},
		{Responses, `{"output":[{"type":"function_call","type":"message"}]}`, true},
		{Responses, `{"output":["x"]}`, true},
	} {
		if got := Unclear(c.d, []byte(c.body)); (got != "") != c.unclear {
			t.Errorf("%s: %q, want unclear %v", c.body, got, c.unclear)
		}
	}
}

// FuzzUnclear: no stream makes it panic, and a judged Folder reads the same as any other.
func FuzzUnclear(f *testing.F) {
	f.Add([]byte("data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"function_call\",\"name\":\"f\"}}\n\n"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"Name\":\"f\"}}]}}]}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		for _, d := range []Dialect{Chat, Responses} {
			Unclear(d, stream)
			judged, plain := NewJudgedFolder(d), NewFolder(d)
			judged.Write(stream)
			plain.Write(stream)
			a, b := judged.Reply(), plain.Reply()
			if len(a.Choices) != len(b.Choices) || a.Complete != b.Complete || b.Unclear != "" {
				t.Errorf("%v: %+v and %+v", d, a, b)
			}
		}
	})
}
