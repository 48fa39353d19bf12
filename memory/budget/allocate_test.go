package budget_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"remora/memory/budget"
)

var (
	auto    = budget.Budget{}
	working = budget.Between(200, 1500)
	observe = budget.Between(500, 2500)
	inf     = math.Inf(1)
)

// Cases 53 and 55, 56, 58: every row that was measured (SEMANTICS 1.12). Fractions are written out where the page
// rounds them.
func TestAllocate(t *testing.T) {
	for _, test := range []struct {
		name    string
		layers  []budget.Budget
		total   float64
		system  float64
		reserve float64
		want    []float64
		history float64
	}{
		{"one range", []budget.Budget{working}, 10000, 0, 0, []float64{1500}, 3920},
		{"one range, tight", []budget.Budget{working}, 1000, 0, 0, []float64{680}, 320},
		{"two ranges", []budget.Budget{working, observe}, 10000, 0, 0, []float64{1500, 2500}, 3720},
		{"two ranges, tight", []budget.Budget{working, observe}, 2000, 0, 0, []float64{5580. / 11, 10700. / 11}, 520},
		{"two ranges, defaults", []budget.Budget{working, observe}, 128000, 0, 4000, []float64{1500, 2500}, 49320},
		{"two ranges and omitted", []budget.Budget{working, observe, auto}, 8000, 0, 0, []float64{11690. / 11, 20100. / 11, 2190}, 2920},
		{"auto and auto, auto and omitted (D6)", []budget.Budget{auto, auto}, 1000, 0, 0, []float64{300, 300}, 400},
		{"case 58: a number is a ceiling", []budget.Budget{budget.AtMost(300)}, 1000, 0, 0, []float64{300}, 400},
		{"case 58: and no floor", []budget.Budget{budget.AtMost(300)}, 100, 0, 0, []float64{60}, 40},
		{"number and auto", []budget.Budget{budget.AtMost(300), auto}, 1000, 0, 0, []float64{300, 300}, 400},
		{"range from 0 and auto", []budget.Budget{budget.Between(0, 1000), auto}, 1000, 0, 0, []float64{300, 300}, 400},
		{"case 56: minimums too large", []budget.Budget{budget.Between(600, 800), budget.Between(600, 800)}, 1000, 0, 0, []float64{500, 500}, 0},
		{"case 56: rounded down", []budget.Budget{budget.Between(100, 800), budget.Between(200, 800), budget.Between(400, 800)}, 500, 0, 0, []float64{71, 142, 285}, 0},
		{"minimums exactly there", []budget.Budget{budget.Between(500, 800), budget.Between(500, 800)}, 1000, 0, 0, []float64{500, 500}, 0},
		{
			"all kinds",
			[]budget.Budget{working, observe, auto, auto, budget.AtMost(300)},
			10000, 100, 900,
			[]float64{6595. / 6, 5650. / 3, 1245, 1245, 207.5},
			3320,
		},
		{"case 55: nothing available", []budget.Budget{budget.Between(5, 8)}, 100, 60, 60, []float64{0}, 0},
		{"case 55: exactly nothing", []budget.Budget{budget.Between(5, 8), auto}, 100, 40, 60, []float64{0, 0}, 0},
		{"no layers", nil, 1000, 0, 0, []float64{}, 400},
		{"fractions", []budget.Budget{budget.Between(0, 1000)}, 100.5, 0, 0.25, []float64{60.15}, 40.1},
		{"case 54: infinite total, range", []budget.Budget{working}, inf, 0, 0, []float64{1500}, inf},
		{"case 54: infinite total, auto", []budget.Budget{auto}, inf, 0, 0, []float64{inf}, inf},
		{"case 54: infinite reserve", []budget.Budget{working, auto}, 1000, 0, inf, []float64{0, 0}, 0},
		{"case 54: infinite total and system", []budget.Budget{working, auto}, inf, inf, 0, []float64{0, 0}, 0},
		{"case 60: no headroom, infinite total", []budget.Budget{budget.Between(5, 5), budget.Between(0, 10)}, inf, 0, 0, []float64{5, 10}, inf},
		{"case 60: with auto", []budget.Budget{budget.Between(5, 5), auto, budget.Between(0, 10)}, inf, 0, 0, []float64{5, inf, 10}, inf},
		{"case 60: no headroom at all", []budget.Budget{budget.Between(5, 5), budget.AtMost(0)}, 1000, 0, 0, []float64{5, 0}, 398},
		{
			"60: headrooms of infinite sum",
			[]budget.Budget{budget.AtMost(math.MaxFloat64), budget.AtMost(math.MaxFloat64), auto},
			inf, 0, 0,
			[]float64{math.MaxFloat64, math.MaxFloat64, inf},
			inf,
		},
		{"min over max stays at min", []budget.Budget{budget.Between(8, 5)}, 1000, 0, 0, []float64{8}, 396.8},
		{"floor without ceiling", []budget.Budget{budget.Between(100, inf), auto}, 1100, 0, 0, []float64{400, 300}, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := budget.Allocate(budget.Input{Layers: test.layers, Total: test.total, System: test.system, Reserve: test.reserve})
			if err != nil {
				t.Fatal(err)
			}
			same := len(got.Layers) == len(test.want) && near(got.History, test.history)
			for i := range min(len(test.want), len(got.Layers)) {
				same = same && near(got.Layers[i], test.want[i])
			}
			if !same {
				t.Errorf("got %v; %v, want %v; %v", got.Layers, got.History, test.want, test.history)
			}
		})
	}
}

