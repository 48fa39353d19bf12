package memory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/observational"
	"remora/memory/layers/working"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// observer is the layer of the seed: "Processed N items" at every store.
func observer(t *testing.T, s layer.Scope) pipeline.Layer {
	t.Helper()
	impl, err := observational.New(observational.Options{Observer: "count", BufferThreshold: 1, Inputs: "all"})
	if err != nil {
		t.Fatal(err)
	}
	return pipeline.Layer{ID: "observational-memory", Kind: "observational_memory", Slot: 200, Scope: s, Impl: impl}
}

// notebook is a working memory that the model may update.
func notebook(t *testing.T, s layer.Scope) pipeline.Layer {
	t.Helper()
	impl, err := working.New(working.Options{Setup: layer.Setup{Scope: s}})
	if err != nil {
		t.Fatal(err)
	}
	return pipeline.Layer{ID: "working-memory", Kind: "working_memory", Slot: 100, Scope: s, Impl: impl}
}

func layersOf(t *testing.T, list ...pipeline.Layer) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.New(list, pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func in(session, resource string) memory.Call {
	return memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: session, Resource: resource}}
}

// update has the model write into its working memory, as upstream would answer, and ends the turn.
func (l *lab) update(c memory.Call, data string) {
	l.t.Helper()
	turn := l.begin(c, "u:hi")
	raw, err := json.Marshal(map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
		"id": "call_1", "type": "function", "function": map[string]any{"name": "working-memory_update", "arguments": data},
	}}})
	if err != nil {
		l.t.Fatal(err)
	}
	it, err := wire.ParseItem(dialects.Chat, raw)
	if err != nil {
		l.t.Fatal(err)
	}
	next := turn.Review(context.Background(), wire.Reply{Complete: true, ID: "c1", Choices: [][]wire.Item{{it}}})
	if !next.GoesOn || !next.Hidden["call_1"] {
		l.t.Fatalf("the model was not asked again: %+v", next)
	}
	last := answer(l.t, "a:noted")
	if next := turn.Review(context.Background(), last.Reply); next.GoesOn {
		l.t.Fatal("the model was asked a third time")
	}
	turn.Commit(last)
}

func TestLayerScopes(t *testing.T) {
	t.Parallel()
	f := func(name string, list func(t *testing.T) pipeline.Layer, write func(l *lab), seen map[*memory.Call]bool, text string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, list(t))}})
			write(l)
			for c, want := range seen {
				view := l.turnOf(*c, "u:next", "a:ok")
				if got := strings.Contains(view, text); got != want {
					t.Errorf("session %q of resource %q: seen %v, want %v: %s", c.Scope.Session, c.Scope.Resource, got, want, view)
				}
			}
		})
	}
	at := func(session, resource string) *memory.Call { c := in(session, resource); return &c }
	other := in("one", "ada")
	other.Scope.Tenant = "somebody else"
	observed := func(session, resource string) func(l *lab) {
		return func(l *lab) { l.turnOf(in(session, resource), "u:hello", "a:hi") }
	}
	observes := func(s layer.Scope) func(t *testing.T) pipeline.Layer {
		return func(t *testing.T) pipeline.Layer { t.Helper(); return observer(t, s) }
	}
	notes := func(s layer.Scope) func(t *testing.T) pipeline.Layer {
		return func(t *testing.T) pipeline.Layer { t.Helper(); return notebook(t, s) }
	}
	f("a resource's state is seen in its other threads", observes(layer.Resource), observed("one", "ada"),
		map[*memory.Call]bool{at("two", "ada"): true, at("three", "ben"): false, at("four", ""): false, &other: false}, "Processed")
	f("without a resource the state is the thread's", observes(layer.Resource), observed("one", ""),
		map[*memory.Call]bool{at("one", ""): true, at("two", ""): false}, "Processed")
	f("a thread's state is not seen in another", observes(layer.Thread), observed("one", "ada"),
		map[*memory.Call]bool{at("two", "ada"): false, at("one", "ada"): true}, "Processed")
	f("thread scope is isolated", notes(layer.Thread), func(l *lab) { l.update(in("one", "ada"), `{"k":"v1"}`) },
		map[*memory.Call]bool{at("one", "ada"): true, at("two", "ada"): false}, "v1")
	f("resource scope is shared", notes(layer.Resource), func(l *lab) { l.update(in("one", "ada"), `{"k":"v1"}`) },
		map[*memory.Call]bool{at("one", "ada"): true, at("two", "ada"): true, at("two", "ben"): false, &other: false}, "v1")
	f("global scope is shared by all sessions of the tenant", observes(layer.Global), observed("one", "ada"),
		map[*memory.Call]bool{at("five", "ben"): true, &other: false}, "Processed")
}

