package layertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
)

// hooks are the names of the hooks that a value has.
func hooks(impl any) []string {
	var names []string
	for _, hook := range []struct {
		name string
		has  bool
	}{
		{layer.HookInit, is[layer.Initializer](impl)},
		{layer.HookAppendItems, is[layer.ItemAppender](impl)},
		{layer.HookRecall, is[layer.Recaller](impl)},
		{layer.HookProjectHistory, is[layer.HistoryProjector](impl)},
		{layer.HookReviewToolCall, is[layer.ToolCallReviewer](impl)},
		{layer.HookTools, is[layer.ToolProvider](impl)},
		{layer.HookReviewResponse, is[layer.ResponseReviewer](impl)},
		{layer.HookStore, is[layer.Storer](impl)},
		{layer.HookEvicted, is[layer.EvictionObserver](impl)},
		{layer.HookComplete, is[layer.Completer](impl)},
		{layer.HookSpawn, is[layer.Spawner](impl)},
		{layer.HookReturn, is[layer.Returner](impl)},
		{layer.HookDispose, is[layer.Disposer](impl)},
	} {
		if s, selective := impl.(layer.Selective); hook.has && (!selective || s.Has(hook.name)) {
			names = append(names, hook.name)
		}
	}
	return names
}

func is[H any](impl any) bool {
	_, ok := impl.(H)
	return ok
}

// session plays one conversation with a layer, as the runtime would, and keeps its state and a log of what it answered.
type session struct {
	script
	impl  any
	hooks []string
	state layer.State
	log   []string
	// recalled are all messages that Recall gave.
	recalled []string

	watch bool // check after each hook that its inputs are as they were
	raw   bool // Init is left out, and hooks may fail
}

func (s *suite) newSession(impl any, name string, d dialect) *session {
	return &session{
		script: script{name: name, dialect: d, count: counters["utf16/4"], calls: s.calls, model: s.model},
		impl:   impl, hooks: hooks(impl),
	}
}

// playAll plays the whole script and ends the session.
func (p *session) playAll(t *testing.T) {
	t.Helper()
	p.playSome(t, turns)
}

// playSome plays the first turns of the script and ends the session.
func (p *session) playSome(t *testing.T, turns int) {
	t.Helper()
	for n := range turns {
		p.play(t, n)
	}
	p.end(t)
}

// step holds the arguments of one turn's hooks.
type step struct {
	n        int
	turn     layer.Turn
	response layer.Response
	history  layer.Response // its Items are the whole history
	child    layer.State
}

// play runs one turn.
func (p *session) play(t *testing.T, n int) {
	t.Helper()
	st := &step{n: n, turn: p.turn(n), response: p.response(n)}
	for m := range min(n+1, turns) {
		if !slices.Contains(p.hooks, layer.HookProjectHistory) {
			break // it is not looked at
		}
		st.history.Items = append(append(st.history.Items, p.input(m)...), p.response(m).Items...)
	}
	before := p.state
	for _, hook := range p.hooks {
		if hook == layer.HookInit && p.raw || !p.due(hook, n) {
			continue
		}
		p.call(t, hook, st)
	}
	if !p.raw && p.state != nil && !json.Valid(p.state) && !bytes.Equal(p.state, before) {
		t.Errorf("turn %d: the layer made a state that is not JSON: %.200q", n, p.state)
	}
}

// begin is the state after Init.
func (p *session) begin(ctx context.Context, t *layer.Turn) (layer.State, error) {
	if i, ok := p.impl.(layer.Initializer); ok && !p.raw {
		return i.Init(ctx, t, p.state)
	}
	return p.state, nil
}

// due reports whether a hook is called in turn n. Hooks of the end are called when the tool loop ends.
func (p *session) due(hook string, n int) bool {
	switch hook {
	case layer.HookComplete:
		return p.response(n).Done
	case layer.HookSpawn, layer.HookReturn:
		return n == lastTurn
	case layer.HookDispose:
		return false
	default:
		return true
	}
}

// end disposes of the session.
func (p *session) end(t *testing.T) {
	t.Helper()
	if slices.Contains(p.hooks, layer.HookDispose) {
		p.call(t, layer.HookDispose, &step{n: lastTurn, turn: p.turn(lastTurn)})
	}
}

// call runs one hook and takes over the state that it returns.
func (p *session) call(t *testing.T, hook string, st *step) {
	t.Helper()
	given := p.state
	var before []any
	if p.watch {
		before = []any{copyTurn(st.turn), slices.Clone(given), copyResponse(st.response), copyResponse(st.history)}
	}
	next, said, err := p.run(t.Context(), hook, st)
	if p.watch {
		after := []any{copyTurn(st.turn), given, st.response, st.history}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("turn %d: %s changed what it was given:\n%s", st.n, hook, cmp.Diff(before, after))
		}
	}
	// Store may refuse what a call asks for; nothing else has a reason to fail here.
	if err != nil && !p.raw && hook != layer.HookStore {
		t.Fatalf("turn %d: %s: %v", st.n, hook, err)
	}
	if err == nil {
		p.state = next
	}
	if !p.flood {
		p.log = append(p.log, fmt.Sprintf("%s %d: %s err=%v state=%s", hook, st.n, said, err, p.state))
	}
}

