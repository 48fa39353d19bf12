package working

import (
	"bytes"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"remora/memory/layer"
)

const (
	// mergeDepth is the depth to which objects are merged; below it they are replaced.
	mergeDepth = 32
	// maxNesting is the maximum nesting of an update.
	maxNesting = 64
)

// keptInOrder is the size in bytes up to which the members of a state stay in the order of their first write, as in JavaScript.
// In a larger state, which may exceed a budget, a rewritten member moves to the end, so that the newest notes come last.
const keptInOrder = 512

// member is one member of an object.
type member struct {
	name  string
	value jsontext.Value
}

// asText is the state as text.
func asText(s layer.State) (string, bool) {
	if len(s) == 0 || s[0] != '"' || !jsontext.Value(s).IsValid() {
		return "", false
	}
	text, err := jsontext.AppendUnquote(nil, []byte(s))
	return string(text), err == nil
}

// asObject are the members of the state.
func asObject(s layer.State) ([]member, bool) { return members(jsontext.Value(s)) }

// members reads an object that this package has written; duplicate names are invalid.
func members(v jsontext.Value) ([]member, bool) {
	if v.Kind() != '{' {
		return nil, false
	}
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	if _, err := dec.ReadToken(); err != nil {
		return nil, false
	}
	var out []member
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, false
		}
		m := member{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, false
		}
		m.value = value.Clone()
		out = append(out, m)
	}
	if _, err := dec.ReadToken(); err != nil || dec.PeekKind() != 0 {
		return nil, false
	}
	return out, true
}

// forbidden are names with a special meaning to JavaScript readers of the state.
func forbidden(name string) bool { return name == "__proto__" || name == "constructor" }

// errNoObject is returned for arguments of a call that are not an object that can be merged.
var errNoObject = errors.New("arguments: want a JSON object, each member once, nested at most 64 deep")

// parseUpdate reads the arguments of an update: an object, in minimal JSON, without the forbidden names at any depth.
func parseUpdate(arguments []byte) (jsontext.Value, error) {
	if jsontext.Value(arguments).Kind() != '{' {
		return nil, errNoObject
	}
	var out bytes.Buffer
	dec := jsontext.NewDecoder(bytes.NewReader(arguments), jsontext.AllowInvalidUTF8(true))
	enc := jsontext.NewEncoder(&out, jsontext.AllowInvalidUTF8(true))
	for {
		// A name follows an even number of tokens in an object.
		kind, n := dec.StackIndex(dec.StackDepth())
		named := kind == '{' && n%2 == 0
		token, err := dec.ReadToken()
		if err != nil {
			return nil, errNoObject
		}
		if named && token.Kind() == '"' && forbidden(token.String()) {
			if err := dec.SkipValue(); err != nil {
				return nil, errNoObject
			}
			continue
		}
		if err := enc.WriteToken(token); err != nil {
			return nil, errNoObject
		}
		switch depth := dec.StackDepth(); {
		case depth > maxNesting:
			return nil, errNoObject
		case depth == 0:
			if dec.PeekKind() != 0 {
				return nil, errNoObject // something after the object
			}
			return bytes.TrimSpace(out.Bytes()), nil
		}
	}
}

// previousMember is the member with what the state was before it became an object: a text.
const previousMember = "_previous"

// merge returns the state after an update, which comes from parseUpdate.
func merge(s layer.State, update jsontext.Value) layer.State {
	if old, isText := asText(s); isText && old != "" {
		quoted, err := jsontext.AppendQuote(nil, old)
		if err != nil {
			return layer.State(update)
		}
		list, _ := members(update)
		if i := find(list, previousMember); i >= 0 {
			list[i].value = quoted
		} else {
			list = append(list, member{previousMember, quoted})
		}
		return layer.State(object(list))
	}
	if _, ok := asObject(s); !ok {
		return layer.State(update)
	}
	return layer.State(deepMerge(jsontext.Value(s), update, 0, len(s)+len(update) > keptInOrder))
}

// deepMerge merges update into old: objects member by member down to mergeDepth, anything else is replaced. With
// newestLast the updated members move to the end.
func deepMerge(old, update jsontext.Value, depth int, newestLast bool) jsontext.Value {
	if depth >= mergeDepth {
		return update
	}
	list, ok := members(old)
	changes, both := members(update)
	if !ok || !both {
		return update
	}
	index := make(map[string]int, len(list))
	for i, m := range list {
		index[m.name] = i
	}
	moved := make([]bool, len(list))
	var written []member
	for _, c := range changes {
		at, ok := index[c.name]
		if ok {
			c.value = deepMerge(list[at].value, c.value, depth+1, newestLast)
		}
		if ok && !newestLast {
			list[at].value = c.value
			continue
		}
		if ok {
			moved[at] = true
		}
		written = append(written, c)
	}

	var kept []member
	for i, m := range list {
		if !moved[i] {
			kept = append(kept, m)
		}
	}
	return object(append(kept, written...))
}

// find returns the place of the member of that name, -1 if there is none.
func find(list []member, name string) int {
	return slices.IndexFunc(list, func(m member) bool { return m.name == name })
}

// object writes members as minimal JSON.
func object(list []member) jsontext.Value {
	out := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		// What cannot be quoted is replaced by U+FFFD, so the error says nothing new.
		out, _ = jsontext.AppendQuote(out, m.name)
		out = append(append(out, ':'), m.value...)
	}
	return append(out, '}')
}

// pretty is an object with two spaces of indentation, as JSON.stringify(v, null, 2) writes it, or as it is where that
// would make it many times as long.
func pretty(s layer.State) string {
	if indentation(s) > 4*len(s)+1024 {
		return string(s)
	}
	out, err := jsontext.AppendFormat(nil, []byte(s), jsontext.WithIndent("  "))
	if err != nil {
		return string(s)
	}
	return string(out)
}

// indentation is about how many bytes of space pretty would add.
func indentation(s layer.State) int {
	size, depth, quoted := 0, 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			size += 2*depth + 1
		case c == '}' || c == ']':
			depth--
			size += 2*depth + 1
		case c == ',':
			size += 2*depth + 1
		}
	}
	return size
}