func near(a, b float64) bool { return a == b || math.Abs(a-b) <= 1e-9 }

// Case 54.
func TestAllocateRefusesWhatIsNoNumber(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		in   budget.Input
		want string
	}{
		{budget.Input{Total: nan}, "total: INVALID_BUDGET_INPUT: want a number, have NaN"},
		{budget.Input{System: nan}, "system: INVALID_BUDGET_INPUT: want a number, have NaN"},
		{budget.Input{Reserve: nan, Total: inf}, "reserve: INVALID_BUDGET_INPUT: want a number, have NaN"},
		{budget.Input{Layers: []budget.Budget{auto, budget.AtMost(nan)}}, "layers[1]: INVALID_BUDGET_INPUT: max: want a number, have NaN"},
		{budget.Input{Layers: []budget.Budget{budget.Between(nan, 5)}}, "layers[0]: INVALID_BUDGET_INPUT: min: want 0 to "},
		{budget.Input{Layers: []budget.Budget{budget.Between(inf, inf)}}, "layers[0]: INVALID_BUDGET_INPUT: min: want 0 to "},
		{budget.Input{Layers: []budget.Budget{budget.Between(-1, 5)}}, "layers[0]: INVALID_BUDGET_INPUT: min: want 0 to "},
	} {
		got, err := budget.Allocate(test.in)
		if !errors.Is(err, budget.ErrInput) || !strings.HasPrefix(err.Error(), test.want) || got.Layers != nil {
			t.Errorf("%+v: got %v, %v, want %s", test.in, got, err, test.want)
		}
	}
}

// layers draws budgets of every kind.
func layers() *rapid.Generator[[]budget.Budget] {
	tokens := rapid.OneOf(
		rapid.Float64Range(0, 5000),
		rapid.Map(rapid.IntRange(0, 5000), func(n int) float64 { return float64(n) }),
		rapid.Map(rapid.IntRange(0, 50), func(n int) float64 { return float64(n) / 10 }), // no sum of these is exact
	)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) budget.Budget {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return auto
		case 1:
			return budget.AtMost(tokens.Draw(t, "max"))
		case 2:
			return budget.Between(tokens.Draw(t, "min"), inf)
		default:
			lowest := tokens.Draw(t, "min")
			return budget.Between(lowest, lowest+tokens.Draw(t, "headroom"))
		}
	}), 0, 8)
}

