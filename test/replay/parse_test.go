package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
)

const recording = `{"session":"one","instructions":"be brief","tools":[{"name":"run","parameters":{"type":"object"}}]}
{"type":"message","role":"user","content":"go"}
{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I run it."}]}
{"type":"function_call","call_id":"c1","name":"run","arguments":"{}"}
{"type":"function_call","call_id":"c2","name":"look","arguments":"{\"at\":1}"}
{"type":"function_call_output","call_id":"c1","output":"ok"}
{"type":"function_call_output","call_id":"c2","output":"seen"}
{"type":"client_compaction","text":"so far","keep":1}
{"type":"layer_call","name":"working-memory_update","arguments":"{\"k\":1}"}

{"type":"message","role":"assistant","content":"Done."}
{"type":"message","role":"user","content":"never answered"}
`

// chatRecording is recording in Chat messages, without items that Chat does not have.
const chatRecording = `{"session":"one","tools":[{"name":"run","parameters":{"type":"object"}}]}
{"role":"system","content":"be brief"}
{"role":"user","content":"go"}
{"role":"assistant","content":"I run it.","tool_calls":[{"id":"c1","type":"function","function":{"name":"run","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"look","arguments":"{\"at\":1}"}}]}
{"role":"tool","tool_call_id":"c1","content":"ok"}
{"role":"tool","tool_call_id":"c2","content":"seen"}
{"role":"assistant","content":"Done."}
`

// export is the output of `remora transcript`. Only the visible line of the conversation is replayed.
const export = `{"session":{"remora_transcript":2,"head":9,"items":9,"state":"AA=="}}
{"item":{"seq":1,"dialect":"chat","on_head":true,"json":{"role":"user","content":"go"}}}
{"item":{"seq":2,"dialect":"chat","json":{"role":"assistant","content":"another branch"}}}
{"item":{"seq":3,"dialect":"chat","on_head":true,"hidden":true,"json":{"role":"tool","tool_call_id":"x","content":"of a layer"}}}
{"item":{"seq":4,"dialect":"chat","on_head":true,"raw":"eyJyb2xlIjoiYXNzaXN0YW50IiwiY29udGVudCI6IkRvbmUuIn0="}}
{"system_prompt":{"hash":"00","record":{}}}
{"turn":{"id":"t"}}
`

// told is a parsed step, for comparisons.
type told struct {
	Input  []string
	Notes  []scripted.Call
	Answer scripted.Answer
}

func tell(s *session) []told {
	var all []told
	for _, st := range s.steps {
		t := told{Notes: st.notes, Answer: st.answer}
		for _, in := range st.input {
			if in.compact != nil {
				t.Input = append(t.Input, "compacted: "+in.compact.Text)
			} else {
				t.Input = append(t.Input, in.item.Answers().ID+": "+in.item.Text())
			}
		}
		all = append(all, t)
	}
	return all
}

func TestParse(t *testing.T) {
	calls := []scripted.Call{{Name: "run", Arguments: "{}", ID: "c1"}, {Name: "look", Arguments: `{"at":1}`, ID: "c2"}}
	results := []string{"c1: ok", "c2: seen"}
	for _, c := range []struct {
		name, in, instructions string
		want                   []told
	}{
		{"items", recording, "be brief", []told{
			{Input: []string{": go"}, Answer: scripted.Answer{Reasoning: "hm", Text: "I run it.", Calls: calls}},
			{
				Input: append(results, "compacted: so far"), Notes: []scripted.Call{{Name: "working-memory_update", Arguments: `{"k":1}`}},
				Answer: scripted.Answer{Text: "Done."},
			},
		}},
		{"chat messages", chatRecording, "be brief", []told{
			{Input: []string{": go"}, Answer: scripted.Answer{Text: "I run it.", Calls: calls}},
			{Input: results, Answer: scripted.Answer{Text: "Done."}},
		}},
		{"exported transcript", export, "", []told{{Input: []string{": go"}, Answer: scripted.Answer{Text: "Done."}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parse(strings.NewReader(c.in), "file")
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if diff := cmp.Diff(c.want, tell(got[0])); diff != "" {
				t.Error(diff)
			}
			if got[0].instructions != c.instructions {
				t.Errorf("instructions %q", got[0].instructions)
			}
		})
	}
	// A called tool is offered even if the recording does not define it.
	s, err := parse(strings.NewReader(recording), "file")
	if err != nil || len(s[0].tools) != 2 || s[0].tools[1].Name != "look" {
		t.Errorf("tools %+v, %v", s, err)
	}
}

func TestParseErrorsNameLineAndField(t *testing.T) {
	user := `{"role":"user","content":"go"}` + "\n"
	for in, want := range map[string]string{
		"":                            "line 1: no session",
		user:                          "session 1 of 1: no answer of a model",
		"secret":                      "line 1: want a JSON object",
		user + `["secret"]`:           "line 2: want a JSON object",
		user + `{"content":"secret"}`: "line 2: type, role: want one of them",
		`{"role":"assistant","content":"secret"}`:                                   "line 1: role: the first item must be a user message",
		user + `{"type":"function_call","name":"secret","arguments":"{}"}`:          "line 2: name, call_id: missing",
		user + `{"type":"client_compaction","keep":1}`:                              "line 2: text: missing",
		user + `{"type":"client_compaction","text":"secret","keep":-1}`:             "line 2: keep: want 0 or more",
		user + `{"type":"client_compaction","text":"secret","keep":"1"}`:            "line 2: keep: want another type than string",
		user + `{"type":"layer_call","arguments":"{}"}`:                             "line 2: name: missing",
		user + `{"type":"layer_call","name":"secret","arguments":"secret"}`:         "line 2: arguments: want a string of JSON",
		`{"session":"a","tools":[{"parameters":{}}]}`:                               "line 1: tools[0].name: missing",
		`{"session":"a","tools":[{"name":"secret","parameters":"secret"}]}`:         "line 1: tools[0].parameters: want an object",
		`{"session":"a","tools":{}}`:                                                "line 1: tools: want another type than object",
		`{"item":{"on_head":true,"dialect":"secret","json":{}}}`:                    "line 1: item.dialect: want chat or responses",
		user + `{"content":"` + strings.Repeat("long", maxLine/4) + `","role":"x"}`: "line 2: longer than 16777216 bytes",
	} {
		if _, err := parse(strings.NewReader(in), "file"); err == nil || err.Error() != want {
			t.Errorf("%.60s: %v, want %s", in, err, want)
		}
	}
}

// FuzzParse: any parsed recording can be sent as requests, and no error quotes it.
func FuzzParse(f *testing.F) {
	f.Add(recording)
	f.Add(chatRecording)
	f.Add(export)
	f.Fuzz(func(t *testing.T, in string) {
		all, err := parse(strings.NewReader(in), "file")
		if err != nil {
			return
		}
		for _, s := range all {
			if len(s.steps) == 0 {
				t.Fatal("a session without a request")
			}
			for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
				a := &agent{dialect: d, session: s}
				a.head = a.opening()
				for i := range s.steps {
					for _, in := range s.steps[i].input {
						if err := a.take(in); err != nil {
							return // this dialect does not have such items
						}
					}
					if _, err := wire.Parse(d, a.body()); err != nil {
						t.Fatalf("%v: %s", err, a.body())
					}
					a.answers++
					a.recall(&s.steps[i])
				}
			}
		}
	})
}
