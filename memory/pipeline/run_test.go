package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// apply writes changes as a store does: nothing is deleted.
func apply(store map[Cell]layer.State, changes []Change) {
	for _, c := range changes {
		if c.State == nil {
			delete(store, c.Cell)
		} else {
			store[c.Cell] = c.State
		}
	}
}

func TestCells(t *testing.T) {
	p := build(t, Options{}, Layer{ID: "e", Scope: layer.Execution, Impl: stores("1")}, Layer{ID: "t", Scope: layer.Thread, Impl: stores("1")},
		Layer{ID: "r", Scope: layer.Resource, Impl: stores("1")}, Layer{ID: "g", Scope: layer.Global, Impl: stores("1")},
		Layer{ID: "p", Scope: layer.Thread, Impl: &fake{dispose: func(ctx, layer.State) error { return nil }}})
	of := turn()
	want := []Cell{{"t", layer.Thread, "s"}, {"r", layer.Resource, "r"}, {"g", layer.Global, "__global__"}}
	if diff := cmp.Diff(want, p.Cells(&of)); diff != "" {
		t.Errorf("cells: %s", diff)
	}
	of.Resource = ""
	want[1] = Cell{"r", layer.Thread, "s"}
	if diff := cmp.Diff(want, p.Cells(&of)); diff != "" {
		t.Errorf("no resource: %s", diff)
	}
}

// TestExecutionStates: states of an execution are kept between the requests of an execution and of one tenant, listed nowhere, gone
// when it ends.
func TestExecutionStates(t *testing.T) {
	counts := &fake{store: func(_ ctx, _ *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
		n, _ := strconv.Atoi(string(s))
		return layer.State(strconv.Itoa(n + 1)), nil
	}}
	var seen string
	counts.init = func(_ ctx, _ *layer.Turn, s layer.State) (layer.State, error) { seen = string(s); return s, nil }
	l := Layer{ID: "e", Scope: layer.Execution, Impl: counts}
	p := build(t, Options{}, l)
	request := func(p *Pipeline, tenant, execution string) *Run {
		of := turn()
		of.Execution = execution
		r := layertest.Must(p.Begin(t.Context(), tenant, of, nil, Credential{}))(t)
		r.Store(t.Context(), nil)
		if r.Changes() != nil {
			t.Error("a state of an execution is to be written")
		}
		return r
	}
	expect := func(p *Pipeline, tenant, execution, want string) {
		t.Helper()
		if request(p, tenant, execution); seen != want {
			t.Errorf("%s, %s: began with %q, want %q", tenant, execution, seen, want)
		}
	}
	expect(p, "a", "1", "")
	expect(p, "a", "1", "1")
	expect(p, "a", "2", "")
	expect(p, "b", "1", "")
	expect(build(t, Options{Previous: p}, l), "a", "1", "2")
	request(p, "a", "1").Complete(t.Context(), layer.Outcome{Result: layer.Success})
	expect(p, "a", "1", "")
	expect(p, "a", "", "")
	expect(p, "a", "", "")

	// The states kept take so many bytes: another one drives out what was used longest ago.
	p = build(t, Options{}, l)
	p.keptBytes = 3*entrySize + 3
	for _, execution := range []string{"1", "2", "3", "1", "4"} {
		request(p, "a", execution)
	}
	expect(p, "a", "1", "2")
	expect(p, "a", "3", "1")
	expect(p, "a", "2", "")
}

