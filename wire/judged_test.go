package wire_test

import (
	"strings"
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
		{Chat, `{"choices":[{"index":0,"index":1,"message":{}}]}`, true},
		{Chat, `{"choices":[{"index":null,"message":{}},{"index":1,"message":{}},{"message":{"tool_calls":[{"index":"0"}]}}]}`, false},
		{Chat, `{"choices":[{"index":"0","message":{}}]}`, true},
		{Chat, `{"choices":[{"index":-1,"message":{}}]}`, true},
		{Chat, `{"choices":[{"index":0.0,"message":{}}]}`, true},
		{Chat, `{"choices":[{"index":5000,"message":{}}]}`, true},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"index":0,"index":1}]}}]}`, true},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"id":"a","id":"b"}]}}]}`, true},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"type":"function","type":"custom"}]}}]}`, true},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"custom":{"name":"f"},"custom":{"name":"g"}}]}}]}`, true},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"custom":{"name":"f","input":"x","input":"y"}}]}}]}`, true},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{}","arguments":"[]"}}]}}]}`, true},
		{Chat, `{"choices":[{"message":{"function_call":{"name":"f","name":"g"}}}]}`, true},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"type":"custom","function":{"name":"f","arguments":"{}"},"custom":{"name":"g","input":"x"}}]}}]}`, true},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"type":"custom","function":null,"custom":{"name":"g","input":"x","arguments":null}}]}}]}`, false},
		{Chat, `{"choices":[{"message":{"tool_calls":[{"type":"custom","custom":{"name":"g","arguments":"{}","input":"x"}}]}}]}`, true},
		{Chat, `{"index":0,"index":1,"choices":[{"name":"f","name":"g","message":{"id":"a","id":"b"}}]}`, false},
		{Responses, `{"output":[{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}]}`, false},
		{Responses, `{"output":[],"tools":[{"Name":"x","name":"x","parameters":{"Type":"object","type":"object"}}],"metadata":{"Output":"x"}}`, false},
		{Responses, `{"output":[{"type":"message","content":[{"Type":"x"}]}],"Output":[]}`, true},
		{Responses, `{"output":[{"type":"function_call","\u017farguments":1,"Call_ID":"a"}]}`, true},
		{Responses, `{"output":[{"type":"function_call","type":"message"}]}`, true},
		{Responses, `{"output":["x"]}`, true},
		{Responses, `{"output":[{"type":"custom_tool_call","call_id":"a","name":"f","arguments":"{}","input":"x"}]}`, true},
		{Responses, `{"output":[{"type":"local_shell_call","call_id":"a","arguments":null,"action":{"type":"exec"}}]}`, false},
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
		{Chat, `{"choices":[{"delta":{},"delta":{"content":"x"}}]}`, true},
		{Chat, `{"choices":[{"index":-1,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}`, true},
		{Chat, `{"choices":[{"index":"0","delta":{"content":"x"}}]}`, true},
		{Chat, `{"choices":[{"delta":{},"message":{"content":"x","tool_calls":null,"function_call":null}}]}`, false},
		{Chat, `{"choices":[{"delta":{},"message":{"tool_calls":[{"function":{"name":"f"}}]}}]}`, true},
		{Chat, `{"choices":[{"delta":{},"message":{"tool_calls":{"0":{"function":{"name":"f"}}}}}]}`, true},
		{Chat, `{"choices":[{"delta":{},"message":{"function_call":{"name":"f"}}}]}`, true},
		{Chat, `{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f"},"custom":null}]}}]}`, false},
		{Chat, `{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f"},"custom":{"name":"f"}}]}}]}`, true},
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

