package layer

import "errors"

// safeError is an error whose text may be logged.
type safeError struct{ error }

func (e safeError) Unwrap() error { return e.error }

// Safe declares that the text of an error, its reasons included, may be logged: it is made of the layer's own words,
// numbers and names of its configuration, and never of what a hook worked on, got or sent. Of other errors of hooks only
// the class is told, since they may quote anything.
func Safe(err error) error { return safeError{err} }

// SafeText returns the text of the part of err that Safe has declared, "" for none, cut to 200 bytes.
func SafeText(err error) string {
	const longest = 200
	safe, ok := errors.AsType[safeError](err)
	if !ok {
		return ""
	}
	text := safe.Error()
	return text[:min(len(text), longest)]
}
