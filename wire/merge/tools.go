package merge

import (
	"bytes"

	"remora/wire"
)

// WithoutTools returns a whole answer without the tools that hide names in its list, in which upstream repeats the
// offered tools. An answer without any of them is returned itself. hide may be nil.
func WithoutTools(d wire.Dialect, response []byte, hide func(name string) bool) []byte {
	if !d.Rules().Echoes || hide == nil {
		return response
	}
	out := wire.EditMember(response, "tools", func(list []byte) []byte { return ownTools(list, hide) })
	if bytes.Equal(out, response) {
		return response
	}
	return out
}

// ownTools returns a list of tools without the hidden ones.
func ownTools(list []byte, hide func(name string) bool) []byte {
	if hide == nil || len(list) == 0 || list[0] != '[' {
		return list
	}
	return wire.Edit(list, func(_ int, p wire.Child) ([]byte, bool) {
		return p.Value, !hide(wire.Text(wire.Member(p.Value, "name")))
	})
}