// TestUnclearCalls: the events of a stream of Responses agree on a call, however they spell its input.
func TestUnclearCalls(t *testing.T) {
	t.Parallel()
	item := func(name, arguments string) string {
		return `{"type":"function_call","id":"i","call_id":"a","name":"` + name + `","arguments":"` + arguments + `"}`
	}
	added := func(item string) string {
		return `{"type":"response.output_item.added","output_index":0,"item":` + item + `}`
	}
	done := func(item string) string {
		return `{"type":"response.output_item.done","output_index":0,"item":` + item + `}`
	}
	input := func(kind, members string) string {
		return `{"type":"response.function_call_arguments.` + kind + `","item_id":"i","output_index":0,` + members + `}`
	}
	without := func(event string) string {
		return strings.NewReplacer(`"id":"i",`, "", `"item_id":"i",`, "").Replace(event)
	}
	const spaced, tight, other = `{\"x\": 1}`, `{\"x\":1}`, `{\"x\":2}`
	whole := done(item("f", tight))
	const shell = `{"type":"local_shell_call","id":"i","call_id":"a","action":`
	for _, c := range []struct {
		name    string
		events  []string
		unclear bool
	}{
		{"alike", []string{added(item("f", "")), input("delta", `"delta":"`+spaced+`"`), input("done", `"name":"f","arguments":"`+spaced+`"`), whole}, false},
		{"other pieces", []string{added(item("f", "")), input("delta", `"delta":"`+other+`"`), whole}, true},
		{"another input", []string{added(item("f", "")), input("done", `"arguments":"`+other+`"`), whole}, true},
		{"an input of its own at first", []string{added(item("f", other)), whole}, true},
		{"another name for its input", []string{added(item("f", "")), input("done", `"name":"g","arguments":"`+tight+`"`), whole}, true},
		{"another name at first", []string{added(item("g", "")), whole}, true},
		{"an item of its own", []string{added(item("f", "")), input("done", `"arguments":"`+tight+`"`), whole, `{"type":"response.completed","response":{"output":[` + item("f", other) + `]}}`}, true},
		{"an input before its item", []string{input("done", `"name":"f","arguments":"`+tight+`"`), whole}, false},
		{"another name behind it", []string{added(item("f", "")), whole, input("done", `"name":"g","arguments":"`+tight+`"`)}, true},
		{"other pieces, known by their index", []string{without(added(item("f", ""))), without(input("delta", `"delta":"`+other+`"`)), without(whole)}, true},
		{"alike, known by their index", []string{without(added(item("f", ""))), without(input("delta", `"delta":"`+tight+`"`)), without(whole)}, false},
		{"a call that was cut", []string{added(item("f", "")), input("delta", `"delta":"{"`)}, false},
		{"an action that comes later", []string{added(shell + `{}}`), done(shell + `{"command":["ls"]}}`)}, false},
	} {
		f := NewJudgedFolder(Responses)
		for _, e := range c.events {
			f.Write([]byte("data: " + e + "\n\n"))
		}
		if got := f.Reply().Unclear; (got != "") != c.unclear {
			t.Errorf("%s: %q, want unclear %v", c.name, got, c.unclear)
		}
	}
}

// TestUnclearTypes: an event has the type that its name or its data give; the two agree if both do.
func TestUnclearTypes(t *testing.T) {
	t.Parallel()
	for event, unclear := range map[string]bool{
		"event: response.created\ndata: {\"response\":{}}\n\n":                                    false,
		"data: {\"type\":\"response.created\",\"response\":{}}\n\n":                               false,
		"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n":      false,
		"event: response.created\ndata: {\"type\":\"response.output_item.done\",\"item\":{}}\n\n": true,
	} {
		f := NewJudgedFolder(Responses)
		f.Write([]byte(event))
		if got := f.Unclear(); (got != "") != unclear {
			t.Errorf("%q: %q, want unclear %v", event, got, unclear)
		}
	}
}

// TestUnclearKind: a call of a stream of Chat is a function's or a custom tool's, whichever chunks say it.
func TestUnclearKind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pieces  []string
		unclear bool
	}{
		{[]string{`"function":{"name":"f","arguments":""},"custom":null`, `"function":{"arguments":"{}"}`}, false},
		{[]string{`"type":"custom","custom":{"name":"f","input":""}`, `"function":null,"custom":{"input":"x"}`}, false},
		{[]string{`"function":{"name":"f","arguments":"{}"}`, `"custom":{"input":"x"}`}, true},
		{[]string{`"custom":{"name":"f","input":"x"}`, `"function":{"arguments":"{}"}`}, true},
	} {
		f := NewJudgedFolder(Chat)
		for _, piece := range c.pieces {
			f.Write([]byte(`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a",` + piece + "}]}}]}\n\n"))
		}
		f.Write([]byte(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n"))
		r := f.Reply()
		if (r.Unclear != "") != c.unclear {
			t.Errorf("%q: %q, want unclear %v", c.pieces, r.Unclear, c.unclear)
		}
		if it := r.Choices[0][0]; !c.unclear && it.TakesText(0) != strings.Contains(c.pieces[1], "input") {
			t.Errorf("%q becomes %s", c.pieces, it.Raw)
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
