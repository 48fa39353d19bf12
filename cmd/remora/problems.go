package main

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"

	"remora/memory/layer"
)

// problem is one mistake in the configuration.
type problem struct {
	path string // in the configuration, as server.listen or providers[1].base_url; or the name of a variable
	text string

	meant string // the path of the key that has no value because of it, if that is not path: a misspelled key, or a variable
}

// problems are all mistakes of a configuration. As an error they have one line each, so that one start reports all.
type problems []problem

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, problem{path: path, text: fmt.Sprintf(format, args...)})
}

func (p problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.line()
	}
	return strings.Join(lines, "\n")
}

// line returns the problem for a terminal: keys and values may hold control characters.
func (p problem) line() string {
	text := strings.Split(p.text, "\n")
	for i := range text {
		text[i] = printable(text[i])
	}
	return printable(p.path) + ": " + strings.Join(text, "\n")
}

// err returns p as an error, nil if there are no problems.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// addErrors adds errors about the options below path, each of which begins with its key: "budget.min: want ...". It adds each
// once, and skips those of values that could not be decoded: they are zero, and were reported.
func (p *problems) addErrors(path string, errs ...error) {
	known := slices.Clone(*p)
	for _, e := range flatten(errors.Join(errs...)) {
		one := problem{path: cmp.Or(path, "config"), text: e.Error()}
		if key, text, keyed := strings.Cut(e.Error(), ": "); keyed {
			one = problem{path: joinPath(path, key), text: text}
		}
		if !known.covers(one.path) && !slices.Contains(*p, one) {
			*p = append(*p, one)
		}
	}
}

// addDecodeErrors adds the errors of mapstructure, worded for operators.
func (p *problems) addDecodeErrors(path string, err error) {
	// The decoder wraps the join of all its errors once more.
	for _, e := range flatten(errors.Unwrap(err)) {
		at, text := path, e.Error()
		if de, ok := errors.AsType[*mapstructure.DecodeError](e); ok {
			at, text = joinPath(path, de.Name()), de.Unwrap().Error()
		}
		if shape, ok := errors.AsType[*mapstructure.UnconvertibleTypeError](e); ok {
			text = fmt.Sprintf("want %s, have %s%s", wanted(shape.Expected.Type()), layer.Describe(shape.Value), shapeHint(shape))
		}
		p.add(at, "%s", text)
	}
}

// shapeHint explains how to write the expected value.
func shapeHint(e *mapstructure.UnconvertibleTypeError) string {
	switch e.Expected.Kind() {
	case reflect.String:
		if layer.Describe(e.Value) == "a number" {
			return ": put it in quotes"
		}
	case reflect.Struct:
		return schemaOf(e.Expected.Type()).hint()
	default:
	}
	return ""
}

// withOrigins appends the origin to problems of values from variables and flags, and the line to problems of the file.
func (p problems) withOrigins(origins map[string]string, lines keyLines) problems {
	for i := range p {
		named := false
		for path, origin := range origins {
			if within(p[i].path, path) {
				p[i].text += " (from " + origin + ")"
				named = true
			}
		}
		if line, ok := lines.find(p[i].path); ok && !named {
			p[i].text += fmt.Sprintf(" (line %d)", line)
		}
	}
	return p
}

// covers reports whether a problem is known at path, above it or below it.
func (p problems) covers(path string) bool {
	return slices.ContainsFunc(p, func(one problem) bool { return within(path, one.path) || within(one.path, path) })
}

// withoutConsequences removes the problems of keys that have no value, or the default, because of another problem.
func (p problems) withoutConsequences() problems {
	return slices.DeleteFunc(slices.Clone(p), func(one problem) bool {
		return slices.ContainsFunc(p, func(cause problem) bool { return cause.meant == withoutID(one.path) && cause.meant != "" })
	})
}

// withoutID removes the id that errors of a layer put after an index, as in rules[0] (deploy).
func withoutID(path string) string {
	before, behind, found := strings.Cut(path, "] (")
	_, after, closed := strings.Cut(behind, ")")
	if !found || !closed {
		return path
	}
	return before + "]" + after
}

// within reports whether path is outer or lies below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// flatten returns the single errors of nested errors.Join calls. A prefix of a join, as by fmt.Errorf("schema: %w", err), becomes
// a prefix of each of its errors.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	var all []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	inner := errors.Unwrap(err)
	parts := flatten(inner)
	before, ok := strings.CutSuffix(err.Error(), fmt.Sprint(inner))
	if !ok || len(parts) < 2 {
		return []error{err}
	}
	for _, e := range parts {
		all = append(all, fmt.Errorf("%s%w", before, e))
	}
	return all
}
