package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"unicode/utf8"
)

// Limits of a schema of arguments.
const (
	maxSchema      = 64 << 10 // bytes
	maxSchemaDepth = 32
)

// schema checks the arguments of a tool. It knows these words of JSON Schema: type, enum, const, properties, required,
// additionalProperties, items, minItems, maxItems, minLength, maxLength, pattern (in RE2's syntax), minimum, maximum,
// exclusiveMinimum, exclusiveMaximum, anyOf, oneOf, allOf. What others demand is not checked here: the layer has to.
type schema struct {
	Type       typeNames          `json:"type"`
	Enum       []any              `json:"enum"`
	Const      *any               `json:"const"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Additional *schema            `json:"additionalProperties"`
	Items      *schema            `json:"items"`
	MinItems   int                `json:"minItems"`
	MaxItems   *int               `json:"maxItems"`
	MinLength  int                `json:"minLength"`
	MaxLength  *int               `json:"maxLength"`
	Pattern    *expression        `json:"pattern"`
	Min        *float64           `json:"minimum"`
	Max        *float64           `json:"maximum"`
	Above      *float64           `json:"exclusiveMinimum"`
	Below      *float64           `json:"exclusiveMaximum"`
	AnyOf      []*schema          `json:"anyOf"`
	OneOf      []*schema          `json:"oneOf"`
	AllOf      []*schema          `json:"allOf"`
	never      bool               // the schema is false
}

// UnmarshalJSON reads a schema, which may be true or false.
func (s *schema) UnmarshalJSON(raw []byte) error {
	switch string(bytes.TrimSpace(raw)) {
	case "true":
		return nil
	case "false":
		s.never = true
		return nil
	}
	type plain schema // without this method
	return json.Unmarshal(raw, (*plain)(s))
}

type typeNames []string

// UnmarshalJSON reads one name or a list.
func (t *typeNames) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*t = typeNames{one}
	} else if err := json.Unmarshal(raw, (*[]string)(t)); err != nil {
		return err
	}
	for _, name := range *t {
		if !slices.Contains([]string{"object", "array", "string", "number", "integer", "boolean", "null"}, name) {
			return errors.New("type: unknown name")
		}
	}
	return nil
}

type expression struct{ *regexp.Regexp }

// UnmarshalJSON compiles a pattern.
func (e *expression) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	var err error
	if e.Regexp, err = regexp.Compile(text); err != nil {
		return errors.New("pattern: want a regular expression in RE2's syntax")
	}
	return nil
}

// parseSchema reads the schema of an object. Errors never quote it.
func parseSchema(raw []byte) (*schema, error) {
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("want a JSON schema of at most %d bytes", maxSchema)
	}
	if depthOf(raw) > maxSchemaDepth {
		return nil, fmt.Errorf("want a JSON schema at most %d deep", maxSchemaDepth)
	}
	s := new(schema)
	if err := json.Unmarshal(raw, s); err != nil || bytes.TrimSpace(raw)[0] != '{' {
		return nil, errors.New("want a JSON schema")
	}
	if len(s.Type) > 0 && !slices.Contains(s.Type, "object") {
		return nil, errors.New("type: want object")
	}
	s.Type = typeNames{"object"}
	return s, nil
}

// depthOf is how deep objects and arrays are nested.
func depthOf(raw []byte) int {
	deepest, depth := 0, 0
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		tok, err := dec.Token()
		if err != nil {
			return deepest // of a text that is no JSON: for others to say
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

// validate tells what is wrong with arguments, by the name of the member, in words for the model.
func (s *schema) validate(arguments []byte) error {
	dec := json.NewDecoder(bytes.NewReader(arguments))
	var v any
	if err := dec.Decode(&v); err != nil {
		return errors.New("want a JSON object")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("want one JSON object")
	}
	return s.check("", v)
}

// wrong complains of the member at a path, or of the whole where it is empty.
func wrong(at, what string) error {
	if at == "" {
		return errors.New(what)
	}
	return errors.New(at + ": " + what)
}

// pathOf is the path of a member. Names may come from the model, which bounds nothing.
func pathOf(at, name string) string {
	const longest = 64
	if name = cut(name, longest); at == "" {
		return name
	}
	return at + "." + name
}

// check descends no deeper than the schema.
func (s *schema) check(at string, v any) error {
	if s == nil {
		return nil
	}
	if s.never {
		return wrong(at, "not allowed")
	}
	if len(s.Type) > 0 && !slices.ContainsFunc(s.Type, func(name string) bool { return isType(name, v) }) {
		return wrong(at, "want "+s.Type[0])
	}
	if s.Const != nil && !reflect.DeepEqual(*s.Const, v) ||
		s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return reflect.DeepEqual(e, v) }) {
		return wrong(at, "not one of the values that are allowed")
	}
	if err := s.checkSome(at, v); err != nil {
		return err
	}
	switch v := v.(type) {
	case map[string]any:
		return s.checkObject(at, v)
	case []any:
		return s.checkArray(at, v)
	case string:
		return s.checkString(at, v)
	case float64:
		return s.checkNumber(at, v)
	default:
		return nil
	}
}

// isType knows the types that are not of Go.
func isType(name string, v any) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}

func (s *schema) checkSome(at string, v any) error {
	for _, sub := range s.AllOf {
		if err := sub.check(at, v); err != nil {
			return err
		}
	}
	fits := func(list []*schema) int {
		n := 0
		for _, sub := range list {
			if sub.check(at, v) == nil {
				n++
			}
		}
		return n
	}
	if s.AnyOf != nil && fits(s.AnyOf) == 0 {
		return wrong(at, "none of the forms that are allowed")
	}
	if s.OneOf != nil && fits(s.OneOf) != 1 {
		return wrong(at, "not exactly one of the forms that are allowed")
	}
	return nil
}

func (s *schema) checkObject(at string, v map[string]any) error {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return wrong(pathOf(at, name), "missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) { // the same complaint each time
		sub, known := s.Properties[name]
		if !known {
			sub = s.Additional
		}
		if err := sub.check(pathOf(at, name), v[name]); err != nil {
			return err
		}
	}
	return nil
}

func (s *schema) checkArray(at string, v []any) error {
	if len(v) < s.MinItems || s.MaxItems != nil && len(v) > *s.MaxItems {
		return wrong(at, "wrong number of elements")
	}
	if s.Items == nil {
		return nil
	}
	for i, element := range v {
		if err := s.Items.check(fmt.Sprintf("%s[%d]", at, i), element); err != nil {
			return err
		}
	}
	return nil
}

func (s *schema) checkString(at, v string) error {
	if n := utf8.RuneCountInString(v); n < s.MinLength || s.MaxLength != nil && n > *s.MaxLength {
		return wrong(at, "wrong length")
	}
	if s.Pattern != nil && s.Pattern.Regexp != nil && !s.Pattern.MatchString(v) {
		return wrong(at, "wrong form")
	}
	return nil
}

func (s *schema) checkNumber(at string, v float64) error {
	if s.Min != nil && v < *s.Min || s.Max != nil && v > *s.Max ||
		s.Above != nil && v <= *s.Above || s.Below != nil && v >= *s.Below {
		return wrong(at, "out of range")
	}
	return nil
}
