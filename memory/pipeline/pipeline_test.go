package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

type ctx = context.Context

// fake has the hooks whose fields are set.
type fake struct {
	init     func(ctx, *layer.Turn, layer.State) (layer.State, error)
	recall   func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error)
	project  func(ctx, layer.State, []wire.Item) ([]wire.Item, error)
	append   func(ctx, layer.State, []wire.Item) (layer.Appended, error)
	call     func(ctx, layer.State, layer.ToolCall) (layer.Verdict, error)
	response func(ctx, layer.State, *layer.Response) (layer.Verdict, error)
	async    bool
	store    func(ctx, *layer.Turn, layer.State, *layer.Response) (layer.State, error)
	spawn    func(ctx, layer.State) (layer.State, error)
	back     func(ctx, layer.State, layer.State) (layer.State, error)
	complete func(ctx, layer.State, layer.Outcome) (layer.State, error)
	dispose  func(ctx, layer.State) error
	tools    []layer.Tool
}

func (f *fake) Init(c ctx, t *layer.Turn, s layer.State) (layer.State, error) { return f.init(c, t, s) }

func (f *fake) Recall(c ctx, t *layer.Turn, s layer.State, n int) (layer.Recalled, error) {
	return f.recall(c, t, s, n)
}

func (f *fake) ProjectHistory(c ctx, _ *layer.Turn, s layer.State, h []wire.Item) ([]wire.Item, error) {
	return f.project(c, s, h)
}

func (f *fake) AppendItems(c ctx, _ *layer.Turn, s layer.State, i []wire.Item) (layer.Appended, error) {
	return f.append(c, s, i)
}

func (f *fake) ReviewToolCall(c ctx, _ *layer.Turn, s layer.State, tc layer.ToolCall) (layer.Verdict, error) {
	return f.call(c, s, tc)
}

func (f *fake) ReviewResponse(c ctx, _ *layer.Turn, s layer.State, r *layer.Response) (layer.Verdict, error) {
	return f.response(c, s, r)
}
func (f *fake) Async() bool { return f.async }
func (f *fake) Store(c ctx, t *layer.Turn, s layer.State, r *layer.Response) (layer.State, error) {
	return f.store(c, t, s, r)
}

func (f *fake) Spawn(c ctx, _ *layer.Turn, s layer.State) (layer.State, error) { return f.spawn(c, s) }

func (f *fake) Return(c ctx, _ *layer.Turn, s, child layer.State, _ layer.Outcome) (layer.State, error) {
	return f.back(c, s, child)
}

func (f *fake) Complete(c ctx, _ *layer.Turn, s layer.State, o layer.Outcome) (layer.State, error) {
	return f.complete(c, s, o)
}
func (f *fake) Dispose(c ctx, _ *layer.Turn, s layer.State) error { return f.dispose(c, s) }
func (f *fake) Tools() []layer.Tool                               { return f.tools }

func (f *fake) Has(hook string) bool {
	return map[string]bool{
		layer.HookInit: f.init != nil, layer.HookRecall: f.recall != nil, layer.HookProjectHistory: f.project != nil,
		layer.HookAppendItems: f.append != nil, layer.HookReviewToolCall: f.call != nil,
		layer.HookReviewResponse: f.response != nil, layer.HookStore: f.store != nil, layer.HookSpawn: f.spawn != nil,
		layer.HookReturn: f.back != nil, layer.HookComplete: f.complete != nil, layer.HookDispose: f.dispose != nil,
		layer.HookTools: f.tools != nil,
	}[hook]
}

// says recalls always the same.
func says(texts ...string) *fake {
	return &fake{recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) {
		return layer.Recalled{Messages: texts}, nil
	}}
}

// stores replaces the state by next.
func stores(next string) *fake {
	return &fake{store: func(ctx, *layer.Turn, layer.State, *layer.Response) (layer.State, error) {
		return layer.State(next), nil
	}}
}

// at names a layer, in the scope of its thread.
func at(id string, slot int, impl any) Layer {
	return Layer{ID: id, Slot: slot, Scope: layer.Thread, Impl: impl}
}

// turn is a request of session s, resource r, execution e.
func turn() layer.Turn {
	return layer.Turn{Thread: "s", Resource: "r", Execution: "e", Dialect: dialects.Chat}
}

func build(t *testing.T, o Options, layers ...Layer) *Pipeline {
	t.Helper()
	return layertest.Must(New(layers, o))(t)
}

