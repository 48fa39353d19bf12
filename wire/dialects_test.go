package wire_test

import (
	. "remora/wire"
	"remora/wire/dialects"
)

var (
	Chat      = dialects.Chat
	Responses = dialects.Responses
)

// other is the other one of the two.
func other(d Dialect) Dialect {
	if d == Chat {
		return Responses
	}
	return Chat
}
