package layer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
)

func TestWords(t *testing.T) {
	got := slices.Collect(layer.Words("The Planned plans, planning: it's naïve 42 日本語ok語 " + strings.Repeat("x", 100)))
	want := []string{"plan", "plan", "plan", "s", "naïv", "42", "日本", "本語", "ok", "語"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
