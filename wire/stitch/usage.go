package stitch

import (
	"bytes"
	"math"
	"strconv"

	"remora/wire"
)

// maxUsage bounds two usage objects together, in bytes; real ones have a few hundred.
const maxUsage = 16 << 10

// maxNesting bounds how deep a usage object is summed; what is deeper is taken from the last answer.
const maxNesting = 8

// addUsage sums two usage objects member by member: numbers are added, objects summed, of all else b's value counts.
// Members of only one of them are kept. An absent or null one changes nothing. What is too large to be a usage object is
// not summed: b counts.
func addUsage(a, b []byte) []byte {
	if len(a) > 0 && len(a)+len(b) > maxUsage {
		return b
	}
	return addNested(a, b, maxNesting)
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
	sum := wire.Edit(a, func(_ int, p wire.Part) ([]byte, bool) {
		return with(a, p, addNested(p.Value, wire.Member(b, string(p.Name)), depth-1)), true
	})
	for p := range wire.Parts(b) {
		if wire.Member(a, string(p.Name)) == nil {
			sum = appendMember(sum, b[p.Start:p.End])
		}
	}
	return sum
}

// appendMember puts a member at the end of an object.
func appendMember(object, member []byte) []byte {
	end := bytes.LastIndexByte(object, '}')
	out := append(make([]byte, 0, len(object)+len(member)+1), object[:end]...)
	if hasParts(object) {
		out = append(out, ',')
	}
	return append(append(out, member...), object[end:]...)
}

// hasParts tells that an object or an array holds something.
func hasParts(raw []byte) bool {
	for range wire.Parts(raw) {
		return true
	}
	return false
}

// addNumbers is the sum of two numbers as JSON, or b where they are none or the sum is too large to be one.
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

// with is the part p of raw with another value, for wire.Edit.
func with(raw []byte, p wire.Part, value []byte) []byte {
	head := raw[p.Start : p.End-len(p.Value)]
	return append(append(make([]byte, 0, len(head)+len(value)), head...), value...)
}
