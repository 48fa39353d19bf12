package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// onlyReading allows the tool read_file, for no path but /tmp, and denies every other.
const onlyReading = `[{kind: steering, rules: [{id: only-reading, applies_to: [before_tool_call], action: deny, guidance: 'Not allowed.',
  when: 'tool.name != "read_file" || tool.arguments.path != "/tmp"'}]}]`

// TestCallsThatClientsReadDifferently: rules judge calls as every client may read them. Some clients read a call from its first
// events, others from the finished item; some concatenate the pieces of a name, others use the last one; some ignore the case of
// names. A call that is denied in any of these readings reaches no client.
func TestCallsThatClientsReadDifferently(t *testing.T) {
	var said string // upstream's answer to requests without a denial
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		stream := strings.Contains(string(body), `"stream":true`)
		answer := said
		if strings.Contains(string(body), "Not allowed.") {
			answer = harmless(strings.HasSuffix(r.URL.Path, "responses"), stream)
		}
		w.Header().Set("Content-Type", "application/json")
		if stream {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, answer) // the test checks the result
	}))
	t.Cleanup(up.Close)
	g := gateTo(t, setup{layers: onlyReading, upstream: up.URL})

	const (
		denied  = "denied"  // the model gets the denial, and the client its next answer
		unclear = "unclear" // the answer fails
		dropped = "dropped" // the client gets the answer without the call
		passes  = "passes"
	)
	item := func(name, arguments string) string {
		return fmt.Sprintf(`{"type":"function_call","id":"fc_1","call_id":"c1","name":%q,"arguments":%q}`, name, arguments)
	}
	added := func(name string) string {
		return `{"type":"response.output_item.added","output_index":0,"item":` + item(name, "") + `}`
	}
	pieces := func(arguments string) string {
		return fmt.Sprintf(`{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_1","delta":%q}`, arguments)
	}
	whole := func(arguments string) string {
		return fmt.Sprintf(`{"type":"response.function_call_arguments.done","output_index":0,"item_id":"fc_1","arguments":%q}`, arguments)
	}
	done := func(name, arguments string) string {
		return `{"type":"response.output_item.done","output_index":0,"item":` + item(name, arguments) + `}`
	}
	ends := func(kind, output string) string {
		return `{"type":"response.` + kind + `","response":{"id":"r","status":"` + kind + `","output":[` + output + `]}}`
	}
	call := func(function string) string {
		return `{"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c1","type":"function","function":` + function + `}]}}]}`
	}
	more := func(function string) string {
		return `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":` + function + `}]}}]}`
	}
	message := func(m string) string {
		return `{"id":"x","choices":[{"index":0,"message":` + m + `,"finish_reason":"tool_calls"}]}`
	}
	const (
		tmp, etc = `{"path":"/tmp"}`, `{"path":"/etc"}`
		finish   = `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`
		args     = `"arguments":"{\"path\":\"/tmp\"}"`
	)
	chat, responses := dialect{"chat/completions", true}, dialect{"responses", true}

	for _, c := range []struct {
		name   string
		d      dialect
		answer string
		want   string
	}{
		{"finished item", responses, events(added("read_file"), pieces(tmp), whole(tmp), done("read_file", tmp), ends("completed", item("read_file", tmp))), passes},
		{"first events alone", responses, events(added("delete_file"), pieces(etc), whole(etc), ends("completed", "")), denied},
		{"first events alone, allowed", responses, events(added("read_file"), pieces(tmp), whole(tmp), ends("completed", "")), passes},
		{"first events alone, in other spelling", responses, events(added("read_file"), pieces(`{ "path": "/tmp" }`), whole(tmp), ends("completed", "")), passes},
		{"first events and [DONE]", responses, events(added("delete_file"), pieces(etc), whole(etc), "[DONE]"), denied},
		{"first events and an error", responses, events(added("delete_file"), pieces(etc), whole(etc), `{"type":"error","message":"overloaded"}`), denied},
		{"first events of an incomplete answer", responses, events(added("delete_file"), pieces(etc), whole(etc), ends("incomplete", "")), denied},
		{"first events and the end of the stream", responses, events(added("delete_file"), pieces(etc), whole(etc)), denied},
		{"pieces alone", responses, events(added("delete_file"), pieces(etc), ends("completed", "")), denied},
		{"pieces of a call that was cut", responses, events(added("read_file"), pieces(`{"path":"/t`), ends("incomplete", "")), dropped},
		{"pieces without an item", responses, events(pieces(etc), ends("completed", "")), dropped},
		{"another name at the end", responses, events(added("delete_file"), pieces(tmp), whole(tmp), done("read_file", tmp), ends("completed", item("read_file", tmp))), unclear},
		{"another name in the list", responses, events(added("delete_file"), whole(tmp), done("delete_file", tmp), ends("completed", item("read_file", tmp))), unclear},
		{"other arguments in pieces", responses, events(added("read_file"), pieces(etc), whole(tmp), done("read_file", tmp), ends("completed", item("read_file", tmp))), unclear},
		{"other arguments as a whole", responses, events(added("read_file"), pieces(tmp), whole(etc), done("read_file", tmp), ends("completed", item("read_file", tmp))), unclear},
		{"other arguments in the list", responses, events(added("read_file"), pieces(etc), whole(etc), done("read_file", etc), ends("completed", item("read_file", tmp))), unclear},
		{"two types", responses, "event: response.output_item.done\ndata: " + strings.Replace(done("delete_file", etc), "response.output_item.done", "response.in_progress", 1) + "\n\n" + events(ends("completed", "")), unclear},
		{"arguments that clients repair", responses, events(done("read_file", `{"path":"/etc",}`), ends("completed", "")), denied},
		{"arguments that were cut", responses, events(done("read_file", `{"path":"/etc`), ends("completed", "")), denied},
		{"members in another case", responses, events(strings.Replace(done("delete_file", etc), `"item"`, `"Item"`, 1), ends("completed", "")), unclear},
		{"a list that holds more than objects", dialect{"responses", false}, `{"id":"r","output":[null,` + item("delete_file", etc) + `]}`, unclear},
		{"members in another case, whole", dialect{"responses", false}, `{"id":"r","Output":[` + item("delete_file", etc) + `]}`, unclear},

		{"arguments with a line break in a string", chat, events(call(`{"name":"read_file","arguments":"{\"path\":\"/etc\\n\"}"}`), finish), denied},
		{"arguments with a member twice", chat, events(call(`{"name":"read_file","arguments":"{\"path\":\"/etc\",\"path\":\"/tmp\"}"}`), finish), denied},
		{"arguments in another case", chat, events(call(`{"name":"read_file","arguments":"{\"Path\":\"/etc\"}"}`), finish), denied},
		{"arguments that are no text", chat, events(call(`{"name":"read_file","arguments":{"path":"/etc"}}`), finish), denied},
		{"a name at once", chat, events(call(`{"name":"read_file",`+args+`}`), finish), passes},
		{"a name in two pieces", chat, events(call(`{"name":"delete_"}`), more(`{"name":"file",`+args+`}`), finish), denied},
		{"a name whose last piece is denied", chat, events(call(`{"name":"read_file"}`), more(`{"name":"delete_file",`+args+`}`), finish), denied},
		{"a name whose first piece is denied", chat, events(call(`{"name":"delete_file"}`), more(`{"name":"read_file",`+args+`}`), finish), denied},
		{"a name that is repeated", chat, events(call(`{"name":"read_file"}`), more(`{"name":"read_file",`+args+`}`), finish), passes},
		{"no blank line behind the last event", chat, strings.TrimRight(events(call(`{"name":"delete_file",`+args+`}`)), "\n"), denied},
		{"one line end behind the last event", chat, strings.TrimRight(events(call(`{"name":"delete_file",`+args+`}`)), "\n") + "\n", denied},
		{"calls in another case", chat, events(strings.Replace(call(`{"name":"delete_file",`+args+`}`), "tool_calls", "Tool_Calls", 1), finish), unclear},
		{"a name in another case", chat, events(call(`{"Name":"delete_file","name":"read_file",`+args+`}`), finish), unclear},
		{"a letter that folds to another", chat, events(call(`{"name":"read_file",`+args+`,"argument\u017f":"{}"}`), finish), unclear},
		{"a name twice", chat, events(call(`{"name":"delete_file","name":"read_file",`+args+`}`), finish), unclear},
		{"a message in a chunk", chat, events(message(`{"tool_calls":[{"id":"c1","function":{"name":"delete_file",` + args + `}}]}`)), unclear},
		{"a name twice, whole", dialect{"chat/completions", false}, message(`{"tool_calls":[{"id":"c1","function":{"name":"delete_file","name":"read_file",` + args + `}}]}`), unclear},
		{"calls in another case, whole", dialect{"chat/completions", false}, message(`{"content":"x","TOOL_CALLS":[{"id":"c1","function":{"name":"delete_file",` + args + `}}]}`), unclear},
		{"a list that holds more than objects, whole", dialect{"chat/completions", false}, message(`{"tool_calls":[0,{"id":"c1","function":{"name":"delete_file",` + args + `}}]}`), unclear},
	} {
		for _, session := range []string{"s " + c.name, "null"} {
			t.Run(c.name+", session "+session, func(t *testing.T) {
				said = c.answer
				r, err := g.read(t, c.d.path, c.d.body(t, "hello"), "X-Session-Id: "+session)

				if strings.Contains(r.body, "delete_") || strings.Contains(r.body, "/etc") {
					t.Errorf("a denied call reaches the client: %s", r.body)
				}
				shown := regexp.MustCompile(`"read_file"`).MatchString(r.body)
				failed := strings.Contains(r.body, "upstream_unreadable")
				if err != nil && !failed {
					t.Fatal(err)
				}
				next := strings.Contains(r.body, "I will not.")
				got := map[[3]bool]string{{true, false, false}: passes, {false, true, false}: unclear, {false, false, true}: denied, {}: dropped}[[3]bool{shown, failed, next}]
				if got != c.want {
					t.Errorf("the call is %q, want %q: %d %s", got, c.want, r.status, r.body)
				}
			})
		}
	}
}

