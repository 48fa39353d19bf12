package view_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// A result of 9000 characters, in the forms that results come in. What is sent costs what it may, and the
// item that it was made of is as it was.
func TestShortenResult(t *testing.T) {
	long := strings.Repeat("0123456789", 900)
	// The limit, 2000 tokens, is 8000 characters; the mark takes 36 of them.
	short := long[:3982] + `\n[... 1036 characters left out ...]\n` + long[9000-3982:]
	for _, c := range []struct {
		name    string
		dialect wire.Dialect
		limit   int
		in, out string
	}{
		{"Chat", dialects.Chat, 2000, `{"role":"tool", "tool_call_id":"c","content" : "` + long + `" }`, `{"role":"tool", "tool_call_id":"c","content" : "` + short + `" }`},
		{"Chat, a legacy function", dialects.Chat, 2000, `{"role":"function","name":"f","content":"` + long + `"}`, `{"role":"function","name":"f","content":"` + short + `"}`},
		{"Responses", dialects.Responses, 2000, `{"type":"function_call_output","call_id":"c","output":"` + long + `","id":"x"}`, `{"type":"function_call_output","call_id":"c","output":"` + short + `","id":"x"}`},
		{"a custom tool", dialects.Responses, 2000, `{"type":"custom_tool_call_output","call_id":"c","output":"` + long + `"}`, `{"type":"custom_tool_call_output","call_id":"c","output":"` + short + `"}`},
		{
			"parts, not all of them text", dialects.Chat, 2000,
			`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"` + long[:3990] + `"}, {"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"` + long[3990:] + `","n":1.0}]}`,
			`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"` + long[:3982] + `\n[... 1036 characters left out ...]\n` + `"}, {"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"` + long[9000-3982:] + `","n":1.0}]}`,
		},
		{
			"parts of which nothing stays", dialects.Responses, 2000,
			`{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"` + long[:3981] + `"},{"type":"input_text","text":"a"} , "b",{"type":"input_image","file_id":"f"},{"type":"input_text","text":"` + long + `"}]}`,
			`{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"` + long[:3981] + `"},{"type":"input_text","text":"\n[... 5021 characters left out ...]\n"},{"type":"input_image","file_id":"f"},{"type":"input_text","text":"` + long[9000-3981:] + `"}]}`,
		},
		{
			"a shell", dialects.Responses, 40,
			`{"type":"shell_call_output","call_id":"c","output":[{"stdout":"` + long[:200] + `","stderr":"` + long[:30] + `","outcome":{"type":"exit","exit_code":1}},{"stdout":"","stderr":"` + long[:20] + `"}]}`,
			`{"type":"shell_call_output","call_id":"c","output":[{"stdout":"` + long[:62] + `\n[... 126 characters left out ...]\n` + long[188:200] + `","stderr":"` + long[:30] + `","outcome":{"type":"exit","exit_code":1}},{"stdout":"","stderr":"` + long[:20] + `"}]}`,
		},
		{"escapes and wide characters", dialects.Chat, 34, `{"role":"tool","content":"` + strings.Repeat(`\u00e9é日\n\"`, 20) + `"}`, ""},
		{"short enough", dialects.Chat, 2250, `{"role":"tool","tool_call_id":"c","content":"` + long + `"}`, "="},
		{"no limit", dialects.Chat, 0, `{"role":"tool","tool_call_id":"c","content":"` + long + `"}`, "="},
		{"not a result", dialects.Chat, 10, `{"role":"user","content":"` + long + `"}`, "="},
		{"an output that is no text", dialects.Responses, 10, `{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"` + long + `"}}`, "="},
		{"a member of another dialect", dialects.Responses, 10, `{"type":"function_call_output","call_id":"c","content":"` + long + `","output":"ok"}`, "="},
		{"less than the mark", dialects.Chat, 1, `{"role":"tool","content":"` + long + `"}`, `{"role":"tool","content":"\n[... 9000 characters left out ...]\n"}`},
		{"the last of duplicates", dialects.Chat, 32, `{"role":"tool","content":"` + long[:300] + `","content":"ok"}`, "="},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := wiretest.Parse(t, c.dialect, c.in)
			got := view.ShortenResult(in, c.limit)
			switch c.out {
			case "=":
				if &got.Raw[0] != &in.Raw[0] {
					t.Errorf("made %s", got.Raw)
				}
			case "":
				if n := tokensOf(got.Text()); n > c.limit || n < c.limit-1 || !utf8.ValidString(got.Text()) {
					t.Errorf("%d tokens, want about %d: %s", n, c.limit, got.Raw)
				}
			default:
				if diff := cmp.Diff(c.out, string(got.Raw)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if string(in.Raw) != c.in {
				t.Error("the item given was changed")
			}
			if got.Kind != in.Kind || got.Answers() != in.Answers() {
				t.Errorf("it answers %v now", got.Answers())
			}
		})
	}
}