func begin(t *testing.T, p *Pipeline, of layer.Turn, states map[Cell]layer.State) *Run {
	t.Helper()
	return layertest.Must(p.Begin(t.Context(), "tenant", of, states, Credential{}))(t)
}

func start(t *testing.T, o Options, layers ...Layer) *Run {
	t.Helper()
	return begin(t, build(t, o, layers...), turn(), nil)
}

func names(blocks []view.Block) string {
	var ids []string
	for _, b := range blocks {
		ids = append(ids, b.Layer)
	}
	return strings.Join(ids, " ")
}

func user(text string) wire.Item { return wire.NewMessage(dialects.Chat, wire.User, text) }

func texts(items []wire.Item) string {
	var all []string
	for _, it := range items {
		all = append(all, it.Text())
	}
	return strings.Join(all, " ")
}

func TestNewRefuses(t *testing.T) {
	tool := func(name, schema string) *fake {
		return &fake{tools: []layer.Tool{{
			Name: name, Parameters: []byte(schema),
			Run: func(ctx, *layer.Turn, layer.State, []byte) (string, layer.State, error) { return "", nil, nil },
		}}}
	}
	for _, c := range []struct {
		name   string
		layers []Layer
		want   []string
	}{
		{"duplicate id", []Layer{at("a", 1, says("x")), at("a", 2, says("y"))}, []string{"layers[1].id: layers[0] has this id already"}},
		{"bad id", []Layer{at("a/b", 1, says("x"))}, []string{"layers[0].id: want"}},
		{"several", []Layer{{Slot: -1, Impl: says("x")}}, []string{"layers[0].id:", "layers[0].slot:", "layers[0].scope:"}},
		{"no hook", []Layer{at("a", 1, new(fake)), at("b", 1, 5), at("c", 1, nil)}, []string{"layers[0]: a layer", "layers[1]: a layer", "layers[2]: a layer"}},
		{"tools of one name", []Layer{at("a", 1, tool("b_c", "")), at("a_b", 2, tool("c", ""))}, []string{"layer a_b: tools: c: layer a has a tool"}},
		{"long tool", []Layer{at("a", 1, tool(strings.Repeat("n", 63), ""))}, []string{"name: want 1 to 64"}},
		{"bad schema", []Layer{at("a", 1, tool("f", `{"type":"strin"}`)), at("b", 1, tool("f", `{"type":"string"}`)), at("c", 1, tool("f", `[]`))}, []string{"parameters: type: want", "type: want object", "parameters: want"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.layers, Options{})
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("%d lines, want %d: %v", len(lines), len(c.want), err)
			}
			for i, want := range c.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %d is %q, want %q in it", i, lines[i], want)
				}
			}
		})
	}
}

func TestWithoutLayersNothingIsDone(t *testing.T) {
	p := build(t, Options{})
	items := []wire.Item{user("u")}
	of := turn()
	for name, p := range map[string]*Pipeline{"empty": p, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			r, err := p.Begin(t.Context(), "tenant", of, nil, Credential{})
			if err != nil || p.Cells(&of) != nil {
				t.Fatal(err)
			}
			c := t.Context()
			history := r.Project(c, r.Append(c, items), nothingBeside, 0, math.MaxInt)
			fit := r.Fit(Prompt{}, r.Recall(c, 5), history)
			if len(history) != 1 || len(fit.Left) != 0 || r.Owns("x") || r.ReviewsCalls() || r.HoldsResponse() || r.Settles(nil) {
				t.Fatal("something is done")
			}
			r.Store(c, nil)
			r.Settle(c, nil, nil)()
			r.Complete(c, layer.Outcome{})
			r.Dispose(c)
			r.Rebase(c, nil)
			r.Written()
			if r.Changes() != nil || r.Report() != nil || r.Definitions(dialects.Chat) != nil {
				t.Fatal("something is reported")
			}
		})
	}
}

// A run without layers and limits counts for the model of its request, such as a summary of what a window has cut off.
func TestWithoutLayersTheModelCounts(t *testing.T) {
	p := build(t, Options{Count: func(model, text string) int { return len(model) + len(text) }})
	r, err := p.Begin(t.Context(), "tenant", layer.Turn{Model: "gpt"}, nil, Credential{})
	if err != nil || r.Count("text") != len("gpt"+"text") {
		t.Errorf("%d tokens: %v", r.Count("text"), err)
	}
}