// X-Parent-Session-Id makes a new session a child, and leaves an existing one as it is.
func TestChildTakesOverAtItsBeginning(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, observer(t, layer.Thread))}})
	l.turnOf(in("parent", ""), "u:hello", "a:hi")
	for _, c := range []struct {
		began bool
		want  string
	}{{false, "Processed 2 items"}, {true, "Processed 1 items"}} {
		child := in(fmt.Sprint("child ", c.began), "")
		if c.began {
			l.turnOf(child, "u:1", "")
		}
		child.Scope.Parent = "parent"
		if view := l.turnOf(child, "u:1", "a:1"); !strings.Contains(view, c.want) {
			t.Errorf("of a session that had begun before (%v): %s", c.began, view)
		}
	}
}

// TestLayerStatesAreStored: states of threads, resources and tenants survive a restart, states of runs are never
// stored.
func TestLayerStatesAreStored(t *testing.T) {
	t.Parallel()
	list := []pipeline.Layer{observer(t, layer.Resource)}
	for _, s := range []layer.Scope{layer.Thread, layer.Global, layer.Execution} {
		extra := observer(t, s)
		extra.ID = fmt.Sprintf("extra-%d", s)
		list = append(list, extra)
	}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, list...)}})
	l.turnOf(in("one", "ada"), "u:hello", "a:hi")
	stored := func(group, id string) (state struct{ Version int }) {
		t.Helper()
		r, err := l.store.Read(t.Context(), []cache.Query{{Group: cache.Group{Owner: "tenant", Name: group}, Names: []string{"l" + id}}})
		if err != nil {
			t.Fatal(err)
		}
		if v := r[0].Values[0]; v != nil {
			if err := json.Unmarshal(v, &state); err != nil {
				t.Fatal(err)
			}
		}
		return state
	}
	for group, id := range map[string]string{
		"u:ada": "observational-memory", "s:one": fmt.Sprintf("extra-%d", layer.Thread), "g:": fmt.Sprintf("extra-%d", layer.Global),
	} {
		if v := stored(group, id).Version; v != 1 {
			t.Errorf("group %s: state of %s has version %d", group, id, v)
		}
		if v := stored(group, fmt.Sprintf("extra-%d", layer.Execution)).Version; v != 0 {
			t.Errorf("group %s holds the state of an execution", group)
		}
	}
	again := memory.New(l.store, nil, patient(memory.Options{Shape: memory.Shape{Layers: layersOf(t, list...)}}))
	defer again.Close()
	restarted := &lab{t: t, m: again, store: l.store}
	restarted.turnOf(in("two", "ada"), "u:more", "a:hm")
	if v := stored("u:ada", "observational-memory").Version; v != 2 {
		t.Errorf("version %d after a restart and one more distillation", v)
	}
}

// TestNoUpdateIsLost: replicas that update the state of one resource at once lose none of it.
func TestNoUpdateIsLost(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, notebook(t, layer.Resource))}})
	const replicas, updates = 4, 25
	var all sync.WaitGroup
	for r := range replicas {
		m := memory.New(l.store, nil, patient(memory.Options{Shape: memory.Shape{Layers: layersOf(t, notebook(t, layer.Resource))}}))
		replica := &lab{t: t, m: m, store: l.store}
		all.Go(func() {
			defer m.Close() // writes what had to wait for the others
			for i := range updates {
				replica.update(in(fmt.Sprintf("s%d-%d", r, i), "ada"), fmt.Sprintf(`{"k%d_%d":1}`, r, i))
			}
		})
	}
	all.Wait()
	view := l.turnOf(in("last", "ada"), "u:next", "a:ok")
	for r := range replicas {
		for i := range updates {
			if key := fmt.Sprintf(`"k%d_%d"`, r, i); !strings.Contains(view, key) {
				t.Errorf("update %s is lost", key)
			}
		}
	}
}

