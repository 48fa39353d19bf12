package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"remora/memory/view"
)

// layers is what the entries of memory.layers come out as.
type layers struct {
	window *view.Window // nil for none
}

// layerKind reads one entry of memory.layers, its "kind" left out, into l.
type layerKind func(path string, entry openEntry, l *layers) problems

// layerKinds lists what "kind" may be. A new kind is a row here and a block in config.yaml.
func layerKinds() map[string]layerKind {
	return map[string]layerKind{
		"history_window": historyWindow,
	}
}

// decodeLayers reads every entry by its kind and adds to found what is wrong with it.
func decodeLayers(entries []openEntry, found *problems) layers {
	var l layers
	kinds := layerKinds()
	names := slices.Sorted(maps.Keys(kinds))
	for i, entry := range entries {
		path := fmt.Sprintf("memory.layers[%d]", i)
		if len(entry) == 0 && found.covers(path) {
			continue // not even a mapping
		}
		kind, _ := entry["kind"].(string)
		read, known := kinds[kind]
		if !known {
			found.add(path+".kind", "want one of %s, have %q%s", strings.Join(names, ", "), kind, didYouMean(kind, names))
			continue
		}
		options := maps.Clone(entry)
		delete(options, "kind")
		*found = append(*found, read(path, options, &l)...)
	}
	return l
}

func historyWindow(path string, entry openEntry, l *layers) problems {
	if l.window != nil {
		return problems{{path, "history_window is there already, one is all that a session can have"}}
	}
	w := view.Window{MaxItems: view.DefaultMaxItems, InFlight: view.InFlightKeep}
	found := decodeStrictly(path, entry, &w)
	if _, set := entry["evict_batch"]; !set {
		w.EvictBatch = max(1, int(w.MaxItems)/2)
	}
	for _, err := range w.Validate() {
		key, text, _ := strings.Cut(err.Error(), ": ")
		if at := joinPath(path, key); !found.covers(at) {
			found.add(at, "%s", text)
		}
	}
	l.window = &w
	return found
}

// decodeStrictly fills into from entry and reports, besides what cannot be decoded, the keys that it does not have.
func decodeStrictly(path string, entry openEntry, into any) problems {
	c := &cleaner{} // references were resolved when the file was read
	c.mapping(path, schemaOf(reflect.TypeOf(into)), entry)
	return append(c.found, decodeEntry(path, entry, into)...)
}
