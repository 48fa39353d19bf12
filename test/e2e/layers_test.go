package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// notes are layers with a tool for the model.
const notes = "[{kind: working_memory}, {kind: history_window, max_items: 80, evict_batch: 40}]"

// taken are the scenarios in which the model takes notes: the same conversation by every SDK, dialect and habit.
var taken = []string{
	"layers.chatCreate", "layers.chatStream", "layers.chatDelta", "layers.chatDeltaStream", "layers.chatRunTools",
	"layers.responsesCreate", "layers.responsesStream", "layers.responsesDelta", "layers.responsesDeltaStream",
	"layers.responsesPrevious", "layers.responsesPreviousStream",
	"layers.aiChat", "layers.aiChatStream", "layers.aiResponses", "layers.aiResponsesStream", "layers.aiCompatibleStream",
	"go.notes", "go.notesStream", "go.notesResponses", "go.notesResponsesStream",
}

// said is an SDK's result of one answer.
type said struct {
	Text  string      `json:"text"`
	Calls [][2]string `json:"calls"`
}

// clientSees is the conversation that a client must see.
var clientSees = []said{
	{"Looking.", [][2]string{{"lookup", `{"q":"a"}`}, {"weather", `{"city":"Bern"}`}}},
	{"Found both.", [][2]string{}},
	{"I note that.\n\nNoted.", [][2]string{}}, // in Responses two items, which SDKs put together without a blank line
	{"", [][2]string{{"lookup", `{"q":"b"}`}}},
	{"", [][2]string{{"lookup", `{"q":"c"}`}}},
	{"Done with it.", [][2]string{}},
	{"Bye.", [][2]string{}},
}

// TestNotesAreHidden: the model takes notes between calls of the client's tools. With any SDK the client gets only its own
// calls, its next request is valid upstream, and the model gets its notes and its calls of them.
func TestNotesAreHidden(t *testing.T) {
	o := play(t, remembering, setup{layers: notes}, taken...)
	if len(o.faults) > 0 {
		t.Errorf("upstream met faulty histories: %q", o.faults)
	}
	for _, e := range o.client {
		if i := bytes.Index(e.resp.body, []byte("working")); i >= 0 {
			t.Errorf("%s: the client sees something of a layer: %.300q", e.req.header("X-Session-Id"), e.resp.body[max(0, i-100):])
		}
		if m := e.resp.header("X-Memory"); !strings.HasPrefix(m, "ok") || strings.Contains(m, "skipped") {
			t.Errorf("%s: X-Memory is %q", e.req.header("X-Session-Id"), m)
		}
	}
	asked, views := bySession(o.client), bySession(o.upstream)
	for _, name := range taken {
		t.Run(name, func(t *testing.T) {
			r, ok := o.records[name]
			if !ok || r.Thrown != nil {
				t.Fatalf("failed: %v", r.Thrown)
			}
			var got []said
			if err := json.Unmarshal(encode(t, r.Result), &got); err != nil {
				t.Fatalf("result %v: %v", r.Result, err)
			}
			want := slices.Clone(clientSees)
			if strings.Contains(strings.ToLower(name), "responses") {
				want[2].Text = "I note that.Noted."
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("not what the client must see (-want +got):\n%s", diff)
			}
			session := name
			if !strings.HasPrefix(name, "go.") {
				session = "node " + name
			}
			checkNotes(t, name, views[session])
			checkUsage(t, asked[session], views[session])
		})
	}
}

func bySession(all []exchange) map[string][]exchange {
	out := make(map[string][]exchange)
	for _, e := range all {
		session := e.req.header("X-Session-Id")
		out[session] = append(out[session], e)
	}
	return out
}

// answersOf is the number of upstream's answers in each answer of clientSees.
var answersOf = []int{1, 1, 2, 3, 1, 1, 1}

// checkUsage requires that the client's usage has the input of the last answer and the output of all: agents compact their
// history by the input.
func checkUsage(t *testing.T, asked, views []exchange) {
	t.Helper()
	if len(asked) != len(answersOf) {
		t.Fatalf("the client asked %d times, want %d", len(asked), len(answersOf))
	}
	for i, e := range asked {
		var want usage
		for range answersOf[i] {
			u := usageOf(t, views[0])
			want.input, want.output = u.input, want.output+u.output
			views = views[1:]
		}
		want.total = want.input + want.output
		if got := usageOf(t, e); got != want {
			t.Errorf("request %d: the client is told of %+v tokens, want %+v", i, got, want)
		}
	}
}

type usage struct{ input, output, total int }

// usageOf returns an answer's usage, zero if it has none. In a stream it is last.
func usageOf(t *testing.T, e exchange) (u usage) {
	t.Helper()
	for _, f := range []struct {
		names []string
		into  *int
	}{
		{[]string{"prompt_tokens", "input_tokens"}, &u.input},
		{[]string{"completion_tokens", "output_tokens"}, &u.output},
		{[]string{"total_tokens"}, &u.total},
	} {
		for _, name := range f.names {
			i := bytes.LastIndex(e.resp.body, []byte(`"`+name+`":`))
			if i < 0 {
				continue
			}
			if _, err := fmt.Sscanf(string(e.resp.body[i:]), `"`+name+`":%d`, f.into); err != nil {
				t.Fatal(err)
			}
		}
	}
	return u
}

// wantNotes are the model's notes in the last view of the conversation.
const wantNotes = `{"name":"Ada","city":"Paris","a":1,"b":2,"c":3,"d":4}`

