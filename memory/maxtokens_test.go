package memory_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// talker says as much as it may, or always the same number of words; a word is a token.
type talker struct{ words int }

func (k talker) Recall(_ context.Context, _ *layer.Turn, _ layer.State, budget int) (layer.Recalled, error) {
	n := min(k.words, budget)
	return layer.Recalled{Messages: []string{strings.Repeat("w", 4*n)}}, nil
}

// TestRequestsKeepToWhatUpstreamTakes: once a refusal has shown what a model takes, every request keeps to that, whatever it is made
// of: system prompt, definitions of tools, blocks of layers, history. Only the system prompt and the current run always stay.
func TestRequestsKeepToWhatUpstreamTakes(t *testing.T) {
	t.Parallel()
	const tools = `[{"type":"function","function":{"name":"f","description":"reads a file, from a line to another one"}}]`
	quarter := func(s string) int { return (len(s) + 3) / 4 }
	price := func(_ string, it wire.Item) int { return 4 + quarter(it.Text()) }
	shape := func(window *view.Window, cached bool, layers ...pipeline.Layer) memory.Shape {
		p, err := pipeline.New(layers, pipeline.Options{
			Policy: view.Policy{Budget: 100_000, Overflow: view.OverflowTruncate},
			Count:  func(_, text string) int { return quarter(text) }, CountItem: price,
		})
		if err != nil {
			t.Fatal(err)
		}
		s := memory.Shape{Window: window, Layers: p, Price: price}
		if cached {
			c := view.DefaultPromptCache()
			s.PromptCache = &c
		}
		return s
	}
	say := func(place layer.Placement, slot, words int) pipeline.Layer {
		return pipeline.Layer{ID: fmt.Sprint("l", slot), Kind: "test", Slot: slot, Scope: layer.Thread, Placement: place, Impl: talker{words}}
	}
	windows := map[string]*view.Window{
		"no window":          nil,
		"a window by tokens": {MaxTokens: 64000, EvictShare: 0.5, InFlight: view.InFlightWindow},
		"a window by items":  {MaxItems: 100, EvictBatch: 50, InFlight: view.InFlightKeep},
	}
	for name, window := range windows {
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, pinned blocks: %v", name, cached), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, memory.Options{Shape: shape(window, cached,
					say(layer.Anchored, 100, 300), say(layer.Live, 200, 300), notebook(t, layer.Thread))})
				history := "s:" + strings.Repeat("s", 100)
				for i := range 30 {
					history += fmt.Sprintf(" u:%d-%s", i, strings.Repeat("x", 50))
					c := memory.Call{}
					if i >= 10 {
						c.MaxTokens = 2000 - 60*i // down to 260
					}
					turn := l.beginWith(c, history, tools)
					last := turn.View[len(turn.View)-1]
					stays := price("", turn.View[0]) + price("", last) + quarter(tools+definitions(turn))
					if size := turn.Tokens(); i >= 10 && size > max(c.MaxTokens, stays) {
						t.Fatalf("request %d has %d tokens, of which %d must stay, want at most %d", i, size, stays, c.MaxTokens)
					}
					if i < 10 && turn.Summary.Recalled != 600 {
						t.Fatalf("request %d recalls %d tokens", i, turn.Summary.Recalled)
					}
					reply := fmt.Sprintf("a:%d-%s", i, strings.Repeat("y", 50))
					turn.Commit(answer(t, reply))
					history += " " + reply
				}
			})
		}
	}
}

// definitions are those of the layers' tools.
func definitions(turn *memory.Turn) string { return string(bytes.Join(turn.Tools, nil)) }

// TestTokensCountTheWholeRequest: tools, instructions and what has come of the turn have to find room in the model's context, too.
func TestTokensCountTheWholeRequest(t *testing.T) {
	t.Parallel()
	o := coached(t)
	o.Price = func(string, wire.Item) int { return 1 }
	l := newLab(t, o)
	const tools = `[{"type":"function","function":{"name":"f"}}]`
	turn := l.beginWith(memory.Call{}, "s:be u:1", tools)
	before := turn.Tokens()
	if want := 2 + (len(tools+definitions(turn))+3)/4; before != want {
		t.Errorf("%d tokens, want %d", before, want)
	}
	turn.Review(t.Context(), answer(t, "a:long").Reply)
	if got := turn.Tokens() - before; got != 2 {
		t.Errorf("an answer and its guidance are %d tokens", got)
	}
	turn.Commit(answer(t, "a:3"))

	req := wiretest.Request(t, dialects.Responses, `{"model":"m","instructions":"Be kind.","input":"hi"}`)
	turn, err := l.m.Begin(t.Context(), memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: "other"}, Request: req})
	if err != nil {
		t.Fatal(err)
	}
	if got := turn.Tokens() - (len(definitions(turn))+3)/4; got != 2 {
		t.Errorf("a message and instructions are %d tokens", got)
	}
	turn.Commit(answer(t, "a:3"))
}

// TestTextTokens: only texts count that a model reads in any case.
func TestTextTokens(t *testing.T) {
	t.Parallel()
	o := coached(t)
	o.Price = func(_ string, it wire.Item) int { return len(it.Text()) }
	l := newLab(t, o)
	text := strings.Repeat("x", 100)
	turn := l.beginJSON(memory.Call{}, `{"role":"user","content":[{"type":"text","text":"`+text+`"},{"type":"image_url","image_url":{"url":"data:,`+text+`"}}]},`+
		`{"role":"assistant","content":"<think>`+text+`</think>`+text+`","reasoning_content":"`+text+`"},{"role":"user","content":"on"}`, "")
	if got := turn.TextTokens(0); got != 202 {
		t.Errorf("%d tokens", got)
	}
	if got := turn.TextTokens(202); got != 0 {
		t.Errorf("%d tokens are more than 202", got)
	}
}
