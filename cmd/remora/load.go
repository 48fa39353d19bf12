package main

import (
	"cmp"
	"crypto/sha256"
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

// keySeparator replaces viper's dot, since keys may contain dots. Viper also lower-cases all keys. Names that operators choose
// are therefore no keys but values of "name" in lists.
const keySeparator = "::"

// sources are the sources of a configuration, over the defaults. Later ones take precedence: file, environ, flags.
type sources struct {
	file    string    // path of a YAML file; empty for none
	environ []string  // NAME=value, as from os.Environ
	flags   []setting // set on the command line
	goLimit int64     // GOMEMLIMIT in bytes, without the ballast; 0 for none
}

// into decodes all sources over defaults, which are YAML, into target, a pointer to a struct, and then calls check. It returns all
// problems, each with the path of its key; the struct is incomplete then. Each load uses a new viper, so a reload that fails
// changes nothing.
func (s sources) into(target any, defaults []byte, check func(found *problems)) (from files, found problems) {
	schema := schemaOf(reflect.TypeOf(target))
	c := &cleaner{lookup: lookupIn(s.environ), referenced: map[string]bool{}, root: schema}
	v := viper.NewWithOptions(viper.KeyDelimiter(keySeparator))
	built, _, err := parseYAML(defaults)
	if err != nil {
		panic(fmt.Sprintf("BUG: parse built-in config.yaml: %v", err))
	}
	data, err := s.readFile()
	var file map[string]any
	var lines keyLines
	if err == nil {
		file, lines, err = parseYAML(data)
	}
	if err != nil {
		c.found.add(s.file, "%v", err)
	}
	for _, layer := range []map[string]any{built, file} {
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
	from = files{content: sha256.Sum256(data), named: c.secrets}
	from.secrets = from.hashSecrets() // before they are decoded: one that is replaced meanwhile is found by the next poll
	c.found.addDecodeErrors("", v.UnmarshalExact(target, strict))
	check(&c.found)
	slices.SortStableFunc(c.found, func(a, b problem) int { return strings.Compare(a.path, b.path) })
	return from, c.found.withoutConsequences().withOrigins(origins, lines)
}

// files identifies the content that a configuration was read from.
type files struct {
	content [sha256.Size]byte // hash of the configuration's file, of no content without a file
	secrets [sha256.Size]byte // hash of the secrets
	named   []string          // the secrets as they are written, such as file:PATH
}

// same reports whether f and other have the same content.
func (f files) same(other files) bool {
	return f.content == other.content && f.secrets == other.secrets
}

// hashSecrets hashes the secrets as they are now. One that cannot be read counts by its error.
func (f files) hashSecrets() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, text := range f.named {
		value, err := readSecret(text)
		fmt.Fprintf(h, "%q %v\n", value.Reveal(), err)
	}
	h.Sum(sum[:0])
	return sum
}

// readFile returns the content of the file, nil without one.
func (s sources) readFile() ([]byte, error) {
	if s.file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(s.file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", cmp.Or(errors.Unwrap(err), err))
	}
	return data, nil
}

// lookupIn returns a function that looks up environment variables. An empty variable counts as not set.
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

// setting is the value of one key from a variable or a flag.
type setting struct {
	path   string // keys joined by dots
	origin string // the variable or flag, for error messages
	value  any
}

// fromEnviron returns the settings of the variables REMORA_SECTION_KEY. It is called after the file was cleaned. Lists of
// mappings are JSON. An empty variable counts as not set, as in most container tools.
func fromEnviron(environ []string, schema *node, c *cleaner) []setting {
	paths := map[string]string{}
	leaves := schema.leaves()
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
			if c.referenced[name] {
				continue // a name of the operator's own, used by the file
			}
			c.found.add(name, "unknown environment variable%s", didYouMean(name, names))
			continue
		}
		s := setting{path: path, origin: name}
		var usable bool
		before := len(c.found)
		if n := leaves[path]; n.entry != nil {
			s.value, usable = c.jsonList(name, n, value)
		} else {
			s.value, usable = c.value(name, n, value)
		}
		if usable {
			set = append(set, s)
			continue
		}
		for i := range c.found[before:] {
			c.found[before+i].meant = path
		}
	}
	return set
}

func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// isServiceLink reports whether Kubernetes set the variable: it sets some in every container for each Service of the namespace.
// For a Service named "remora" they begin with REMORA_.
func isServiceLink(name, value string) bool {
	link := regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)
	return link.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}