func TestInit(t *testing.T) {
	throws := func(mayFail bool) Layer {
		f := says("never")
		f.init = func(ctx, *layer.Turn, layer.State) (layer.State, error) { return nil, errors.New("secret words") }
		f.dispose = func(ctx, layer.State) error { t.Error("dispose of a disabled layer"); return nil }
		f.tools = []layer.Tool{{Name: "f", Run: func(ctx, *layer.Turn, layer.State, []byte) (string, layer.State, error) {
			return "", nil, nil
		}}}
		l := at("a", 1, f)
		l.InitMayFail = mayFail
		return l
	}
	_, err := build(t, Options{}, throws(false)).Begin(t.Context(), "tenant", turn(), nil, Credential{})
	if e, ok := errors.AsType[*InitError](err); !ok || e.Layer != "a" || e.Class != ClassError || strings.Contains(err.Error(), "secret") {
		t.Errorf("init that fails: %v", err)
	}
	r := start(t, Options{}, throws(true), at("b", 2, says("x")))
	if got := names(r.Recall(t.Context(), 0)); got != "b" || len(r.Definitions(dialects.Chat)) != 0 || r.Owns("a_f") {
		t.Errorf("%q is recalled, %s offered", got, r.Definitions(dialects.Chat))
	}
	r.Dispose(t.Context())
}

func TestClearedState(t *testing.T) {
	f := stores("")
	f.init = func(_ ctx, _ *layer.Turn, s layer.State) (layer.State, error) {
		if s == nil {
			return layer.State(`"default"`), nil
		}
		return s, nil
	}
	p := build(t, Options{}, at("a", 1, f))
	cell := Cell{"a", layer.Thread, "s"}
	store := map[Cell]layer.State{cell: layer.State(`"kept"`)}
	r := begin(t, p, turn(), store)
	if r.Changes() != nil {
		t.Error("a change before any hook")
	}
	r.Store(t.Context(), nil)
	if diff := cmp.Diff([]Change{{Cell: cell}}, r.Changes()); diff != "" {
		t.Errorf("a cleared state: %s", diff)
	}
	apply(store, r.Changes())
	r.Written()
	if r.Changes() != nil {
		t.Error("written and listed again")
	}
	f.store = func(_ ctx, _ *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
		if string(s) != `"default"` {
			t.Errorf("began with %s", s)
		}
		return s, nil
	}
	r = begin(t, p, turn(), store)
	r.Store(t.Context(), nil)
	if r.Changes() != nil {
		t.Error("what init makes is to be written")
	}
}

func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := func(next string, err error) *fake {
			return &fake{store: func(ctx, *layer.Turn, layer.State, *layer.Response) (layer.State, error) {
				time.Sleep(10 * time.Second)
				return layer.State(next), err
			}}
		}
		panics := &fake{store: func(ctx, *layer.Turn, layer.State, *layer.Response) (layer.State, error) { panic("no") }}
		huge := stores(`"` + strings.Repeat("x", maxState) + `"`)
		slow := at("slow", 1, stores("3"))
		slow.Model = model{}.Bind
		o := Options{Now: time.Now}
		r := start(t, o, at("a", 1, waits("1", nil)), at("b", 2, waits("2", errors.New("no"))), at("c", 3, panics),
			at("d", 4, huge), at("e", 5, stores("{")), at("f", 6, waits("2", nil)), slow)
		begin := time.Now()
		r.Store(t.Context(), nil)
		if d := time.Since(begin); d != 10*time.Second {
			t.Errorf("store hooks took %v, want them to run at the same time", d)
		}
		got := map[string]string{}
		collect := func() {
			for _, c := range r.Changes() {
				got[c.Cell.Layer] = string(c.State)
			}
			r.Written()
		}
		collect()
		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "f": "2"}, got); diff != "" {
			t.Errorf("states: %s", diff)
		}
		classes := map[string]Class{}
		for _, rep := range r.Report() {
			classes[rep.ID] = rep.Class
		}
		want := map[string]Class{"a": "", "b": ClassError, "c": ClassPanic, "d": ClassRefused, "e": ClassRefused, "f": "", "slow": ""}
		if diff := cmp.Diff(want, classes); diff != "" {
			t.Error(diff)
		}
		if !r.Settles(nil) {
			t.Error("nothing to settle")
		}
		r.Settle(t.Context(), nil, nil)
		if collect(); got["slow"] != "3" || len(got) != 4 {
			t.Errorf("after Settle: %v", got)
		}
	})
}

type model struct{ Credential }

func (model) Bind(c Credential) layer.Model { return model{c} }
func (m model) Complete(_ context.Context, _, user string, _ int) (string, error) {
	return user + " for " + m.Value.Reveal(), nil
}

