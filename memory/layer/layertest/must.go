package layertest

// fataler is a test.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// Must returns what a function has returned. The test ends if that was an error:
//
//	l := layertest.Must(New(o))(t)
func Must[T any](v T, err error) func(t fataler) T {
	return func(t fataler) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
