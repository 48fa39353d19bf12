package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// send returns what a turn sends in a shape, and records it.
func send(turn *memory.Turn, s view.Shape) view.Sent {
	sent := turn.Sent(s)
	turn.Record(s, sent)
	return sent
}

// TestRecordShowsForms: for each form, the turn's record shows the view as it was sent, the transcript has the client's
// items, and the summary counts the changed ones.
func TestRecordShowsForms(t *testing.T) {
	for form := view.AsIs; form <= view.NoSystem; form++ {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			t.Run(fmt.Sprintf("%s %s", form, d), func(t *testing.T) {
				a, b := &announcer{"<a>0</a>"}, &announcer{"<b>0</b>"}
				config := view.DefaultPromptCache()
				config.DeltaBudgetFraction = 1
				l := newLab(t, memory.Options{Shape: memory.Shape{PromptCache: &config, Layers: layersOf(t,
					pipeline.Layer{ID: "a", Scope: layer.Thread, Placement: layer.Anchored, Impl: a},
					pipeline.Layer{ID: "b", Scope: layer.Thread, Placement: layer.Live, Impl: b},
				)}})
				begin := func(words string) *memory.Turn {
					body := `{"model":"m","messages":[` + messages(words) + `]}`
					if d == dialects.Responses {
						body = `{"model":"m","instructions":"Be kind.","input":[` + messages(words) + `]}`
					}
					req := wiretest.Request(t, d, body)
					turn, err := l.m.Begin(context.Background(), memory.Call{Scope: scope, Request: req})
					if err != nil {
						t.Fatal(err)
					}
					return turn
				}
				said := "s:long-" + strings.Repeat("x-", 600) + " u:1"
				for n := range 3 {
					a.text, b.text = fmt.Sprintf("<a>%d</a>", n), fmt.Sprintf("<b>%d</b>", n)
					turn := begin(said)
					before := turn.Summary.Repaired
					send(turn, view.Shape{Form: view.NoSystem}) // another provider was tried before
					sent := send(turn, view.Shape{Form: form})
					if got := turn.Summary.Repaired - before; got != sent.Repaired || (got > 0) != (form > view.Joined) {
						t.Errorf("repaired: %d, of the form %d", got, sent.Repaired)
					}
					turn.Commit(answer(t, fmt.Sprintf("a:%d", n)))
					want := raws(sent.Items)
					if text := wire.Text(sent.Instructions); text != "" {
						want = append([]string{string(wire.NewMessage(d, wire.System, text).Raw)}, want...)
					}
					shown, err := l.m.TurnView(context.Background(), scope, turn.ID)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(want, raws(shown)); diff != "" {
						t.Errorf("turn %d (-sent +shown):\n%s", n, diff)
					}
					said += fmt.Sprintf(" a:%d u:%d", n, n+2)
				}
				if line, _ := l.transcript(scope); line != "u:1 a:0 u:2 a:1 u:3 a:2" {
					t.Errorf("line %s", line)
				}
			})
		}
	}
}

// TestStoredItemsAreNotRepaired: where the form changes stored items alone, nothing of the client's was repaired.
func TestStoredItemsAreNotRepaired(t *testing.T) {
	for says, want := range map[string]int{"u:3": 0, "u:3 u:4": 2, "s:y u:3": 0} {
		l := newLab(t, memory.Options{})
		l.turn("s:x u:1 u:2", "a:2")
		turn := l.begin(memory.Call{History: memory.HistoryServer}, says)
		if sent := turn.Sent(view.Shape{Form: view.Alternate}); sent.Repaired != want {
			t.Errorf("%s: %d repaired, want %d in %s", says, sent.Repaired, want, told(t, sent.Items))
		}
		turn.Commit(answer(t, "a:4"))
	}
}

// TestPortableViewIsShown: where the stored items were sent in the form that any provider takes, the turn's record shows them
// so, and the client's own items as they came.
func TestPortableViewIsShown(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	l.respond("["+userHi+"]", "", "["+reason1+","+call1+"]")
	l.respond("["+result1+"]", "", "["+done1+"]")
	req := wiretest.Request(t, dialects.Responses, `{"model":"m","input":[{"type":"message","id":"msg_u","role":"user","content":"more"}]}`)
	turn, err := l.m.Begin(context.Background(), memory.Call{Scope: scope, Request: req})
	if err != nil {
		t.Fatal(err)
	}
	sent := raws(send(turn, view.Shape{Portable: true}).Items)
	want := []string{
		userHi, `{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\": 1}","status":"completed"}`, result1,
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done","annotations":[],"logprobs":[]}]}`,
		`{"type":"message","id":"msg_u","role":"user","content":"more"}`,
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("-want +sent:\n%s", diff)
	}

	turn.Commit(answer(t, "a:1"))
	shown, err := l.m.TurnView(context.Background(), scope, turn.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, raws(shown)); diff != "" {
		t.Errorf("-sent +shown:\n%s", diff)
	}
}