func TestModelIsBoundToTheCaller(t *testing.T) {
	asks := func(c ctx, turn *layer.Turn, _ layer.State, _ int) (layer.Recalled, error) {
		if turn.Ask == nil {
			return layer.Recalled{Messages: []string{"no model"}}, nil
		}
		text, err := turn.Ask.Complete(c, "", "hello", 0)
		return layer.Recalled{Messages: []string{text}}, err
	}
	with := at("a", 1, &fake{recall: asks})
	with.Model = model{}.Bind
	p := build(t, Options{}, with, at("b", 2, &fake{recall: asks}))
	cred := Credential{Header: "Authorization", Value: "Bearer key"}
	r := layertest.Must(p.Begin(t.Context(), "tenant", turn(), nil, cred))(t)
	blocks := r.Recall(t.Context(), 0)
	if blocks[0].Texts[0] != "hello for Bearer key" || blocks[1].Texts[0] != "no model" {
		t.Errorf("%v", blocks)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "c", cred)
	if text := fmt.Sprintf("%v %+v %#v %s", cred, cred, cred, log.String()); strings.Contains(text, "key") {
		t.Errorf("printed: %s", text)
	}
}

func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := func(d time.Duration) *fake { // it does not listen to its context
			return &fake{recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) {
				time.Sleep(d)
				return layer.Recalled{Messages: []string{"late"}, State: layer.State("1")}, nil
			}}
		}
		listens := &fake{recall: func(c ctx, _ *layer.Turn, _ layer.State, _ int) (layer.Recalled, error) {
			<-c.Done()
			return layer.Recalled{}, c.Err()
		}}
		for name, c := range map[string]struct {
			own   time.Duration
			layer *fake
			took  time.Duration
			class Class
		}{
			"the standard time":     {0, deaf(time.Minute), 5 * time.Second, ClassTimeout},
			"its own":               {time.Second, deaf(time.Minute), time.Second, ClassTimeout},
			"a longer one":          {2 * time.Minute, deaf(time.Minute), time.Minute, ClassNone},
			"none":                  {-1, deaf(time.Hour), time.Hour, ClassNone},
			"one that listens":      {0, listens, 5 * time.Second, ClassTimeout},
			"at the same time, yet": {time.Second, deaf(time.Second - 1), time.Second - 1, ClassNone},
		} {
			l := at("a", 1, c.layer)
			l.Timeouts.Recall = c.own
			r := start(t, Options{Now: time.Now}, l)
			begin := time.Now()
			blocks := r.Recall(t.Context(), 0)
			if took := time.Since(begin); took != c.took || r.Report()[0].Class != c.class || r.Report()[0].Time != took {
				t.Errorf("%s: %v, %+v", name, took, r.Report()[0])
			}
			time.Sleep(2 * time.Hour)
			if (len(blocks) == 1) != (c.class == ClassNone) || (len(r.Changes()) == 1) != (c.class == ClassNone) {
				t.Errorf("%s: the late result counts: %v, %v", name, blocks, r.Changes())
			}
		}
	})
}

func TestStandardTimes(t *testing.T) {
	want := map[string]int{ // in seconds
		layer.HookInit: 10, layer.HookRecall: 5, layer.HookStore: 30, layer.HookAppendItems: 5, layer.HookProjectHistory: 5,
		layer.HookReviewToolCall: 5, layer.HookReviewResponse: 10, layer.HookSpawn: 10, layer.HookReturn: 10,
		layer.HookComplete: 30, layer.HookDispose: 5,
	}
	for hook, seconds := range want {
		u := unit{}
		if got := u.timeout(hook); got != time.Duration(seconds)*time.Second {
			t.Errorf("%s: %v", hook, got)
		}
		u.Timeouts = layer.Timeouts{
			Init: 1, Recall: 1, Store: 1, AppendItems: 1, ProjectHistory: 1, ReviewToolCall: 1, ReviewResponse: 1,
			Spawn: 1, Return: 1, Complete: 1, Dispose: 1,
		}
		if got := u.timeout(hook); got != 1 {
			t.Errorf("%s: its own is not used", hook)
		}
	}
}

