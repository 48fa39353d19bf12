package memory_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// coach never likes what the model says.
type coach struct{}

func (coach) ReviewResponse(_ context.Context, _ *layer.Turn, _ layer.State, r *layer.Response) (layer.Verdict, error) {
	if r.Text == "" {
		return layer.Verdict{}, nil
	}
	return layer.Verdict{Action: layer.Guide, Guidance: "shorter"}, nil
}

// coached is a pipeline with a coach and a tool of a layer.
func coached(t *testing.T) memory.Options {
	t.Helper()
	return memory.Options{Shape: memory.Shape{Layers: layersOf(t, notebook(t, layer.Thread),
		pipeline.Layer{ID: "coach", Kind: "test", Slot: 300, Scope: layer.Thread, Impl: coach{}})}}
}

// TestAdviceIsToldAsBlocksAre: many servers of Chat Completions know no developer messages.
func TestAdviceIsToldAsBlocksAre(t *testing.T) {
	t.Parallel()
	l := newLab(t, coached(t))
	for words, role := range map[string]string{"u:hi": "s", "s:be u:hi": "s", "d:be u:hi": "d"} {
		turn := l.begin(memory.Call{}, words)
		next := turn.Review(t.Context(), answer(t, "a:long").Reply)
		if view := told(t, send(turn, view.Shape{}).Items); !next.Discard || !strings.HasSuffix(view, "a:long "+role+":shorter") {
			t.Errorf("%s: the model is told %s", words, view)
		}
		turn.Commit(answer(t, "a:long"))
	}
}

// TestAdviceEndsWithTheRounds: advice is given three times, and never beyond the last answer that one request may take.
func TestAdviceEndsWithTheRounds(t *testing.T) {
	t.Parallel()
	l := newLab(t, coached(t))
	tool := wiretest.Parse(t, dialects.Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function",`+
		`"function":{"name":"working-memory_update","arguments":"{}"}}]}`)
	call := wire.Reply{Complete: true, Choices: [][]wire.Item{{tool}}}
	for calls, want := range map[int]int{0: 3, 4: 3, 6: 1, 7: 0} {
		turn := l.begin(memory.Call{}, "u:hi")
		for range calls {
			if next := turn.Review(t.Context(), call); !next.GoesOn {
				t.Fatalf("%d calls: the last is not answered", calls)
			}
		}
		advice := 0
		for turn.Review(t.Context(), answer(t, "a:long").Reply).GoesOn {
			advice++
		}
		if advice != want {
			t.Errorf("behind %d calls advice is given %d times, want %d", calls, advice, want)
		}
		turn.Commit(answer(t, "a:long"))
	}
}

// TestGoesOnWithLess: a request that goes on and is longer than the model's context is sent with less of the history. What the turn
// has added stays, and its record is of what was sent last.
func TestGoesOnWithLess(t *testing.T) {
	t.Parallel()
	o := coached(t)
	o.Window = &view.Window{MaxTokens: 100, EvictShare: 0.5}
	o.Price = func(string, wire.Item) int { return 1 }
	l := newLab(t, o)
	l.turn("s:be u:1", "a:1")
	l.turn("s:be u:1 a:1 u:2", "a:2")
	turn := l.begin(memory.Call{}, "s:be u:1 a:1 u:2 a:2 u:3")
	if turn.Shorten(4) {
		t.Error("a turn is shortened before the model has answered")
	}
	turn.Review(t.Context(), answer(t, "a:long").Reply)
	l.wantView(told(t, send(turn, view.Shape{}).Items), "s:be u:1 a:1 u:2 a:2 u:3 a:long s:shorter")
	if !turn.Shorten(turn.Tokens() - 1) {
		t.Error("nothing could be left out")
	}
	l.wantView(told(t, send(turn, view.Shape{}).Items), "s:be a:2 u:3 a:long s:shorter")
	if s := turn.Summary; s.Sent != 3 || s.Windowed != 3 {
		t.Errorf("%d items are sent and %d windowed", s.Sent, s.Windowed)
	}
	if turn.Shorten(1) && told(t, send(turn, view.Shape{}).Items) != "s:be u:3 a:long s:shorter" {
		t.Errorf("then %s", told(t, send(turn, view.Shape{}).Items))
	}
	turn.Commit(answer(t, "a:3"))
	l.wantView(l.shown(turn.ID), "s:be u:3")
}

