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

// TestPortableArguments: for another provider, the arguments of functions become the text of an object. Those of other calls are
// no text.
func TestPortableArguments(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":"function_call","call_id":"c","name":"f","arguments":{"q":1}}`: `{"type":"function_call","call_id":"c","name":"f","arguments":"{\"q\":1}"}`,
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"q"}`:  `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`,
		`{"type":"tool_search_call","call_id":"c","arguments":{"q":1}}`:         `{"type":"tool_search_call","call_id":"c","arguments":{"q":1}}`,
	} {
		it, err := wire.ParseItem(responses.Dialect, []byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := it.Portable(wire.OtherProvider); !ok || string(got.Raw) != want {
			t.Errorf("%s: portable %s, %v", raw, got.Raw, ok)
		}
		if got := it.WithObjectArguments(); string(got.Raw) != want {
			t.Errorf("%s: with object arguments %s", raw, got.Raw)
		}
	}
}
