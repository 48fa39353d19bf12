package responses_test

import (
	"testing"

	"remora/wire"
	"remora/wire/responses"
	"remora/wire/wiretest"
)

// TestAsInput: what upstream gives as an answer it accepts back, unless it says nothing.
func TestAsInput(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"type":"message","role":"assistant","id":"msg_1","content":[]}`:                                  false,
		`{"type":"message","role":"assistant","id":"msg_1","content":[{"type":"refusal","refusal":"no"}]}`: true,
		`{"type":"reasoning","id":"rs_1","summary":[]}`:                                                    true,
	} {
		it := wiretest.Parse(t, responses.Dialect, raw)
		if got, ok := it.AsInput(nil); ok != want || string(got.Raw) != raw {
			t.Errorf("%s: %s, %v", raw, got.Raw, ok)
		}
	}

	for made, want := range map[string]string{
		`{"id":"ig_1","type":"image_generation_call","status":"completed","action":"generate","result":"AA==","size":"1x1"}`: `{"id":"ig_1","type":"image_generation_call","status":"completed","result":"AA=="}`,
		`{"type":"shell_call","id":"sh_1","call_id":"c","action":{"created_by":"x"},"created_by":"a"}`:                       `{"type":"shell_call","id":"sh_1","call_id":"c","action":{"created_by":"x"}}`,
		`{"type":"shell_call_output","call_id":"c","output":[{"stdout":"created_by","created_by":"a"}],"created_by":"a"}`:    `{"type":"shell_call_output","call_id":"c","output":[{"stdout":"created_by"}]}`,
		`{"type":"function_call_output","call_id":"c","output":"{\"created_by\":1}","created_by":"a"}`:                       `{"type":"function_call_output","call_id":"c","output":"{\"created_by\":1}"}`,
	} {
		it := wiretest.Parse(t, responses.Dialect, made)
		if got, ok := it.AsInput(nil); !ok || string(got.Raw) != want {
			t.Errorf("%s: %s, %v", made, got.Raw, ok)
		}
	}
}

// TestPortableFiles: for another provider, words stand where files of an account were, those that a tool has returned as well.
func TestPortableFiles(t *testing.T) {
	const parts = `[{"type":"input_image","file_id":"file-1"},{"type":"input_file","file_id":"file-2"},{"type":"input_image","image_url":"https://x"}]`
	const words = `[{"type":"input_text","text":"(an image)"},{"type":"input_text","text":"(a file)"},{"type":"input_image","image_url":"https://x"}]`
	for _, around := range [][2]string{
		{`{"role":"user","content":`, `}`},
		{`{"type":"function_call_output","call_id":"c","output":`, `}`},
	} {
		it := wiretest.Parse(t, responses.Dialect, around[0]+parts+around[1])
		if got, ok := it.Portable(wire.OtherProvider); !ok || string(got.Raw) != around[0]+words+around[1] {
			t.Errorf("%s: portable %s, %v", it.Raw, got.Raw, ok)
		}
		if got, ok := it.Portable(wire.OtherModel); !ok || string(got.Raw) != string(it.Raw) {
			t.Errorf("%s: for another model %s, %v", it.Raw, got.Raw, ok)
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
		it := wiretest.Parse(t, responses.Dialect, raw)
		if got, ok := it.Portable(wire.OtherProvider); !ok || string(got.Raw) != want {
			t.Errorf("%s: portable %s, %v", raw, got.Raw, ok)
		}
		if got := it.WithObjectArguments(); string(got.Raw) != want {
			t.Errorf("%s: with object arguments %s", raw, got.Raw)
		}
	}
}
