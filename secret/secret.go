// Package secret is the type of every key, token and password in the configuration and in requests. A value is not logged by
// accident: fmt, slog and JSON print a placeholder. The exception is fmt for a secret in an unexported field of a struct.
package secret

import (
	"fmt"
	"log/slog"
)

// String prints as a placeholder in fmt, slog, JSON and text encoders. The empty String prints as nothing.
type String string

// Reveal returns the secret.
func (s String) Reveal() string { return string(s) }

func (s String) String() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// Format prints the placeholder for every verb, including %x and %#v.
func (s String) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue returns the placeholder to slog handlers.
func (s String) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns the placeholder to encoders such as encoding/json.
func (s String) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Credential is the header that authenticates a caller to a provider.
type Credential struct {
	// Header is the name of the header, Value its value, including "Bearer ".
	Header string
	Value  String
	// Provider is the name of the provider of the caller's request. No other provider gets the credential.
	Provider string
}
