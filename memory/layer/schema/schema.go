// Package schema validates JSON against a part of JSON Schema: the arguments of tools, and the states of layers. [Parse]
// and [ParseObject] read a schema, [Schema.Validate] checks a value. It never fetches anything, and takes bounded time on
// any schema and value.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a schema.
const (
	maxBytes = 64 << 10
	maxDepth = 32      // of objects and arrays in it
	maxParts = 1 << 14 // schemas in it, those that it refers to counted anew with each reference
)

// Schema is a schema that was read. It knows type, enum, const, properties, required, additionalProperties, items,
// minItems, maxItems, minLength, maxLength, pattern (in RE2's syntax), minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, anyOf, oneOf and allOf, $ref to "#/$defs/NAME" with $defs at the top, and keywords that only describe.
// Any other is refused when it is read, so that nothing is promised and not checked. A definition must not refer to itself,
// directly or through others. Numbers are compared as float64.
type Schema struct {
	Types      typeNames          `json:"type"`
	Enum       []any              `json:"enum"`
	Const      json.RawMessage    `json:"const"`
	Properties map[string]*Schema `json:"properties"`
	Required   []string           `json:"required"`
	Additional *Schema            `json:"additionalProperties"`
	Items      *Schema            `json:"items"`
	MinItems   int                `json:"minItems"`
	MaxItems   *int               `json:"maxItems"`
	MinLength  int                `json:"minLength"`
	MaxLength  *int               `json:"maxLength"`
	Pattern    *string            `json:"pattern"`
	Minimum    *float64           `json:"minimum"`
	Maximum    *float64           `json:"maximum"`
	Above      *float64           `json:"exclusiveMinimum"`
	Below      *float64           `json:"exclusiveMaximum"`
	AnyOf      []*Schema          `json:"anyOf"`
	OneOf      []*Schema          `json:"oneOf"`
	AllOf      []*Schema          `json:"allOf"`
	Ref        *string            `json:"$ref"`
	Defs       map[string]*Schema `json:"$defs"`
	// What describes and does not constrain.
	Schema      any `json:"$schema"`
	ID          any `json:"$id"`
	Comment     any `json:"$comment"`
	Title       any `json:"title"`
	Description any `json:"description"`
	Default     any `json:"default"`
	Examples    any `json:"examples"`
	Format      any `json:"format"`
	Deprecated  any `json:"deprecated"`

	never    bool    // the schema is false
	ref      *Schema // what Ref names
	parts    int     // schemas in it, this one included; 0 until it is prepared
	pattern  *regexp.Regexp
	constant any
}

// UnmarshalJSON reads a schema, which may be true or false.
func (s *Schema) UnmarshalJSON(raw []byte) error {
	switch string(bytes.TrimSpace(raw)) {
	case "true":
		return nil
	case "false":
		s.never = true
		return nil
	}
	type plain Schema // without this method
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode((*plain)(s))
}

type typeNames []string

// UnmarshalJSON reads one name or a list.
func (t *typeNames) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*t = typeNames{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(t))
}

// Parse reads a schema of at most 64 KiB, in which objects and arrays are nested at most 32 deep. Errors tell where in it
// the fault lies, and quote no more of it than the names of keywords and properties.
func Parse(raw []byte) (*Schema, error) {
	switch {
	case len(raw) > maxBytes:
		return nil, fmt.Errorf("want a JSON schema of at most %d bytes", maxBytes)
	case !json.Valid(raw):
		return nil, errors.New("want a JSON schema as JSON text")
	case Depth(raw) > maxDepth:
		return nil, fmt.Errorf("want a JSON schema nested at most %d deep", maxDepth)
	case bytes.TrimSpace(raw)[0] != '{':
		return nil, errors.New("want a JSON schema, which is an object")
	}
	s := new(Schema)
	if err := s.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("a keyword is not understood or has the wrong type: %w", err)
	}
	return s, preparation{defs: s.Defs, open: map[*Schema]bool{}}.prepare("", s)
}