// jailer denies every call.
type jailer struct{ listener }

func (jailer) ReviewToolCall(context.Context, *layer.Turn, layer.State, layer.ToolCall) (layer.Verdict, error) {
	return layer.Verdict{Action: layer.Deny}, nil
}

// TestCallsAreJudgedWithoutTheStore: a denied call is kept from the client while the store is down, and the model is told;
// layers have no other part in such a turn. What was denied is in the transcript after the outage.
func TestCallsAreJudgedWithoutTheStore(t *testing.T) {
	t.Parallel()
	var heard, ends []string
	l, store := newOutage(t)
	l.m.Close()
	l.m = memory.New(store, &queue{}, patient(memory.Options{
		RetryDelay: time.Second, Now: store.clock,
		Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{
			ID: "a", Kind: "test", Scope: layer.Thread, Impl: jailer{listener{&heard, &ends}},
		})},
	}))
	store.set(true)
	turn := l.begin(memory.Call{}, "u:1")
	if s, ok := turn.Steering(); turn.Summary.Status != memory.StatusDegraded || !ok || !s.HoldCalls {
		t.Fatalf("%v: steering %+v", turn.Summary.Status, s)
	}
	next := turn.Review(t.Context(), answer(t, "c:x").Reply)
	if view := told(t, send(turn, view.Shape{}).Items); !next.Hidden["x"] || view != "u:1 c:x r:x" {
		t.Errorf("hidden %v, then %s", next.Hidden, view)
	}
	last := answer(t, "a:1")
	turn.Review(t.Context(), last.Reply)
	turn.Commit(last)
	if len(heard)+len(ends) > 0 {
		t.Errorf("layers learnt %q and of ends %q", heard, ends)
	}
	store.over()
	if view := l.turn("u:1 a:1 u:2", "a:2"); view != "u:1 a:1 u:2" {
		t.Errorf("view %s, though no tools are sent", view)
	}
	if line, _ := l.transcript(scope); line != "u:1 c:x r:x a:1 u:2 a:2" {
		t.Errorf("line %s", line)
	}
}

// warden denies calls of the tool rm.
type warden struct{}

func (warden) ReviewToolCall(_ context.Context, _ *layer.Turn, _ layer.State, c layer.ToolCall) (layer.Verdict, error) {
	if c.Name == "rm" && c.Arguments != "" {
		return layer.Verdict{Action: layer.Deny, Guidance: "no"}, nil
	}
	return layer.Verdict{}, nil
}

