package historymanager_test

import (
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/historymanager"
)

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l, err := historymanager.New(historymanager.Options{EnableLongTermMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	about := layertest.PageTurn()
	about.Query = "Where does Ann live?"
	r, err := l.Recall(t.Context(), about, layer.State(`{"version":2,
		"summaries":[{"conversation":"a","pending":["[user] My cat is called Whiskers.","[assistant] A fine name."]}],
		"memories":[{"type":"fact","content":"Ann lives in Oslo","at":0}]}`), 1000)
	if err != nil {
		t.Fatal(err)
	}
	layertest.Page(t, r.Messages...)
}