// tokensOf is the documented price of a text: a quarter of a token for a byte of ASCII, a third for any other.
func tokensOf(text string) int {
	twelfths := 11
	for i := range len(text) {
		if text[i] < utf8.RuneSelf {
			twelfths += 3
		} else {
			twelfths += 4
		}
	}
	return twelfths / 12
}

// For any texts: the limit holds, a beginning and an end are sent, no more is cut than necessary, the mark counts the
// characters that were cut, and shortening again changes nothing.
func TestShortenResultHoldsForAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("ab\n\"é日😀")), 0, 120, -1), 1, 5).Draw(t, "texts")
		limit := rapid.IntRange(16, 60).Draw(t, "limit")
		d := rapid.SampledFrom([]wire.Dialect{dialects.Chat, dialects.Responses}).Draw(t, "dialect")
		raw, whole := []byte(`{"type":"function_call_output","call_id":"c","output":[`), strings.Join(texts, "")
		if d == dialects.Chat {
			raw = []byte(`{"role":"tool","tool_call_id":"c","content":[`)
		}
		for i, text := range texts {
			if i > 0 {
				raw = append(raw, ',')
			}
			raw = append(wire.AppendString(append(raw, `{"type":"text","text":`...), text), `}`...)
		}
		in := wiretest.Parse(t, d, string(raw)+"]}")
		out := view.ShortenResult(in, limit)
		got := out.Text()
		if tokensOf(whole) <= limit {
			if string(out.Raw) != string(in.Raw) {
				t.Fatalf("%q was shortened to %q", whole, got)
			}
			return
		}
		n := tokensOf(got)
		if n > limit || n < limit-3 || !utf8.ValidString(got) {
			t.Errorf("%d tokens of %d: %q", n, limit, got)
		}
		head, rest, _ := strings.Cut(got, "\n[... ")
		var gone int
		if _, err := fmt.Sscanf(rest, "%d characters left out ...]\n", &gone); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		_, tail, _ := strings.Cut(rest, " characters left out ...]\n")
		if !strings.HasPrefix(whole, head) || !strings.HasSuffix(whole, tail) {
			t.Errorf("%q is not the ends of %q", got, whole)
		}
		if want := utf8.RuneCountInString(whole) - utf8.RuneCountInString(head+tail); gone != want {
			t.Errorf("%d characters are gone, the mark says %d", want, gone)
		}
		if again := view.ShortenResult(out, limit); string(again.Raw) != string(out.Raw) {
			t.Errorf("once more: %s", again.Raw)
		}
	})
}

// FuzzShortenResult: any result stays a result of the same call, no longer than before except for the mark.
func FuzzShortenResult(f *testing.F) {
	f.Add(`{"role":"tool","tool_call_id":"c","content":"0123456789012345678901234567890123456789"}`, 3)
	f.Add(`{"type":"shell_call_output","call_id":"c","output":[{"stdout":"\ud83d\ude00\ud83d","stderr":"é"},"x",1,[],{"text":1,"text":"é"}]}`, 1)
	f.Add(`{"type":"function_call_output","call_id":"c","output":["",{"type":"input_image"},{"text":"0123456789"},{}] ,"output" : "0123456789"}`, 2)
	f.Fuzz(func(t *testing.T, raw string, limit int) {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			in, err := wire.ParseItem(d, []byte(raw))
			if err != nil {
				return
			}
			out := view.ShortenResult(in, limit)
			if out.Kind != in.Kind || out.Role != in.Role || out.Answers() != in.Answers() || out.ID != in.ID {
				t.Fatalf("%s became %s", in.Raw, out.Raw)
			}
			if len(out.Raw) > 6*len(in.Raw)+64 {
				t.Fatalf("%d bytes became %d", len(in.Raw), len(out.Raw))
			}
			again := view.ShortenResult(out, limit)
			if limit >= 32 && string(again.Raw) != string(out.Raw) {
				t.Fatalf("%s became %s", out.Raw, again.Raw)
			}
		}
	})
}
