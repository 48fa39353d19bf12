package merge

import (
	"math"
	"strconv"

	"remora/wire"
)

// maxUsage bounds two usage objects together, in bytes; real ones have a few hundred.
const maxUsage = 16 << 10

// maxNesting limits the depth to which a usage object is summed; deeper members are taken from the last answer.
const maxNesting = 8

// SumUsage sums the usage objects of two upstream answers member by member: numbers are added, objects are summed, and of
// everything else b's value counts. Members of only one of them are kept. An absent or null object changes nothing. Objects
// too large to be usage are not summed: b counts.
func SumUsage(a, b []byte) []byte {
	if len(a) > 0 && len(a)+len(b) > maxUsage {
		return b
	}
	return addNested(a, b, maxNesting)
}

// ContinueUsage returns the usage of an answer that the client sees as one, after a round of the model with usage b followed
// those with usage a. The input is b's alone: every round reads the whole prompt again, and agents that compact their
// history by the reported input would see a context twice its size. The output and everything else is the sum, and the
// total is that input with all outputs.
func ContinueUsage(a, b []byte) []byte {
	switch {
	case len(a) == 0 || a[0] != '{':
		return b
	case len(b) == 0 || b[0] != '{':
		return a
	case len(a)+len(b) > maxUsage:
		return b
	}

	sum, earlier := SumUsage(a, b), outputTokens(a)
	return wire.Edit(sum, func(_ int, p wire.Child) ([]byte, bool) {
		name := string(p.Name)
		last := wire.Member(b, name)
		if last == nil {
			last = p.Value // of an earlier round only
		}
		switch {
		case countsInput(name):
			return last, true
		case name == "total_tokens" && earlier == nil:
			return last, true
		case name == "total_tokens":
			return addNumbers(earlier, last), true
		}
		return p.Value, true
	})
}

// countsInput reports whether a member of a usage object is about the prompt, in the spelling of any upstream.
func countsInput(name string) bool {
	switch name {
	case "prompt_tokens", "prompt_tokens_details", "input_tokens", "input_tokens_details", // Chat, Responses
		"prompt_cache_hit_tokens", "prompt_cache_miss_tokens", // DeepSeek
		"cached_tokens",                                                            // Moonshot
		"cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation": // Anthropic behind gateways
		return true
	}
	return false
}

// outputTokens returns the number of output tokens in a usage object of either dialect, nil where it has none.
func outputTokens(usage []byte) []byte {
	for _, name := range [...]string{"completion_tokens", "output_tokens"} {
		if n := wire.Member(usage, name); number(n) {
			return n
		}
	}
	return nil
}

func addNested(a, b []byte, depth int) []byte {
	switch {
	case len(a) == 0 || string(a) == "null":
		return b
	case len(b) == 0 || string(b) == "null":
		return a
	case a[0] == '{' && b[0] == '{' && depth > 0:
	default:
		return addNumbers(a, b)
	}
	sum := wire.Edit(a, func(_ int, p wire.Child) ([]byte, bool) {
		return addNested(p.Value, wire.Member(b, string(p.Name)), depth-1), true
	})
	for p := range wire.Children(b) {
		if wire.Member(a, string(p.Name)) == nil {
			sum = wire.WithMember(sum, string(p.Name), p.Value)
		}
	}
	return sum
}

// addNumbers returns the sum of two numbers as JSON, or b where they are none or the sum is too large to be one.
func addNumbers(a, b []byte) []byte {
	x, errX := strconv.ParseInt(string(a), 10, 64)
	y, errY := strconv.ParseInt(string(b), 10, 64)
	if errX == nil && errY == nil && (y <= 0 || x <= math.MaxInt64-y) && (y >= 0 || x >= math.MinInt64-y) {
		return strconv.AppendInt(nil, x+y, 10)
	}
	if !number(a) || !number(b) {
		return b
	}
	f, errF := strconv.ParseFloat(string(a), 64)
	g, errG := strconv.ParseFloat(string(b), 64)
	if sum := f + g; errF == nil && errG == nil && !math.IsInf(sum, 0) {
		return strconv.AppendFloat(nil, sum, 'g', -1, 64)
	}
	return b
}

func number(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}
