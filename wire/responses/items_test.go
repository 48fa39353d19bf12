package responses_test

import (
	"testing"

	"remora/wire"
	"remora/wire/responses"
)

// TestAsInput: what upstream gives as an answer it accepts back, unless it says nothing.
func TestAsInput(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"type":"message","role":"assistant","id":"msg_1","content":[]}`:                                  false,
		`{"type":"message","role":"assistant","id":"msg_1","content":[{"type":"refusal","refusal":"no"}]}`: true,
		`{"type":"reasoning","id":"rs_1","summary":[]}`:                                                    true,
	} {
		it, err := wire.ParseItem(responses.Dialect, []byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := it.AsInput(nil); ok != want || string(got.Raw) != raw {
			t.Errorf("%s: %s, %v", raw, got.Raw, ok)
		}
	}
}
