package working

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"unicode/utf8"
)

// Bounds of a schema.
const (
	maxSchema      = 64 << 10 // bytes
	maxSchemaDepth = 32
)

// schema is the part of JSON Schema that a working memory can be held to: type, enum, const, properties, required,
// additionalProperties, items, minItems, maxItems, minLength, maxLength, pattern (RE2), minimum, maximum,
// exclusiveMinimum, exclusiveMaximum, anyOf and allOf. Keywords that only describe are ignored; any other is refused
// when the layer is made, so that nothing is promised and not checked. Numbers are compared as float64.
type schema struct {
	Types      stringOrList       `json:"type"`
	Enum       []any              `json:"enum"`
	Const      json.RawMessage    `json:"const"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Additional *boolOrSchema      `json:"additionalProperties"`
	Items      *schema            `json:"items"`
	MinItems   *int               `json:"minItems"`
	MaxItems   *int               `json:"maxItems"`
	MinLength  *int               `json:"minLength"`
	MaxLength  *int               `json:"maxLength"`
	Pattern    *string            `json:"pattern"`
	Minimum    *float64           `json:"minimum"`
	Maximum    *float64           `json:"maximum"`
	Above      *float64           `json:"exclusiveMinimum"`
	Below      *float64           `json:"exclusiveMaximum"`
	AnyOf      []*schema          `json:"anyOf"`
	AllOf      []*schema          `json:"allOf"`
	// What describes and does not constrain.
	Schema      any `json:"$schema"`
	ID          any `json:"$id"`
	Comment     any `json:"$comment"`
	Title       any `json:"title"`
	Description any `json:"description"`
	Default     any `json:"default"`
	Examples    any `json:"examples"`
	Format      any `json:"format"`

	pattern  *regexp.Regexp
	constant any
}

// stringOrList is the value of the keyword type.
type stringOrList []string

// UnmarshalJSON reads one name or a list of them.
func (l *stringOrList) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*l = stringOrList{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// boolOrSchema is the value of additionalProperties.
type boolOrSchema struct {
	refused bool
	schema  *schema
}

// UnmarshalJSON reads a boolean or a schema.
func (v *boolOrSchema) UnmarshalJSON(b []byte) error {
	var allowed bool
	if json.Unmarshal(b, &allowed) == nil {
		v.refused = !allowed
		return nil
	}
	return strictDecode(b, &v.schema)
}

// strictDecode refuses members that the target does not have.
func strictDecode(b []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// parseSchema reads and checks a schema. Errors tell where in it the fault lies.
func parseSchema(text string) (*schema, error) {
	if len(text) > maxSchema {
		return nil, fmt.Errorf("want at most %d bytes", maxSchema)
	}
	if !json.Valid([]byte(text)) {
		return nil, errors.New("want a JSON schema as JSON text")
	}
	s := new(schema)
	if err := strictDecode([]byte(text), s); err != nil {
		return nil, fmt.Errorf("a keyword is not understood or has the wrong type: %w", err)
	}
	if err := s.prepare("", 0); err != nil {
		return nil, err
	}
	return s, nil
}

var typeNames = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

// prepare checks and compiles the schema at a place.
func (s *schema) prepare(at string, depth int) error {
	if s == nil {
		return nil
	}
	if depth > maxSchemaDepth {
		return fmt.Errorf("%s: nested deeper than %d", at, maxSchemaDepth)
	}
	for _, name := range s.Types {
		if !slices.Contains(typeNames, name) {
			return fmt.Errorf("%s/type: want one of %v", at, typeNames)
		}
	}
	if s.Pattern != nil {
		re, err := regexp.Compile(*s.Pattern)
		if err != nil {
			return fmt.Errorf("%s/pattern: want a regular expression of RE2", at)
		}
		s.pattern = re
	}
	if s.Const != nil {
		if err := json.Unmarshal(s.Const, &s.constant); err != nil {
			return fmt.Errorf("%s/const: want a value with numbers that fit a float64", at)
		}
	}
	return s.prepareParts(at, depth)
}

// prepareParts prepares the schemas within a schema.
func (s *schema) prepareParts(at string, depth int) error {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if err := s.Properties[name].prepare(at+"/properties/"+name, depth+1); err != nil {
			return err
		}
	}
	if s.Additional != nil {
		if err := s.Additional.schema.prepare(at+"/additionalProperties", depth+1); err != nil {
			return err
		}
	}
	for _, list := range [][]*schema{s.AnyOf, s.AllOf, {s.Items}} {
		for _, sub := range list {
			if err := sub.prepare(at+"/...", depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// check tells why a document breaks the schema, nil where it does not. The error names properties of the schema, and
// never what the document says.
func (s *schema) check(document []byte) error {
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		return errors.New("want JSON with numbers that fit a float64")
	}
	return s.value("", v)
}

// value checks one value at a place; a nil schema allows all.
func (s *schema) value(at string, v any) error {
	if s == nil {
		return nil
	}
	where := at
	if where == "" {
		where = "/"
	}
	if err := s.any(where, v); err != nil {
		return err
	}
	for _, sub := range s.AllOf {
		if err := sub.value(at, v); err != nil {
			return err
		}
	}
	if s.AnyOf != nil && !slices.ContainsFunc(s.AnyOf, func(sub *schema) bool { return sub.value(at, v) == nil }) {
		return fmt.Errorf("%s: want what one of anyOf allows", where)
	}
	switch v := v.(type) {
	case string:
		return s.text(where, v)
	case float64:
		return s.number(where, v)
	case []any:
		return s.list(at, v)
	case map[string]any:
		return s.object(at, v)
	}
	return nil
}

// any checks what may be asked of a value of any type.
func (s *schema) any(where string, v any) error {
	if len(s.Types) > 0 && !slices.ContainsFunc(s.Types, func(name string) bool { return isType(name, v) }) {
		return fmt.Errorf("%s: want %v", where, []string(s.Types))
	}
	if s.Const != nil && !reflect.DeepEqual(s.constant, v) {
		return fmt.Errorf("%s: want the constant of the schema", where)
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return reflect.DeepEqual(e, v) }) {
		return fmt.Errorf("%s: want a value of the enum", where)
	}
	return nil
}

func isType(name string, v any) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || name == "integer" && v == math.Trunc(v)
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}

func (s *schema) text(at, v string) error {
	n := utf8.RuneCountInString(v)
	switch {
	case s.MinLength != nil && n < *s.MinLength:
		return fmt.Errorf("%s: want at least %d characters", at, *s.MinLength)
	case s.MaxLength != nil && n > *s.MaxLength:
		return fmt.Errorf("%s: want at most %d characters", at, *s.MaxLength)
	case s.pattern != nil && !s.pattern.MatchString(v):
		return fmt.Errorf("%s: want text that matches the pattern", at)
	}
	return nil
}

func (s *schema) number(at string, v float64) error {
	switch {
	case s.Minimum != nil && v < *s.Minimum:
		return fmt.Errorf("%s: want at least %v", at, *s.Minimum)
	case s.Maximum != nil && v > *s.Maximum:
		return fmt.Errorf("%s: want at most %v", at, *s.Maximum)
	case s.Above != nil && v <= *s.Above:
		return fmt.Errorf("%s: want more than %v", at, *s.Above)
	case s.Below != nil && v >= *s.Below:
		return fmt.Errorf("%s: want less than %v", at, *s.Below)
	}
	return nil
}

func (s *schema) list(at string, v []any) error {
	switch {
	case s.MinItems != nil && len(v) < *s.MinItems:
		return fmt.Errorf("%s: want at least %d items", at, *s.MinItems)
	case s.MaxItems != nil && len(v) > *s.MaxItems:
		return fmt.Errorf("%s: want at most %d items", at, *s.MaxItems)
	}
	for i, item := range v {
		if err := s.Items.value(fmt.Sprintf("%s/%d", at, i), item); err != nil {
			return err
		}
	}
	return nil
}

func (s *schema) object(at string, v map[string]any) error {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return fmt.Errorf("%s/%s: want it, it is required", at, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if sub, ok := s.Properties[name]; ok {
			if err := sub.value(at+"/"+name, v[name]); err != nil {
				return err
			}
			continue
		}
		if s.Additional == nil {
			continue
		}
		if s.Additional.refused {
			return fmt.Errorf("%s/: want only the properties of the schema", at)
		}
		if err := s.Additional.schema.value(at+"/*", v[name]); err != nil {
			return err
		}
	}
	return nil
}
