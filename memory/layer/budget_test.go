package layer_test

import (
	"math"
	"testing"

	"remora/memory/layer"
)

// What operators write for a layer's budget.
func TestParseBudget(t *testing.T) {
	inf := math.Inf(1)
	for _, test := range []struct {
		name     string
		value    any
		min, max float64
	}{
		{"omitted", nil, 0, inf},
		{"auto", "auto", 0, inf},
		{"number", 300, 0, 300},
		{"none", 0, 0, 0},
		{"unsigned", uint64(300), 0, 300},
		{"fraction", 0.5, 0, 0.5},
		{"infinity", inf, 0, inf},
		{"number of the environment", "300", 0, 300},
		{"range", map[string]any{"min": 200, "max": 1500.0}, 200, 1500},
		{"range as text", map[string]any{"min": "200", "max": "1500"}, 200, 1500},
		{"point", map[string]any{"min": 5, "max": 5}, 5, 5},
		{"floor", map[string]any{"min": 200}, 200, inf},
		{"ceiling", map[string]any{"max": 1500}, 0, 1500},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := layer.ParseBudget(test.value)
			if err != nil || got.Min() != test.min || got.Max() != test.max {
				t.Errorf("got {%v, %v}, %v, want {%v, %v}", got.Min(), got.Max(), err, test.min, test.max)
			}
			if again := layer.Between(test.min, test.max); got != again {
				t.Errorf("got %#v, equal values must be equal: %#v", got, again)
			}
		})
	}
	if zero, _ := layer.ParseBudget(nil); zero != (layer.Budget{}) {
		t.Error("an omitted budget is not the zero value")
	}
}

func TestParseBudgetNamesTheKeyOfEveryProblem(t *testing.T) {
	for _, test := range []struct {
		name  string
		value any
		want  string // lines
	}{
		{"text", "hunter2", "budget: want auto, a number or {min, max}, have text"},
		{"bool", true, "budget: want auto, a number or {min, max}, have true or false"},
		{"list", []any{200, 1500}, "budget: want auto, a number or {min, max}, have a list"},
		{"mapping of other keys", map[int]any{1: 2}, "budget: want auto, a number or {min, max}, have a mapping with a key that is no text"},
		{"neither", struct{}{}, "budget: want auto, a number or {min, max}, have something else"},
		{"negative", -1, "budget: want 0 tokens or more, have -1"},
		{"NaN", math.NaN(), "budget: want 0 tokens or more, have NaN"},
		{"too large for a number", "1e999", "budget: want auto, a number or {min, max}, have text"},
		{"empty", map[string]any{}, "budget: want min, max or both, have an empty mapping"},
		{"min over max", map[string]any{"min": 8, "max": 5}, "budget.min: want at most budget.max, which is 5, have 8"},
		{"infinite min", map[string]any{"min": math.Inf(1)}, "budget.min: want 0 to 9007199254740992 tokens, have +Inf"},
		{
			"NaN in a range",
			map[string]any{"min": math.NaN(), "max": math.NaN()},
			"budget.max: want 0 tokens or more, have NaN\nbudget.min: want 0 to 9007199254740992 tokens, have NaN",
		},
		{
			"several",
			map[string]any{"min": -1, "max": "hunter2", "mx": 3},
			"budget.max: want a number, have text\nbudget.min: want 0 to 9007199254740992 tokens, have -1\nbudget.mx: unknown key, want min or max",
		},
		{
			"nothing in it",
			map[string]any{"min": nil, "max": map[string]any{}},
			"budget.max: want a number, have a mapping\nbudget.min: want a number, have nothing",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := layer.ParseBudget(test.value)
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if got != (layer.Budget{}) {
				t.Errorf("got %#v beside an error", got)
			}
		})
	}
}
