package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// node tells what the configuration may hold at one place. It is derived from the structs that the configuration is
// decoded into, so that a new option needs its field and nothing else.
type node struct {
	fields map[string]*node // keys of a mapping; nil for anything else
	entry  *node            // what each entry of a list of mappings may hold; nil for anything else
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
		if e := t.Elem(); e.Kind() == reflect.Struct || e == reflect.TypeFor[openEntry]() {
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

// cleaner checks the keys and the shape of a parsed file against a schema, and resolves references in its strings.
// Whatever it reports it also removes, so that decoding what is left finds only problems that are new.
type cleaner struct {
	lookup func(name string) (string, bool) // of environment variables; nil leaves references alone
	looked map[string]bool                  // variables that references named
	found  problems
}

// mapping cleans m, which stands at path, in place.
func (c *cleaner) mapping(path string, n *node, m map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := joinPath(path, key)
		child, known := n.fields[key]
		if !known {
			c.found.add(at, "unknown key%s", didYouMean(key, slices.Sorted(maps.Keys(n.fields))))
			delete(m, key)
			continue
		}
		clean, ok := c.value(at, child, m[key])
		if !ok {
			delete(m, key)
			continue
		}
		m[key] = clean
	}
}

// value cleans what stands at path. False means that nothing usable does: a key without a value keeps its default.
func (c *cleaner) value(path string, n *node, v any) (any, bool) {
	switch {
	case v == nil:
		return nil, false
	case n.fields != nil:
		m, ok := v.(map[string]any)
		if !ok {
			c.found.add(path, "want a mapping, have %s", describe(v))
			return nil, false
		}
		c.mapping(path, n, m)
		return m, true
	case n.entry != nil:
		return c.entries(path, n.entry, v)
	}
	if m, ok := v.(map[string]any); ok && len(m) == 0 && c.lookup != nil { // viper would take it for no value
		c.found.add(path, "want a value, have a mapping")
		return nil, false
	}
	return c.resolve(path, v)
}

func (c *cleaner) entries(path string, n *node, v any) (any, bool) {
	list, ok := v.([]any)
	if !ok {
		c.found.add(path, "want a list, have %s", describe(v))
		return nil, false
	}
	kept := make([]any, 0, len(list))
	for i, e := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		m, ok := e.(map[string]any)
		if !ok {
			c.found.add(at, "want a mapping, have %s", describe(e))
			m = map[string]any{} // holds the place, so that later entries keep their index
		} else if n.fields != nil {
			c.mapping(at, n, m)
		} else {
			c.resolveAll(at, m)
		}
		kept = append(kept, m)
	}
	return kept, true
}

// resolveAll resolves the values of an open entry.
func (c *cleaner) resolveAll(path string, m map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		v, ok := c.resolve(joinPath(path, key), m[key])
		if !ok {
			delete(m, key)
			continue
		}
		m[key] = v
	}
}

// resolve replaces ${NAME} in a string, or in the strings of a list or mapping, by the environment variable NAME.
func (c *cleaner) resolve(path string, v any) (any, bool) {
	if c.lookup == nil {
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		c.resolveAll(path, v)
	case string:
		s, err := expand(v, c.look)
		if err != nil {
			c.found.add(path, "%v", err)
			return nil, false
		}
		return s, true
	case []any:
		for i, e := range v {
			s, ok := c.resolve(fmt.Sprintf("%s[%d]", path, i), e)
			if !ok {
				s = "" // reported; holds the place
			}
			v[i] = s
		}
	}
	return v, true
}

// look looks a variable up and remembers that it was asked for.
func (c *cleaner) look(name string) (string, bool) {
	c.looked[name] = true
	return c.lookup(name)
}

// expand replaces every ${NAME} of s. Its errors name variables, never values.
func expand(s string, lookup func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || name == "" {
			return "", fmt.Errorf("want ${NAME}, the closing brace or the name is missing")
		}
		value, set := lookup(name)
		if !set {
			return "", fmt.Errorf("environment variable %s is not set", name)
		}
		b.WriteString(value)
		s = after
	}
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
