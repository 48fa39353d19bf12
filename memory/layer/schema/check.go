package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Validate returns nil if a JSON value fits, else an error with the path of the member and words that a model can use.
// It names members, cut to 64 bytes each, and never quotes values.
//
// A duplicate name in an object is an error: readers disagree on which one counts, so that one could be checked and the
// other used.
func (s *Schema) Validate(text []byte) error {
	if !jsontext.Value(text).IsValid(jsontext.AllowInvalidUTF8(true)) {
		return errors.New("want one JSON value, each member of an object once")
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return errors.New("want JSON with numbers that fit a float64")
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

// pathOf is the path of a member. Names may come from a model, which bounds nothing.
func pathOf(at, name string) string {
	const longest = 64
	if len(name) > longest {
		name = strings.ToValidUTF8(name[:longest], "")
	}
	if at == "" {
		return name
	}
	return at + "." + name
}

// check descends no deeper than the schema and what it refers to. A nil schema allows everything.
func (s *Schema) check(at string, v any) error {
	if s == nil {
		return nil
	}
	if s.never {
		return wrong(at, "not allowed")
	}
	if len(s.Types) > 0 && !slices.ContainsFunc(s.Types, func(name string) bool { return isType(name, v) }) {
		return wrong(at, "want "+strings.Join(s.Types, " or "))
	}
	if s.Const != nil && !reflect.DeepEqual(s.constant, v) ||
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
		return name == "number" || name == "integer" && v == math.Trunc(v)
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}

func (s *Schema) checkSome(at string, v any) error {
	if err := s.ref.check(at, v); err != nil {
		return err
	}
	for _, sub := range s.AllOf {
		if err := sub.check(at, v); err != nil {
			return err
		}
	}
	fits := func(list []*Schema) int {
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

func (s *Schema) checkObject(at string, v map[string]any) error {
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

func (s *Schema) checkArray(at string, v []any) error {
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

func (s *Schema) checkString(at, v string) error {
	if n := utf8.RuneCountInString(v); n < s.MinLength || s.MaxLength != nil && n > *s.MaxLength {
		return wrong(at, "wrong length")
	}
	if s.pattern != nil && !s.pattern.MatchString(v) {
		return wrong(at, "wrong form")
	}
	return nil
}

func (s *Schema) checkNumber(at string, v float64) error {
	if s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum ||
		s.Above != nil && v <= *s.Above || s.Below != nil && v >= *s.Below {
		return wrong(at, "out of range")
	}
	return nil
}
