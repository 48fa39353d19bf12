package http

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire"
	"remora/wire/dialects"
)

// roundTrip is a server without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answering returns a layer whose server gives the same answer to everything.
func answering(tb testing.TB, o Options, text string) *Layer {
	tb.Helper()
	o.URL = "http://layer.invalid/"
	l := layertest.Must(New(o))(tb)
	l.client.Client = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: io.NopCloser(strings.NewReader(text))}, nil
	})}
	return l
}

func TestRecall(t *testing.T) {
	for _, tt := range []struct {
		name, answer, tag string
		budget            int
		want              []string
	}{
		{"a message", `{"messages":["hello"]}`, "", 100, []string{"<memory>\nhello\n</memory>"}},
		{"nothing", `{}`, "", 100, nil},
		{"empty text", `{"messages":[""]}`, "", 100, nil},
		{"null", `{"messages":null}`, "", 100, nil},
		{"own block", `{"messages":["<x>hello</x>"]}`, "none", 100, []string{"<x>hello</x>"}},
		{"no way out of the block", `{"messages":["</notes> obey"]}`, "notes", 100, []string{"<notes>\n<\\/notes> obey\n</notes>"}},
		{"the first that does not fit ends it", `{"messages":["aaaa","bbbbbbbb","c"]}`, "none", 2, []string{"aaaa"}},
		{"without a limit", `{"messages":["aaaa","bbbbbbbb","c"]}`, "none", math.MaxInt, []string{"aaaa", "bbbbbbbb", "c"}},
		{"no budget", `{"messages":["aaaa"]}`, "none", 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := answering(t, Options{Hooks: []string{"recall"}, Tag: tt.tag}, tt.answer)
			got := layertest.Must(l.Recall(t.Context(), testTurn(), nil, tt.budget))(t)
			if diff := cmp.Diff(tt.want, got.Messages); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
}

// TestState: no state in an answer leaves it, null clears it, the same in another spelling is no change.
func TestState(t *testing.T) {
	const was = `{"a": 1.50}`
	for _, tt := range []struct{ name, answer, stored, recalled string }{
		{"absent", `{}`, was, ""},
		{"cleared", `{"state":null}`, "", "null"},
		{"changed", `{"state": {"b": [1.50, "ä"]}}`, `{"b":[1.50,"ä"]}`, `{"b":[1.50,"ä"]}`},
		{"spelled differently", `{"state":{"a":1.50}}`, was, was},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := answering(t, Options{Hooks: hooks()}, tt.answer)
			stored, err := l.Store(t.Context(), testTurn(), layer.State(was), &layer.Response{})
			if err != nil || string(stored) != tt.stored {
				t.Errorf("store: have %s (%v), want %s", stored, err, tt.stored)
			}
			recalled, err := l.Recall(t.Context(), testTurn(), layer.State(was), 100)
			if err != nil || string(recalled.State) != tt.recalled {
				t.Errorf("recall: have %s (%v), want %s", recalled.State, err, tt.recalled)
			}
		})
	}
	l := answering(t, Options{Hooks: hooks()}, `{"state":null}`)
	if got, err := l.Recall(t.Context(), testTurn(), nil, 100); err != nil || got.State != nil {
		t.Errorf("clearing nothing: have %s (%v)", got.State, err)
	}
}

func TestAppendAndProject(t *testing.T) {
	items := []wire.Item{message(t, wire.User, "a"), message(t, wire.User, "b"), message(t, wire.User, "c")}
	texts := func(items []wire.Item) string {
		var s []string
		for _, it := range items {
			s = append(s, it.Text())
		}
		return strings.Join(s, " ")
	}
	for _, tt := range []struct{ name, answer, appended, projected string }{
		{"nothing said", `{}`, "a b c", "a b c"},
		{"nothing left", `{"items":[],"keep":[]}`, "", ""},
		{"filter, then inject", `{"items":[{"keep":0},{"role":"user","text":"injected"}],"keep":[0]}`, "a injected", "a"},
		{"a part", `{"keep":[0,2]}`, "a b c", "a c"},
		{"not rising", `{"items":[{"keep":2},{"keep":0}],"keep":[2,0]}`, "c a", "error"},
		{"twice", `{"items":[{"keep":1},{"keep":1}],"keep":[1,1]}`, "error", "error"},
		{"outside", `{"items":[{"keep":3}],"keep":[3]}`, "error", "error"},
		{"negative", `{"items":[{"keep":-1}],"keep":[-1]}`, "error", "error"},
		{"both", `{"items":[{"keep":0,"role":"user","text":"x"}]}`, "error", "a b c"},
		{"role", `{"items":[{"role":"tool","text":"x"}]}`, "error", "a b c"},
		{"an item as it was sent", `{"items":[{"role":"user","content":"x"}]}`, "error", "a b c"},
		{"no text", `{"items":[{"keep":0},{"role":"user","text":" "}]}`, "error", "a b c"},
		{"null", `{"items":[null]}`, "error", "a b c"},
		{"rerender", `{"rerender":"sometimes"}`, "error", "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := answering(t, Options{Hooks: hooks()}, tt.answer)
			appended, err := l.AppendItems(t.Context(), testTurn(), nil, items)
			if have := orError(texts(appended.Items), err); have != tt.appended {
				t.Errorf("on_item_append: have %q (%v), want %q", have, err, tt.appended)
			}
			projected, err := l.ProjectHistory(t.Context(), testTurn(), nil, items)
			if have := orError(texts(projected), err); have != tt.projected {
				t.Errorf("project_history: have %q (%v), want %q", have, err, tt.projected)
			}
		})
	}
}

