package entity_test

import (
	"context"
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/entity"
	"remora/wire"
	"remora/wire/dialects"
)

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l, err := entity.New(entity.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
	r, err := l.Recall(t.Context(), turn, nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	layertest.Page(t, r.Messages...)
}
