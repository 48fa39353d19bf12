package temporal_test

import (
	"testing"

	"remora/memory/layer/layertest"
	"remora/memory/layers/temporal"
)

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l, err := temporal.New(temporal.Options{TimeZone: "UTC"})
	layertest.Page(t, layertest.PageRecall(t, l, err, nil)...)
}
