package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

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
