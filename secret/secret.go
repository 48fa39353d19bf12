// Package secret has the type of every key, token and password in the configuration. Its values cannot be logged by
// accident: only a conversion to string reveals one.
package secret

import (
	"fmt"
	"log/slog"
)

// String prints as a placeholder everywhere: fmt, slog, JSON and text encoders. An empty one prints as nothing.
type String string

// Reveal returns the secret itself, for the one place that needs it.
func (s String) Reveal() string { return string(s) }

func (s String) String() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// Format prints the placeholder under every verb, %x and %#v included.
func (s String) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue keeps slog handlers from reaching the string.
func (s String) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText serves encoding/json, YAML and their like.
func (s String) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