// TestLayerStateThatCannotBeWritten: the answer is unaffected, and so is the transcript.
func TestLayerStateThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	store := &tapped{Store: l.store, onBatch: func(b cache.Batch) error {
		if strings.HasPrefix(b.Group.Name, "u:") {
			return errors.New("disk is full")
		}
		return nil
	}}
	m := memory.New(store, nil, patient(memory.Options{Shape: memory.Shape{Layers: layersOf(t, observer(t, layer.Resource))}}))
	t.Cleanup(m.Close)
	broken := &lab{t: t, m: m, store: l.store}
	broken.turnOf(in("one", "ada"), "u:hello", "a:hi")
	if view := l.turnOf(memory.Call{Scope: in("one", "ada").Scope, History: memory.HistoryServer}, "u:again", "a:ok"); view != "u:hello a:hi u:again" {
		t.Errorf("transcript: %s", view)
	}
}

// twiceWriting is a store that writes the first answer twice: the reply to the first write was lost, so the second one is a conflict.
type twiceWriting struct {
	cache.Store
	once *sync.Once
}

func (r twiceWriting) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	out := r.Store.Commit(ctx, batches)
	if strings.HasPrefix(batches[0].Group.Name, "s:") {
		r.once.Do(func() { out = r.Store.Commit(ctx, batches) })
	}
	return out
}

// counter says how many answers it has heard.
type counter struct{}

func (counter) Store(_ context.Context, _ *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
	return layer.State(strings.Repeat("1", len(s)+1)), nil
}

func (counter) Recall(_ context.Context, _ *layer.Turn, s layer.State, _ int) (layer.Recalled, error) {
	return layer.Recalled{Messages: []string{fmt.Sprintf("heard %d", len(s))}}, nil
}

// TestStatesOfAStoredTurn: hooks do not run again on the states that their own turn has written.
func TestStatesOfAStoredTurn(t *testing.T) {
	for _, s := range []layer.Scope{layer.Thread, layer.Resource} {
		l := newLab(t, memory.Options{})
		settle := make(chan struct{})
		close(settle)
		m := memory.New(twiceWriting{l.store, new(sync.Once)}, nil, patient(memory.Options{Shape: memory.Shape{Layers: layersOf(t,
			pipeline.Layer{ID: "counter", Kind: "test", Scope: s, Impl: counter{}},
			pipeline.Layer{ID: "slow", Kind: "test", Scope: layer.Thread, Impl: slowListener{listener{new([]string), new([]string)}, settle}})}}))
		one := &lab{t: t, m: m, store: l.store}
		one.turnOf(in("one", "ada"), "u:hello", "a:hi")
		m.Close() // the layers have settled

		again := memory.New(l.store, nil, patient(memory.Options{Shape: memory.Shape{Layers: layersOf(t,
			pipeline.Layer{ID: "counter", Kind: "test", Scope: s, Impl: counter{}})}}))
		two := &lab{t: t, m: again, store: l.store}
		if view := two.turnOf(in("one", "ada"), "u:hello a:hi u:more", "a:ok"); !strings.Contains(view, "heard 1") {
			t.Errorf("scope %d: %s", s, view)
		}
		again.Close()
	}
}

// farewell is a layer that counts its last words.
type farewell struct{ said *int }

func (f farewell) Dispose(context.Context, *layer.Turn, layer.State) error {
	*f.said++
	return nil
}

// TestDeletedSession: all of it is gone, with what layers keep of it alone for its resource, and they are told. What came
// from other sessions stays.
func TestDeletedSession(t *testing.T) {
	t.Parallel()
	said := 0
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, observer(t, layer.Resource),
		pipeline.Layer{ID: "farewell", Kind: "test", Scope: layer.Thread, Impl: farewell{&said}})}})
	c := in("one", "ada")
	l.turnOf(c, "u:hello", "a:hi")
	l.turnOf(in("two", "ada"), "u:hello", "a:hi")
	if err := l.m.Delete(t.Context(), c.Scope); err != nil {
		t.Fatal(err)
	}
	if err := l.m.Delete(t.Context(), c.Scope); !errors.Is(err, memory.ErrNoSession) {
		t.Errorf("deleted twice: %v", err)
	}
	c.History = memory.HistoryServer
	if view := l.turnOf(c, "u:again", "a:ok"); strings.Contains(view, "hello") || strings.Count(view, "Processed") != 1 || said != 1 {
		t.Errorf("view %s, disposed %d times", view, said)
	}
}

