package observational_test

import (
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/observational"
	"remora/wire"
	"remora/wire/dialects"
)

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l, err := observational.New(observational.Options{})
	if err != nil {
		t.Fatal(err)
	}
	said := []wire.Item{wire.NewMessage(dialects.Chat, wire.User, "My name is Ann and I prefer green tea.")}
	a, err := l.AppendItems(t.Context(), layertest.PageTurn(), nil, said)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Store(t.Context(), layertest.PageTurn(), a.State, &layer.Response{Input: said, Text: "Noted.", Done: true})
	layertest.Page(t, layertest.PageRecall(t, l, err, s)...)
}