func TestRecall(t *testing.T) {
	broken := &fake{recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) {
		return layer.Recalled{Messages: []string{"no"}}, errors.New("secret words")
	}}
	panics := &fake{recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) { panic("secret words") }}
	limited := func(n float64, f *fake) Layer {
		l := at("l", 1, f)
		l.Budget = layer.AtMost(n)
		return l
	}
	for _, c := range []struct {
		name   string
		layers []Layer
		want   string
		tokens int    // of the first block
		report Report // of the first layer
	}{
		{
			"by slot, equal ones by configuration",
			[]Layer{at("f", 350, says("6")), at("b", 90, says("2")), at("e", 200, says("5")), at("c1", 100, says("3")), at("a", 80, says("1")), at("c2", 100, says("4"))},
			"a b c1 c2 e f", 1,
			Report{ID: "a"},
		},
		{"one message, a token for each four bytes", []Layer{at("a", 1, says("12345"))}, "a", 2, Report{ID: "a"}},
		{"nothing", []Layer{at("a", 1, says()), at("b", 1, says(""))}, "", 0, Report{ID: "a"}},
		{
			"a failure leaves the others",
			[]Layer{at("a", 1, broken), at("b", 1, says("x"))},
			"b", 1,
			Report{ID: "a", Failed: layer.HookRecall, Class: ClassError},
		},
		{
			"a panic too",
			[]Layer{at("a", 1, panics), at("b", 1, says("x"))},
			"b", 1,
			Report{ID: "a", Failed: layer.HookRecall, Class: ClassPanic},
		},
		{"over budget", []Layer{limited(2, says("123456789"))}, "", 0, Report{ID: "l", Failed: layer.HookRecall, Class: ClassBudget}},
		{"at budget", []Layer{limited(3, says("123456789"))}, "l", 3, Report{ID: "l"}},
		{"far over budget", []Layer{limited(2, says(strings.Repeat("x", 41)))}, "", 0, Report{ID: "l", Failed: layer.HookRecall, Class: ClassRefused}},
		{"10 MB", []Layer{at("a", 1, says(strings.Repeat("x", 10<<20)))}, "", 0, Report{ID: "a", Failed: layer.HookRecall, Class: ClassRefused}},
		{"without a share it is asked all the same", []Layer{limited(0, says("12345"))}, "l", 2, Report{ID: "l"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			r := start(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, c.layers...)
			blocks := r.Recall(t.Context(), 0)
			if got := names(blocks); got != c.want {
				t.Errorf("recalled %q, want %q", got, c.want)
			}
			if len(blocks) > 0 && (blocks[0].Tokens != c.tokens || len(blocks[0].Texts) != 1) {
				t.Errorf("%d messages of %d tokens, want %d", len(blocks[0].Texts), blocks[0].Tokens, c.tokens)
			}
			if diff := cmp.Diff(c.report, r.Report()[0]); diff != "" {
				t.Error(diff)
			}
			if (c.report.Failed != "") != (log.Len() > 0) || strings.Contains(log.String(), "secret") {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

// viewed is a fake whose recall depends on the view.
type viewed struct{ *fake }

func (viewed) OfView() bool { return true }

// TestAFailedRecallHoldsTheBlock has recalls that fail and succeed in one request. The last one decides whether the layer has
// nothing to say any more, or only could not say it: then its earlier block holds.
func TestAFailedRecallHoldsTheBlock(t *testing.T) {
	down := errors.New("down")
	outcomes := func(errs ...error) *fake {
		return &fake{recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) {
			err := errs[0]
			errs = errs[1:]
			return layer.Recalled{Messages: []string{"found"}}, err
		}}
	}
	appendFails := outcomes(down)
	appendFails.append = func(ctx, layer.State, []wire.Item) (layer.Appended, error) { return layer.Appended{}, down }
	for _, c := range []struct {
		name string
		l    any
		held bool
		text string
	}{
		{"it fails", outcomes(down), true, ""},
		{"it fails behind an append that failed", appendFails, true, ""},
		{"it fails, and succeeds for the view", viewed{outcomes(down, nil)}, false, "found"},
		{"it succeeds, and fails for the view", viewed{outcomes(nil, down)}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, Options{}, at("l", 1, c.l))
			r.Append(t.Context(), []wire.Item{user("u")})
			r.Recall(t.Context(), 0)
			if r.OfView() {
				r.RecallOfView(t.Context(), ViewOf{})
			}
			said := r.Said()[0]
			if text := strings.Join(said.Texts, ""); said.Held != c.held || text != c.text {
				t.Errorf("the block holds: %t, and says %q; want %t and %q", said.Held, text, c.held, c.text)
			}
		})
	}
}

// TestWithoutRoomTheBlockHolds: a layer that gets no tokens at all has not said that its earlier block is void.
func TestWithoutRoomTheBlockHolds(t *testing.T) {
	for _, c := range []struct {
		name   string
		room   int
		says   layer.Recalled
		budget layer.Budget
		held   bool
	}{
		{"the view has no room", 0, layer.Recalled{Messages: []string{"found"}}, layer.AtMost(100), true},
		{"the system prompt leaves it no share", 50, layer.Recalled{NoRoom: true}, layer.AtMost(100), true},
		{"it has no share, and nothing to say", 50, layer.Recalled{}, layer.AtMost(100), false},
		{"its text has outgrown its share", 100, layer.Recalled{NoRoom: true}, layer.AtMost(10), false},
		{"the operator gives it nothing", 100, layer.Recalled{NoRoom: true}, layer.AtMost(0), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := at("l", 1, &fake{recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) { return c.says, nil }})
			l.Budget = c.budget
			r := start(t, Options{}, l)
			r.Limit(c.room)
			r.Recall(t.Context(), 50)
			if said := r.Said()[0]; said.Held != c.held || len(said.Texts) > 0 {
				t.Errorf("the block holds: %t, want %t; it says %q", said.Held, c.held, said.Texts)
			}
		})
	}
}

