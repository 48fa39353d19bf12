// Package remora holds what belongs to the repository as a whole: the default configuration.
package remora

import _ "embed"

// Config is config.yaml: every default, and the documentation of every key. It is embedded here because go:embed
// cannot reach upward from cmd/remora.
//
//go:embed config.yaml
var Config []byte