// listener is a layer that keeps what it was told, and how executions ended.
type listener struct{ heard, ends *[]string }

func (l listener) Store(_ context.Context, _ *layer.Turn, s layer.State, r *layer.Response) (layer.State, error) {
	*l.heard = append(*l.heard, r.Text)
	return s, nil
}

func (l listener) Complete(_ context.Context, _ *layer.Turn, s layer.State, o layer.Outcome) (layer.State, error) {
	*l.ends = append(*l.ends, string(o.Result))
	return s, nil
}

// censor forbids an answer.
type censor struct{ listener }

func (censor) ReviewResponse(_ context.Context, _ *layer.Turn, _ layer.State, r *layer.Response) (layer.Verdict, error) {
	if r.Text == "forbidden" {
		return layer.Verdict{Action: layer.Deny}, nil
	}
	return layer.Verdict{}, nil
}

// TestNothingIsLearntFromFailedCalls: store hooks do not run without an answer. The run does not end either, since
// clients retry; it does end with an answer that a layer forbids. The end of a run is not the end of the work.
func TestNothingIsLearntFromFailedCalls(t *testing.T) {
	t.Parallel()
	var heard, ends []string
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t,
		pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Thread, Impl: censor{listener{&heard, &ends}}})}})
	for _, c := range []struct {
		name string
		edit func(a *memory.Answer)
		want int
		ends string
	}{
		{"refused", func(a *memory.Answer) { a.HTTPStatus = 429 }, 0, ""},
		{"failed", func(a *memory.Answer) { a.HTTPStatus, a.Reply.Choices = 500, nil }, 0, ""},
		{"cut by upstream", func(a *memory.Answer) { a.Aborted = memory.AbortedByUpstream }, 0, ""},
		{"cut by the client", func(a *memory.Answer) { a.Aborted = memory.AbortedByClient }, 0, ""},
		{"failed in the middle, with status 200", func(a *memory.Answer) { a.Reply.Error = []byte(`{"message":"overloaded"}`) }, 0, ""},
		{"too large", func(a *memory.Answer) { a.Reply.Truncated = true }, 0, ""},
		{"asks for a tool", func(a *memory.Answer) { *a = answer(t, "c:x") }, 1, ""},
		{"forbidden", func(a *memory.Answer) { *a = answer(t, "a:forbidden") }, 0, "denied"},
		{"whole", func(*memory.Answer) {}, 1, "answered"},
	} {
		heard, ends = nil, nil
		a := answer(t, "a:half")
		c.edit(&a)
		turn := l.begin(memory.Call{}, "u:hi")
		if a.HTTPStatus == 200 && a.Aborted == memory.NotAborted {
			turn.Review(t.Context(), a.Reply)
		}
		turn.Commit(a)
		if len(heard) != c.want || strings.Join(ends, " ") != c.ends {
			t.Errorf("%s: layers heard %q, and of ends %q", c.name, heard, ends)
		}
	}
}

// eraser lets the model see only so many of the last items, and so many of the new ones.
type eraser struct{ history, fresh int }

func (e eraser) ProjectHistory(_ context.Context, _ *layer.Turn, _ layer.State, h []wire.Item) ([]wire.Item, error) {
	return h[max(0, len(h)-e.history):], nil
}

func (e eraser) AppendItems(_ context.Context, _ *layer.Turn, _ layer.State, items []wire.Item) (layer.Appended, error) {
	return layer.Appended{Items: items[max(0, len(items)-e.fresh):]}, nil
}

