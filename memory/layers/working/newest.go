package working

import (
	"fmt"
	"sort"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"remora/memory/layer"
)

// omittedMember is the number of an object's members that are left out of a block.
const omittedMember = "_omitted"

// reduced returns the newest part of a value that fits: the last members of an object or elements of a list, whole, and the
// newest part of the one before them, if there is room. If the newest is a long text, its beginning is kept. It returns false
// for nothing.
func reduced(v jsontext.Value, fits func(jsontext.Value) bool) (jsontext.Value, bool) {
	return reduce(v, 0, true, fits)
}

// reduce is reduced at some depth. newest says that nothing newer than the value is kept.
func reduce(v jsontext.Value, depth int, newest bool, fits func(jsontext.Value) bool) (jsontext.Value, bool) {
	if v.Kind() == '"' && newest {
		return beginning(v, fits)
	}
	list, join := parts(v)
	if join == nil || depth > mergeDepth {
		return nil, false
	}

	// kept is how many stay whole: the first number too many is found, less one.
	kept := sort.Search(len(list), func(n int) bool { return !fits(join(list[len(list)-n-1:], len(list)-n-1)) })
	first := len(list) - kept
	if first > 0 {
		at := list[first-1]
		inner, ok := reduce(at.value, depth+1, newest && kept == 0, func(v jsontext.Value) bool {
			return fits(join(append([]member{{at.name, v}}, list[first:]...), first-1))
		})
		if ok {
			return join(append([]member{{at.name, inner}}, list[first:]...), first-1), true
		}
	}
	return join(list[first:], first), kept > 0
}

// parts splits an object or a list into members. join puts some of them together again, and adds the number of missing
// ones.
func parts(v jsontext.Value) (list []member, join func([]member, int) jsontext.Value) {
	switch v.Kind() {
	case '{':
		list, _ = members(v)
		return list, func(list []member, missing int) jsontext.Value {
			if missing > 0 && find(list, omittedMember) < 0 {
				list = append([]member{{omittedMember, jsontext.Value(strconv.Itoa(missing))}}, list...)
			}
			return object(list)
		}
	case '[':
		return elements(v), func(list []member, missing int) jsontext.Value {
			out := []byte{'['}
			if missing > 0 {
				out = fmt.Appendf(out, `"(%d omitted)"`, missing)
			}
			for _, m := range list {
				if len(out) > 1 {
					out = append(out, ',')
				}
				out = append(out, m.value...)
			}
			return append(out, ']')
		}
	default:
		return nil, nil
	}
}

// elements reads a list that was written by this package.
func elements(v jsontext.Value) (list []member) {
	var values []jsontext.Value
	_ = json.Unmarshal(v, &values)
	for _, value := range values {
		list = append(list, member{value: value})
	}
	return list
}

// beginning returns the beginning of a text that fits, followed by a mark.
func beginning(v jsontext.Value, fits func(jsontext.Value) bool) (jsontext.Value, bool) {
	text, ok := asText(layer.State(v))
	if !ok {
		return nil, false
	}
	cut := func(n int) jsontext.Value {
		quoted, err := jsontext.AppendQuote(nil, layer.Head(text, n)+layer.CutMark)
		if err != nil {
			return nil
		}
		return quoted
	}
	n := sort.Search(len(text), func(n int) bool { return !fits(cut(n + 1)) })
	return cut(n), n > 0
}
