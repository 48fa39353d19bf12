package wire_test

import (
	"testing"

	. "remora/wire"
	"remora/wire/dialects"
)

// TestMediaInWords: words stand where pictures, files and sounds were, and everything else stays as it came.
func TestMediaInWords(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, raw, want string) {
		t.Helper()
		it, err := ParseItem(d, []byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got := it.MediaInWords(); string(got.Raw) != want || got.Kind != it.Kind {
			t.Errorf("%s\n got %s\nwant %s", raw, got.Raw, want)
		}
	}
	same := func(d Dialect, raw string) { t.Helper(); f(d, raw, raw) }

	c, r := dialects.Chat, dialects.Responses
	f(c, `{"role":"user","content":[ {"type":"text","text":"See"}, {"type":"image_url","image_url":{"url":"https://x"}}],"name":"A"}`,
		`{"role":"user","content":[ {"type":"text","text":"See"}, {"type":"text","text":"(an image)"}],"name":"A"}`)
	f(c, `{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA"}},{"type":"file","file":{"file_id":"f"}}]}`,
		`{"role":"user","content":[{"type":"text","text":"(a sound)"},{"type":"text","text":"(a file)"}]}`)
	f(c, `{"role":"user","content":[{"type":"video_url","video_url":{"url":"https://x"}}]}`, `{"role":"user","content":[{"type":"text","text":"(a video)"}]}`)
	f(r, `{"role":"user","content":[{"type":"input_image","file_id":"f"},{"type":"input_file","file_url":"https://x"}]}`,
		`{"role":"user","content":[{"type":"input_text","text":"(an image)"},{"type":"input_text","text":"(a file)"}]}`)
	f(r, `{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:,A"}]}`,
		`{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"(an image)"}]}`)

	same(c, `{"role":"user","content":"an image_url"}`)
	same(c, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`)
	same(c, `{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"a file"}]}`)
	same(r, `{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:,A"}}`)
	same(r, `{"role":"assistant","content":[{"type":"output_text","text":"a file"}]}`)
}