// TestStragglers: a layer that never comes back holds 64 goroutines, not one for each request.
func TestStragglers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		release := make(chan struct{})
		p := build(t, Options{}, at("a", 1, &fake{recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) {
			calls.Add(1)
			<-release
			return layer.Recalled{Messages: []string{"x"}}, nil
		}}))
		last := func() Report {
			r := begin(t, p, turn(), nil)
			r.Recall(t.Context(), 0)
			return r.Report()[0]
		}
		for range maxStragglers {
			if got := last(); got.Class != ClassTimeout {
				t.Fatal(got)
			}
		}
		if got := last(); got.Class != ClassBusy || calls.Load() != maxStragglers {
			t.Errorf("%+v after %d calls", got, calls.Load())
		}
		close(release)
		synctest.Wait()
		if got := last(); got.Class != ClassNone {
			t.Errorf("back again, but %+v", got)
		}
	})
}

// TestCancelled: a request that ends takes its hooks with it.
func TestCancelled(t *testing.T) {
	c, cancel := context.WithCancel(t.Context())
	r := start(t, Options{}, at("a", 1, &fake{recall: func(c ctx, _ *layer.Turn, _ layer.State, _ int) (layer.Recalled, error) {
		cancel()
		<-c.Done()
		return layer.Recalled{}, c.Err()
	}}))
	if r.Recall(c, 0); r.Report()[0].Class != ClassCancelled {
		t.Errorf("%+v", r.Report()[0])
	}
}

// every has all hooks, each adding its name to the state.
func every(order *[]string, id string) *fake {
	add := func(s layer.State, hook string) layer.State {
		*order = append(*order, id+" "+hook)
		return layer.State(strconv.Quote(strings.Trim(string(s), `"`) + hook + ";"))
	}
	return &fake{
		init: func(_ ctx, _ *layer.Turn, s layer.State) (layer.State, error) { return add(s, "init"), nil },
		recall: func(_ ctx, _ *layer.Turn, s layer.State, _ int) (layer.Recalled, error) {
			return layer.Recalled{State: add(s, "recall")}, nil
		},
		project: func(_ ctx, s layer.State, h []wire.Item) ([]wire.Item, error) { add(s, "project"); return h, nil },
		append: func(_ ctx, s layer.State, items []wire.Item) (layer.Appended, error) {
			return layer.Appended{Items: items, State: add(s, "append")}, nil
		},
		call: func(_ ctx, s layer.State, _ layer.ToolCall) (layer.Verdict, error) {
			return layer.Verdict{State: add(s, "call")}, nil
		},
		response: func(_ ctx, s layer.State, _ *layer.Response) (layer.Verdict, error) {
			return layer.Verdict{State: add(s, "response")}, nil
		},
		store: func(_ ctx, _ *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
			return add(s, "store"), nil
		},
		complete: func(_ ctx, s layer.State, _ layer.Outcome) (layer.State, error) { return add(s, "complete"), nil },
		dispose:  func(_ ctx, s layer.State) error { add(s, "dispose"); return nil },
		tools: []layer.Tool{{Name: "f", Run: func(_ ctx, _ *layer.Turn, s layer.State, _ []byte) (string, layer.State, error) {
			return "done", add(s, "tool"), nil
		}}},
	}
}

func whole(t *testing.T, r *Run) {
	t.Helper()
	items := []wire.Item{user("u")}
	r.Append(t.Context(), items)
	r.Recall(t.Context(), 0)
	r.Project(t.Context(), items, nothingBeside, 0, math.MaxInt)
	r.ReviewCall(t.Context(), layer.ToolCall{Name: "x"})
	r.RunTool(t.Context(), layer.ToolCall{Name: "a_f"})
	r.ReviewResponse(t.Context(), &layer.Response{})
	r.Store(t.Context(), &layer.Response{})
	r.Complete(t.Context(), layer.Outcome{})
	r.Dispose(t.Context())
}

