package layer

import "errors"

// safeError is an error whose text may be logged.
type safeError struct{ error }

func (e safeError) Unwrap() error { return e.error }

// Safe declares that the text of an error, with its causes, may be logged: it consists of the layer's own words, numbers and
// configured names, and has no input, state or output of a hook. Of other hook errors only the class is logged, since they may
// quote anything.
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
