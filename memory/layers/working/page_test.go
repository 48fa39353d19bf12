package working_test

import (
	"testing"

	"remora/memory/layer/layertest"
	"remora/memory/layers/working"
)

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l, err := working.New(working.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, s, err := l.Tools()[0].Run(t.Context(), layertest.PageTurn(), nil, []byte(`{"name":"Ann","city":"Oslo"}`))
	layertest.Page(t, layertest.PageRecall(t, l, err, s)...)
}
