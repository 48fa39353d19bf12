package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"remora/secret"
)

// node is the schema of one place of the configuration. It is derived from the structs that the configuration is decoded into,
// so that a new option only needs a field.
type node struct {
	fields map[string]*node // keys of a mapping; nil for anything else
	entry  *node            // the entries of a list of mappings; nil for anything else
	open   bool             // an openEntry, whose keys depend on its kind
	secret bool             // a secret, which file:PATH may give
}

// openEntry is a list entry whose keys depend on its "kind"; they are checked where the kinds are known.
type openEntry map[string]any

func schemaOf(t reflect.Type) *node {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[secret.String]() {
		return &node{secret: true}
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

// addFields adds the tagged fields of t. Fields without a tag are set by code, not by operators.
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

// leaves returns the scalars and lists below n by their path.
func (n *node) leaves() map[string]*node {
	found := map[string]*node{}
	for key, child := range n.fields {
		if child.fields == nil {
			found[key] = child
			continue
		}
		for rest, leaf := range child.leaves() {
			found[joinPath(key, rest)] = leaf
		}
	}
	return found
}

// hint lists the keys of a mapping, for the error about a value that should be one.
func (n *node) hint() string {
	if n.open {
		return ": its first key is kind"
	}
	if len(n.fields) == 0 {
		return ""
	}
	return ": its keys are " + strings.Join(slices.Sorted(maps.Keys(n.fields)), ", ")
}

// listHint explains how to write a list, for the error about a mapping that should be one.
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
