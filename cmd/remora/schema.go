package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// node describes what the configuration may hold at one place. It is derived from the structs that the configuration is
// decoded into, so that a new option needs its field and nothing else.
type node struct {
	fields map[string]*node // keys of a mapping; nil for anything else
	entry  *node            // what each entry of a list of mappings may hold; nil for anything else
	open   bool             // an openEntry: what it may hold depends on its kind
}

// openEntry is a list entry whose keys depend on its "kind"; they are checked where the kinds are known.
type openEntry map[string]any

func schemaOf(t reflect.Type) *node {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		n := &node{fields: map[string]*node{}}
		n.addFields(t)
		return n
	case reflect.Slice:
		switch e := t.Elem(); {
		case e == reflect.TypeFor[openEntry]():
			return &node{entry: &node{open: true}}
		case e.Kind() == reflect.Struct:
			return &node{entry: schemaOf(e)}
		}
	default:
	}
	return &node{}
}

// addFields enters the tagged fields of t. A field without a tag is set by code, never by an operator.
func (n *node) addFields(t reflect.Type) {
	for f := range t.Fields() {
		name, flags, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		switch {
		case flags == "squash":
			n.addFields(f.Type)
		case name != "" && name != "-":
			n.fields[name] = schemaOf(f.Type)
		}
	}
}

// leaves returns the path of every single value and of every list below n, keys joined by sep.
func (n *node) leaves(sep string) map[string]*node {
	found := map[string]*node{}
	for key, child := range n.fields {
		if child.fields == nil {
			found[key] = child
			continue
		}
		for rest, leaf := range child.leaves(sep) {
			found[key+sep+rest] = leaf
		}
	}
	return found
}

// hint names the keys of a mapping, for the error about another kind of value in its place.
func (n *node) hint() string {
	if n.open {
		return ": its first key is kind"
	}
	if len(n.fields) == 0 {
		return ""
	}
	return ": its keys are " + strings.Join(slices.Sorted(maps.Keys(n.fields)), ", ")
}

// listHint says how a list is written, for the error about a mapping in its place.
func listHint(v any) string {
	if _, ok := v.(map[string]any); ok {
		return ": each entry begins with a dash"
	}
	return ""
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// describe names the shape of a parsed value without showing it: it may be a secret.
func describe(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case map[string]any:
		return "a mapping"
	case map[any]any:
		return "a mapping with a key that is no text"
	case []any:
		return "a list"
	case string:
		return "text"
	case bool:
		return "true or false"
	default:
		return "a number"
	}
}
