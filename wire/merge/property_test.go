package merge_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"remora/wire"
	"remora/wire/dialects"
	. "remora/wire/merge"
	"remora/wire/wiretest"
)

// said is an answer as it is meant, which the streams and bodies of the tests are made of.
type said struct {
	text  []string
	calls []wire.Call
}

var drawSaid = rapid.Custom(func(t *rapid.T) said { //nolint:gochecknoglobals // a generator
	s := said{text: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b ", `\u0041\n`, "\u00e9"}), 0, 3).Draw(t, "text")}
	for range rapid.IntRange(0, 4).Draw(t, "calls") {
		id := rapid.StringMatching(`[a-z0-9]{8}`).Draw(t, "id") + strconv.Itoa(len(s.calls))
		name := rapid.SampledFrom([]string{"mem_find", "mem_store", "ls", "rm"}).Draw(t, "name")
		s.calls = append(s.calls, wire.Call{ID: id, Family: "function", Name: name})
	}
	if len(s.text)+len(s.calls) == 0 {
		s.text = []string{"x"}
	}
	return s
})

// stream is the answer as chunks or events, with the deltas of text and calls mixed by order.
func (s said) stream(t *rapid.T, d wire.Dialect, answer int) string {
	var lanes [][]string
	var text []string
	for _, piece := range s.text {
		text = append(text, `d {"content":"`+piece+`"}`)
	}
	full := strings.Join(s.text, "")
	var output []string
	if d == dialects.Responses && len(s.text) > 0 {
		text = nil
		item := fmt.Sprintf(`{"type":"message","id":"msg_%d","role":"assistant","content":[{"type":"output_text","text":"%s"}]}`, answer, full)
		output = append(output, item)
		text = append(text, `{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_`+fmt.Sprint(answer)+`","role":"assistant","content":[]}}`)
		for _, piece := range s.text {
			text = append(text, `{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"`+piece+`"}`)
		}
		text = append(text, `{"type":"response.output_item.done","output_index":0,"item":`+item+`}`)
	}
	lanes = append(lanes, text)
	for i, c := range s.calls {
		if d == dialects.Chat {
			lanes = append(lanes, []string{
				fmt.Sprintf(`d {"tool_calls":[{"index":%d,"id":"%s","type":"function","function":{"name":"%s","arguments":""}}]}`, i, c.ID, c.Name),
				fmt.Sprintf(`d {"tool_calls":[{"index":%d,"function":{"arguments":"{}"}}]}`, i),
			})
			continue
		}
		at := i + min(len(s.text), 1)
		item := fmt.Sprintf(`{"type":"function_call","id":"fc_%s","call_id":"%s","name":"%s","arguments":"{}"}`, c.ID, c.ID, c.Name)
		output = append(output, item)
		lanes = append(lanes, []string{
			fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":%s}`, at, strings.Replace(item, "{}", "", 1)),
			fmt.Sprintf(`{"type":"response.function_call_arguments.delta","output_index":%d,"delta":"{}"}`, at),
			fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, at, item),
		})
	}
	var script []string
	if d == dialects.Responses {
		script = append(script, `{"type":"response.created","response":{"id":"resp_`+fmt.Sprint(answer)+`","output":[]}}`)
	} else {
		script = append(script, `d {"role":"assistant","content":`+rapid.SampledFrom([]string{"null", `""`}).Draw(t, "content")+`}`)
	}
	begun := make([]bool, len(lanes)) // the deltas of calls come in any order, but calls begin in theirs
	for {
		var open []int
		for i, lane := range lanes {
			if len(lane) > 0 && (begun[i] || !slices.Contains(begun[:i], false) || i == 0) {
				open = append(open, i)
			}
			begun[i] = begun[i] || len(lane) == 0
		}
		if len(open) == 0 {
			if slices.ContainsFunc(lanes, func(l []string) bool { return len(l) > 0 }) {
				continue
			}
			break
		}
		i := rapid.SampledFrom(open).Draw(t, "lane")
		begun[i] = true
		script, lanes[i] = append(script, lanes[i][0]), lanes[i][1:]
	}
	if d == dialects.Responses {
		script = append(script, `{"type":"response.completed","response":{"id":"resp_`+fmt.Sprint(answer)+`","status":"completed","output":[`+strings.Join(output, ",")+`],"usage":{"completion_tokens":1}}}`)
	} else {
		script = append(script, "f "+s.reason(), `u {"completion_tokens":1}`, "[DONE]")
	}
	return stream(d, answer, strings.Join(script, "\n"))
}

