package staticcontent_test

import (
	"testing"

	"remora/memory/layer/layertest"
	"remora/memory/layers/staticcontent"
)

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l, err := staticcontent.New(staticcontent.Options{Text: "Answer in British English."})
	layertest.Page(t, layertest.PageRecall(t, l, err, nil)...)
}