func TestOrderOfHooks(t *testing.T) {
	var order []string
	var observed []Event
	last := &fake{dispose: func(ctx, layer.State) error { order = append(order, "b dispose"); return nil }}
	r := start(t, Options{Observe: func(_ context.Context, e Event) { observed = append(observed, e) }}, at("a", 1, every(&order, "a")), at("b", 2, last))
	whole(t, r)
	want := strings.Split("a init,a append,a recall,a project,a call,a tool,a response,a store,a complete,b dispose,a dispose", ",")
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order of hooks: %s", diff)
	}
	hooks := []string{"init", "on_item_append", "recall", "project_history", "before_tool_call", "tools", "after_model_call", "store", "on_complete", "dispose", "dispose"}
	var seen []string
	for _, e := range observed {
		seen = append(seen, e.Hook)
	}
	if diff := cmp.Diff(hooks, seen); diff != "" {
		t.Errorf("observed: %s", diff)
	}
	changes := r.Changes()
	if got := string(changes[0].State); got != `"init;append;recall;call;tool;response;store;complete;"` || len(changes) != 1 {
		t.Errorf("want one change with the last state, have %v, %s", changes, got)
	}
}

// TestRebase runs the hooks again on what another replica has written, each once and in order.
func TestRebase(t *testing.T) {
	var order []string
	p := build(t, Options{}, at("a", 1, every(&order, "a")), at("b", 2, stores("7")))
	r := begin(t, p, turn(), nil)
	whole(t, r)
	for _, theirs := range []string{`"before;"`, `"theirs;"`} { // two conflicts in a row
		r.Rebase(t.Context(), map[Cell]layer.State{{"a", layer.Thread, "s"}: layer.State(theirs)})
	}
	got := map[string]string{}
	for _, c := range r.Changes() {
		got[c.Cell.Layer] = string(c.State)
	}
	want := map[string]string{"a": `"theirs;init;append;recall;call;tool;response;store;complete;"`, "b": "7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	r.Written()
	r.Store(t.Context(), nil)
	r.Rebase(t.Context(), map[Cell]layer.State{{"a", layer.Thread, "s"}: nil})
	if got := string(r.Changes()[0].State); got != `"init;store;"` {
		t.Errorf("what was written is done again: %s", got)
	}
}

// distils is a layer whose model condenses its state.
type distils struct {
	*fake
	distil func(layer.State)
}

func (d distils) Distil(_ ctx, _ *layer.Turn, s layer.State) (func(ctx, layer.State) (layer.State, error), error) {
	d.distil(s)
	return nil, nil
}

// TestReloadDistilsNoStateTwice: a turn of the configuration before keeps those of the one after it from its state.
func TestReloadDistilsNoStateTwice(t *testing.T) {
	asked := 0
	var meanwhile func()
	l := at("a", 1, distils{stores("1"), func(layer.State) { asked++; meanwhile() }})
	l.Model = model{}.Bind
	old := build(t, Options{}, l)
	reloaded := build(t, Options{Previous: old}, l)
	settle := func(p *Pipeline) { begin(t, p, turn(), nil).Settle(t.Context(), nil, nil)() }
	meanwhile = func() {
		meanwhile = func() {}
		settle(reloaded)
	}
	if settle(old); asked != 1 {
		t.Errorf("the model was asked %d times at once", asked)
	}
	if settle(reloaded); asked != 2 {
		t.Errorf("the state is left alone for good: asked %d times", asked)
	}
}

// counting is a model that says how often it was asked.
type counting struct{ asked int }

func (c *counting) Bind(Credential) layer.Model { return c }

func (c *counting) Complete(_ context.Context, _, prompt string, _ int) (string, error) {
	c.asked++
	return fmt.Sprintf("%s%d", prompt, c.asked), nil
}

// TestRebaseAsksNoModelAgain: hooks that run again get the answers of their first run, each in its order, and ask only what they did
// not ask then.
func TestRebaseAsksNoModelAgain(t *testing.T) {
	var asked counting
	f := &fake{store: func(c ctx, t *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
		said := ""
		for _, prompt := range []string{"same", "same", "other" + string(s)} {
			answer, err := t.Ask.Complete(c, "", prompt, 1)
			if err != nil {
				return nil, err
			}
			said += answer + ";"
		}
		return layer.Encode(said)
	}}
	l := at("a", 1, f)
	l.Model = asked.Bind
	r := begin(t, build(t, Options{}, l), turn(), nil)
	r.Settle(t.Context(), nil, nil)()
	for range 2 {
		r.Rebase(t.Context(), map[Cell]layer.State{{"a", layer.Thread, "s"}: layer.State("7")})
	}
	if got := string(r.Changes()[0].State); got != `"same1;same2;other74;"` || asked.asked != 4 {
		t.Errorf("the state is %s after %d questions", got, asked.asked)
	}
}

// TestRebaseOnTheSame: a write that was refused for another reason than the state costs no hook.
func TestRebaseOnTheSame(t *testing.T) {
	var order []string
	cell := Cell{"a", layer.Thread, "s"}
	store := map[Cell]layer.State{cell: layer.State(`"kept;"`)}
	r := begin(t, build(t, Options{}, at("a", 1, every(&order, "a"))), turn(), store)
	r.Store(t.Context(), nil)
	want, called := r.Changes(), len(order)
	r.Rebase(t.Context(), store)
	r.Written()
	if diff := cmp.Diff(want, r.Changes()); diff != "" || len(order) != called {
		t.Errorf("hooks called: %v\n%s", order[called:], diff)
	}
	r.Written()
	if r.Changes() != nil {
		t.Error("listed again")
	}
}

// TestNoCountIsLost lets replicas that know nothing of each other add to one state, with a store that compares and
// swaps.
func TestNoCountIsLost(t *testing.T) {
	count := func(s layer.State) layer.State {
		n, _ := strconv.Atoi(string(s))
		return layer.State(strconv.Itoa(n + 1))
	}
	f := &fake{
		store: func(_ ctx, _ *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
			return count(s), nil
		},
		tools: []layer.Tool{{Name: "f", Run: func(_ ctx, _ *layer.Turn, s layer.State, _ []byte) (string, layer.State, error) {
			return "", count(s), nil
		}}},
	}
	cell := Cell{"a", layer.Thread, "s"}
	rapid.Check(t, func(rt *rapid.T) {
		p := layertest.Must(New([]Layer{at("a", 1, f)}, Options{}))(rt)
		store, base := map[Cell]layer.State{}, map[*Run]string{}
		var runs []*Run
		want := 0
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				r, _ := p.Begin(t.Context(), "tenant", turn(), maps.Clone(store), Credential{})
				runs, base[r] = append(runs, r), string(store[cell])
			case 1, 2:
				if len(runs) > 0 {
					r := rapid.SampledFrom(runs).Draw(rt, "run")
					r.Store(t.Context(), nil)
					r.RunTool(t.Context(), layer.ToolCall{Name: "a_f"})
					want += 2
				}
			default:
				if len(runs) > 0 {
					commit(t, rapid.SampledFrom(runs).Draw(rt, "run"), store, base)
				}
			}
		}
		for _, r := range runs {
			commit(t, r, store, base)
		}
		if got, _ := strconv.Atoi(string(store[cell])); got != want {
			rt.Fatalf("%d counted, want %d", got, want)
		}
	})
}