func allocate(t *rapid.T, in budget.Input) budget.Allocation {
	out, err := budget.Allocate(in)
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

func minimum(layers []budget.Budget) (sum float64) {
	for _, b := range layers {
		sum += b.Min()
	}
	return sum
}

// Case 57: with an automatic layer nothing of the layers' part is lost. Without one, no layer gets more than its
// maximum; with too little for the minimums, no more is given than there is (case 56).
func TestAllocationsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := budget.Input{
			Layers:  layers().Draw(t, "layers"),
			Total:   rapid.Float64Range(0, 50000).Draw(t, "total"),
			System:  rapid.Float64Range(0, 2000).Draw(t, "system"),
			Reserve: rapid.Float64Range(0, 2000).Draw(t, "reserve"),
		}
		out := allocate(t, in)
		available, floor := in.Total-in.System-in.Reserve, minimum(in.Layers)
		given, unlimited := total(out.Layers), false
		for i, b := range in.Layers {
			unlimited = unlimited || math.IsInf(b.Max(), 1)
			if out.Layers[i] < 0 || out.Layers[i] > b.Max()+1e-6 {
				t.Errorf("layer %d got %v of at most %v", i, out.Layers[i], b.Max())
			}
			if available >= floor && out.Layers[i] < b.Min()-1e-6 && available > 0 {
				t.Errorf("layer %d got %v of at least %v", i, out.Layers[i], b.Min())
			}
		}
		if given+out.History > max(0, available)+1e-6 {
			t.Errorf("gave %v and %v of %v", given, out.History, available)
		}
		if available > 0 && floor > available && out.History != 0 {
			t.Errorf("history got %v though the minimums are not met", out.History)
		}
		if want := 0.6 * (available - floor); unlimited && available > floor && math.Abs(given-floor-want) > 1e-6 {
			t.Errorf("gave %v beyond the minimums, want %v", given-floor, want)
		}
	})
}

// Case 59, to the last bit: 0.1+0.2+0.3 depends on where one begins.
func TestOrderOfFractionsChangesNothing(t *testing.T) {
	a, b, c := budget.AtMost(0.1), budget.AtMost(0.2), budget.AtMost(0.3)
	one, err := budget.Allocate(budget.Input{Layers: []budget.Budget{a, b, c}, Total: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	other, err := budget.Allocate(budget.Input{Layers: []budget.Budget{c, b, a}, Total: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Reverse(other.Layers); !slices.Equal(one.Layers, other.Layers) {
		t.Errorf("got %v, reversed %v", one.Layers, other.Layers)
	}
}

// Case 59, for any layers.
func TestOrderOfLayersChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := budget.Input{Layers: layers().Draw(t, "layers"), Total: rapid.Float64Range(0, 50000).Draw(t, "total")}
		before := allocate(t, in)
		index := make([]int, len(in.Layers))
		for i := range index {
			index[i] = i
		}
		index = rapid.Permutation(index).Draw(t, "order")
		moved := budget.Input{Total: in.Total}
		for _, i := range index {
			moved.Layers = append(moved.Layers, in.Layers[i])
		}
		after := allocate(t, moved)
		for to, from := range index {
			if after.Layers[to] != before.Layers[from] {
				t.Fatalf("layer %d got %v, and %v in order %v", from, before.Layers[from], after.Layers[to], index)
			}
		}
		if after.History != before.History {
			t.Errorf("history got %v, then %v", before.History, after.History)
		}
	})
}

// Case 60: whatever is accepted, the answer is a number.
func TestAllocationsAreNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		extreme := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 1, inf, -inf, math.MaxFloat64, math.SmallestNonzeroFloat64}))
		lowest := rapid.SampledFrom([]float64{0, 1, math.SmallestNonzeroFloat64, 1e-300, 1 << 53})
		in := budget.Input{
			Total:   extreme.Draw(t, "total"),
			System:  extreme.Draw(t, "system"),
			Reserve: extreme.Draw(t, "reserve"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "layers") {
			in.Layers = append(in.Layers, budget.Between(lowest.Draw(t, "min"), extreme.Draw(t, "max")))
		}
		out := allocate(t, in)
		for i, v := range append(out.Layers, out.History) {
			if !(v >= 0) {
				t.Errorf("%+v: number %d is %v", in, i, v)
			}
		}
	})
}

func BenchmarkAllocate(b *testing.B) {
	in := budget.Input{Layers: []budget.Budget{working, observe, auto, auto, budget.AtMost(300)}, Total: 128000, System: 100, Reserve: 4000}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := budget.Allocate(in); err != nil {
			b.Fatal(err)
		}
	}
}
