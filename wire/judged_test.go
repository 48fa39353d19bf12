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

// TestUnclearStreams: nothing of a stream's event passes in which some clients find a call and others do not.
func TestUnclearStreams(t *testing.T) {
	t.Parallel()
	const call = `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`
	const chunk = `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}}]}`
	for _, c := range []struct {
		d       Dialect
		data    string
		unclear bool
	}{
		{Chat, chunk, false},
		{Chat, " " + chunk, false},
		{Chat, "[DONE]", false},
		{Chat, `{"choices":[{"delta":{"content":"x","tool_calls":null}}]}`, false},
		{Chat, "[" + chunk + "]", true},
		{Chat, "\x00" + chunk, true},
		{Chat, `"` + "x" + `"`, true},
		{Chat, `{"choices":[{"delta":{"tool_calls":{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}}}]}`, true},
		{Chat, `{"choices":{"0":{"delta":{"tool_calls":[{"function":{"name":"f"}}]}}}}`, true},
		{Responses, `{"type":"response.created","response":{"id":"r","output":[]}}`, false},
		{Responses, `{"type":"response.completed","response":{"id":"r","output":[` + call + `]}}`, false},
		{Responses, `{"type":"response.created","response":{"id":"r","output":[` + call + `]}}`, true},
		{Responses, `{"type":"response.in_progress","response":{"id":"r","output":[` + call + `]}}`, true},
		{Responses, `[{"type":"response.completed","response":{"id":"r","output":[` + call + `]}}]`, true},
	} {
		f := NewJudgedFolder(c.d)
		f.Write([]byte("data: " + c.data + "\n\n"))
		if got := f.Unclear(); (got != "") != c.unclear {
			t.Errorf("%s: %q, want unclear %v", c.data, got, c.unclear)
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
