package entity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire"
	"remora/wire/dialects"
)

func newLayer(t *testing.T, o Options) *Layer {
	t.Helper()
	return layertest.Must(New(o))(t)
}

func place(name string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return name, nil }
}

// cut returns a window cut with these lost and shown items.
func cut(at string, lost, shown []wire.Item) *layer.WindowCut {
	give := func(items []wire.Item) func(context.Context) ([]wire.Item, error) {
		return func(context.Context) ([]wire.Item, error) { return items, nil }
	}
	return &layer.WindowCut{Place: place(at), Lost: give(lost), Shown: give(shown)}
}

// recall returns the layer's text for a cut, and its new state.
func recall(t *testing.T, l *Layer, s layer.State, c *layer.WindowCut, budget int) (string, layer.State) {
	t.Helper()
	turn := layertest.PageTurn()
	turn.Cut, turn.InView = c, func(wire.Hash) bool { return false }
	r := layertest.Must(l.Recall(t.Context(), turn, s, budget))(t)
	if r.State == nil {
		r.State = s
	}
	return strings.Join(r.Messages, "|"), r.State
}

func TestLayer(t *testing.T) {
	t.Parallel()
	l := newLayer(t, Options{})
	_, one := recall(t, l, nil, cut("1", users("src/main.go parseHeader"), nil), 1000)
	_, two := recall(t, l, one, cut("2", users(many(2000)...), nil), 1000)
	layertest.Run(t, func() any { return newLayer(t, Options{MaxTokens: 300}) }, layertest.States(one, two))
}

func many(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprintf("pkg/file_%d.go", i))
	}
	return texts
}

func TestOptions(t *testing.T) {
	for max, fine := range map[int]bool{-1: false, 0: true, 1: true, 4000: true, 4001: false} {
		_, err := New(Options{MaxTokens: max})
		if fine != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "max_tokens: ") {
			t.Errorf("max_tokens %d: %v", max, err)
		}
	}
	for max, want := range map[int]layer.Budget{0: layer.Between(200, 2000), 1000: layer.Between(200, 1000), 50: layer.Between(50, 50)} {
		if have := Defaults(Options{MaxTokens: max}).Budget; have != want {
			t.Errorf("max_tokens %d: budget %v, want %v", max, have, want)
		}
	}
}

// The blocks are built when the cut moves. Between cuts nothing is read and no byte changes, even if the view changes.
func TestLedgerStaysUntilTheCutMoves(t *testing.T) {
	l := newLayer(t, Options{})
	first, s := recall(t, l, nil, cut("1", users("src/main.go parseHeader"), users("hello")), 1000)
	if !strings.Contains(first, "src/main.go") {
		t.Fatalf("have %q", first)
	}
	unread := &layer.WindowCut{Place: place("1"), Lost: fails, Shown: fails}
	same, after := recall(t, l, s, unread, 1000)
	if same != first || string(after) != string(s) {
		t.Errorf("want %q again, have %q", first, same)
	}
	if again, _ := recall(t, newLayer(t, Options{}), s, unread, 1000); again != first {
		t.Errorf("another process says %q, want %q", again, first)
	}

	moved, next := recall(t, l, s, cut("2", users("src/main.go parseHeader", "docs/plan.md"), users("parseHeader")), 1000)
	if !strings.Contains(moved, "docs/plan.md src/main.go") || strings.Contains(moved, "parseHeader") {
		t.Errorf("have %q", moved)
	}
	if back, _ := recall(t, l, next, unread, 1000); back != first {
		t.Errorf("the line before says %q, want %q", back, first)
	}
	if none, _ := recall(t, l, next, nil, 1000); none != "" {
		t.Errorf("nothing is cut: have %q", none)
	}
}

var errAway = errors.New("away")

func fails(context.Context) ([]wire.Item, error) { return nil, errAway }

// A cut that cannot be read fails the recall, and is read by the next request.
func TestUnreadCut(t *testing.T) {
	l, turn := newLayer(t, Options{}), layertest.PageTurn()
	for _, c := range []*layer.WindowCut{
		{Place: func(context.Context) (string, error) { return "", errAway }}, {Place: place("1"), Lost: fails, Shown: fails}, {Place: place("1"), Lost: cut("", users("src/main.go"), nil).Lost, Shown: fails},
	} {
		turn.Cut = c
		if r, err := l.Recall(t.Context(), turn, nil, 1000); !errors.Is(err, errAway) || r.State != nil {
			t.Errorf("have %v, %v", r, err)
		}
	}
}

// The budget is filled with the best. A smaller one than before takes the worst away and nothing else.
func TestBudget(t *testing.T) {
	l := newLayer(t, Options{MaxTokens: 200})
	lost := append(users(many(500)...), users("often/named.go", "often/named.go", "often/named.go")...)
	all, s := recall(t, l, nil, cut("1", lost, nil), 2000)
	if n := layertest.PageTurn().Count(all); n > 200 || n < 190 {
		t.Errorf("the ledger has %d tokens, want nearly 200", n)
	}
	less, _ := recall(t, l, s, cut("1", nil, nil), 60)
	if n := layertest.PageTurn().Count(less); n > 60 || n < 50 || !strings.Contains(less, "often/named.go") {
		t.Errorf("%d tokens, want nearly 60: %q", n, less)
	}
	if none, _ := recall(t, l, s, cut("1", nil, nil), 30); none != "" {
		t.Errorf("no name fits, have %q", none)
	}
	if again, _ := recall(t, l, s, cut("1", nil, nil), 2000); again != all {
		t.Errorf("want %q again, have %q", all, again)
	}
}

// Before the view is chosen the last blocks are returned, and none if nothing was cut.
func TestBeforeTheView(t *testing.T) {
	l, turn := newLayer(t, Options{}), layertest.PageTurn()
	said, s := recall(t, l, nil, cut("1", users("src/main.go"), nil), 1000)
	r, err := l.Recall(t.Context(), turn, s, 1000)
	if err != nil || strings.Join(r.Messages, "|") != said {
		t.Errorf("have %q, %v, want %q", r.Messages, err, said)
	}
}

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l := layertest.Must(New(Options{}))(t)
	said := func(texts ...string) func(context.Context) ([]wire.Item, error) {
		var items []wire.Item
		for _, text := range texts {
			items = append(items, wire.NewMessage(dialects.Chat, wire.User, text))
		}
		return func(context.Context) ([]wire.Item, error) { return items, nil }
	}
	turn := layertest.PageTurn()
	turn.Cut = &layer.WindowCut{
		Place: func(context.Context) (string, error) { return "1", nil }, Lost: said("My sister Ada lives in Lyon, and our billing service is called Kestrel. parseHeader in internal/store/lease.go:40 came with v2.14.1."), Shown: said("Thanks!"),
	}
	r := layertest.Must(l.Recall(t.Context(), turn, nil, 1000))(t)
	layertest.Page(t, r.Messages...)
}
