package pipeline

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/view"
)

var (
	auto    = layer.Budget{}
	working = layer.Between(200, 1500)
	observe = layer.Between(500, 2500)
	inf     = math.Inf(1)
)

// The rules of docs/semantics.md#budget-shares.
func TestAllocate(t *testing.T) {
	for _, test := range []struct {
		name    string
		layers  []layer.Budget
		total   float64
		system  float64
		reserve float64
		want    []float64
	}{
		{"one range", []layer.Budget{working}, 10000, 0, 0, []float64{1500}},
		{"one range, tight", []layer.Budget{working}, 1000, 0, 0, []float64{680}},
		{"two ranges", []layer.Budget{working, observe}, 10000, 0, 0, []float64{1500, 2500}},
		{"two ranges, tight", []layer.Budget{working, observe}, 2000, 0, 0, []float64{5580. / 11, 10700. / 11}},
		{"two ranges, defaults", []layer.Budget{working, observe}, 128000, 0, 4000, []float64{1500, 2500}},
		{"two ranges and omitted", []layer.Budget{working, observe, auto}, 8000, 0, 0, []float64{11690. / 11, 20100. / 11, 2190}},
		{"auto and auto, auto and omitted", []layer.Budget{auto, auto}, 1000, 0, 0, []float64{300, 300}},
		{"a number is a ceiling", []layer.Budget{layer.AtMost(300)}, 1000, 0, 0, []float64{300}},
		{"and no floor", []layer.Budget{layer.AtMost(300)}, 100, 0, 0, []float64{60}},
		{"number and auto", []layer.Budget{layer.AtMost(300), auto}, 1000, 0, 0, []float64{300, 300}},
		{"range from 0 and auto", []layer.Budget{layer.Between(0, 1000), auto}, 1000, 0, 0, []float64{300, 300}},
		{"minimums too large", []layer.Budget{layer.Between(600, 800), layer.Between(600, 800)}, 1000, 0, 0, []float64{500, 500}},
		{"rounded down", []layer.Budget{layer.Between(100, 800), layer.Between(200, 800), layer.Between(400, 800)}, 500, 0, 0, []float64{71, 142, 285}},
		{"minimums exactly there", []layer.Budget{layer.Between(500, 800), layer.Between(500, 800)}, 1000, 0, 0, []float64{500, 500}},
		{
			"all kinds",
			[]layer.Budget{working, observe, auto, auto, layer.AtMost(300)},
			10000, 100, 900,
			[]float64{6595. / 6, 5650. / 3, 1245, 1245, 207.5},
		},
		{"nothing available", []layer.Budget{layer.Between(5, 8)}, 100, 60, 60, []float64{0}},
		{"exactly nothing", []layer.Budget{layer.Between(5, 8), auto}, 100, 40, 60, []float64{0, 0}},
		{"no layers", nil, 1000, 0, 0, []float64{}},
		{"fractions", []layer.Budget{layer.Between(0, 1000)}, 100.5, 0, 0.25, []float64{60.15}},
		{"infinite total, range", []layer.Budget{working}, inf, 0, 0, []float64{1500}},
		{"infinite total, auto", []layer.Budget{auto}, inf, 0, 0, []float64{inf}},
		{"infinite reserve", []layer.Budget{working, auto}, 1000, 0, inf, []float64{0, 0}},
		{"infinite total and system", []layer.Budget{working, auto}, inf, inf, 0, []float64{0, 0}},
		{"no headroom, infinite total", []layer.Budget{layer.Between(5, 5), layer.Between(0, 10)}, inf, 0, 0, []float64{5, 10}},
		{"with auto", []layer.Budget{layer.Between(5, 5), auto, layer.Between(0, 10)}, inf, 0, 0, []float64{5, inf, 10}},
		{"no headroom at all", []layer.Budget{layer.Between(5, 5), layer.AtMost(0)}, 1000, 0, 0, []float64{5, 0}},
		{
			"60: headrooms of infinite sum",
			[]layer.Budget{layer.AtMost(math.MaxFloat64), layer.AtMost(math.MaxFloat64), auto},
			inf, 0, 0,
			[]float64{math.MaxFloat64, math.MaxFloat64, inf},
		},
		{"min over max stays at min", []layer.Budget{layer.Between(8, 5)}, 1000, 0, 0, []float64{8}},
		{"floor without ceiling", []layer.Budget{layer.Between(100, inf), auto}, 1100, 0, 0, []float64{400, 300}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := layertest.Must(allocate(allocation{Layers: test.layers, Total: test.total, System: test.system, Reserve: test.reserve}))(t)
			if !slices.EqualFunc(got, test.want, near) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func near(a, b float64) bool { return a == b || math.Abs(a-b) <= 1e-9 }

// NaN is refused, infinity is not.
func TestAllocateRefusesWhatIsNoNumber(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		in   allocation
		want string
	}{
		{allocation{Total: nan}, "total: INVALID_BUDGET_INPUT: want a number, have NaN"},
		{allocation{System: nan}, "system: INVALID_BUDGET_INPUT: want a number, have NaN"},
		{allocation{Reserve: nan, Total: inf}, "reserve: INVALID_BUDGET_INPUT: want a number, have NaN"},
		{allocation{Layers: []layer.Budget{auto, layer.AtMost(nan)}}, "layers[1]: INVALID_BUDGET_INPUT: max: want a number, have NaN"},
		{allocation{Layers: []layer.Budget{layer.Between(nan, 5)}}, "layers[0]: INVALID_BUDGET_INPUT: min: want 0 to "},
		{allocation{Layers: []layer.Budget{layer.Between(inf, inf)}}, "layers[0]: INVALID_BUDGET_INPUT: min: want 0 to "},
		{allocation{Layers: []layer.Budget{layer.Between(-1, 5)}}, "layers[0]: INVALID_BUDGET_INPUT: min: want 0 to "},
	} {
		got, err := allocate(test.in)
		if !errors.Is(err, errAllocation) || !strings.HasPrefix(err.Error(), test.want) || got != nil {
			t.Errorf("%+v: got %v, %v, want %s", test.in, got, err, test.want)
		}
	}
}

// layers draws budgets of every kind.
func layers() *rapid.Generator[[]layer.Budget] {
	tokens := rapid.OneOf(
		rapid.Float64Range(0, 5000),
		rapid.Map(rapid.IntRange(0, 5000), func(n int) float64 { return float64(n) }),
		rapid.Map(rapid.IntRange(0, 50), func(n int) float64 { return float64(n) / 10 }), // no sum of these is exact
	)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) layer.Budget {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return auto
		case 1:
			return layer.AtMost(tokens.Draw(t, "max"))
		case 2:
			return layer.Between(tokens.Draw(t, "min"), inf)
		default:
			lowest := tokens.Draw(t, "min")
			return layer.Between(lowest, lowest+tokens.Draw(t, "headroom"))
		}
	}), 0, 8)
}

