package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/viper"
)

// keySeparator is viper's, instead of its dot: some day a key may have one.
const keySeparator = "::"

// sources are where a configuration comes from, later ones winning: defaults, file, environ, flags.
type sources struct {
	defaults []byte    // YAML
	file     string    // path of a YAML file; empty for none
	environ  []string  // NAME=value lines, as os.Environ has them
	flags    []setting // those given on the command line
}

// into decodes all sources into a pointer to a struct, and has check look at the outcome. It returns every problem, each
// under the path of its key, and then leaves the struct incomplete. A new viper for every load: nothing reads from it
// afterwards, so no request ever meets a half-loaded configuration.
func (s sources) into(target any, check func(found *problems)) problems {
	schema := schemaOf(reflect.TypeOf(target))
	c := &cleaner{lookup: lookupIn(s.environ), looked: map[string]bool{}}
	v := viper.NewWithOptions(viper.KeyDelimiter(keySeparator))
	defaults, err := parseYAML(s.defaults)
	if err != nil {
		panic(fmt.Sprintf("BUG: parse built-in config.yaml: %v", err))
	}
	file, err := s.readFile()
	if err != nil {
		c.found.add(s.file, "%v", err)
	}
	for _, layer := range []map[string]any{defaults, file} {
		c.mapping("", schema, layer)
		if err := v.MergeConfigMap(layer); err != nil {
			c.found.add(s.file, "%v", err)
		}
	}
	origins := map[string]string{}
	for _, set := range append(fromEnviron(s.environ, schema, c), s.flags...) {
		v.Set(strings.ReplaceAll(set.path, ".", keySeparator), set.value)
		origins[set.path] = set.origin
	}
	c.found.addDecodeErrors("", v.UnmarshalExact(target, strict))
	check(&c.found)
	slices.SortStableFunc(c.found, func(a, b problem) int { return strings.Compare(a.path, b.path) })
	return c.found.from(origins)
}

// from adds to problems of values that did not come from a file where they did come from.
func (p problems) from(origins map[string]string) problems {
	for i := range p {
		for path, origin := range origins {
			if within(p[i].path, path) {
				p[i].text += " (from " + origin + ")"
			}
		}
	}
	return p
}

func (s sources) readFile() (map[string]any, error) {
	if s.file == "" {
		return map[string]any{}, nil
	}
	data, err := os.ReadFile(s.file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", cmp.Or(errors.Unwrap(err), err))
	}
	return parseYAML(data)
}

// parseYAML reads one mapping. Its keys come out in lower case, all the way down: that is viper's way, and why the
// configuration has lists with "name" where an operator chooses names. Viper's own reader would drop keys without a value,
// which may be misspelled like any other, and all documents but the first.
func parseYAML(data []byte) (map[string]any, error) {
	if n := documents(data); n > 1 {
		return nil, fmt.Errorf("parse YAML: want one document, have %d", n)
	}
	yaml, err := viper.NewCodecRegistry().Decoder("yaml")
	if err != nil {
		panic("BUG: no YAML: " + err.Error())
	}
	m := map[string]any{}
	if err := yaml.Decode(data, m); err != nil {
		return nil, fmt.Errorf("parse YAML: %w", err)
	}
	lower, _ := lowerKeys(m).(map[string]any)
	return lower, nil
}

// documents counts those of a YAML stream that hold anything. A line that begins with --- is never anything but the
// beginning of one.
func documents(data []byte) int {
	n, counted := 0, false
	for line := range bytes.Lines(data) {
		rest := bytes.TrimSpace(line)
		if after, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(bytes.TrimSpace(after)) == 0 || after[0] == ' ' || after[0] == '\t') {
			rest, counted = bytes.TrimSpace(after), false
		}
		if !counted && len(rest) > 0 && rest[0] != '#' && rest[0] != '%' && string(rest) != "..." {
			n, counted = n+1, true
		}
	}
	return n
}

// lowerKeys is a parsed value with all keys of its mappings in lower case.
func lowerKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[strings.ToLower(key)] = lowerKeys(value)
		}
		return m
	case map[any]any: // some key is no text
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[strings.ToLower(fmt.Sprint(key))] = lowerKeys(value)
		}
		return m
	case []any:
		for i := range v {
			v[i] = lowerKeys(v[i])
		}
	}
	return v
}

// lookupIn looks up variables in NAME=value lines. An empty variable counts as not set.
func lookupIn(environ []string) func(name string) (string, bool) {
	values := make(map[string]string, len(environ))
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		values[name] = value
	}
	return func(name string) (string, bool) {
		value := values[name]
		return value, value != ""
	}
}

const envPrefix = "REMORA_"

// setting is a value from outside of the file, for one path of the configuration.
type setting struct {
	path   string // keys joined by dots
	origin string // the variable or flag, for error messages
	value  any
}

// fromEnviron, called after the file was cleaned, turns the variables REMORA_SECTION_KEY into settings. A list of mappings is given as JSON. An empty
// variable counts as not set, as in most tools that start containers.
func fromEnviron(environ []string, schema *node, c *cleaner) []setting {
	paths := map[string]string{}
	leaves := schema.leaves(".")
	for path := range leaves {
		paths[envName(path)] = path
	}
	names := slices.Sorted(maps.Keys(paths))
	var set []setting
	for _, line := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || isServiceLink(name, value) {
			continue
		}
		path, known := paths[name]
		if !known {
			if c.looked[name] {
				continue // a name of the operator's own, used by the file
			}
			c.found.add(name, "unknown environment variable%s", didYouMean(name, names))
			continue
		}
		s := setting{path: path, origin: name, value: value}
		if n := leaves[path]; n.entry != nil {
			list, ok := c.jsonList(name, n, value)
			if !ok {
				continue
			}
			s.value = list
		}
		set = append(set, s)
	}
	return set
}

func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func (c *cleaner) jsonList(name string, n *node, value string) (any, bool) {
	var list any
	// The decoder's own text would quote the value, which may hold a key.
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		c.found.add(name, "want a JSON array of objects")
		return nil, false
	}
	return c.value(name, n, list)
}

// isServiceLink recognises what Kubernetes puts into every container for each Service of the namespace. For a Service
// named "remora" these variables begin as ours do.
func isServiceLink(name, value string) bool {
	link := regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)
	return link.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}
