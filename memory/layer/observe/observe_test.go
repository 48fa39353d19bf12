package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire"
)

func turn(ask layer.Model) *layer.Turn {
	return &layer.Turn{
		Thread: "a", Now: time.Date(2026, 3, 5, 9, 7, 0, 0, time.UTC), Dialect: wire.Chat, Count: layertest.Quarter, Ask: ask,
	}
}

type model func(ctx context.Context, system, user string) (string, error)

func (m model) Complete(ctx context.Context, system, user string, _ int) (string, error) {
	return m(ctx, system, user)
}

func answers(text string) model {
	return func(context.Context, string, string) (string, error) { return text, nil }
}

func newLayer(t *testing.T, o Options) *Layer {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// say stores assistant texts, one response each.
func say(t *testing.T, l *Layer, tu *layer.Turn, s layer.State, texts ...string) layer.State {
	t.Helper()
	for _, text := range texts {
		next, err := l.Store(t.Context(), tu, s, &layer.Response{Items: []wire.Item{layer.NewText(wire.Chat, wire.Assistant, text)}})
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	return s
}

func read(t *testing.T, s layer.State) state {
	t.Helper()
	st, err := decode(s)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func recall(t *testing.T, l *Layer, s layer.State, budget int) (string, int) {
	t.Helper()
	got, err := l.Recall(t.Context(), turn(nil), s, budget)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(got.Messages, "|"), got.Tokens
}

func item(t *testing.T, d wire.Dialect, raw string) wire.Item {
	t.Helper()
	it, err := wire.ParseItem(d, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return it
}

const chars36 = "abcdefghijklmnopqrstuvwxyz0123456789"

func TestCount(t *testing.T) {
	l, tu := newLayer(t, Options{Observer: Count, BufferThreshold: 10}), turn(nil)
	s := say(t, l, tu, nil, chars36)
	t.Run("case 27: below the threshold nothing is distilled", func(t *testing.T) {
		if st := read(t, s); st.BufferTokens != 9 || len(st.Observations) != 0 || st.Version != 0 {
			t.Errorf("have %+v", st)
		}
	})
	t.Run("case 30: no observations, nothing recalled", func(t *testing.T) {
		if text, _ := recall(t, l, s, 1000); text != "" {
			t.Errorf("have %q", text)
		}
	})
	s = say(t, l, tu, s, "abc")
	t.Run("case 28: the threshold distils the buffer", func(t *testing.T) {
		want := state{Observations: []string{"Processed 2 items"}, Buffer: []entry{}, Version: 1}
		if diff := cmp.Diff(want, read(t, s)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("case 29: what is recalled", func(t *testing.T) {
		text, tokens := recall(t, l, s, 1000)
		if text != "<observations>\n- Processed 2 items\n</observations>" || tokens != 13 {
			t.Errorf("have %d tokens, %q", tokens, text)
		}
	})
	t.Run("case 31: the threshold exactly, and one below", func(t *testing.T) {
		if st := read(t, say(t, l, tu, nil, chars36+"0123")); st.Version != 1 {
			t.Errorf("10 tokens: have %+v", st)
		}
		if st := read(t, say(t, l, tu, nil, chars36)); st.Version != 0 {
			t.Errorf("9 tokens: have %+v", st)
		}
	})
	t.Run("case 41: a reloaded state goes on", func(t *testing.T) {
		again, err := newLayer(t, Options{Observer: Count, BufferThreshold: 10}).Init(t.Context(), tu, s)
		if err != nil {
			t.Fatal(err)
		}
		if st := read(t, say(t, l, tu, again, chars36+chars36)); st.Version != 2 || len(st.Observations) != 2 {
			t.Errorf("have %+v", st)
		}
	})
}

func TestModel(t *testing.T) {
	l := newLayer(t, Options{HasModel: true, MaxObservations: 3, BufferThreshold: 10})
	t.Run("case 32: the last three of four, twice", func(t *testing.T) {
		tu := turn(answers("- o1\n* o2\n\no3\no4\n"))
		s := say(t, l, tu, nil, chars36+chars36, chars36+chars36)
		if st := read(t, s); st.Version != 2 || !cmp.Equal(st.Observations, []string{"o2", "o3", "o4"}) {
			t.Errorf("have %+v", st)
		}
	})
	t.Run("case 33: the whole buffer in its order, as data", func(t *testing.T) {
		var prompt string
		tu := turn(model(func(_ context.Context, _, user string) (string, error) { prompt = user; return "NONE", nil }))
		s := say(t, l, tu, nil, "first", "second </transcript>", chars36)
		want := "<transcript>\nassistant: first\nassistant: second <\\/transcript>\nassistant: " + chars36 + "\n</transcript>"
		if diff := cmp.Diff(want, prompt); diff != "" {
			t.Error(diff)
		}
		if st := read(t, s); len(st.Observations) != 0 || len(st.Buffer) != 0 {
			t.Errorf("NONE was observed: %+v", st)
		}
	})
	over := &layer.Response{Items: []wire.Item{layer.NewText(wire.Chat, wire.Assistant, chars36+chars36)}}
	t.Run("case 34: an observer that fails changes nothing", func(t *testing.T) {
		tu := turn(model(func(context.Context, string, string) (string, error) { return "", errors.New("refused") }))
		if next, err := l.Store(t.Context(), tu, nil, over); err == nil || next != nil {
			t.Errorf("have %s, %v", next, err)
		}
	})
	t.Run("case 35: so does one slower than its timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), Defaults().Timeouts.Store)
			defer cancel()
			tu := turn(model(func(ctx context.Context, _, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() }))
			start := time.Now()
			if next, err := l.Store(ctx, tu, nil, over); !errors.Is(err, context.DeadlineExceeded) || next != nil {
				t.Errorf("have %s, %v", next, err)
			}
			if took := time.Since(start); took != 60*time.Second {
				t.Errorf("gave up after %v, want 60 s", took)
			}
		})
	})
}

func TestInputs(t *testing.T) {
	all := newLayer(t, Options{Observer: Count, BufferThreshold: 10})
	t.Run("case 36: parts of a message are one text", func(t *testing.T) {
		it := item(t, wire.Responses, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"one "},{"type":"output_text","text":"two"}]}`)
		s, err := all.Store(t.Context(), turn(nil), nil, &layer.Response{Items: []wire.Item{it}})
		if err != nil || !cmp.Equal(read(t, s).Buffer, []entry{{byAssistant, "one two"}}) {
			t.Errorf("have %s, %v", s, err)
		}
	})
	t.Run("case 37: nothing said, nothing changed", func(t *testing.T) {
		before := layer.State(`{"observations":[],"buffer":[],"bufferTokens":3,"version":0}`)
		s, err := all.Store(t.Context(), turn(nil), before, &layer.Response{Items: []wire.Item{
			item(t, wire.Chat, `{"role":"assistant","content":""}`),
			item(t, wire.Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`),
			item(t, wire.Responses, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`),
		}})
		if err != nil || string(s) != string(before) {
			t.Errorf("have %s, %v", s, err)
		}
	})
	items := []wire.Item{
		layer.NewText(wire.Responses, wire.User, "hi there"),
		item(t, wire.Responses, `{"type":"function_call_output","call_id":"c","output":"tool out"}`),
		layer.NewText(wire.Responses, wire.Assistant, "asst"),
		layer.NewText(wire.Responses, wire.Developer, "be brief"),
	}
	t.Run("case 42: users and tools are heard too", func(t *testing.T) {
		got, err := all.AppendItems(t.Context(), turn(nil), nil, items)
		if err != nil || !cmp.Equal(got.Items, items) {
			t.Fatalf("items changed, or %v", err)
		}
		if st := read(t, got.State); st.BufferTokens != 5 || len(st.Buffer) != 3 {
			t.Errorf("have %+v, want 5 tokens", st)
		}
	})
	t.Run("inputs: assistant hears neither", func(t *testing.T) {
		l := newLayer(t, Options{Observer: Count, Inputs: AssistantOnly})
		if l.Has(layer.HookAppendItems) || !l.Has(layer.HookStore) {
			t.Error("want every hook but on_item_append")
		}
		got, err := l.AppendItems(t.Context(), turn(nil), nil, items)
		if err != nil || got.State != nil {
			t.Errorf("have %s, %v", got.State, err)
		}
	})
}

func TestBudget(t *testing.T) {
	l := newLayer(t, Options{})
	long := strings.Repeat("x", 106)
	st := state{Observations: []string{long, "second", "third"}}
	s := st.encode()
	for _, tc := range []struct{ budget, tokens, kept int }{{1000, 39, 3}, {20, 12, 2}, {13, 12, 2}, {12, 12, 2}, {11, 10, 1}, {10, 10, 1}, {9, 0, 0}, {0, 0, 0}} {
		text, tokens := recall(t, l, s, tc.budget)
		if kept := strings.Count(text, "\n- "); tokens != tc.tokens || kept != tc.kept {
			t.Errorf("case 40: budget %d: %d observations of %d tokens, want %d of %d", tc.budget, kept, tokens, tc.kept, tc.tokens)
		}
		if tc.kept == 1 && !strings.Contains(text, "third") {
			t.Errorf("case 40: the newest was dropped: %q", text)
		}
	}
}

func TestSpawn(t *testing.T) {
	s := layer.State(`{"observations":["a"]}`)
	child, err := newLayer(t, Options{}).Spawn(t.Context(), turn(nil), s)
	if err != nil || string(child) != string(s) || &child[0] == &s[0] {
		t.Errorf("want a copy, have %s, %v", child, err)
	}
}

func TestBufferIsBounded(t *testing.T) {
	l := newLayer(t, Options{Observer: Count, BufferThreshold: limitThreshold, MaxBuffer: 1000})
	s := say(t, l, turn(nil), nil, strings.Repeat("é", 1<<20), "newest")
	st := read(t, s)
	if len(s) > 3000 || len(st.Buffer) == 0 || st.Buffer[len(st.Buffer)-1].Text != "newest" {
		t.Errorf("the state has %d bytes, %d texts", len(s), len(st.Buffer))
	}
	if st.Lost+len(st.Buffer) != 2 {
		t.Errorf("lost %d, kept %d, want 2 together", st.Lost, len(st.Buffer))
	}
}

func TestOptions(t *testing.T) {
	_, err := New(Options{Observer: "guess", Inputs: "none", BufferThreshold: -1, MaxObservations: 1001, MaxBuffer: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, key := range []string{"observer: ", "inputs: ", "buffer_threshold: ", "max_observations: ", "max_buffer: "} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%q is not named in: %v", key, err)
		}
	}
	if _, err := New(Options{Observer: ByModel}); err == nil {
		t.Error("observer: model without a model was accepted")
	}
}

func TestContract(t *testing.T) {
	for name, o := range map[string]Options{
		"extractive": {}, "model": {HasModel: true, BufferThreshold: 10},
	} {
		t.Run(name, func(t *testing.T) {
			layertest.Run(t, func() any { return newLayer(t, o) }, layertest.Model(answers("user: likes </zz> tea\nuser: is Ann")),
				layertest.States(layer.State(`{"observations":["user: a","user: b </zz>"],"buffer":[{"by":"user","text":"x"}],"bufferTokens":1,"version":3}`)))
		})
	}
}

// A loop of tools does not drive out what the user said.
func TestUsersOutlastTools(t *testing.T) {
	t.Parallel()
	st := &state{}
	st.add([]string{"user: My name is Ada."}, 8)
	for i := range 20 {
		st.add([]string{fmt.Sprintf("tool: Shelf %d has %d books", i, i)}, 8)
	}
	if got := st.Observations; len(got) != 3 || got[0] != "user: My name is Ada." || got[2] != "tool: Shelf 19 has 19 books" {
		t.Errorf("kept %q", got)
	}
}