func (s said) reason() string {
	if len(s.calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

// whole is the answer as a body.
func (s said) whole(d wire.Dialect, answer int) []byte {
	text := strings.Join(s.text, "")
	var parts []string
	if d == dialects.Responses {
		if len(s.text) > 0 {
			parts = append(parts, fmt.Sprintf(`{"type":"message","id":"msg_%d","role":"assistant","content":[{"type":"output_text","text":"%s"}]}`, answer, text))
		}
		for _, c := range s.calls {
			parts = append(parts, fmt.Sprintf(`{"type":"function_call","id":"fc_%s","call_id":"%s","name":"%s","arguments":"{}"}`, c.ID, c.ID, c.Name))
		}
		return fmt.Appendf(nil, `{"id":"resp_%d","status":"completed","output":[%s],"usage":{"completion_tokens":1}}`, answer, strings.Join(parts, ","))
	}
	for _, c := range s.calls {
		parts = append(parts, fmt.Sprintf(`{"id":"%s","type":"function","function":{"name":"%s","arguments":"{}"}}`, c.ID, c.Name))
	}
	calls := ""
	if len(parts) > 0 {
		calls = `,"tool_calls":[` + strings.Join(parts, ",") + `]`
	}
	return fmt.Appendf(nil, `{"id":"id%d","model":"m%d","choices":[{"index":0,"message":{"role":"assistant","content":"%s"%s},"finish_reason":"%s"}],"usage":{"completion_tokens":1}}`,
		answer, answer, text, calls, s.reason())
}

// TestSees: for any answer in any pieces, the client sees all text in order and exactly the calls that it may, streamed
// and not.
func TestSees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		answers := rapid.SliceOfN(drawSaid, 1, 3).Draw(rt, "answers")
		p := play{
			dialect: rapid.SampledFrom([]wire.Dialect{dialects.Chat, dialects.Responses}).Draw(rt, "dialect"),
			options: Options{Hide: hide, HoldCalls: rapid.Bool().Draw(rt, "calls"), HoldAll: rapid.Bool().Draw(rt, "all")},
			deny:    map[string]bool{},
		}
		judged := p.options.HoldCalls || p.options.HoldAll
		var text string
		var calls []string
		var bodies []Answer
		for i, a := range answers {
			p.answers = append(p.answers, a.stream(rt, p.dialect, i))
			bodies = append(bodies, Answer{Body: a.whole(p.dialect, i), Hidden: func(c wire.Call) bool { return hide(c.Name) || p.deny[c.ID] }})
			more := wire.Text([]byte(`"` + strings.Join(a.text, "") + `"`))
			if p.dialect == dialects.Chat && text != "" && more != "" && !strings.ContainsAny(text[len(text)-1:], " \n") {
				text += "\n\n" // not "I'll note that.Your dog is Rex."
			}
			text += more
			for _, c := range a.calls {
				deny := judged && c.Name == "rm"
				if deny {
					p.deny[c.ID] = true
				}
				if !hide(c.Name) && !deny {
					calls = append(calls, c.ID)
				}
			}
		}
		client, s := p.run(pieces(rapid.Uint64().Draw(rt, "seed")))
		audit(t, p, client, s)
		merged := s.Merged()
		check := func(r wire.Reply) {
			var gotText string
			var gotCalls []string
			for _, it := range slices.Concat(r.Choices...) {
				gotText += it.Text()
				if p.dialect == dialects.Chat && len(calls) == 0 && string(wire.Member(it.Raw, "content")) == "null" {
					rt.Errorf("neither text nor calls: %s", it.Raw)
				}
				for i, c := range it.Calls() {
					gotCalls = append(gotCalls, c.ID)
					if it.Input(i) != "{}" {
						rt.Errorf("call %s has input %q", c.ID, it.Input(i))
					}
				}
			}
			slices.Sort(gotCalls) // those that are held come later
			slices.Sort(calls)
			if d := cmp.Diff(text, gotText) + cmp.Diff(calls, gotCalls); d != "" {
				rt.Errorf("seen:\n%s", d)
			}
			if want := fmt.Sprintf(`{"completion_tokens":%d}`, len(answers)); string(r.Usage) != want || !r.Complete {
				rt.Errorf("usage %s, complete %v", r.Usage, r.Complete)
			}
			if p.dialect == dialects.Chat && (r.Finish == "tool_calls") != (len(calls) > 0) {
				rt.Errorf("finish reason %q with calls %v", r.Finish, calls)
			}
		}
		check(merged)
		body := Whole(p.dialect, bodies)
		whole := wiretest.Answer(rt, p.dialect, string(body))
		check(whole)
		if whole.ID != merged.ID {
			rt.Errorf("id %q, streamed %q", whole.ID, merged.ID)
		}
		if rt.Failed() {
			rt.Logf("client:\n%s\nbody: %s", client, body)
		}
	})
}

