package merge

import "remora/wire"

// WithoutTools returns a whole answer without the tools that hide names in its list, in which upstream repeats the
// offered tools. An answer without any of them is returned unchanged. hide may be nil.
func WithoutTools(d wire.Dialect, response []byte, hide func(name string) bool) []byte {
	if !d.Rules().Echoes || !offers(wire.Member(response, "tools"), hide) {
		return response
	}
	return wire.EditMember(response, "tools", func(list []byte) []byte { return ownTools(list, hide) })
}

// ownTools returns a list of tools without the hidden ones.
func ownTools(list []byte, hide func(name string) bool) []byte {
	if !offers(list, hide) {
		return list
	}
	return wire.Edit(list, func(_ int, p wire.Child) ([]byte, bool) {
		return p.Value, !hide(wire.Text(wire.Member(p.Value, "name")))
	})
}

// offers reports whether a list of tools has one that hide names.
func offers(list []byte, hide func(name string) bool) bool {
	if hide == nil || len(list) == 0 || list[0] != '[' {
		return false
	}
	for p := range wire.Children(list) {
		if hide(wire.Text(wire.Member(p.Value, "name"))) {
			return true
		}
	}
	return false
}