// TestLayersNeverHideWhatIsAsked: layers cannot hide the current round from the model.
func TestLayersNeverHideWhatIsAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		eraser eraser
		want   string
	}{
		{"no history", eraser{0, 9}, "u:1 a:1 u:2 c:x r:x"},
		{"a part of the round", eraser{2, 9}, "u:1 a:1 u:2 c:x r:x"},
		{"the round alone", eraser{3, 9}, "u:2 c:x r:x"},
		{"nothing that is new", eraser{9, 0}, "u:1 a:1 u:2 c:x r:x"},
		{"neither", eraser{0, 0}, "u:1 a:1 u:2 c:x r:x"},
	} {
		l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t,
			pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Thread, Impl: c.eraser})}})
		l.turn("u:1", "a:1")
		l.turn("u:1 a:1 u:2", "c:x")
		if view := l.turn("u:1 a:1 u:2 c:x r:x", "a:2"); view != c.want {
			t.Errorf("%s: %s", c.name, view)
		}
	}
}

// measurer notes what layers that choose history are told of the rest of the view.
type measurer struct{ overhead *int }

func (m measurer) ProjectHistory(_ context.Context, t *layer.Turn, _ layer.State, h []wire.Item) ([]wire.Item, error) {
	*m.overhead = t.Overhead
	return h, nil
}

// TestLayersKnowTheWholeView: a layer that chooses history knows what system prompt, tools, and blocks cost, those of the run's
// beginning too. Without a budget for views nothing else would count them.
func TestLayersKnowTheWholeView(t *testing.T) {
	t.Parallel()
	overhead := 0
	c := view.DefaultPromptCache()
	note := strings.Repeat("note ", 200)
	l := newLab(t, memory.Options{Shape: memory.Shape{PromptCache: &c, Layers: layersOf(t,
		pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Thread, Impl: measurer{&overhead}},
		pipeline.Layer{ID: "b", Kind: "test", Scope: layer.Thread, Placement: layer.Live, Impl: fixed(note)},
	)}})
	system, tools := "s:"+strings.Repeat("x", 4000), `[{"type":"function","function":{"name":"look","description":"`+strings.Repeat("y", 8000)+`"}}]`
	for _, c := range []struct{ words, reply string }{{system + " u:1", "c:x"}, {system + " u:1 c:x r:x", "a:2"}} {
		l.beginWith(memory.Call{}, c.words, tools).Commit(answer(t, c.reply))
		if least := (4000 + 8000 + len(note)) / 4; overhead < least || overhead > least+100 {
			t.Errorf("%d tokens are said to stand beside the history, at least %d do", overhead, least)
		}
	}
}

// fixed recalls a text.
type fixed string

func (f fixed) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	return layer.OneBlock(string(f)), nil
}

// slowListener hears what the user said, once it may: after the client was served.
type slowListener struct {
	listener
	may chan struct{}
}

func (slowListener) Slow() bool { return true }

func (l slowListener) Store(ctx context.Context, _ *layer.Turn, s layer.State, r *layer.Response) (layer.State, error) {
	select {
	case <-l.may:
	case <-ctx.Done():
		return s, ctx.Err()
	}
	for _, it := range r.Input {
		*l.heard = append(*l.heard, it.Text())
	}
	return s, nil
}

// TestSlowLayersHearWhatWasSaid: the body that a request came in is used again after the commit, while layers still learn.
func TestSlowLayersHearWhatWasSaid(t *testing.T) {
	t.Parallel()
	var heard []string
	slow := slowListener{listener{&heard, new([]string)}, make(chan struct{})}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Thread, Impl: slow})}})
	body := []byte(`{"model":"m","messages":[` + messages("u:hello u:there") + `]}`)
	turn := l.beginBody(memory.Call{}, body)
	turn.Commit(answer(t, "a:hi"))
	copy(body, strings.Repeat(" ", len(body)))
	close(slow.may)
	l.m.Close()
	if diff := cmp.Diff([]string{"hello", "there"}, heard); diff != "" {
		t.Errorf("-said +heard:\n%s", diff)
	}
}

// slowEnd is told of ends by a service that takes longer than a store may.
type slowEnd struct{ listener }

func (slowEnd) Slow() bool           { return true }
func (slowEnd) Has(hook string) bool { return hook == layer.HookComplete }

func (s slowEnd) Complete(ctx context.Context, t *layer.Turn, state layer.State, o layer.Outcome) (layer.State, error) {
	select {
	case <-time.After(time.Second):
		return s.listener.Complete(ctx, t, state, o)
	case <-ctx.Done():
		return state, ctx.Err()
	}
}

// slowStore is a layer without a service that takes as long as the commit may.
type slowStore struct{ listener }