func TestWhole(t *testing.T) {
	t.Parallel()
	f := func(d wire.Dialect, want string, bodies ...string) {
		t.Helper()
		var answers []Answer
		for _, b := range bodies {
			rest, withheld := strings.CutPrefix(b, "!")
			answers = append(answers, Answer{[]byte(rest), withheld, hides})
		}
		if got := string(Whole(d, answers)); got != want {
			t.Errorf("%q:\n got %s\nwant %s", bodies, got, want)
		}
	}
	one := " { \"id\":\"a\" ,\"choices\":[ {\"index\":0,\"message\":{\"content\":\"x\" , \"tool_calls\":[ {\"id\":\"1\",\"function\":{\"name\":\"f\"}} ]}} ] , \"usage\":{\"n\":1.0} }\n"
	f(dialects.Chat, one, one)
	f(dialects.Chat, `{"error":{}}`, one, `{"error":{}}`)
	f(dialects.Chat, `<html>`, one, `<html>`)
	f(dialects.Chat, ``)
	f(dialects.Chat, ``, "!"+one)
	f(dialects.Chat, `{"id":"b","choices":[{"message":{"content":"b"},"finish_reason":"stop"}],"usage":{"n":3}}`,
		`!{"id":"a","choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"n":1}}`,
		`{"id":"b","choices":[{"message":{"content":"b"},"finish_reason":"stop"}],"usage":{"n":2}}`)
	f(dialects.Chat, `{"id":"a","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a\n\nb","reasoning_details":[1,2],"reasoning":"r","x":2,"tool_calls":[{"id":"3","custom":{"name":"g"}}]},"finish_reason":"tool_calls"},{"index":1,"message":{"content":"B"}}],"new":1}`,
		`{"id":"a","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a","reasoning_details":[1 ],"reasoning":null,"x":1,"tool_calls":[{"id":"1","function":{"name":"mem_x"}}]},"finish_reason":"tool_calls"},{"index":1,"message":{"content":"B"}}]}`,
		`{"id":"b","model":"n","choices":[{"index":0,"message":{"role":"assistant","content":"b","reasoning_details":[ 2],"reasoning":"r","x":2,"tool_calls":[{"id":"2","function":{"name":"mem_x"}},{"id":"3","custom":{"name":"g"}}]},"finish_reason":"tool_calls"},{"index":1,"message":{"content":"again"}}],"new":1}`)
	f(dialects.Chat, `{"choices":[{"message":{"content":"ab"},"logprobs":{"content":[{"token":"a"},{"token":"b"}],"refusal":null},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"content":"a"},"logprobs":{"content":[{"token":"a"}],"refusal":null},"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"message":{"content":"b"},"logprobs":{"content":[{"token":"b"}],"refusal":null},"finish_reason":"stop"}]}`)
	f(dialects.Chat, `{"choices":[{"message":{"content":"b"},"logprobs":{"content":[{"token":"b"}]},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"content":null},"logprobs":null,"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"message":{"content":"b"},"logprobs":{"content":[{"token":"b"}]},"finish_reason":"stop"}]}`)
	f(dialects.Chat, `{"choices":[{"message":{"refusal":null,"content":""},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"refusal":null,"content":null,"tool_calls":[{"id":"1","function":{"name":"mem_x"}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"name":"mem_x"}}]},"finish_reason":"tool_calls"}]}`)
	f(dialects.Chat, `{"choices":[{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","function":{"name":"mem_x"}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"message":{"refusal":"no"},"finish_reason":"stop"}]}`)
	f(dialects.Chat, `{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","function":{"name":"mem_x"}}],"function_call":{"name":"mem_y"}},"finish_reason":"tool_calls"}]}`)
	hidden := `{"id":"a","choices":[{"message":{"content":"a","tool_calls":[{"id":"1","function":{"name":"mem_x"}}]},"logprobs":null,"finish_reason":"tool_calls"}]}`
	f(dialects.Chat, `{"id":"b","error":{}}`, hidden, `{"id":"b","error":{}}`)
	f(dialects.Chat, `{"id":"a","choices":[{"message":{"content":"a","tool_calls":[{"id":"2","function":{"name":"f"}}]},"logprobs":null,"finish_reason":"tool_calls"},{"index":1,"message":{"content":"B"}}]}`,
		hidden,
		`{"id":"b","choices":[{"message":{"content":null,"tool_calls":[{"id":"2","function":{"name":"f"}}]},"logprobs":null,"finish_reason":"tool_calls"},{"index":1,"message":{"content":"B"}}]}`)
	// Without an index, choices have that of their position.
	f(dialects.Chat, `{"id":"a","choices":[{"message":{"content":"a\n\nb"}},{"message":{"content":"B"}}]}`,
		`{"id":"a","choices":[{"message":{"content":"a","tool_calls":[{"id":"1","function":{"name":"mem_x"}}]}},{"message":{"content":"B"}}]}`,
		`{"id":"b","choices":[{"message":{"content":"b"}},{"message":{"content":"again"}}]}`)
	f(dialects.Chat, `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"2","function":{"name":"f"}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","custom":{"name":"mem_x"}},{"id":"2","function":{"name":"f"}}]},"finish_reason":"tool_calls"}]}`)
	f(dialects.Chat, `{"choices":[{"message":{"content":null,"function_call":{"name":"f"}},"finish_reason":"function_call"}]}`,
		`{"choices":[{"message":{"content":null,"function_call":null,"tool_calls":[{"id":"1","function":{"name":"mem_x"}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"message":{"content":null,"function_call":{"name":"f"}},"finish_reason":"function_call"}]}`)
	f(dialects.Chat, `{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"content":null,"function_call":{"name":"mem_x"}},"finish_reason":"function_call"}]}`)
	f(dialects.Chat, `{"choices":[{"message":{"content":"","function_call":null},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"content":null,"function_call":null,"tool_calls":[{"id":"1","function":{"name":"mem_x"}}]},"finish_reason":"tool_calls"}]}`)
	for _, same := range []string{
		`{"choices":[{"message":{"content":null,"tool_calls":[]},"finish_reason":"length"}]}`,
		`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"2","function":{"name":"f"}}]},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":null,"finish_reason":"length"}]}`,
	} {
		f(dialects.Chat, same, same)
	}
	f(dialects.Responses, `{"id":"r0","created_at":1,"output":[{"type":"reasoning"},{"type":"message"}],"status":"incomplete"}`,
		`{"id":"r0","created_at":1,"output":[{"type":"reasoning"},{"type":"function_call","call_id":"1","name":"mem_x"}],"status":"completed"}`,
		`{"id":"r1","created_at":2,"output":[{"type":"message"}],"status":"incomplete"}`)
	f(dialects.Responses, `{"id":"r0","output":[ {"type":"message"} ] }`, `{"id":"r0","output":[ {"type":"message"} ] }`)
	f(dialects.Responses, `{"error":{"code":"x"}}`, `{"id":"r0","output":[]}`, `{"error":{"code":"x"}}`)
	// An identity that says nothing is none.
	for _, none := range []string{`"id":null,`, `"id":"",`, ``} {
		f(dialects.Responses, `{"id":"r1","output":[{"type":"message"}]}`,
			`{`+none+`"output":[{"type":"function_call","call_id":"1","name":"mem_x"}]}`, `{"id":"r1","output":[{"type":"message"}]}`)
	}
	// Answers without a hidden call.
	visible := []byte(`{"id":"a","choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"n":1}}`)
	if got := Whole(dialects.Chat, []Answer{{Body: visible, Withheld: true}}); got != nil {
		t.Errorf("a withheld answer: %s", got)
	}
	want := `{"id":"a","choices":[{"message":{"content":"a\n\na","tool_calls":[{"id":"1","function":{"name":"mem_x"}}]},"finish_reason":"stop"}],"usage":{"n":2}}`
	calling := strings.Replace(string(visible), `"a"}`, `"a","tool_calls":[{"id":"1","function":{"name":"mem_x"}}]}`, 1)
	if got := string(Whole(dialects.Chat, []Answer{{Body: visible}, {Body: []byte(calling)}})); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	f(dialects.Responses, `{"id":"e","error":{"code":"x"}}`, `{"id":"r0","output":[]}`, `{"id":"e","error":{"code":"x"}}`)
	f(dialects.Responses, `{"id":"r0","tools":[{"name":"f"}],"output":[{"type":"message"}]}`,
		`{"id":"r0","tools":[{"name":"f"}],"output":[{"type":"function_call","call_id":"1","name":"mem_x"}]}`,
		`{"id":"r1","tools":[{"name":"f"}],"output":[{"type":"message"}]}`)
	f(dialects.Responses, `{"id":"r0","output":null}`, `{"id":"r0","output":[{"type":"message"}]}`, `{"id":"r1","output":null}`)
}

