package working

import (
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"remora/memory/layer"
)

// deleteMember is the member of an update that lists the members to remove. Null does not remove: a note may have it as a
// value.
const deleteMember = "_delete"

// maxDeletions bounds the paths of one update.
const maxDeletions = 1000

var errDeletions = errors.New(deleteMember + `: want a list of keys, or of paths as lists of keys, such as ["city",["tasks","done"]]`)

// deletions extracts the paths to remove from an update, which comes from parseUpdate.
func deletions(update jsontext.Value) (paths [][]string, rest jsontext.Value, err error) {
	list, ok := members(update)
	if !ok {
		return nil, update, nil
	}
	for i, m := range list {
		if m.name != deleteMember {
			continue
		}
		var entries []json.RawMessage
		if json.Unmarshal(m.value, &entries) != nil || len(entries) > maxDeletions {
			return nil, nil, errDeletions
		}
		for _, e := range entries {
			var key string
			path := []string{}
			if json.Unmarshal(e, &key) == nil && e[0] == '"' {
				path = []string{key}
			} else if json.Unmarshal(e, &path) != nil || len(path) == 0 {
				return nil, nil, errDeletions
			}
			paths = append(paths, path)
		}
		return paths, object(append(list[:i:i], list[i+1:]...)), nil
	}
	return nil, update, nil
}

// without returns the state without the members at paths. Missing members are ignored. A text has no members.
func without(s layer.State, paths [][]string) layer.State {
	v := jsontext.Value(s)
	for _, path := range paths {
		v = remove(v, path)
	}
	return layer.State(v)
}

func remove(v jsontext.Value, path []string) jsontext.Value {
	list, ok := members(v)
	if !ok {
		return v
	}
	for i, m := range list {
		if m.name != path[0] {
			continue
		}
		if len(path) == 1 {
			return object(append(list[:i:i], list[i+1:]...))
		}
		list[i].value = remove(m.value, path[1:])
		return object(list)
	}
	return v
}