func (slowStore) Has(hook string) bool { return hook == layer.HookStore }

func (slowStore) Store(ctx context.Context, _ *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
	<-ctx.Done()
	return s, ctx.Err()
}

// TestSlowHooksTakeNoTimeOfTheStore: a layer that is told of an end by a service is told after the commit. A hook that takes long
// before it is cut, and the store still has its own time.
func TestSlowHooksTakeNoTimeOfTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, reply := range []string{"a:hi", "a:forbidden"} {
			var ends, judged []string
			heard := listener{new([]string), &ends}
			l := newLab(t, memory.Options{CommitWait: 250 * time.Millisecond, Shape: memory.Shape{Layers: layersOf(t,
				pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Thread, Impl: slowEnd{heard}},
				pipeline.Layer{ID: "b", Kind: "test", Scope: layer.Thread, Impl: slowStore{heard}},
				pipeline.Layer{ID: "c", Kind: "test", Scope: layer.Thread, Impl: censor{listener{new([]string), &judged}}},
			)}})
			turn, a := l.begin(memory.Call{}, "u:hi"), answer(t, reply)
			turn.Review(t.Context(), a.Reply)
			turn.Commit(a)
			if records := l.records(); len(records) != 1 {
				t.Errorf("%s: %d turns are stored after the commit", reply, len(records))
			}
			l.m.Close()
			if want := map[string]string{"a:hi": "answered", "a:forbidden": "denied"}[reply]; strings.Join(ends, " ") != want {
				t.Errorf("%s: the layer was told of %q, want %q", reply, ends, want)
			}
		}
	})
}

// straggler looks at the history when its time is over.
type straggler struct{ may, seen chan string }

func (s straggler) ProjectHistory(_ context.Context, _ *layer.Turn, _ layer.State, h []wire.Item) ([]wire.Item, error) {
	<-s.may
	s.seen <- h[0].Text()
	return h[1:], nil
}

// TestStragglersDoNotSeeOtherRequests: a hook that outlives its time, and the turn, still looks at what it was given, and
// not at the next request, which comes in the same memory. Run it with -race.
func TestStragglersDoNotSeeOtherRequests(t *testing.T) {
	t.Parallel()
	late := straggler{make(chan string), make(chan string)}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{
		ID: "a", Kind: "test", Scope: layer.Thread, Impl: late, Timeouts: layer.Timeouts{ProjectHistory: time.Nanosecond},
	})}})
	body := []byte(`{"model":"m","messages":[` + messages("u:hello a:hi u:there") + `]}`)
	turn := l.beginBody(memory.Call{}, body)
	if view := told(t, turn.View); view != "u:hello a:hi u:there" {
		t.Errorf("view %s", view)
	}
	turn.Commit(answer(t, "a:hi"))
	copy(body, bytes.Repeat([]byte(" "), len(body)))
	close(late.may)
	if text := <-late.seen; text != "hello" {
		t.Errorf("a hook that is late sees %q", text)
	}
}

// TestTurnViewHasTheBytesOfBlocks: what a turn sent is shown byte for byte, tags and all.
func TestTurnViewHasTheBytesOfBlocks(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, notebook(t, layer.Thread))}})
	c := in("one", "ada")
	l.update(c, `{"k":"a <b> & c \u2028"}`)
	turn := l.begin(c, "u:next")
	turn.Commit(answer(t, "a:ok"))
	shown, err := l.m.TurnView(t.Context(), c.Scope, turn.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(raws(turn.View), raws(shown)); diff != "" {
		t.Errorf("-sent +shown:\n%s", diff)
	}
}

func raws(items []wire.Item) (all []string) {
	for _, it := range items {
		all = append(all, string(it.Raw))
	}
	return all
}

// The record of a turn calls a layer what its operator does.
func TestDisplayName(t *testing.T) {
	t.Parallel()
	notes := notebook(t, layer.Thread)
	notes.Name = "What Ann wants"
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, notes)}})
	l.turn("u:hi", "a:ho")
	if got := l.records()[0].Layers; len(got) != 1 || got[0].ID != "working-memory" || got[0].Name != "What Ann wants" {
		t.Errorf("the record says %+v", got)
	}
}