func allocated(t *rapid.T, in allocation) []float64 {
	out, err := allocate(in)
	if err != nil {
		t.Fatalf("%+v: %v", in, err)
	}
	return out
}

func total(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

func minimum(layers []layer.Budget) (sum float64) {
	for _, b := range layers {
		sum += b.Min()
	}
	return sum
}

// With an automatic layer nothing of the layers' part is lost. Without one, no layer gets more than its
// maximum; with too little for the minimums, no more is given than there is.
func TestAllocationsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := allocation{
			Layers:  layers().Draw(t, "layers"),
			Total:   rapid.Float64Range(0, 50000).Draw(t, "total"),
			System:  rapid.Float64Range(0, 2000).Draw(t, "system"),
			Reserve: rapid.Float64Range(0, 2000).Draw(t, "reserve"),
		}
		out := allocated(t, in)
		available, floor := in.Total-in.System-in.Reserve, minimum(in.Layers)
		given, unlimited := total(out), false
		for i, b := range in.Layers {
			unlimited = unlimited || math.IsInf(b.Max(), 1)
			if out[i] < 0 || out[i] > b.Max()+1e-6 {
				t.Errorf("layer %d got %v of at most %v", i, out[i], b.Max())
			}
			if available >= floor && out[i] < b.Min()-1e-6 && available > 0 {
				t.Errorf("layer %d got %v of at least %v", i, out[i], b.Min())
			}
		}
		if most := max(floor, floor+0.6*(available-floor)); given > max(0, min(most, available))+1e-6 {
			t.Errorf("gave %v of %v", given, available)
		}
		if want := 0.6 * (available - floor); unlimited && available > floor && math.Abs(given-floor-want) > 1e-6 {
			t.Errorf("gave %v beyond the minimums, want %v", given-floor, want)
		}
	})
}

