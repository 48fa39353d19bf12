package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"remora/memory/layer"
)

// cleaner checks the keys and the shape of a parsed file against a schema, and resolves ${NAME} references in its strings.
// It removes the values that it reports, so that decoding finds only new problems.
type cleaner struct {
	lookup     func(name string) (string, bool) // of environment variables
	referenced map[string]bool                  // names of variables in references
	secrets    []string                         // secrets as they are written, such as file:PATH
	found      problems
	root       *node // schema of the whole file, to find the right place of a misplaced key
}

// mapping cleans the mapping m at path in place.
func (c *cleaner) mapping(path string, n *node, m map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := joinPath(path, key)
		child, known := n.fields[key]
		if lower := strings.ToLower(key); !known && n.fields[lower] != nil {
			c.found.add(at, "unknown key: keys are in lower case, want %q", lower)
			child, known = n.fields[lower], true
			m[lower] = m[key] // to find problems below it too
			delete(m, key)
			key = lower
		}
		if !known {
			fields := slices.Sorted(maps.Keys(n.fields))
			c.found.add(at, "unknown key%s", cmp.Or(didYouMean(key, fields), c.rightPlace(key)))
			if meant := closest(key, fields); meant != "" {
				c.found[len(c.found)-1].meant = joinPath(path, meant)
			}
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

// rightPlace returns a hint where a misplaced key belongs, "" if no place or several are possible.
func (c *cleaner) rightPlace(key string) string {
	found := ""
	for path := range c.root.leaves() {
		if strings.HasSuffix(path, "."+key) {
			if found != "" {
				return ""
			}
			found = path
		}
	}
	if found == "" {
		return ""
	}
	return ", did you mean " + found + "?"
}

// value cleans the value at path. It returns false if the value is unusable: the default stays.
func (c *cleaner) value(path string, n *node, v any) (any, bool) {
	switch {
	case v == nil:
		return nil, false
	case n.fields != nil:
		m, ok := v.(map[string]any)
		if !ok {
			c.found.add(path, "want a mapping, have %s%s", layer.Describe(v), n.hint())
			return nil, false
		}
		c.mapping(path, n, m)
		return m, true
	case n.entry != nil:
		return c.entries(path, n.entry, v)
	}
	if m, ok := v.(map[string]any); ok && len(m) == 0 { // viper would ignore it
		c.found.add(path, "want a value, have a mapping")
		return nil, false
	}
	v, ok := c.resolve(path, v)
	if text, isText := v.(string); isText && n.secret {
		c.secrets = append(c.secrets, text)
	}
	return v, ok
}

func (c *cleaner) entries(path string, n *node, v any) (any, bool) {
	list, ok := v.([]any)
	if !ok {
		c.found.add(path, "want a list, have %s%s", layer.Describe(v), listHint(v))
		return nil, false
	}
	clean, layers := make([]any, 0, len(list)), make([]openEntry, 0, len(list))
	for i, e := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		m, ok := e.(map[string]any)
		if !ok {
			c.found.add(at, "want a mapping, have %s%s", layer.Describe(e), n.hint())
			m = map[string]any{} // a placeholder: later entries keep their index
		} else if n.open {
			c.layer(at, m)
		} else {
			c.mapping(at, n, m)
		}
		clean, layers = append(clean, m), append(layers, m)
	}
	if n.open {
		return layers, true // viper does not lower-case the keys of this type, such as those of a tool's schema
	}
	return clean, true
}

// layer cleans an entry whose keys depend on its kind.
func (c *cleaner) layer(path string, m map[string]any) {
	if n := schemaOfLayer(m); n != nil {
		c.mapping(path, n, m)
	} else {
		c.resolveAll(path, m)
	}
}

func (c *cleaner) jsonList(name string, n *node, value string) (any, bool) {
	var list any
	// The decoder's error would quote the value, which may hold a key.
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		c.found.add(name, "want a JSON array of objects")
		return nil, false
	}
	return c.value(name, n, list)
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

// resolve replaces ${NAME} by the environment variable NAME, in a string or in all strings of a list or mapping.
func (c *cleaner) resolve(path string, v any) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		c.resolveAll(path, v)
	case string:
		s, err := expand(v, c.lookUp)
		if err != nil {
			c.found.add(path, "%v", err)
			return nil, false
		}
		return s, true
	case []any:
		for i, e := range v {
			s, ok := c.resolve(fmt.Sprintf("%s[%d]", path, i), e)
			if !ok {
				s = "" // a placeholder, as above
			}
			v[i] = s
		}
	}
	return v, true
}

// lookUp looks up a variable and records its name.
func (c *cleaner) lookUp(name string) (string, bool) {
	c.referenced[name] = true
	return c.lookup(name)
}

// expand replaces every ${NAME} in s. Within the user and password of a URL, it percent-encodes a value that could not stand there.
// Errors name variables, never values.
func expand(s string, lookup func(string) (string, bool)) (string, error) {
	var b strings.Builder
	begin, end := credentialsIn(s)
	for rest := s; ; {
		before, after, found := strings.Cut(rest, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		at := len(s) - len(after)
		name, after, closed := strings.Cut(after, "}")
		if !closed || name == "" {
			return "", fmt.Errorf("want ${NAME}, the closing brace or the name is missing")
		}
		value, set := lookup(name)
		if !set {
			return "", fmt.Errorf("environment variable %s is not set", name)
		}
		if begin < at && at < end {
			value = percentEncoded(value)
		}
		b.WriteString(value)
		rest = after
	}
}

// credentialsIn returns where the user and the password of a URL begin and end in s, 0 and 0 if it has none.
func credentialsIn(s string) (begin, end int) {
	scheme, rest, _ := strings.Cut(s, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	i := strings.LastIndexByte(rest, '@')
	if i < 0 {
		return 0, 0
	}
	begin = len(scheme) + len("://")
	return begin, begin + i
}

// percentEncoded returns a user or a password as it stands in a URL. One that could stand there is returned unchanged, since it may
// be encoded already.
func percentEncoded(value string) string {
	if u, err := url.Parse("redis://" + value + "@h"); err == nil && u.Host == "h" {
		return value
	}
	return url.PathEscape(value)
}
