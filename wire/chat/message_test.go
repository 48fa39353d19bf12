package chat_test

import (
	"testing"

	"remora/wire"
	"remora/wire/chat"
	"remora/wire/wiretest"
)

func TestOnlyCalls(t *testing.T) {
	const call = `{"id":"b","type":"function","function":{"name":"g","arguments":"{}"},"x":1}`
	const google = `{"id":"b","type":"function","function":{"name":"g","arguments":"{}"},"extra_content":{"google":{"thought_signature":"S"}}}`
	const other = `{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}`
	second := func(i int) bool { return i == 1 }
	for _, tt := range []struct {
		name, raw, want string
		keep            func(int) bool
	}{
		{
			"of several", `{"role":"assistant","content":"hm","tool_calls":[ ` + other + `, ` + call + ` ]}`,
			`{"role":"assistant","content":null,"tool_calls":[ ` + call + ` ]}`, second,
		},
		{
			"with what was thought", `{"role":"assistant","content":"","reasoning_content":"R","reasoning":"R","reasoning_details":[{"type":"x"}],"vendor":{"a":1},"tool_calls":[` + other + `,` + call + `]}`,
			`{"role":"assistant","content":null,"reasoning_content":"R","reasoning":"R","reasoning_details":[{"type":"x"}],"vendor":{"a":1},"tool_calls":[` + call + `]}`, second,
		},
		{
			"without what was said", `{"content":[{"type":"text","text":"x"}],"refusal":"no","annotations":[],"audio":{"id":"a"},"images":[1],"role":"assistant","tool_calls":[` + call + `]}`,
			`{"content":null,"role":"assistant","tool_calls":[` + call + `]}`, nil,
		},
		{
			"without members that requests must not have", `{"role":"assistant","function_call":null,"audio":null,"tool_calls":[` + call + `]}`,
			`{"role":"assistant","tool_calls":[` + call + `]}`, nil,
		},
		{
			"of Google", `{"role":"assistant","content":"hm","tool_calls":[` + google + `]}`,
			`{"role":"assistant","tool_calls":[` + google + `]}`, nil,
		},
		{
			"legacy", `{"role":"assistant","tool_calls":[],"content":"x","function_call":{"name":"f","arguments":"{}"}}`,
			`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`, nil,
		},
		{"none", `{"role":"assistant","content":"x","tool_calls":[` + call + `]}`, "", func(int) bool { return false }},
	} {
		it := wiretest.Parse(t, chat.Dialect, tt.raw)
		keep := func(part int) bool {
			if it.HasContent() {
				part--
			}
			return tt.keep == nil || tt.keep(part)
		}
		got, ok := it.OnlyCalls(keep)
		if ok != (tt.want != "") || string(got.Raw) != tt.want || got.HasContent() {
			t.Errorf("%s: %s, %v, want %s", tt.name, got.Raw, ok, tt.want)
		}
		if ok && len(got.Parts) != 1 {
			t.Errorf("%s: parts %v", tt.name, got.Parts)
		}
	}
}

// TestAsInput: what upstream gives as an answer and refuses in a request is mended, and nothing else is touched.
func TestAsInput(t *testing.T) {
	const calls = `"tool_calls":[{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`
	const sound = `"audio":{"id":"au","data":"QUE=","transcript":"hello","expires_at":20}`
	for _, tt := range []struct{ name, raw, want string }{
		{"plain", `{"role":"assistant", "content":"x", "refusal":null, "annotations":[]}`, `{"role":"assistant", "content":"x", "refusal":null, "annotations":[]}`},
		{"a call", `{"role":"assistant","content":null,` + calls + `}`, `{"role":"assistant","content":null,` + calls + `}`},
		{"a call beside empty text", `{"role":"assistant","content":"",` + calls + `}`, `{"role":"assistant","content":null,` + calls + `}`},
		{"a refusal", `{"role":"assistant","content":null,"refusal":"no"}`, `{"role":"assistant","content":null,"refusal":"no"}`},
		{"nothing", `{"role":"assistant","content":null}`, ""},
		{"nothing but a thought", `{"role":"assistant","content":null,"reasoning_content":"hm"}`, ""},
		{"no text", `{"role":"assistant","content":""}`, ""},
		{"white space", `{"role":"assistant","content":"\n \u0020\t"}`, ""},
		{"white space beside a refusal", `{"role":"assistant","content":"\n","refusal":"no"}`, `{"role":"assistant","content":"\n","refusal":"no"}`},
		{"white space beside a call", `{"role":"assistant","content":"\n",` + calls + `}`, `{"role":"assistant","content":"\n",` + calls + `}`},
		{"no calls", `{"role":"assistant","content":"x","tool_calls":[]}`, `{"role":"assistant","content":"x"}`},
		{"null calls", `{"role":"assistant","tool_calls":null,"content":"x","function_call":null,"audio":null}`, `{"role":"assistant","content":"x"}`},
		{"nothing and no calls", `{"role":"assistant","content":null,"tool_calls":[ ]}`, ""},
		{"sound", `{"role":"assistant","content":null,` + sound + `,"refusal":null}`, `{"role":"assistant","content":null,"audio":{"id":"au"},"refusal":null}`},
		{"expired sound", `{"role":"assistant","content":null,` + expired(sound) + `}`, `{"role":"assistant","content":"hello"}`},
		{"expired sound, content is absent", `{"role":"assistant",` + expired(sound) + `}`, `{"content":"hello","role":"assistant"}`},
		{"expired sound beside text", `{"role":"assistant","content":"text",` + expired(sound) + `}`, `{"role":"assistant","content":"text"}`},
		{"expired sound beside a call", `{"role":"assistant","content":null,` + expired(sound) + `,` + calls + `}`, `{"role":"assistant","content":"hello",` + calls + `}`},
		{"expired sound without words", `{"role":"assistant","content":null,"audio":{"id":"au","data":"QUE="}}`, ""},
		{"an image", `{"role":"assistant","content":"","images":[{}]}`, `{"role":"assistant","content":"","images":[{}]}`},
		{"no image", `{"role":"assistant","content":null,"images":[]}`, ""},
		{"a user", `{"role":"user","content":null,"tool_calls":[]}`, `{"role":"user","content":null,"tool_calls":[]}`},
	} {
		it := wiretest.Parse(t, chat.Dialect, tt.raw)
		got, ok := it.AsInput(func(a wire.Audio) bool { return a == wire.Audio{ID: "au", Expires: 20} })
		if ok != (tt.want != "") || ok && string(got.Raw) != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.name, got.Raw, ok, tt.want)
		}
	}
}