func commit(t *testing.T, r *Run, store map[Cell]layer.State, base map[*Run]string) {
	t.Helper()
	cell := Cell{"a", layer.Thread, "s"}
	if len(r.Changes()) > 0 && base[r] != string(store[cell]) {
		r.Rebase(t.Context(), maps.Clone(store))
	}
	changes := r.Changes()
	if apply(store, changes); len(changes) > 0 {
		base[r] = string(store[cell])
	}
	r.Written()
}

// TestParallelCalls: concurrent hooks of one layer do not lose each other's changes, within a request and between
// requests of a run.
func TestParallelCalls(t *testing.T) {
	f := &fake{tools: []layer.Tool{{Name: "f", Run: func(_ ctx, _ *layer.Turn, s layer.State, _ []byte) (string, layer.State, error) {
		n, _ := strconv.Atoi(string(s))
		return "", layer.State(strconv.Itoa(n + 1)), nil
	}}}}
	for _, scope := range []layer.Scope{layer.Thread, layer.Execution} {
		p := build(t, Options{}, Layer{ID: "a", Scope: scope, Impl: f})
		r := begin(t, p, turn(), nil)
		runs := []*Run{r, r, r, r}
		if scope == layer.Execution {
			runs = []*Run{r, begin(t, p, turn(), nil), begin(t, p, turn(), nil), begin(t, p, turn(), nil)}
		}
		var wg sync.WaitGroup
		for _, r := range runs {
			wg.Go(func() {
				for i := 0; i < 50; {
					if r.RunTool(t.Context(), layer.ToolCall{Name: "a_f"}) == "" { // else it was too busy
						i++
					}
				}
			})
		}
		wg.Wait()
		if s, _ := r.layers[0].held.load(); string(s) != "200" {
			t.Errorf("scope %d: %s", scope, s)
		}
	}
}