// TestRecallWithinShares hands each layer its share (docs/semantics.md#budget-shares).
func TestRecallWithinShares(t *testing.T) {
	got := map[string]int{}
	asks := func(id string, b layer.Budget) Layer {
		l := at(id, 1, &fake{recall: func(_ ctx, _ *layer.Turn, _ layer.State, n int) (layer.Recalled, error) {
			got[id] = n
			return layer.Recalled{}, nil
		}})
		l.Budget = b
		return l
	}
	policy := view.Policy{Budget: 10000, Reserve: 900}
	r := start(t, Options{Policy: policy}, asks("wm", layer.Between(200, 1500)), asks("obs", layer.Between(500, 2500)),
		asks("auto", layer.Budget{}), asks("omitted", layer.Budget{}), asks("flat", layer.AtMost(300)), at("silent", 1, stores("1")))
	r.Recall(t.Context(), 100)
	if diff := cmp.Diff(map[string]int{"wm": 1099, "obs": 1883, "auto": 1245, "omitted": 1245, "flat": 207}, got); diff != "" {
		t.Error(diff)
	}
	r = start(t, Options{}, asks("a", layer.Budget{}))
	if r.Recall(t.Context(), 100); got["a"] != math.MaxInt {
		t.Errorf("without a limit: %d", got["a"])
	}
}

// clock is a layer that shows how often it was asked, and changes its state when it stores.
type clock struct{ asked int }

func (c *clock) Recall(_ ctx, _ *layer.Turn, s layer.State, _ int) (layer.Recalled, error) {
	c.asked++
	if string(s) == `"quiet"` {
		return layer.Recalled{}, nil
	}
	return layer.Recalled{Messages: []string{fmt.Sprintf("%s #%d", s, c.asked)}}, nil
}

func (c *clock) Store(_ ctx, _ *layer.Turn, s layer.State, r *layer.Response) (layer.State, error) {
	if r.Text == "" {
		return s, nil
	}
	return layer.State(r.Text), nil
}

