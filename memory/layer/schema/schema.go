// Package schema holds JSON to a part of JSON Schema: what a model passes to a tool, and what a layer keeps.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Limits of a schema.
const (
	maxBytes = 64 << 10
	maxDepth = 32 // of objects and arrays in it
)

// Schema is a schema that was read. It knows type, enum, const, properties, required, additionalProperties, items,
// minItems, maxItems, minLength, maxLength, pattern (in RE2's syntax), minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, anyOf, oneOf and allOf, and keywords that only describe. Any other is refused when it is read, so that
// nothing is promised and not checked. Numbers are compared as float64.
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

	never    bool // the schema is false
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
	case depthOf(raw) > maxDepth:
		return nil, fmt.Errorf("want a JSON schema nested at most %d deep", maxDepth)
	case bytes.TrimSpace(raw)[0] != '{':
		return nil, errors.New("want a JSON schema, which is an object")
	}
	s := new(Schema)
	if err := s.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("a keyword is not understood or has the wrong type: %w", err)
	}
	return s, s.prepare("")
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

// depthOf is how deep objects and arrays are nested.
func depthOf(raw []byte) int {
	deepest, depth := 0, 0
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		tok, err := dec.Token()
		if err != nil {
			return deepest
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

var knownTypes = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

// prepare checks and compiles the schema at a place.
func (s *Schema) prepare(at string) error {
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
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if err := s.Properties[name].part(pathOf(pathOf(at, "properties"), name)); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		name string
		one  *Schema
	}{{"additionalProperties", s.Additional}, {"items", s.Items}} {
		if p.one == nil {
			continue
		}
		if err := p.one.prepare(pathOf(at, p.name)); err != nil {
			return err
		}
	}
	return s.prepareLists(at)
}

func (s *Schema) prepareLists(at string) error {
	for _, list := range []struct {
		name string
		all  []*Schema
	}{{"anyOf", s.AnyOf}, {"oneOf", s.OneOf}, {"allOf", s.AllOf}} {
		if list.all != nil && len(list.all) == 0 {
			return fmt.Errorf("%s: want at least one schema", pathOf(at, list.name))
		}
		for i, sub := range list.all {
			if err := sub.part(fmt.Sprintf("%s[%d]", pathOf(at, list.name), i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// part prepares a schema that has to be there.
func (s *Schema) part(at string) error {
	if s == nil {
		return fmt.Errorf("%s: want a schema", at)
	}
	return s.prepare(at)
}