// TestOvertakenCall: a call that began first and ends last is made again on what the other has left.
func TestOvertakenCall(t *testing.T) {
	first, second := make(chan struct{}), make(chan struct{})
	f := &fake{tools: []layer.Tool{{Name: "f", Run: func(_ ctx, _ *layer.Turn, s layer.State, a []byte) (string, layer.State, error) {
		if string(a) == `{"wait":1}` && s == nil {
			close(first)
			<-second
		}
		n, _ := strconv.Atoi(string(s))
		return strconv.Itoa(n + 1), layer.State(strconv.Itoa(n + 1)), nil
	}}}}
	r := start(t, Options{}, at("a", 1, f))
	result := make(chan string)
	go func() { result <- r.RunTool(t.Context(), layer.ToolCall{Name: "a_f", Arguments: `{"wait":1}`}) }()
	<-first
	r.RunTool(t.Context(), layer.ToolCall{Name: "a_f"})
	close(second)
	if got := <-result; got != "2" || string(r.Changes()[0].State) != "2" {
		t.Errorf("got %s, %v", got, r.Changes())
	}
}

func TestSpawnAndReturn(t *testing.T) {
	f := &fake{
		init: func(_ ctx, _ *layer.Turn, s layer.State) (layer.State, error) {
			if s == nil {
				return layer.State(`"new"`), nil
			}
			return s, nil
		},
		spawn: func(_ ctx, parent layer.State) (layer.State, error) {
			if parent == nil {
				return nil, nil
			}
			return layer.State(`"from ` + strings.Trim(string(parent), `"`) + `"`), nil
		},
		back: func(_ ctx, s, child layer.State) (layer.State, error) {
			return layer.State(`"` + strings.Trim(string(s), `"`) + "+" + strings.Trim(string(child), `"`) + `"`), nil
		},
	}
	p := build(t, Options{}, at("a", 1, f), Layer{ID: "r", Scope: layer.Resource, Impl: f})
	parent, child := turn(), turn()
	child.Thread, child.Parent, child.Execution = "child", "s", "e2"
	cell := Cell{"a", layer.Thread, "s"}
	store := map[Cell]layer.State{cell: layer.State(`"parent"`), {"r", layer.Resource, "r"}: layer.State(`"shared"`)}

	r := begin(t, p, child, store)
	r.Spawn(t.Context(), parent, store)
	want := []Change{{Cell{"a", layer.Thread, "child"}, layer.State(`"from parent"`)}}
	if diff := cmp.Diff(want, r.Changes()); diff != "" {
		t.Error(diff)
	}
	own := maps.Clone(store)
	own[want[0].Cell] = layer.State(`"its own"`)
	r = begin(t, p, child, own)
	if r.Spawn(t.Context(), parent, store); r.Changes() != nil {
		t.Error("spawned twice")
	}
	store[want[0].Cell] = want[0].State

	r = begin(t, p, parent, store)
	r.Return(t.Context(), child, store, layer.Outcome{Result: layer.Success})
	want = []Change{{cell, layer.State(`"parent+from parent"`)}}
	if diff := cmp.Diff(want, r.Changes()); diff != "" {
		t.Error(diff)
	}
	r = begin(t, p, parent, nil)
	if r.Return(t.Context(), child, nil, layer.Outcome{}); r.Changes() != nil {
		t.Error("a child without a state returned something")
	}
}

