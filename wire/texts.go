package wire

import (
	"strings"
	"unicode/utf8"
)

// EditTexts rewrites the texts in a member of an object with f: the value if it is a string, else the strings in its list and,
// of the objects in it, the string members that isText accepts. If f returns false, the element is left out of the list, unless
// the text is not its member text. Of duplicate members the last one counts. All other bytes stay, and those of a text that f
// does not change.
func EditTexts(raw []byte, member string, isText func(element []byte, name string) bool, f func(text string) (string, bool)) []byte {
	edit := func(value []byte) ([]byte, bool) {
		was := Text(value)
		is, ok := f(was)
		if is == was {
			return value, ok
		}
		return AppendString(nil, is), ok
	}
	return editLast(raw, func(name string) bool { return name == member }, func(_ string, value []byte) []byte {
		if isString(value) {
			value, _ = edit(value)
			return value
		}
		if value[0] != '[' {
			return value
		}
		return Edit(value, func(_ int, e Child) ([]byte, bool) {
			if isString(e.Value) {
				return edit(e.Value)
			}
			stays := true
			element := editLast(e.Value, func(name string) bool { return isText(e.Value, name) }, func(name string, value []byte) []byte {
				if !isString(value) {
					return value
				}
				text, ok := edit(value)
				stays = stays && (ok || name != "text")
				return text
			})
			return element, stays
		})
	})
}

// editLast rewrites the values of an object's members, of duplicate ones the last.
func editLast(raw []byte, wanted func(name string) bool, edit func(name string, value []byte) []byte) []byte {
	last := map[string]int{}
	i := 0
	for p := range Children(raw) {
		if name := string(p.Name); wanted(name) {
			last[name] = i
		}
		i++
	}
	if len(last) == 0 {
		return raw
	}
	return Edit(raw, func(i int, p Child) ([]byte, bool) {
		name := string(p.Name)
		if at, ok := last[name]; !ok || at != i {
			return p.Value, true
		}
		return edit(name, p.Value), true
	})
}

func isString(raw []byte) bool { return len(raw) > 0 && raw[0] == '"' }

// MapTexts returns a user message with f applied to each text in its content. All other bytes stay. If f changes nothing, and for
// any other item, it returns the item itself. Text that is not valid Unicode is not changed.
func MapTexts(it Item, f func(text string) string) Item {
	if it.Role != User {
		return it
	}
	changed := false
	raw := EditTexts(it.Raw, "content", isTextPart, func(text string) (string, bool) {
		if !utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) {
			return text, true // RuneError may be in the place of half a surrogate
		}
		next := strings.ToValidUTF8(f(text), "\uFFFD")
		changed = changed || next != text
		return next, true
	})
	if !changed {
		return it
	}
	mapped, err := ParseItem(it.Dialect, raw)
	if err != nil {
		return it
	}
	return mapped
}

// isTextPart reports whether a member of a message's part is a text for the model.
func isTextPart(part []byte, name string) bool {
	if name != "text" {
		return false
	}
	var typ []byte
	for p := range Children(part) {
		if string(p.Name) == "type" {
			typ = p.Value
		}
	}
	return string(typ) == `"text"` || string(typ) == `"input_text"`
}