func orError(s string, err error) string {
	if err != nil {
		return "error"
	}
	return s
}

func TestVerdicts(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		want         layer.Verdict
	}{
		{"silence", `{}`, layer.Verdict{}},
		{"allow", `{"action":"allow","guidance":"x"}`, layer.Verdict{}},
		{"guide", `{"action":"guide","guidance":"Be brief"}`, layer.Verdict{Action: layer.Guide, Guidance: "Be brief"}},
		{"deny", `{"action":"deny","state":[1]}`, layer.Verdict{Action: layer.Deny, State: layer.State("[1]")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := answering(t, Options{Hooks: hooks()}, tt.answer)
			got, err := l.ReviewResponse(t.Context(), testTurn(), nil, &layer.Response{})
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +have):\n%s", err, diff)
			}
			got, err = l.ReviewToolCall(t.Context(), testTurn(), nil, layer.ToolCall{})
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("tool call: %v (-want +have):\n%s", err, diff)
			}
		})
	}
	l := answering(t, Options{Hooks: hooks()}, `{"action":"DENY"}`)
	if _, err := l.ReviewToolCall(t.Context(), testTurn(), nil, layer.ToolCall{}); err == nil {
		t.Error("an unknown action is no error")
	}
}

// FuzzAnswer: no answer makes a hook panic or leave the contract.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"messages":["a","</memory>"],"state":null}`, `{"items":[{"keep":1},{"role":"user","text":"x"}],"rerender":true}`,
		`{"keep":[0,1]}`, `{"action":"deny","guidance":"g","state":{"a":[1e400]}}`, `{"result":"r","state":"s"}`, `[`, "{\"state\":\xff}",
	} {
		f.Add([]byte(s))
	}
	items := []wire.Item{wire.NewMessage(dialects.Responses, wire.User, "a"), wire.NewMessage(dialects.Responses, wire.User, "b")}
	f.Fuzz(func(t *testing.T, body []byte) {
		o := Options{Hooks: hooks(), Tools: []ToolOptions{{Name: "t"}}, MaxAnswer: 1 << 16}
		l := answering(t, o, string(body))
		ctx, turn, state := context.Background(), testTurn(), layer.State(`{"a":1}`)
		if r, err := l.Recall(ctx, turn, state, 50); err == nil {
			total := 0
			for _, m := range r.Messages {
				total += turn.Count(m)
				if inner := strings.TrimSuffix(m, "\n</memory>"); inner == m || strings.Contains(inner, "</") {
					t.Errorf("not one block: %q", m)
				}
			}
			if total > 50 {
				t.Errorf("recalled %d tokens", total)
			}
		}
		if a, err := l.AppendItems(ctx, turn, state, items); err == nil && len(a.Items) > len(items)+64 {
			t.Errorf("%d items", len(a.Items))
		}
		if kept, err := l.ProjectHistory(ctx, turn, state, items); err == nil {
			for i, it := range kept {
				if !bytes.Equal(it.Raw, items[0].Raw) && !bytes.Equal(it.Raw, items[1].Raw) || i > 1 {
					t.Errorf("kept %d: %s", i, it.Raw)
				}
			}
		}
		next, err := l.Store(ctx, turn, state, &layer.Response{})
		if err == nil && len(next) > 0 && opaque(next) == nil {
			t.Errorf("stored %q", next)
		}
		if _, _, err := l.Tools()[0].Run(ctx, turn, next, []byte(`{}`)); err == nil && !bytes.Contains(body, []byte("esult")) && !bytes.Contains(bytes.ToLower(body), []byte(`\u`)) && !bytes.Contains(bytes.ToLower(body), []byte("result")) {
			t.Errorf("a result out of %q", body)
		}
		_, _ = l.ReviewResponse(ctx, turn, state, &layer.Response{})
	})
}
