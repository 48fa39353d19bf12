package pipeline

import (
	"fmt"
	"testing"
	"time"

	"remora/memory/layer"
)

// TestRestedModelsAreForgotten: states whose models have rested take no memory for long.
func TestRestedModelsAreForgotten(t *testing.T) {
	var d distillers
	now := time.Unix(1_000_000, 0)
	for i := range 10_000 {
		key := distilling{tenant: fmt.Sprint(i)}
		d.begin(key, now)
		d.rest(key, now)
		if now = now.Add(layer.ModelRests / 100); len(d.until) > 1000 { // 100 of them rest
			t.Fatalf("%d states are known", len(d.until))
		}
	}
	if !d.begin(distilling{tenant: "0"}, now) || d.begin(distilling{tenant: "9999"}, now) {
		t.Error("a model rests too long, or not at all")
	}
}

// BenchmarkRest is an outage of a model that many sessions use: the time of each does not depend on their number.
func BenchmarkRest(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n, " rest"), func(b *testing.B) {
			var d distillers
			now := time.Unix(1_000_000, 0)
			for i := range n {
				key := distilling{tenant: fmt.Sprint(i)}
				d.begin(key, now)
				d.rest(key, now)
			}
			for b.Loop() {
				d.rest(distilling{tenant: "0"}, now)
			}
		})
	}
}
