package working

import (
	"encoding/json"
	"errors"
	"slices"

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
	list, _ := members(update)
	i := find(list, deleteMember)
	if i < 0 {
		return nil, update, nil
	}
	var entries []json.RawMessage
	if json.Unmarshal(list[i].value, &entries) != nil || len(entries) > maxDeletions {
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
	return paths, object(slices.Delete(list, i, i+1)), nil
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
	list, _ := members(v)
	i := find(list, path[0])
	switch {
	case i < 0:
		return v
	case len(path) == 1:
		list = slices.Delete(list, i, i+1)
	default:
		list[i].value = remove(list[i].value, path[1:])
	}
	return object(list)
}
