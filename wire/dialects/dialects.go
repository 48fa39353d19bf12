// Package dialects is the table of the dialects that are understood. Each is a folder beside this one.
package dialects

import (
	"fmt"
	"slices"
	"strings"

	"remora/wire"
	"remora/wire/chat"
	"remora/wire/responses"
)

// The dialects by their names.
var (
	Chat      = chat.Dialect
	Responses = responses.Dialect
)

// All returns all dialects, in the order of their codes.
func All() []wire.Dialect {
	return []wire.Dialect{
		Chat,
		Responses,
	}
}

// Parse is the inverse of Dialect.String.
func Parse(name string) (wire.Dialect, error) {
	var names []string
	for _, d := range All() {
		if d.String() == name {
			return d, nil
		}
		names = append(names, fmt.Sprintf("%q", d.String()))
	}
	return wire.Dialect{}, fmt.Errorf("dialect %q: want %s", name, strings.Join(names, " or "))
}

// ByCode returns the dialect of a code, the zero Dialect where none has it.
func ByCode(code uint8) wire.Dialect {
	all := All()
	if i := slices.IndexFunc(all, func(d wire.Dialect) bool { return d.Code() == code }); i >= 0 {
		return all[i]
	}
	return wire.Dialect{}
}