// ParseObject is Parse for a schema that only objects satisfy, as the arguments of a tool have to.
func ParseObject(raw []byte) (*Schema, error) {
	s, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	if len(s.Types) > 0 && !slices.Contains(s.Types, "object") {
		return nil, errors.New("type: want object")
	}
	s.Types = typeNames{"object"}
	return s, nil
}

// Depth returns how deep objects and arrays are nested in a JSON text.
func Depth(raw []byte) int {
	deepest := 0
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return deepest
		}
		deepest = max(deepest, dec.StackDepth())
	}
}

var knownTypes = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

// preparation checks and compiles a schema.
type preparation struct {
	defs map[string]*Schema
	open map[*Schema]bool // those that are being prepared: one that is met again contains itself
}

// prepare checks and compiles the schema at a place, once.
func (p preparation) prepare(at string, s *Schema) error {
	if s.parts > 0 {
		return nil
	}
	if p.open[s] {
		return fmt.Errorf("%s: refers to itself", at)
	}
	p.open[s] = true
	defer delete(p.open, s)

	for _, name := range s.Types {
		if !slices.Contains(knownTypes, name) {
			return fmt.Errorf("%s: want one of %v", pathOf(at, "type"), knownTypes)
		}
	}
	if s.Pattern != nil {
		re, err := regexp.Compile(*s.Pattern)
		if err != nil {
			return fmt.Errorf("%s: want a regular expression in RE2's syntax", pathOf(at, "pattern"))
		}
		s.pattern = re
	}
	if s.Const != nil {
		if err := json.Unmarshal(s.Const, &s.constant); err != nil {
			return fmt.Errorf("%s: want a value with numbers that fit a float64", pathOf(at, "const"))
		}
	}
	return p.prepareParts(at, s)
}

// prepareParts prepares the schemas within s, and counts them.
func (p preparation) prepareParts(at string, s *Schema) error {
	parts := 1
	add := func(at string, part *Schema) error {
		if part == nil {
			return fmt.Errorf("%s: want a schema", at)
		}
		if err := p.prepare(at, part); err != nil {
			return err
		}
		if parts += part.parts; parts > maxParts {
			return fmt.Errorf("%s: want at most %d schemas, counted with each reference to them", at, maxParts)
		}
		return nil
	}

	for _, within := range []struct {
		name string
		all  map[string]*Schema
	}{{"$defs", s.Defs}, {"properties", s.Properties}} {
		for _, name := range slices.Sorted(maps.Keys(within.all)) {
			if err := add(pathOf(pathOf(at, within.name), name), within.all[name]); err != nil {
				return err
			}
		}
	}
	for _, one := range []struct {
		name string
		part *Schema
	}{{"additionalProperties", s.Additional}, {"items", s.Items}} {
		if one.part == nil {
			continue
		}
		if err := add(pathOf(at, one.name), one.part); err != nil {
			return err
		}
	}
	for _, list := range []struct {
		name string
		all  []*Schema
	}{{"anyOf", s.AnyOf}, {"oneOf", s.OneOf}, {"allOf", s.AllOf}} {
		if list.all != nil && len(list.all) == 0 {
			return fmt.Errorf("%s: want at least one schema", pathOf(at, list.name))
		}
		for i, part := range list.all {
			if err := add(fmt.Sprintf("%s[%d]", pathOf(at, list.name), i), part); err != nil {
				return err
			}
		}
	}
	if s.Ref != nil {
		if s.ref = p.find(*s.Ref); s.ref == nil {
			return fmt.Errorf("%s: want #/$defs/NAME, with the name of one of $defs at the top", pathOf(at, "$ref"))
		}
		if err := add(pathOf(at, "$ref"), s.ref); err != nil {
			return err
		}
	}
	s.parts = parts
	return nil
}

// find returns the definition that a reference names, nil if there is none.
func (p preparation) find(ref string) *Schema {
	name, ok := strings.CutPrefix(ref, "#/$defs/")
	if !ok || strings.Contains(name, "/") {
		return nil
	}
	return p.defs[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
}