// TestCallWithoutID: a hidden call that has no id hides nothing else.
func TestCallWithoutID(t *testing.T) {
	t.Parallel()
	const message = `{"type":"message","role":"assistant","content":[]}`
	body := `{"output":[` + message + `,{"type":"function_call","name":"mem_x","arguments":"{}"}]}`
	got := Whole(dialects.Responses, []Answer{{Body: []byte(body), Hidden: func(c wire.Call) bool { return c.ID == "" }}})
	if want := `{"output":[` + message + `]}`; string(got) != want {
		t.Errorf("got %s", got)
	}
}

// FuzzMerge: any bytes as two answers. What comes out does not depend on chunks, folds to Merged and holds no hidden
// call; a single answer with nothing to hide is the same bytes.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(stream(dialects.Chat, 0, `d {"role":"assistant","tool_calls":[{"index":0,"id":"a","function":{"name":"mem_x","arguments":"{}"}}],"function_call":{"name":"f"}}`+"\nf tool_calls\n[DONE]")), 50, uint64(1), uint8(3))
	f.Add([]byte(stream(dialects.Responses, 0, `{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","name":"mem_x"}}`+"\n"+`{"type":"response.completed","response":{"output":[{"type":"function_call","name":"f"}],"usage":{"a":1}}}`)), 50, uint64(2), uint8(4))
	f.Add([]byte("data: {\"choices\":{\"a\":{\"delta\":{\"tool_calls\":{\"x\":{\"id\":\"q\"}},\"function_call\":1}}},\"choices\":[[],1,null,{\"index\":7}],\"usage\":{ }}\r\n\r\ndata:\ndata\n\n: x\r\rdata: [DONE]"), 9, uint64(3), uint8(1))
	const hidden = `{"tool_calls":[{"id":"a","function":{"name":"mem_x"}},{"id":"b","function":{"name":"f"}}]}`
	f.Add([]byte(stream(dialects.Chat, 0, `{"choices":[{"delta":`+hidden+`,"delta":{"tool_calls":[{"id":"c"}]}},{"message":`+hidden+`,"message":{"tool_calls":[{"id":"c"}]}}]}`)), 1<<20, uint64(4), uint8(1))
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for i, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		p, _ := read(f, archive)
		f.Add([]byte(strings.Join(p.answers, "")), len(p.answers[0]), uint64(i), uint8(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, at int, seed uint64, mode uint8) {
		at = max(0, min(at, len(data)))
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			if got, s := (play{dialect: d, answers: []string{string(data)}}).run(pieces(seed)); got != string(data) {
				t.Fatalf("%q becomes %q, degraded %v", data, got, s.Degraded())
			}
			p := play{dialect: d, answers: []string{string(data[:at]), string(data[at:])}, deny: map[string]bool{"a": true}}
			p.options = Options{HoldCalls: mode&2 != 0, HoldAll: mode&4 != 0}
			if mode&1 != 0 {
				p.options.Hide = hide
			}
			want, s := p.run(inOne)
			merged := s.Merged()
			got, s := p.run(pieces(seed))
			if d := cmp.Diff(want, got) + cmp.Diff(merged, s.Merged()); d != "" {
				t.Fatalf("in pieces:\n%s", d)
			}
			folder := wire.NewFolder(d)
			folder.Write([]byte(want))
			if d := cmp.Diff(folder.Reply(), merged); d != "" {
				t.Fatalf("merged:\n%s", d)
			}
			if mode&1 != 0 && len(merged.Choices) > 0 {
				for _, it := range merged.Choices[0] {
					for _, c := range it.Calls() {
						if hide(c.Name) && len(merged.Choices) == 1 {
							t.Fatalf("%q shows call %v", want, c)
						}
					}
				}
			}
			Whole(d, []Answer{{Body: data[:at], Hidden: hides}, {Body: data[at:], Withheld: mode&8 != 0, Hidden: hides}})
		}
	})
}