// TestApprovalsAreJudged: a request to approve a call at an MCP server is judged like a call. One that is denied is refused, and the
// client does not see it. Blanks around a name do not matter.
func TestApprovalsAreJudged(t *testing.T) {
	t.Parallel()
	const approval = `{"type":"mcp_approval_request","id":"m1","server_label":"files","name":%q,"arguments":"{}"}`
	const call = `{"type":"function_call","id":"fc_1","call_id":"m1","name":%q,"arguments":"{}"}`
	for _, c := range []struct {
		item, name string
		answer     string // what the model is told of a denied call
	}{
		{approval, "ls", ""},
		{approval, "rm", `{"type":"mcp_approval_response","approval_request_id":"m1","approve":false,"reason":"no"}`},
		{approval, " rm\t", `{"type":"mcp_approval_response","approval_request_id":"m1","approve":false,"reason":"no"}`},
		{call, "rm\n", `{"type":"function_call_output","call_id":"m1","output":"no"}`},
		{call, "ls", ""},
	} {
		l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Thread, Impl: warden{}})}})
		turn := l.beginIn(dialects.Responses, "s:be u:1")
		item := wiretest.Parse(t, dialects.Responses, fmt.Sprintf(c.item, c.name))
		reply := wire.Reply{Complete: true, ID: "resp_1", Choices: [][]wire.Item{{item}}}
		next := turn.Review(t.Context(), reply)
		if denied := c.answer != ""; next.Hidden["m1"] != denied || next.GoesOn != denied {
			t.Errorf("%q: %+v", c.name, next)
		}
		if c.answer == "" {
			turn.Commit(memory.Answer{HTTPStatus: 200, Reply: reply})
			continue
		}
		sent := raws(send(turn, view.Shape{}).Items)
		if len(sent) != 4 || sent[2] != string(item.Raw) || sent[3] != c.answer {
			t.Errorf("%q: the model gets %q", c.name, sent)
		}
		turn.Commit(answerIn(t, dialects.Responses, "a:1"))
		view, _ := l.ask(dialects.Responses, "tools=f | s:be u:1 a:1 u:2 -> a:2")
		if n := len(strings.Fields(view)); n != 6 {
			t.Errorf("%q: the next view is %s", c.name, view)
		}
		view, _ = l.ask(dialects.Responses, "| s:be u:1 a:1 u:2 a:2 u:3 -> a:3")
		if view != "s:be u:1 a:1 u:2 a:2 u:3" {
			t.Errorf("%q: without tools, the next view is %s", c.name, view)
		}
	}
}

// TestHiddenItemsAreStoredOnce: a turn whose input and hidden items were written, and whose answer had to wait in the
// spool, has its hidden items in the log once.
func TestHiddenItemsAreStoredOnce(t *testing.T) {
	t.Parallel()
	l, store := newOutage(t)
	l.m.Close()
	l.m = memory.New(store, &queue{}, patient(memory.Options{
		RetryDelay: time.Second, Now: store.clock, OpenDelay: time.Nanosecond,
		Shape: memory.Shape{Layers: layersOf(t, notebook(t, layer.Thread))},
	}))
	note := func(id string) wire.Reply {
		it := wiretest.Parse(t, dialects.Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"`+id+`","type":"function",`+
			`"function":{"name":"working-memory_update","arguments":"{}"}}]}`)
		return wire.Reply{Complete: true, Choices: [][]wire.Item{{it}}}
	}
	turn := l.begin(memory.Call{}, "u:1")
	turn.Review(t.Context(), note("x"))
	l.forward(turn, 3)
	turn.Review(t.Context(), note("y"))
	last := answer(t, "a:1")
	turn.Review(t.Context(), last.Reply)
	store.set(true)
	turn.Commit(last)
	store.over()
	if view := l.turn("u:1 a:1 u:2", "a:2"); view != "u:1 c:x r:x c:y r:y a:1 u:2" {
		t.Errorf("view %s", view)
	}
	if line, all := l.transcript(scope); line != "u:1 c:x r:x c:y r:y a:1 u:2 a:2" || all != 8 {
		t.Errorf("%d items stored, line %s", all, line)
	}
}

// TestCutCallComesBackAsObject: the call of a layer's tool that has no JSON object as its arguments goes back without
// arguments, in later views as well, and the record of those shows them so.
func TestCutCallComesBackAsObject(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, notebook(t, layer.Thread))}})
	const cut, mended = `"arguments":"{\"name\":\"A"`, `"arguments":"{}"`
	call := wiretest.Parse(t, dialects.Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function",`+
		`"function":{"name":"working-memory_update",`+cut+`}}]}`)
	mentions := func(items []wire.Item, what string) bool {
		return slices.ContainsFunc(items, func(it wire.Item) bool { return strings.Contains(string(it.Raw), what) })
	}

	first := l.begin(memory.Call{}, "u:hi")
	first.Review(t.Context(), wire.Reply{Complete: true, Choices: [][]wire.Item{{call}}})
	if !mentions(send(first, view.Shape{}).Items, mended) || mentions(send(first, view.Shape{}).Items, cut) {
		t.Errorf("the model goes on with %s", raws(send(first, view.Shape{}).Items))
	}
	first.Review(t.Context(), answer(t, "a:hello").Reply)
	first.Commit(answer(t, "a:hello"))

	second := l.begin(memory.Call{}, "u:hi a:hello u:more")
	if !mentions(second.View, mended) || mentions(second.View, cut) {
		t.Errorf("a later view is %s", raws(second.View))
	}
	second.Commit(answer(t, "a:bye"))
	shown, err := l.m.TurnView(context.Background(), scope, second.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(raws(second.View), raws(shown)); diff != "" {
		t.Errorf("-sent +shown:\n%s", diff)
	}
}