// hookTime is how long the hooks of slow layers take, which is less than a hook may.
const hookTime = 300 * time.Millisecond

type slowInit struct{}

func (slowInit) Init(_ context.Context, _ *layer.Turn, s layer.State) (layer.State, error) {
	time.Sleep(hookTime)
	return s, nil
}

type slowAppend struct{}

func (slowAppend) AppendItems(_ context.Context, _ *layer.Turn, s layer.State, items []wire.Item) (layer.Appended, error) {
	time.Sleep(hookTime)
	return layer.Appended{Items: items, State: s}, nil
}

type slowRecall struct{}

func (slowRecall) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	time.Sleep(hookTime)
	return layer.Recalled{}, nil
}

// Hooks have times of their own: a slow one takes none of the store's.
func TestSlowHooksLeaveTheStoreItsTime(t *testing.T) {
	for name, impl := range map[string]any{"init": slowInit{}, "append": slowAppend{}, "recall": slowRecall{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := pipeline.Layer{ID: "slow", Kind: "test", Slot: 1, Scope: layer.Thread, Impl: impl}
				l := newLab(t, memory.Options{ReadWait: hookTime / 2, Shape: memory.Shape{
					Layers: layersOf(t, slow), Window: &view.Window{MaxTokens: 64000, EvictShare: 0.5, InFlight: view.InFlightWindow},
				}})
				l.turn("u:1", "a:1")
				turn := l.begin(memory.Call{Scope: scope}, "u:2")
				if got := told(t, turn.View); got != "u:1 a:1 u:2" || turn.Summary.Status != memory.StatusOK {
					t.Errorf("view %q, status %s", got, turn.Summary.Status)
				}
				turn.Forwarded()
				turn.Commit(answer(t, "a:2"))
			})
		})
	}
}

// A client trims its history, so that the window's place has to be looked up in the store, after recall: the window keeps its
// place from turn to turn all the same, and upstream's cache stays valid.
func TestSlowRecallDoesNotMoveTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		slow := pipeline.Layer{ID: "slow", Kind: "test", Slot: 1, Scope: layer.Thread, Impl: slowRecall{}}
		l := newLab(t, memory.Options{ReadWait: hookTime / 2, Log: slog.New(slog.NewTextHandler(log, nil)), Shape: memory.Shape{
			Layers: layersOf(t, slow), Window: &view.Window{MaxTokens: 100, EvictShare: 0.5, InFlight: view.InFlightWindow},
			Price: func(string, wire.Item) int { return 10 },
		}})
		const turns, shown = 14, 15
		var words []string
		for i := range turns {
			words = append(words, fmt.Sprint("u:", i))
			l.turn(strings.Join(words[max(0, len(words)-shown):], " "), fmt.Sprint("a:", i))
			words = append(words, fmt.Sprint("a:", i))
		}
		if n := strings.Count(log.String(), "cut anew"); n > 0 {
			t.Errorf("%d windows are cut anew\n%s", n, log)
		}
	})
}

// rewriter is a layer whose append hook takes a second, and changes its state each time.
type rewriter struct{}

func (rewriter) AppendItems(_ context.Context, _ *layer.Turn, _ layer.State, items []wire.Item) (layer.Appended, error) {
	time.Sleep(time.Second)
	return layer.Appended{Items: items, State: layer.State(`"` + time.Now().Format(time.RFC3339Nano) + `"`)}, nil
}

// Turns of a session end at the same time, so that the hooks of all but one run again. There is no spool that would take a turn.
func TestHooksThatRunAgainLoseNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := pipeline.Layer{ID: "slow", Kind: "test", Slot: 1, Scope: layer.Thread, Impl: rewriter{}}
		l := newLab(t, memory.Options{CommitWait: hookTime, Lost: func(n int) { t.Errorf("%d turns lost", n) }, Shape: memory.Shape{Layers: layersOf(t, slow)}})
		l.turn("u:1", "a:1")
		var open []*memory.Turn
		for _, said := range []string{"u:2", "u:3", "u:4"} {
			turn := l.begin(memory.Call{Scope: scope}, said)
			turn.Forwarded()
			open = append(open, turn)
		}
		for _, turn := range open {
			go turn.Commit(answer(t, "a:x"))
		}
		time.Sleep(time.Minute)
	})
}
