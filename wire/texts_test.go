package wire_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func TestMapTexts(t *testing.T) {
	upper := func(s string) string { return strings.ReplaceAll(s, "ann", `A"N`) }
	for _, tc := range []struct {
		name    string
		dialect wire.Dialect
		in, out string
	}{
		{"string", dialects.Chat, `{ "role":"user", "n":1.0, "content": "ann \u0041" }`, `{ "role":"user", "n":1.0, "content": "A\"N A" }`},
		{
			"chat parts", dialects.Chat,
			`{"role":"user","content":[{"text":"ann","type":"text"}, {"type":"image_url","text":"ann"} ,{"type":"text","text":"bob"}]}`,
			`{"role":"user","content":[{"text":"A\"N","type":"text"}, {"type":"image_url","text":"ann"} ,{"type":"text","text":"bob"}]}`,
		},
		{
			"responses parts", dialects.Responses,
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"ann"}],"id":"ann"}`,
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"A\"N"}],"id":"ann"}`,
		},
		{"the last of duplicates", dialects.Chat, `{"role":"user","content":"ann","content":"ann"}`, `{"role":"user","content":"ann","content":"A\"N"}`},
		{"nothing to change", dialects.Chat, `{"role":"user","content":"b\u006fb"}`, `{"role":"user","content":"b\u006fb"}`},
		{"half a surrogate", dialects.Chat, `{"role":"user","content":"ann \ud800"}`, `{"role":"user","content":"ann \ud800"}`},
		{"not the user's", dialects.Chat, `{"role":"assistant","content":"ann"}`, `{"role":"assistant","content":"ann"}`},
		{"no content", dialects.Chat, `{"role":"user","content":null}`, `{"role":"user","content":null}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := wiretest.Parse(t, tc.dialect, tc.in)
			got := wire.MapTexts(in, upper)
			if diff := cmp.Diff(tc.out, string(got.Raw)); diff != "" {
				t.Error(diff)
			}
			if string(in.Raw) != tc.in {
				t.Error("the item given was changed")
			}
			if tc.in == tc.out && &got.Raw[0] != &in.Raw[0] {
				t.Error("an item without a change was rebuilt")
			}
		})
	}
}

// FuzzMapTexts: any item comes back as an item of the same kind, and replaced text reads back.
func FuzzMapTexts(f *testing.F) {
	f.Add(`{"role":"user","content":"x"}`)
	f.Add(`{"role":"user","content":[{"type":"text"}]}`)
	f.Add(`{"role":"user","content":[{"type":"text","text":"x"},"y",[1],{"type":"input_text","text":"\u00e9"}]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			in, err := wire.ParseItem(d, []byte(raw))
			if err != nil {
				return
			}
			if same := wire.MapTexts(in, func(s string) string { return s }); string(same.Raw) != string(in.Raw) {
				t.Fatal("identity changed bytes")
			}
			called := 0
			out := wire.MapTexts(in, func(s string) string { called++; return s + "\u2603" })
			if out.Kind != in.Kind || out.Role != in.Role {
				t.Fatalf("kind or role changed: %s", out.Raw)
			}
			if n := strings.Count(out.Text(), "\u2603") - strings.Count(in.Text(), "\u2603"); n != called {
				t.Fatalf("%d texts mapped, %d changes seen: %s", called, n, out.Raw)
			}
		}
	})
}

// TestWithoutDocuments: Open WebUI puts retrieved documents before the user's message, in two forms.
func TestWithoutDocuments(t *testing.T) {
	const documents = "### Task:\nRespond to the user query using the provided context, incorporating inline citations.\n\n### Output:\nA clear response.\n\n" +
		"<context>\n<source id=\"1\">My name is Gunnar.</source>\n</context>\n"
	for message, want := range map[string]string{
		documents + "\nWhere does Lena live?":                                "Where does Lena live?",
		documents + "\n<user_query>\nWhere does Lena live?\n</user_query>\n": "Where does Lena live?",
		documents:                                     "",
		"### Task:\nWrite a poem.":                    "### Task:\nWrite a poem.",
		"What does </context> mean?":                  "What does </context> mean?",
		"<context>\nBergen\n</context>\nWhere is it?": "<context>\nBergen\n</context>\nWhere is it?",
	} {
		if got := wire.WithoutDocuments(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

// wantItems checks what a function makes of items of Chat; "" is the item itself.
func wantItems(t *testing.T, f func(wire.Item) wire.Item, items map[string]string) {
	t.Helper()
	for raw, want := range items {
		it := wiretest.Parse(t, dialects.Chat, raw)
		if want == "" {
			want = raw
		}
		if got := string(f(it).Raw); got != want {
			t.Errorf("%s became %s", raw, got)
		}
	}
}

// TestWithoutReasoning: only an answer without calls goes without the thoughts beside its text.
func TestWithoutReasoning(t *testing.T) {
	t.Parallel()
	wantItems(t, wire.Item.WithoutReasoning, map[string]string{
		`{"role":"assistant","reasoning_content":"hm","content":"Yes.","x":1.0}`:                                       `{"role":"assistant","content":"Yes.","x":1.0}`,
		`{"role":"assistant","content":"Yes.","reasoning":"hm"}`:                                                       `{"role":"assistant","content":"Yes."}`,
		`{"role":"assistant","content":"Yes.","reasoning_details":[{"signature":"s"}]}`:                                "",
		`{"role":"assistant","reasoning_content":"hm","content":"","tool_calls":[{"id":"c","function":{"name":"f"}}]}`: "",
		`{"role":"user","content":"Hi","reasoning":"hm"}`:                                                              "",
	})
}

// TestWithoutThoughts: local servers without a reasoning parser leave thoughts in the answer.
func TestWithoutThoughts(t *testing.T) {
	for answer, want := range map[string]string{
		"<think>\nLena, maybe in Oslo.\n</think>\n\nIn Bergen.": "In Bergen.",
		"\n<think></think>In Bergen.":                           "In Bergen.",
		"Lena, maybe in Oslo.\n</think>\n\nIn Bergen.":          "In Bergen.", // the template has written the first tag
		"<think>cut off":                  "",
		"In Bergen.":                      "In Bergen.",
		"The tag </think> ends thoughts.": "The tag </think> ends thoughts.",
		"Write <think>so</think> before.": "Write <think>so</think> before.",
	} {
		if got := wire.WithoutThoughts(answer); got != want {
			t.Errorf("%q: %q, want %q", answer, got, want)
		}
	}
}

// TestItemWithoutThoughts: an answer that is done goes on without its thoughts, however the server has written them.
func TestItemWithoutThoughts(t *testing.T) {
	t.Parallel()
	wantItems(t, wire.Item.WithoutThoughts, map[string]string{
		`{"role":"assistant","content":"<think>\nhm\n</think>\n\nYes.","x":1.0}`:                               `{"role":"assistant","content":"Yes.","x":1.0}`,
		`{"role":"assistant","content":"\u003cthink\u003ehm\u003c/think\u003eYes \u003e no."}`:                 `{"role":"assistant","content":"Yes > no."}`,
		`{"role":"assistant","content":"<think>\nhm"}`:                                                         `{"role":"assistant","content":""}`,
		`{"role":"assistant","content":"I think \u003c is the sign."}`:                                         "",
		`{"role":"assistant","content":"<think>hm</think>","tool_calls":[{"id":"c","function":{"name":"f"}}]}`: "",
		`{"role":"assistant","content":[{"type":"text","text":"<think>hm</think>"}]}`:                          "",
		`{"role":"user","content":"<think>hm</think>What does this tag mean?"}`:                                "",
	})
}