// The order of layers changes no amount, to the last bit: 0.1+0.2+0.3 depends on where one begins.
func TestOrderOfLayersChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := allocation{Layers: layers().Draw(t, "layers"), Total: rapid.Float64Range(0, 50000).Draw(t, "total")}
		before := allocated(t, in)
		index := make([]int, len(in.Layers))
		for i := range index {
			index[i] = i
		}
		index = rapid.Permutation(index).Draw(t, "order")
		moved := allocation{Total: in.Total}
		for _, i := range index {
			moved.Layers = append(moved.Layers, in.Layers[i])
		}
		after := allocated(t, moved)
		for to, from := range index {
			if after[to] != before[from] {
				t.Fatalf("layer %d got %v, and %v in order %v", from, before[from], after[to], index)
			}
		}
	})
}

// Whatever is accepted, the answer is a number.
func TestAllocationsAreNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		extreme := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 1, inf, -inf, math.MaxFloat64, math.SmallestNonzeroFloat64}))
		lowest := rapid.SampledFrom([]float64{0, 1, math.SmallestNonzeroFloat64, 1e-300, 1 << 53})
		in := allocation{
			Total:   extreme.Draw(t, "total"),
			System:  extreme.Draw(t, "system"),
			Reserve: extreme.Draw(t, "reserve"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "layers") {
			in.Layers = append(in.Layers, layer.Between(lowest.Draw(t, "min"), extreme.Draw(t, "max")))
		}
		out := allocated(t, in)
		for i, v := range out {
			if !(v >= 0) {
				t.Errorf("%+v: number %d is %v", in, i, v)
			}
		}
	})
}

// What layers did not use of their shares is the history's.
func TestUnusedSharesGoToHistory(t *testing.T) {
	p := view.Policy{Budget: 1000}
	out := layertest.Must(allocate(allocation{Layers: []layer.Budget{{}, {}}, Total: p.Budget}))(t)
	for _, test := range []struct {
		layers []view.Candidate
		want   int // entries of 100 tokens
	}{
		{costs(int(out[0]), int(out[1])), 4}, // all used
		{costs(int(out[0]), 100), 6},
		{costs(0, 0), 10},
	} {
		history := costs(slices.Repeat([]int{100}, 20)...)
		view.Fit(0, test.layers, history, p, nil)
		kept := len(slices.DeleteFunc(history, func(c view.Candidate) bool { return c.Why != view.ReasonNone }))
		if kept != test.want {
			t.Errorf("layers %v: history keeps %d, want %d", test.layers, kept, test.want)
		}
	}
}

func costs(list ...int) []view.Candidate {
	entries := make([]view.Candidate, len(list))
	for i, c := range list {
		entries[i].Cost = c
	}
	return entries
}

func BenchmarkAllocate(b *testing.B) {
	in := allocation{Layers: []layer.Budget{working, observe, auto, auto, layer.AtMost(300)}, Total: 128000, System: 100, Reserve: 4000}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := allocate(in); err != nil {
			b.Fatal(err)
		}
	}
}

// What ParseBudget accepts, allocate does too.
func FuzzAllocate(f *testing.F) {
	for _, s := range []string{"auto", "300", "-1", "nan", "inf", "1e308", "0x1p-1074", ""} {
		f.Add(s, s, uint8(0))
		f.Add(s, "1500", uint8(1))
	}
	f.Fuzz(func(t *testing.T, a, b string, shape uint8) {
		var v any = a
		switch shape % 3 {
		case 1:
			v = map[string]any{"min": a, "max": b}
		case 2:
			v = map[string]any{a: b}
		}
		got, err := layer.ParseBudget(v)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if shape%3 != 2 && !strings.HasPrefix(line, "budget") {
					t.Errorf("%q does not begin with its key", line)
				}
			}
			return
		}
		if !(got.Min() >= 0 && got.Min() <= got.Max()) {
			t.Errorf("accepted {%v, %v}", got.Min(), got.Max())
		}
		out, err := allocate(allocation{Layers: []layer.Budget{got, {}}, Total: 1000})
		if err != nil || math.IsNaN(out[0]+out[1]) {
			t.Errorf("%#v: %v, %v", got, out, err)
		}
	})
}