func TestEventual(t *testing.T) {
	type request struct {
		tenant, resource string
		system           int
		answer           string // what becomes the state, empty for no change
		want             string // recalled
	}
	for _, c := range []struct {
		name     string
		atomic   bool
		budget   layer.Budget
		requests []request
	}{
		{"served until the state changes", false, layer.Budget{}, []request{
			{want: " #1"}, {want: " #1"}, {want: " #1", answer: `"b"`}, {want: `"b" #2`}, {want: `"b" #2`},
		}},
		{"not shared between scopes and tenants", false, layer.Budget{}, []request{
			{want: " #1"}, {resource: "r2", want: " #2"}, {tenant: "t2", want: " #3"}, {want: " #1"}, {resource: "r2", want: " #2"},
		}},
		{"nothing after nothing", false, layer.Budget{}, []request{
			{want: " #1", answer: `"quiet"`}, {want: ""}, {want: ""},
		}},
		{"atomic all the same", true, layer.Budget{}, []request{{want: " #1"}, {want: " #2"}}},
		{"asked again when the text no longer fits", false, layer.AtMost(10), []request{
			{answer: `"` + strings.Repeat("x", 20) + `"`, want: " #1"}, {want: `"` + strings.Repeat("x", 20) + `" #2`}, {system: 994, want: ""},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := Layer{ID: "l", Scope: layer.Resource, Eventual: true, Budget: c.budget, Impl: new(clock)}
			p := build(t, Options{AtomicOnly: c.atomic, Policy: view.Policy{Budget: 1000}}, l)
			store := map[string]map[Cell]layer.State{}
			for i, q := range c.requests {
				of := turn()
				if q.resource != "" {
					of.Resource = q.resource
				}
				if store[q.tenant] == nil {
					store[q.tenant] = map[Cell]layer.State{}
				}
				r := layertest.Must(p.Begin(t.Context(), q.tenant, of, store[q.tenant], Credential{}))(t)
				var got string
				for _, b := range r.Recall(t.Context(), q.system) {
					got += b.Texts[0]
				}
				if got != q.want {
					t.Errorf("request %d recalled %q, want %q", i, got, q.want)
				}
				r.Store(t.Context(), &layer.Response{Text: q.answer})
				for _, ch := range r.Changes() {
					store[q.tenant][ch.Cell] = ch.State
				}
			}
		})
	}
}

// TestRerender: a layer whose append hook asks for it is called again, although its earlier block would do, and no other layer is.
func TestRerender(t *testing.T) {
	for again, want := range map[bool]string{false: " #1  #1 ", true: " #1  #2 "} {
		type both struct {
			layer.Recaller
			layer.ItemAppender
		}
		asking := &fake{append: func(_ ctx, _ layer.State, items []wire.Item) (layer.Appended, error) {
			return layer.Appended{Items: items, Rerender: again}, nil
		}}
		said := func(r *Run, held ...string) (text string) {
			r.Append(t.Context(), []wire.Item{user("u")})
			for _, b := range r.Recall(t.Context(), 0, held...) {
				text += b.Texts[0] + " "
			}
			return text
		}
		eventual := func(id string, slot int, impl any) Layer {
			l := at(id, slot, impl)
			l.Eventual = true
			return l
		}
		p := build(t, Options{}, eventual("a", 1, new(clock)), eventual("b", 2, both{new(clock), asking}))
		begin(t, p, turn(), nil).Recall(t.Context(), 0)
		if got := said(begin(t, p, turn(), nil)); got != want {
			t.Errorf("of an eventual layer, with rerender %t: %q, want %q", again, got, want)
		}

		r := start(t, Options{}, at("a", 1, new(clock)), at("b", 2, both{new(clock), asking}))
		if got, want := said(r, "a", "b"), map[bool]string{true: " #1 "}[again]; got != want || !r.Said()[0].Held || r.Said()[1].Held == again {
			t.Errorf("within a tool loop, with rerender %t: %q, want %q", again, got, want)
		}
	}
}

// TestEventualEmpty: an eventual layer that has nothing to say any more is served no more, also where only its text changed.
func TestEventualEmpty(t *testing.T) {
	answers := []string{"a", "", ""}
	f := &fake{
		recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) {
			text := answers[0]
			answers = answers[1:]
			return layer.Recalled{Messages: []string{text}}, nil
		},
		append: func(_ ctx, _ layer.State, items []wire.Item) (layer.Appended, error) {
			return layer.Appended{Items: items, Rerender: true}, nil
		},
	}
	l := at("a", 1, f)
	l.Eventual = true
	p := build(t, Options{}, l)
	for i, want := range []string{"a", "a", "", ""} {
		r := begin(t, p, turn(), nil)
		if i == 2 {
			r.Append(t.Context(), []wire.Item{user("u")})
		}
		if got := names(r.Recall(t.Context(), 0)); got != want {
			t.Errorf("request %d recalled %q, want %q", i, got, want)
		}
	}
}