// TestWithObjectArguments: only the arguments of functions that are no JSON object in a string change.
func TestWithObjectArguments(t *testing.T) {
	for raw, want := range map[string]string{
		`{"role":"assistant","content":"x","tool_calls":[{"id":"a","function":{"name":"g","arguments":"{\"a\":1}"}},{"id":"b","function":{"arguments":"{\"a","name":"g"},"s":1}]}`: `{"role":"assistant","content":"x","tool_calls":[{"id":"a","function":{"name":"g","arguments":"{\"a\":1}"}},{"id":"b","function":{"arguments":"{}","name":"g"},"s":1}]}`,

		`{"role":"assistant","content":null,"function_call":{"name":"g","arguments":"["}}`:                   `{"role":"assistant","content":null,"function_call":{"name":"g","arguments":"{}"}}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"a","custom":{"name":"g","input":"free"}}]}`: `{"role":"assistant","content":null,"tool_calls":[{"id":"a","custom":{"name":"g","input":"free"}}]}`,
		`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"g","arguments":{"a":1}}}]}`:         `{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"g","arguments":"{\"a\":1}"}}]}`,
		`{"role":"assistant","content":"x","arguments":"["}`:                                                 `{"role":"assistant","content":"x","arguments":"["}`,
	} {
		if got := wiretest.Parse(t, chat.Dialect, raw).WithObjectArguments(); string(got.Raw) != want {
			t.Errorf("%s\nbecomes %s", raw, got.Raw)
		}
	}
}

// TestPortable: what only the maker of an answer takes back stays out of a request to another provider.
func TestPortable(t *testing.T) {
	call := func(arguments string) string {
		return `{"role":"assistant","content":null,"tool_calls":[{"id":"b","type":"function","function":{"name":"g","arguments":` + arguments + `}}]}`
	}
	for _, tt := range []struct{ name, raw, want string }{
		{"members that say nothing", `{"role":"assistant","content":"x","refusal":null,"annotations":[],"name":null}`, `{"role":"assistant","content":"x"}`},
		{"a refusal", `{"role":"assistant","content":null,"refusal":"no"}`, `{"role":"assistant","content":"no"}`},
		{"a user", `{"role":"user","content":"x","name":null}`, `{"role":"user","content":"x","name":null}`},
		{
			"a file of the account", `{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}},{"type":"text","text":"x"}]}`,
			`{"role":"user","content":[{"type":"text","text":"(a file)"},{"type":"text","text":"x"}]}`,
		},
		{"a call", call(`" {\"a\":1}"`), call(`" {\"a\":1}"`)},
		{"a call that was cut", call(`"{\"a\":"`), call(`"{}"`)},
		{"a call with a list", call(`"[1]"`), call(`"{}"`)},
		{"a call with an object", call(`{"a":1}`), call(`"{\"a\":1}"`)},
		{"a call without arguments", call(`""`), call(`"{}"`)},
	} {
		got, ok := wiretest.Parse(t, chat.Dialect, tt.raw).Portable(wire.OtherProvider)
		if !ok || string(got.Raw) != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.name, got.Raw, ok, tt.want)
		}
		if got, ok = wiretest.Parse(t, chat.Dialect, tt.raw).Portable(wire.OtherModel); !ok || string(got.Raw) != tt.raw {
			t.Errorf("%s, another model: %s, %v", tt.name, got.Raw, ok)
		}
	}
}

// expired is sound that upstream has forgotten since.
func expired(sound string) string { return sound[:len(sound)-len("20}")] + "10}" }