// distiller counts how often its model is asked.
type distiller struct {
	asked *int
	err   error
}

func (distiller) Store(_ ctx, _ *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
	return s, nil
}

func (d distiller) Distil(ctx, *layer.Turn, layer.State) (func(ctx, layer.State) (layer.State, error), error) {
	*d.asked++
	return func(_ ctx, s layer.State) (layer.State, error) {
		if len(s) == 0 {
			return layer.State("1"), nil
		}
		return layer.State("[" + string(s) + "]"), nil
	}, d.err
}

// TestModelIsAskedOnce: while a turn distils a state, no other turn of the process does; and if another replica has changed the
// state meanwhile, only the change is made again.
func TestModelIsAskedOnce(t *testing.T) {
	asked := 0
	l := at("a", 1, distiller{asked: &asked})
	l.Model = model{}.Bind
	p := build(t, Options{}, l)
	one, two := begin(t, p, turn(), nil), begin(t, p, turn(), nil)
	if !one.Settles(nil) {
		t.Fatal("nothing to settle")
	}
	done := one.Settle(t.Context(), nil, nil)
	two.Settle(t.Context(), nil, nil)()
	one.Rebase(t.Context(), map[Cell]layer.State{{"a", layer.Thread, "s"}: layer.State("7")})
	if asked != 1 || len(two.Changes()) != 0 {
		t.Errorf("asked %d times; the other turn changed %v", asked, two.Changes())
	}
	if c := one.Changes(); len(c) != 1 || string(c[0].State) != "[7]" {
		t.Errorf("have %v, want the change of the other replica's state", c)
	}

	done()
	two.Settle(t.Context(), nil, nil)()
	if asked != 2 {
		t.Errorf("asked %d times, want once more when the first turn is done", asked)
	}
}

// TestModelThatFailsRests: it is not asked with each turn, as long as it is down. What it has answered before it failed is kept.
func TestModelThatFailsRests(t *testing.T) {
	asked := 0
	l := at("a", 1, distiller{&asked, errors.New("model is down")})
	l.Model = model{}.Bind
	p := build(t, Options{}, l)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {29 * time.Second, 1}, {31 * time.Second, 2}, {60 * time.Second, 2}, {62 * time.Second, 3}} {
		at := turn()
		at.Now = at.Now.Add(c.after)
		before, r := asked, begin(t, p, at, nil)
		r.Settle(t.Context(), nil, nil)()
		if changes := r.Changes(); len(changes) != asked-before {
			t.Errorf("%s: %d changes of %d questions", c.after, len(changes), asked-before)
		}
		if asked != c.want {
			t.Errorf("asked %d times after %s, want %d", asked, c.after, c.want)
		}
	}
}

// TestStoreKnowsWhatWasLeftOut: a layer whose block the view had no room for knows so when it stores the answer.
func TestStoreKnowsWhatWasLeftOut(t *testing.T) {
	unshown := map[string]bool{}
	noting := func(id string) Layer {
		return at(id, 1, &fake{store: func(_ ctx, t *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
			unshown[t.Layer] = t.Unshown
			return s, nil
		}})
	}
	for _, id := range []string{"a", "b"} {
		r := start(t, Options{}, noting(id))
		r.LeftOut([]view.Block{{Layer: "b"}})
		r.Store(t.Context(), nil)
	}
	if diff := cmp.Diff(map[string]bool{"a": false, "b": true}, unshown); diff != "" {
		t.Error(diff)
	}
}