// events returns a stream of events with these data.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// harmless returns an answer without calls.
func harmless(responses, stream bool) string {
	switch {
	case responses && stream:
		return events(`{"type":"response.completed","response":{"id":"r","status":"completed","output":[{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"I will not."}]}]}}`)
	case responses:
		return `{"id":"r","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I will not."}]}]}`
	case stream:
		return events(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"I will not."}}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
	}
	return `{"choices":[{"index":0,"message":{"role":"assistant","content":"I will not."},"finish_reason":"stop"}]}`
}

// TestRulesNameTheAPIsTools: calls of the shell and the like have no name; rules know them by their kind.
func TestRulesNameTheAPIsTools(t *testing.T) {
	const layers = `[{kind: steering, rules: [{id: no-shell, applies_to: [before_tool_call], action: deny, guidance: 'Not allowed.',
  when: 'tool.name == "shell" || tool.name == "apply_patch"'}]}]`
	var said string
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), "call_output") {
			said = harmless(true, false)
		}
		_, _ = io.WriteString(w, said) // the test sees what arrives
	}))
	t.Cleanup(up.Close)
	g := gateTo(t, setup{layers: layers, upstream: up.URL})

	for item, want := range map[string]bool{
		`{"type":"shell_call","id":"sh_1","call_id":"c1","status":"completed","action":{"commands":["ls"]}}`:                                 false,
		`{"type":"apply_patch_call","id":"ap_1","call_id":"c1","status":"completed","operation":{"type":"delete_file","path":"x"}}`:          false,
		`{"type":"computer_call","id":"cu_1","call_id":"c1","status":"completed","action":{"type":"screenshot"},"pending_safety_checks":[]}`: true,
	} {
		said = `{"id":"r","status":"completed","output":[` + item + `]}`
		r := g.ask(t, "responses", dialect{"responses", false}.body(t, "hello"), "X-Session-Id: "+item[9:20])
		if passes := strings.Contains(r.body, `"c1"`); passes != want || r.status != http.StatusOK {
			t.Errorf("%s: passes %v, want %v: %d %s", item, passes, want, r.status, r.body)
		}
	}
}
