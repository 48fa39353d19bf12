package layer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// maxMin is the largest minimum, in tokens: above it float64 cannot represent every count.
const maxMin = 1 << 53

// Budget limits the tokens of a layer. The zero value is automatic: the layer gets what the others leave
// (docs/semantics.md#budget-shares).
type Budget struct {
	min     float64
	max     float64 // means something only if limited
	limited bool
}

// AtMost returns the budget of a plain number in the configuration: a maximum without a minimum. Infinity is allowed.
func AtMost(tokens float64) Budget { return Between(0, tokens) }

// Between returns a budget of at least lowest tokens, if available, and at most highest. If highest is less than lowest, the
// layer gets lowest; [ParseBudget] refuses that as a mistake.
func Between(lowest, highest float64) Budget {
	if math.IsInf(highest, 1) {
		return Budget{min: lowest}
	}
	return Budget{min: lowest, max: highest, limited: true}
}

// Min returns the tokens that the layer gets before the rest is shared.
func (b Budget) Min() float64 { return b.min }

// Max returns the maximum tokens of the layer, +Inf without a limit.
func (b Budget) Max() float64 {
	if !b.limited {
		return math.Inf(1)
	}
	return b.max
}

// Headroom returns the number of tokens that the layer can take beyond its minimum.
func (b Budget) Headroom() float64 { return max(0, b.Max()-b.min) }

// Validate refuses unusable numbers: a maximum that is NaN, and a minimum that is NaN, negative or above 2^53.
func (b Budget) Validate() error {
	if math.IsNaN(b.max) {
		return errors.Join(checkMin("min", b.min), errors.New("max: want a number, have NaN"))
	}
	return checkMin("min", b.min)
}

// ParseBudget reads the value of the key "budget" as a YAML decoder leaves it: nothing or "auto", a number, or a mapping with
// min, max or both, each a number. Numbers may come as text, since references to the environment do. The error joins
// one line per problem, each beginning with its key, as "budget.min: "; it never repeats text, which may be a secret.
func ParseBudget(v any) (Budget, error) {
	if v == nil || v == "auto" {
		return Budget{}, nil
	}
	if m, ok := v.(map[string]any); ok {
		return parseRange(m)
	}
	most, ok := number(v)
	if !ok {
		return Budget{}, fmt.Errorf("budget: want auto, a number or {min, max}, have %s", Describe(v))
	}
	if err := checkMax("budget", most); err != nil {
		return Budget{}, err
	}
	return AtMost(most), nil
}

func parseRange(m map[string]any) (Budget, error) {
	lowest, highest := 0.0, math.Inf(1)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := "budget." + key
		n, isNumber := number(m[key])
		switch {
		case key != "min" && key != "max":
			errs = append(errs, fmt.Errorf("%s: unknown key, want min or max", at))
		case !isNumber:
			errs = append(errs, fmt.Errorf("%s: want a number, have %s", at, Describe(m[key])))
		case key == "min":
			lowest = n
			errs = append(errs, checkMin(at, n))
		default:
			highest = n
			errs = append(errs, checkMax(at, n))
		}
	}
	if len(m) == 0 {
		errs = append(errs, errors.New("budget: want min, max or both, have an empty mapping"))
	}
	if err := errors.Join(errs...); err != nil {
		return Budget{}, err
	}
	if lowest > highest {
		return Budget{}, fmt.Errorf("budget.min: want at most budget.max, which is %v, have %v", highest, lowest)
	}
	return Between(lowest, highest), nil
}

// The conditions below are written so that NaN, which compares as false, fails them.

func checkMin(at string, n float64) error {
	if !(n >= 0 && n <= maxMin) {
		return fmt.Errorf("%s: want 0 to %d tokens, have %v", at, maxMin, n)
	}
	return nil
}

func checkMax(at string, n float64) error {
	if !(n >= 0) {
		return fmt.Errorf("%s: want 0 tokens or more, have %v", at, n)
	}
	return nil
}

func number(v any) (float64, bool) {
	switch r := reflect.ValueOf(v); {
	case !r.IsValid():
		return 0, false
	case r.CanInt():
		return float64(r.Int()), true
	case r.CanUint():
		return float64(r.Uint()), true
	case r.CanFloat():
		return r.Float(), true
	case r.Kind() == reflect.String:
		n, err := strconv.ParseFloat(r.String(), 64)
		return n, err == nil
	default:
		return 0, false
	}
}

// Describe names the shape of a value of the configuration without showing it: it may be a secret.
func Describe(v any) string {
	switch r := reflect.ValueOf(v); {
	case !r.IsValid():
		return "nothing"
	case r.Kind() == reflect.Map && r.Type().Key().Kind() != reflect.String:
		return "a mapping with a key that is no text"
	case r.Kind() == reflect.Map:
		return "a mapping"
	case r.Kind() == reflect.Slice:
		return "a list"
	case r.Kind() == reflect.String:
		return "text"
	case r.Kind() == reflect.Bool:
		return "true or false"
	case r.CanInt() || r.CanUint() || r.CanFloat():
		return "a number"
	default:
		return "something else"
	}
}