// run is the state that a hook leaves, and what it said.
func (p *session) run(ctx context.Context, hook string, st *step) (next layer.State, said string, err error) {
	next = p.state
	t := &st.turn
	switch hook {
	case layer.HookInit:
		next, err = p.impl.(layer.Initializer).Init(ctx, t, p.state)
	case layer.HookStore:
		next, err = Learn(ctx, p.impl.(layer.Storer), t, p.state, &st.response)
	case layer.HookEvicted:
		if next, err = p.impl.(layer.EvictionObserver).Evicted(ctx, t, p.state, st.response.Input); err == nil {
			next, err = Distil(ctx, p.impl, t, next)
		}
	case layer.HookComplete:
		next, err = p.impl.(layer.Completer).Complete(ctx, t, p.state, outcome(t, st.n%4 == 1))
	case layer.HookSpawn:
		st.child, err = p.impl.(layer.Spawner).Spawn(ctx, t, p.state)
		said = string(st.child)
	case layer.HookReturn:
		child := st.child
		if child == nil {
			child = p.state // of a child that was given nothing and kept what its parent happens to keep
		}
		next, err = p.impl.(layer.Returner).Return(ctx, t, p.state, child, outcome(t, true))
	case layer.HookDispose:
		err = p.impl.(layer.Disposer).Dispose(ctx, t, p.state)
	case layer.HookTools:
		next, said = p.runTools(ctx, st)
	default:
		return p.runAnswering(ctx, hook, st)
	}
	return next, said, err
}

// runAnswering runs the hooks that return more than a state. If they return a nil state, it stays as it was.
func (p *session) runAnswering(ctx context.Context, hook string, st *step) (next layer.State, said string, err error) {
	t := &st.turn
	switch hook {
	case layer.HookRecall:
		var got layer.Recalled
		got, err = p.impl.(layer.Recaller).Recall(ctx, t, p.state, recallBudget)
		next, said = got.State, fmt.Sprintf("%q", got.Messages)
		p.recalled = append(p.recalled, got.Messages...)
	case layer.HookAppendItems:
		var got layer.Appended
		got, err = p.impl.(layer.ItemAppender).AppendItems(ctx, t, p.state, st.response.Input)
		next, said = got.State, fmt.Sprintf("%s %t", raws(got.Items), got.Rerender)
	case layer.HookProjectHistory:
		items, fault := p.impl.(layer.HistoryProjector).ProjectHistory(ctx, t, p.state, st.history.Items)
		said, err = fmt.Sprintf("%s", raws(items)), fault
	case layer.HookReviewToolCall:
		for _, c := range st.response.Calls {
			v, fault := p.impl.(layer.ToolCallReviewer).ReviewToolCall(ctx, t, p.state, c)
			said, next, err = said+fmt.Sprintf("%d %q;", v.Action, v.Guidance), v.State, fault
			if err != nil {
				break
			}
		}
	case layer.HookReviewResponse:
		var v layer.Verdict
		v, err = p.impl.(layer.ResponseReviewer).ReviewResponse(ctx, t, p.state, &st.response)
		next, said = v.State, fmt.Sprintf("%d %q", v.Action, v.Guidance)
	}
	if next == nil {
		next = p.state
	}
	return next, said, err
}

// runTools calls every tool of the layer, with arguments that fit its schema and with some that do not. An error of a
// tool leaves the state.
func (p *session) runTools(ctx context.Context, st *step) (next layer.State, said string) {
	next = p.state
	for _, tool := range p.impl.(layer.ToolProvider).Tools() {
		for _, arguments := range append(p.arguments(tool.Parameters, st.n), badArguments...) {
			result, after, err := tool.Run(ctx, &st.turn, next, slices.Clone(arguments))
			said += fmt.Sprintf("%s=%q %v;", tool.Name, result, err)
			if err == nil {
				next = after
			}
		}
	}
	return next, said
}

// badArguments break every schema of an object that wants something, or any.
var badArguments = [][]byte{nil, []byte(`{}`), []byte(`null`), []byte(`[1]`), []byte(`"x"`), []byte(`{"`), []byte(`{"a":{"a":[[]]}}`)}

func outcome(t *layer.Turn, success bool) layer.Outcome {
	o := layer.Outcome{Result: layer.Failure, Execution: t.Execution, Thread: t.Thread}
	if success {
		o.Result = layer.Success
	}
	return o
}

// Learn calls Store, and Distil if the layer has a model to ask. If Distil fails, the state is that of Store.
func Learn(ctx context.Context, l layer.Storer, t *layer.Turn, s layer.State, r *layer.Response) (layer.State, error) {
	s, err := l.Store(ctx, t, s, r)
	if err != nil {
		return s, err
	}
	return Distil(ctx, l, t, s)
}

// Distil lets a layer with a model condense a state, as is done after a turn, and returns the new one.
func Distil(ctx context.Context, l any, t *layer.Turn, s layer.State) (layer.State, error) {
	d, ok := l.(layer.Distiller)
	if !ok || t.Ask == nil {
		return s, nil
	}
	change, err := d.Distil(ctx, t, s)
	if err != nil || change == nil {
		return s, err
	}
	return change(ctx, s)
}
