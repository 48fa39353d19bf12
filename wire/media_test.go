package wire_test

import (
	"testing"

	. "remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// TestInWords: words stand where pictures, files and sounds were, in one text.
func TestInWords(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, raw, want string) {
		t.Helper()
		it := wiretest.Parse(t, d, raw)
		if got := it.InWords(); string(got.Raw) != want || got.Kind != it.Kind {
			t.Errorf("%s\n got %s\nwant %s", raw, got.Raw, want)
		}
	}
	same := func(d Dialect, raw string) { t.Helper(); f(d, raw, raw) }

	c, r := dialects.Chat, dialects.Responses
	f(c, `{"role":"user","content":[ {"type":"text","text":"See"}, {"type":"image_url","image_url":{"url":"https://x"}}],"name":"A"}`,
		`{"role":"user","content":"See\n(an image)","name":"A"}`)
	f(c, `{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA"}},{"type":"file","file":{"file_id":"f"}}]}`,
		`{"role":"user","content":"(a sound)\n(a file)"}`)
	f(c, `{"role":"user","content":[{"type":"video_url","video_url":{"url":"https://x"}}]}`, `{"role":"user","content":"(a video)"}`)
	f(c, `{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"a file"}]}`, `{"role":"tool","tool_call_id":"c","content":"a file"}`)
	f(r, `{"role":"user","content":[{"type":"input_image","file_id":"f"},{"type":"input_file","file_url":"https://x"}]}`,
		`{"role":"user","content":"(an image)\n(a file)"}`)
	f(r, `{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_image","image_url":"data:,A"}]}`,
		`{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"(an image)"}]}`)
	f(r, `{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:,A"}]}`,
		`{"type":"function_call_output","call_id":"c","output":"(an image)"}`)

	same(c, `{"role":"user","content":"an image_url"}`)
	same(c, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`)
	same(c, `{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`)
	same(r, `{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:,A"}}`)
	same(r, `{"type":"computer_call","call_id":"c","action":{"type":"screenshot"}}`)
}
