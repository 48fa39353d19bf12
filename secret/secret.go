// Package secret has the type of every key, token and password in the configuration and in requests. Its values cannot be
// logged by accident: only a conversion to string reveals one.
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

// Credential is the header by which a caller proves itself to a provider.
type Credential struct {
	// Header is the name of the header that it came in; Value is the header's value, "Bearer " included.
	Header string
	Value  String
	// Provider is the name of the provider that the caller's request goes to. No other one is shown the credential.
	Provider string
}