// TestExpiredSoundIsTold: what a client resends of an answer's sound is sent as its transcript once upstream has refused it.
func TestExpiredSoundIsTold(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	const whole, id = `{"role":"assistant","content":null,"audio":{"id":"a1","data":"QUE=","transcript":"hello"}}`, `{"role":"assistant","content":null,"audio":{"id":"a2"}}`
	req := wiretest.Request(t, dialects.Chat, `{"model":"m","messages":[{"role":"user","content":"1"},`+whole+`,{"role":"user","content":"2"},`+id+`,{"role":"user","content":"3"}]}`)
	turn, err := l.m.Begin(context.Background(), memory.Call{Scope: scope, Request: req})
	if err != nil {
		t.Fatal(err)
	}
	sent := send(turn, view.Shape{Portable: true, Own: true})
	want := []string{
		`{"role":"user","content":"1"}`, `{"role":"assistant","content":"hello"}`, `{"role":"user","content":"2"}`,
		`{"role":"assistant","content":"(a sound)"}`, `{"role":"user","content":"3"}`,
	}
	if diff := cmp.Diff(want, raws(sent.Items)); diff != "" || sent.Repaired != 2 {
		t.Errorf("repaired: %d, -want +sent:\n%s", sent.Repaired, diff)
	}
}

// TestViewWithoutMediaIsShown: words stand in the places of the pictures that the model has answered, stored and resent ones, and
// the turn's record shows them so.
func TestViewWithoutMediaIsShown(t *testing.T) {
	t.Parallel()
	message := func(role, text string) string {
		return fmt.Sprintf(`{"role":%q,"content":%s}`, role, text)
	}
	picture := func(name string) string {
		return message("user", `[{"type":"image_url","image_url":{"url":"https://x/`+name+`"}}]`)
	}
	first, answered, second, said := picture("1"), message("assistant", `"0"`), picture("2"), message("user", `"(an image)"`)
	for name, tt := range map[string]struct {
		sends    string
		repaired int
	}{
		"only what is new": {second, 0},
		"all of it":        {first + "," + answered + "," + second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, memory.Options{})
			l.beginJSON(memory.Call{}, first, "").Commit(answer(t, "a:0"))
			turn := l.beginJSON(memory.Call{}, tt.sends, "")
			sent := send(turn, view.Shape{NoMedia: true})
			if got := raws(sent.Items); len(got) != 3 || got[0] != said || got[2] != second || sent.Repaired != tt.repaired {
				t.Errorf("sent %d repaired: %v", sent.Repaired, got)
			}

			turn.Commit(answer(t, "a:1"))
			shown, err := l.m.TurnView(context.Background(), scope, turn.ID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(raws(sent.Items), raws(shown)); diff != "" {
				t.Errorf("-sent +shown:\n%s", diff)
			}
		})
	}
}

// TestRecordShowsRequestThatWentAsItCame: a view that cannot be encoded is not shown as sent, neither stored history nor a layer's block,
// unless another form of it is sent afterwards.
func TestRecordShowsRequestThatWentAsItCame(t *testing.T) {
	for says, history := range map[string]memory.History{
		"s:x u:3": memory.HistoryServer, "s:x u:1 a:1 u:2 a:2 u:3": memory.HistoryAuto, "u:2 a:2 u:3": memory.HistoryAuto,
	} {
		for _, sentAgain := range []bool{false, true} {
			t.Run(fmt.Sprint(says, sentAgain), func(t *testing.T) {
				l := newLab(t, memory.Options{Shape: memory.Shape{Window: &view.Window{MaxItems: 2, EvictBatch: 1}, Layers: layersOf(t,
					pipeline.Layer{ID: "a", Scope: layer.Thread, Placement: layer.Live, Impl: &announcer{"<a>1</a>"}},
				)}})
				l.turn("s:x u:1", "a:1")
				l.turn("s:x u:1 a:1 u:2", "a:2")

				turn := l.begin(memory.Call{History: history}, says)
				var came []string
				for word := range strings.FieldsSeq(says) {
					came = append(came, say(word))
				}
				send(turn, view.Shape{Form: view.Joined}) // another provider was tried before
				want := memory.Summary{Status: memory.StatusDegraded, Items: len(came), Sent: len(came)}
				if diff := cmp.Diff(want, turn.RecordAsCame()); diff != "" {
					t.Errorf("-want +have:\n%s", diff)
				}
				tokens, shown := 0, came
				if sentAgain {
					sent := send(turn, view.Shape{Form: view.Joined})
					tokens, shown = turn.Summary.Recalled, raws(sent.Items)
				}
				turn.Commit(answer(t, "a:3"))

				have, err := l.m.TurnView(t.Context(), scope, turn.ID)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(shown, raws(have)); diff != "" {
					t.Errorf("-sent +shown:\n%s", diff)
				}
				if r := l.records(); r[len(r)-1].Layers[0].Tokens != tokens || !sentAgain && r[len(r)-1].View.Windowed > 0 {
					t.Errorf("want %d tokens of the layer in %+v", tokens, r[len(r)-1])
				}
				l.wantTranscript("u:1 a:1 u:2 a:2 u:3 a:3", 6)
			})
		}
	}
}