// checkNotes checks upstream's last request: the notes, every call that made them, and its result.
func checkNotes(t *testing.T, name string, views []exchange) {
	t.Helper()
	if len(views) != 10 {
		t.Fatalf("upstream was asked %d times, want 10", len(views))
	}
	last := views[len(views)-1].req.body
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(wantNotes), "", "  "); err != nil {
		t.Fatal(err)
	}
	if want := strings.Trim(string(encode(t, pretty.String())), `"`); !bytes.Contains(last, []byte(want)) {
		t.Errorf("the last view lacks the notes %s: %.1000s", wantNotes, last)
	}
	if strings.Contains(name, "Previous") {
		return // upstream keeps what was called; it would have refused a call without its result
	}
	var r requestBody
	decode(t, last, &r)
	var calls, results int
	ids := make(map[string]bool)
	for _, it := range r.items(t) {
		for _, f := range facts(t, it) {
			kind, rest, _ := strings.Cut(f, " ")
			id, rest, _ := strings.Cut(rest, " ")
			switch {
			case kind == "call" && strings.HasPrefix(rest, "working-memory_update "):
				calls, ids[id] = calls+1, true
			case kind == "result" && ids[id]:
				results++
			}
		}
	}
	if calls != 6 || results != 6 {
		t.Errorf("the last view has %d calls and %d results of the model's own tool, want 6 of each: %.2000s", calls, results, last)
	}
}

// notesScript is the conversation in testdata/node/layers.mjs.
var notesScript = []string{
	`SAY Looking. ;; CALL lookup {"q":"a"} | working-memory_update {"name":"Ada"} | weather {"city":"Bern"} ;; SAY Found both.`,
	`REASON I should note that ;; SAY I note that. ;; CALL working-memory_update {"city":"Paris"} ;; SAY Noted.`,
	`CALL working-memory_update {"a":1} ;; CALL working-memory_update {"b":2} | working-memory_update {"c":3} ;; ` +
		`REASON now look ;; CALL lookup {"q":"b"} ;; CALL working-memory_update {"d":4} | lookup {"q":"c"} ;; SAY Done with it.`,
	`SAY Bye.`,
}

// goNotes are the scenarios of taken for openai-go.
var goNotes = map[string]func(goContext) (any, error){
	"go.notes":                func(c goContext) (any, error) { return chatNotes(c, false) },
	"go.notesStream":          func(c goContext) (any, error) { return chatNotes(c, true) },
	"go.notesResponses":       func(c goContext) (any, error) { return responsesNotes(c, false) },
	"go.notesResponsesStream": func(c goContext) (any, error) { return responsesNotes(c, true) },
}

// scenariosOf returns the named scenarios; without names, all that need no layers.
func scenariosOf(only []string) map[string]func(goContext) (any, error) {
	all := maps.Clone(goScenarios)
	if len(only) > 0 {
		maps.Copy(all, goNotes)
		maps.DeleteFunc(all, func(name string, _ func(goContext) (any, error)) bool { return !slices.Contains(only, name) })
	}
	return all
}

func chatNotes(c goContext, stream bool) (any, error) {
	p := chatAsk("")
	p.Messages, p.Tools = nil, chatTools()
	turns := []said{}
	for _, line := range notesScript {
		p.Messages = append(p.Messages, openai.UserMessage(line))
		for {
			m, _, err := chatTurn(c, p, stream)
			if err != nil {
				return turns, err
			}
			turn := said{m.Content, [][2]string{}}
			p.Messages = append(p.Messages, m.ToParam())
			for _, call := range m.ToolCalls {
				turn.Calls = append(turn.Calls, [2]string{call.Function.Name, call.Function.Arguments})
				p.Messages = append(p.Messages, openai.ToolMessage(says(call.Function.Name, call.Function.Arguments), call.ID))
			}
			turns = append(turns, turn)
			if len(m.ToolCalls) == 0 {
				break
			}
		}
	}
	return turns, nil
}

func responsesNotes(c goContext, stream bool) (any, error) {
	p := responses.ResponseNewParams{Model: goResponsesModel, Tools: responsesTools(), Store: openai.Bool(false)}
	turns := []said{}
	for _, line := range notesScript {
		p.Input.OfInputItemList = append(p.Input.OfInputItemList,
			responses.ResponseInputItemParamOfMessage(line, responses.EasyInputMessageRoleUser))
		for {
			r, err := respond(c, p, stream)
			if err != nil {
				return turns, err
			}
			turn := said{r.OutputText(), [][2]string{}}
			for _, item := range r.Output {
				if item.Type == "reasoning" {
					continue // upstream would refuse it: it is neither stored nor sealed
				}
				p.Input.OfInputItemList = append(p.Input.OfInputItemList,
					param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(item.RawJSON())))
				if item.Type == "function_call" {
					turn.Calls = append(turn.Calls, [2]string{item.Name, item.Arguments.OfString})
				}
			}
			turns = append(turns, turn)
			answers := results(r)
			if p.Input.OfInputItemList = append(p.Input.OfInputItemList, answers...); len(answers) == 0 {
				break
			}
		}
	}
	return turns, nil
}

// respond returns one answer; if it is streamed, from the terminal event.
func respond(c goContext, p responses.ResponseNewParams, stream bool) (*responses.Response, error) {
	if !stream {
		return c.client.Responses.New(c.ctx, p)
	}
	s := c.client.Responses.NewStreaming(c.ctx, p)
	defer func() { _ = s.Close() }() // its error is the stream's
	var last responses.Response
	for s.Next() {
		if e := s.Current(); e.Type == "response.completed" {
			last = e.Response
		}
	}
	if s.Err() == nil && last.ID == "" {
		return nil, fmt.Errorf("the stream has no end")
	}
	return &last, s.Err()
}