func TestAppend(t *testing.T) {
	filter := &fake{append: func(_ ctx, _ layer.State, items []wire.Item) (layer.Appended, error) {
		clear(items[1:]) // its own copy
		return layer.Appended{Items: items[:1]}, nil
	}}
	inject := &fake{append: func(_ ctx, _ layer.State, items []wire.Item) (layer.Appended, error) {
		return layer.Appended{Items: append(items, user("injected"))}, nil
	}}
	empty := &fake{append: func(ctx, layer.State, []wire.Item) (layer.Appended, error) { return layer.Appended{}, nil }}
	throws := &fake{append: func(ctx, layer.State, []wire.Item) (layer.Appended, error) {
		return layer.Appended{}, errors.New("no")
	}}
	foreign := &fake{append: func(_ ctx, _ layer.State, items []wire.Item) (layer.Appended, error) {
		return layer.Appended{Items: append(items, wire.NewMessage(dialects.Responses, wire.User, "x"))}, nil
	}}
	huge := &fake{append: func(_ ctx, _ layer.State, items []wire.Item) (layer.Appended, error) {
		return layer.Appended{Items: append(items, user(strings.Repeat("x", 2<<20)))}, nil
	}}
	for name, c := range map[string]struct {
		chain []*fake
		want  string
	}{
		"filter, then inject":                   {[]*fake{filter, inject}, "a injected"},
		"one that throws passes items on":       {[]*fake{throws, inject}, "a b injected"},
		"nothing left ends the chain":           {[]*fake{empty, inject}, ""},
		"an item of another dialect is refused": {[]*fake{foreign}, "a b"},
		"an item of any size is refused":        {[]*fake{huge}, "a b"},
		"no layer":                              {nil, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			var layers []Layer
			for i, f := range c.chain {
				layers = append(layers, at(fmt.Sprint("l", i), 1, f))
			}
			given := []wire.Item{user("a"), user("b")}
			if got := texts(start(t, Options{}, layers...).Append(t.Context(), given)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if texts(given) != "a b" {
				t.Error("the items that were given have changed")
			}
		})
	}
}

// TestIndices: a layer's choice is found by the items themselves, and that of a layer which makes its items anew by the newest equal
// ones.
func TestIndices(t *testing.T) {
	all := []wire.Item{user("ok"), user("a"), user("ok"), user("b"), user("ok")}
	for _, c := range []struct {
		some []wire.Item
		want []int
	}{
		{nil, []int{}},
		{all, []int{0, 1, 2, 3, 4}},
		{[]wire.Item{user("ok"), user("b")}, []int{2, 3}},
		{[]wire.Item{user("ok"), user("ok")}, []int{2, 4}},
		{[]wire.Item{all[0], all[3]}, []int{0, 3}},
		{[]wire.Item{user("b"), user("a")}, nil},
		{[]wire.Item{all[3], all[1]}, nil},
		{[]wire.Item{user("c")}, nil},
	} {
		got, err := indices(c.some, all)
		if diff := cmp.Diff(c.want, got); diff != "" || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %v, %s", texts(c.some), err, diff)
		}
	}
}

// nothingBeside is the cost of a view that has nothing beside its history.
func nothingBeside() int { return 0 }

func TestProject(t *testing.T) {
	last := func(n int) *fake {
		return &fake{project: func(_ ctx, _ layer.State, h []wire.Item) ([]wire.Item, error) { return h[max(0, len(h)-n):], nil }}
	}
	throws := &fake{project: func(_ ctx, _ layer.State, h []wire.Item) ([]wire.Item, error) {
		clear(h)
		return nil, errors.New("no")
	}}
	turned := &fake{project: func(_ ctx, _ layer.State, h []wire.Item) ([]wire.Item, error) {
		return []wire.Item{h[1], h[0]}, nil
	}}
	invents := &fake{project: func(_ ctx, _ layer.State, h []wire.Item) ([]wire.Item, error) {
		return append(h, user("invented")), nil
	}}
	for name, c := range map[string]struct {
		chain []*fake
		want  string
	}{
		"a chain":                   {[]*fake{last(3), last(2)}, "c d"},
		"one that throws is absent": {[]*fake{throws, last(2)}, "c d"},
		"another order is refused":  {[]*fake{turned}, "a b c d"},
		"new items are refused":     {[]*fake{invents}, "a b c d"},
	} {
		t.Run(name, func(t *testing.T) {
			var layers []Layer
			for i, f := range c.chain {
				layers = append(layers, at(fmt.Sprint("l", i), 1, f))
			}
			given := []wire.Item{user("a"), user("b"), user("c"), user("d")}
			if got := texts(start(t, Options{}, layers...).Project(t.Context(), given, nothingBeside, 0, math.MaxInt)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if texts(given) != "a b c d" {
				t.Error("the history has changed")
			}
		})
	}
}