// TestStoredCallsStayOutWithoutTools: the form for upstreams that refuse calls where no tools are offered has no stored call
// and no stored result, but for the call that the client's own result answers.
func TestStoredCallsStayOutWithoutTools(t *testing.T) {
	t.Parallel()
	const tools = `[{"type":"function","function":{"name":"f"}}]`
	said := func(calls string) memory.Answer {
		it := wiretest.Parse(t, dialects.Chat, `{"role":"assistant","content":null,"tool_calls":[`+calls+`]}`)
		return memory.Answer{HTTPStatus: 200, Reply: wire.Reply{Complete: true, Finish: "tool_calls", Choices: [][]wire.Item{{it}}}}
	}
	const a, b = `{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}`, `{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}`
	result := func(id string) string {
		return `{"role":"tool","tool_call_id":"` + id + `","content":"` + strings.Repeat(id+" ", 200) + `"}`
	}
	const shortened = `{"role":"tool","tool_call_id":"b","content":"b \n[... 396 characters left out ...]\nb "}`
	for name, tt := range map[string]struct {
		messages, tools string
		want            []string
	}{
		"no tools": {messages("u:sum-up"), "", []string{`{"role":"user","content":"go"}`, `{"role":"assistant","content":"done"}`, `{"role":"user","content":"sum-up"}`}},
		"tools":    {messages("u:sum-up"), tools, nil},
		"the client's own result": {
			result("b") + "," + messages("u:sum-up"), "",
			[]string{
				`{"role":"user","content":"go"}`, `{"role":"assistant","content":null,"tool_calls":[` + b + `]}`, shortened,
				`{"role":"assistant","content":"done"}`, `{"role":"user","content":"sum-up"}`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, memory.Options{Shape: memory.Shape{ToolResult: 10}})
			l.beginWith(memory.Call{}, "u:go", tools).Commit(said(a + "," + b))
			results := result("a")
			if name != "the client's own result" {
				results += "," + result("b")
			}
			l.beginJSON(memory.Call{}, results, tools).Commit(answer(t, "a:done"))

			turn := l.beginJSON(memory.Call{}, tt.messages, tt.tools)
			whole := raws(send(turn, view.Shape{}).Items)
			want := tt.want
			if want == nil {
				want = whole
			}
			sent := raws(send(turn, view.Shape{Portable: true, NoCalls: true}).Items)
			if diff := cmp.Diff(want, sent); diff != "" {
				t.Errorf("-want +sent:\n%s", diff)
			}
			turn.Commit(answer(t, "a:1"))
			shown, err := l.m.TurnView(t.Context(), scope, turn.ID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(sent, raws(shown)); diff != "" {
				t.Errorf("-sent +shown:\n%s", diff)
			}
		})
	}
}

// TestThoughtsAreShownAsSent: a turn's view is shown without the thoughts and the marks that stored items have and the view had not.
func TestThoughtsAreShownAsSent(t *testing.T) {
	l := newLab(t, memory.Options{})
	for n, said := range []struct{ asked, answered string }{
		{`{"role":"user","content":[{"type":"text","text":"1","cache_control":{"type":"ephemeral"}}]}`, `{"role":"assistant","content":"<think>hm</think>One."}`},
		{`{"role":"user","content":"2"}`, `{"role":"assistant","reasoning_content":"hm","content":"Two."}`},
		{`{"role":"user","content":"3"}`, `{"role":"assistant","reasoning_content":"hm","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`},
		{`{"role":"tool","tool_call_id":"c","content":"x"}`, `{"role":"assistant","reasoning_content":"found","content":"Three."}`},
		{`{"role":"user","content":"4"}`, `{"role":"assistant","content":"Four."}`},
	} {
		turn := l.beginJSON(memory.Call{}, said.asked, "")
		sent := send(turn, view.Shape{})
		it := wiretest.Parse(t, dialects.Chat, said.answered)
		turn.Commit(memory.Answer{HTTPStatus: 200, Reply: wire.Reply{Complete: true, Choices: [][]wire.Item{{it}}}})
		shown, err := l.m.TurnView(t.Context(), scope, turn.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(raws(sent.Items), raws(shown)); diff != "" {
			t.Errorf("turn %d (-sent +shown):\n%s", n+1, diff)
		}
		if n == 4 && strings.Count(strings.Join(raws(shown), ""), "reasoning_content") != 2 {
			t.Errorf("sent %s", raws(shown))
		}
	}
}