// recorder is a coach that keeps what it was shown.
type recorder struct {
	coach
	shown *[][]wire.Item
}

func (r recorder) ReviewResponse(ctx context.Context, t *layer.Turn, s layer.State, resp *layer.Response) (layer.Verdict, error) {
	*r.shown = append(*r.shown, resp.Items)
	return r.coach.ReviewResponse(ctx, t, s, resp)
}

// TestDroppedAnswerStaysAsItWasShown: a layer's hook may look at it again, when its state has changed meanwhile.
func TestDroppedAnswerStaysAsItWasShown(t *testing.T) {
	t.Parallel()
	var shown [][]wire.Item
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t,
		pipeline.Layer{ID: "coach", Kind: "test", Slot: 300, Scope: layer.Thread, Impl: recorder{shown: &shown}})}})
	turn := l.begin(memory.Call{}, "u:hi")
	for _, reply := range []string{"a:long", "a:longer", "a:longest"} {
		turn.Review(t.Context(), answer(t, reply).Reply)
	}
	turn.Commit(answer(t, "a:longest"))
	for i, want := range []string{"a:long", "a:longer", "a:longest"} {
		if got := told(t, shown[i]); got != want {
			t.Errorf("answer %d is %s now, it was %s", i, got, want)
		}
	}
}

// TestCallsThatAreLeftOutStayOut: where no tools are offered, the stored calls of layers are not in the view, and not in the record of
// it either if the model goes on with less of the history.
func TestCallsThatAreLeftOutStayOut(t *testing.T) {
	t.Parallel()
	o := memory.Options{Shape: memory.Shape{
		Layers: layersOf(t, notebook(t, layer.Thread)), Window: &view.Window{MaxTokens: 100, EvictShare: 0.5},
		Price: func(string, wire.Item) int { return 1 },
	}}
	l := newLab(t, o)
	said := ""
	for n := range 8 {
		words := fmt.Sprintf("%su:%d", said, n)
		l.turn(words, "a:ok")
		said = words + " a:ok "
	}
	l.calls(memory.Call{}, said+"u:now", "working-memory_update", `{"k":"v"}`)
	o.Layers = layersOf(t, pipeline.Layer{ID: "coach", Kind: "test", Slot: 300, Scope: layer.Thread, Impl: coach{}})
	l.m.Reshape(o.Shape)

	turn := l.begin(memory.Call{}, said+"u:now a:done u:next")
	l.wantView(told(t, turn.View), said+"u:now a:done u:next")
	turn.Review(t.Context(), answer(t, "a:long").Reply)
	if !turn.Shorten(turn.Tokens() - 1) {
		t.Error("nothing could be left out")
	}
	sent := told(t, send(turn, view.Shape{}).Items)
	turn.Commit(answer(t, "a:3"))
	if want := l.shown(turn.ID) + " a:long s:shorter"; sent != want || !strings.Contains(sent, "u:now") {
		t.Errorf("sent was %s, the record shows %s", sent, want)
	}
}
