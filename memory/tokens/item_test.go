package tokens

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func TestCountItem(t *testing.T) {
	c := New()
	text := func(all ...string) int {
		n := 0
		for _, s := range all {
			n += len(reference[o200kBase]().EncodeOrdinary(s))
		}
		return n
	}
	f := func(name string, d wire.Dialect, raw string, want int) {
		t.Helper()
		for _, what := range []string{"counted", "remembered"} {
			if got := c.CountItem("gpt-5", wiretest.Parse(t, d, raw)); got != want {
				t.Errorf("%s, %s: %d tokens, want %d", name, what, got, want)
			}
		}
	}
	image := "data:image/png;base64," + base64Text(100_000)

	f("text", dialects.Chat, `{"role":"user","content":"Hello, world"}`, itemTokens+text("Hello, world"))
	f("spelling", dialects.Chat, ` { "content" : "Hello\u002c\nworld \ud83d\ude00" , "role" : "user" } `, itemTokens+text("Hello,\nworld 😀"))
	f("bad bytes", dialects.Chat, "{\"role\":\"user\",\"content\":\"a\xffb\"}", itemTokens+text("a\ufffdb"))
	f("name", dialects.Chat, `{"role":"user","name":"Alice","content":"Hi"}`, itemTokens+text("Alice", "Hi"))
	f("parts", dialects.Chat, `{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}`, itemTokens+text("one", "two"))
	f("empty", dialects.Chat, `{"role":"assistant","content":null,"refusal":null}`, itemTokens)
	f("refusal", dialects.Chat, `{"role":"assistant","content":null,"refusal":"I will not."}`, itemTokens+text("I will not."))
	f("echoed answer", dialects.Chat, `{"role":"assistant","content":"x","annotations":[{"type":"url_citation","title":"long text here"}],"audio":{"id":"audio_1"}}`,
		itemTokens+text("x"))
	f("calls", dialects.Chat, `{"role":"assistant","content":null,"tool_calls":[
		{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}},
		{"id":"call_2","type":"custom","custom":{"name":"run","input":"ls -l"}}]}`,
		itemTokens+2*callTokens+text("get_weather", `{"city":"Paris"}`, "run", "ls -l"))
	f("legacy call", dialects.Chat, `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`, itemTokens+callTokens+text("f", "{}"))
	f("result", dialects.Chat, `{"role":"tool","tool_call_id":"call_123456789","content":"sunny, 22 degrees"}`, itemTokens+text("sunny, 22 degrees"))

	f("image", dialects.Chat, `{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"`+image+`","detail":"high"}}]}`,
		itemTokens+text("What is it?")+mediaTokens)
	f("audio", dialects.Chat, `{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"`+base64Text(9000)+`","format":"wav"}}]}`, itemTokens+mediaTokens)
	f("file", dialects.Chat, `{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"`+image+`"}}]}`, itemTokens+mediaTokens)
	f("image of Responses", dialects.Responses, `{"role":"user","content":[{"type":"input_image","image_url":"`+image+`"},{"type":"input_image","file_id":"file-1"}]}`,
		itemTokens+2*mediaTokens)
	f("screenshot", dialects.Responses, `{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"`+image+`"}}`, itemTokens+mediaTokens)
	f("generated image", dialects.Responses, `{"type":"image_generation_call","id":"ig_1","status":"completed","result":"`+base64Text(50_000)+`"}`, itemTokens+mediaTokens+text("result"))
	f("pasted data", dialects.Chat, `{"role":"user","content":"`+base64Text(2000)+`"}`, itemTokens+text(base64Text(2000)))

	f("message", dialects.Responses, `{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Fine.","annotations":[]}]}`,
		itemTokens+text("Fine."))
	f("function call", dialects.Responses, `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"get","arguments":"{\"a\":1}","status":"completed"}`, itemTokens+text("get", `{"a":1}`))
	f("function result", dialects.Responses, `{"type":"function_call_output","call_id":"call_1","output":[{"type":"input_text","text":"done"}]}`, itemTokens+text("done"))
	f("shell", dialects.Responses, `{"type":"shell_call_output","call_id":"call_1","max_output_length":4096,"output":[{"stdout":"file.txt","stderr":"","outcome":{"type":"exit","exit_code":0}}]}`,
		itemTokens+text("file.txt")+2*scalarTokens)
	f("reasoning", dialects.Responses, `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Thinking"}],"encrypted_content":"`+base64Text(1600)+`"}`,
		itemTokens+text("Thinking")+300)
	f("reference", dialects.Responses, `{"type":"item_reference","id":"msg_123456789"}`, itemTokens)
	f("unknown", dialects.Responses, `{"type":"mcp_list_tools","id":"m","server_label":"docs","tools":[{"name":"search","description":"Find pages","input_schema":{"properties":{"query":{"type":"string"}}}}]}`,
		itemTokens+text("server_label", "docs", "tools", "search", "Find pages", "input_schema", "properties"))
	f("no object", dialects.Responses, `"just text"`, itemTokens+text("just text"))
	f("number", dialects.Responses, `17`, itemTokens+scalarTokens)
}

func TestItemsThatAreNoStrictJSON(t *testing.T) {
	c := New()
	for _, raw := range []string{`{"role":"user","content":"bad \x escape"}`, "{\"role\":\"user\",\"content\":\"line\nbreak\"}"} {
		it := wiretest.Parse(t, dialects.Chat, raw) // wire does not look into strings
		if got, want := c.CountItem("gpt-5", it), itemTokens+c.Count("gpt-5", it.Text()); got != want {
			t.Errorf("%s is %d tokens, want %d", raw, got, want)
		}
	}
	for _, raw := range []string{"", `{"content":"cut`, `{"content":x}`} {
		if got, want := c.CountItem("gpt-5", wire.Item{Raw: []byte(raw)}), itemTokens+estimate(len(raw)); got != want {
			t.Errorf("%q is %d tokens, want %d", raw, got, want)
		}
	}
	deep := strings.Repeat(`{"a":[`, 400) + strings.Repeat("]}", 400)
	if got := c.CountItem("gpt-5", wiretest.Parse(t, dialects.Responses, deep)); got < 400 || got > 1000 {
		t.Errorf("deep item is %d tokens", got)
	}
}

// TestEqualBytesOfTwoKinds: the same bytes may cost differently in two dialects, and must not be taken for each other.
func TestEqualBytesOfTwoKinds(t *testing.T) {
	c := New()
	raw := `{"role":"assistant","custom_member":"value","content":"日本語の文章です。メモリー・プロキシは会話を覚えています。"}`
	fresh := func(model string, d wire.Dialect) int {
		return c.countItem(c.vocabularies[encodingOf(model)](), wiretest.Parse(t, d, raw))
	}
	for range 2 {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			for _, model := range []string{"gpt-4", "gpt-5"} {
				if got, want := c.CountItem(model, wiretest.Parse(t, d, raw)), fresh(model, d); got != want {
					t.Errorf("%s, %s: %d tokens, want %d", model, d, got, want)
				}
			}
		}
	}
	if fresh("gpt-4", dialects.Chat) == fresh("gpt-5", dialects.Chat) {
		t.Error("the text does not tell the encodings apart")
	}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestItemsCostWhatTheirTextCosts holds for any text in any spelling of both dialects.
func TestItemsCostWhatTheirTextCosts(t *testing.T) {
	c := New()
	rapid.Check(t, func(t *rapid.T) {
		s := texts().Draw(t, "text")
		want := itemTokens + c.Count("gpt-5", s)
		for _, raw := range []string{`{"role":"user","content":` + quote(s) + `}`, `{"role":"user","content":[{"type":"text","text":` + quote(s) + `}]}`} {
			it := wiretest.Parse(t, dialects.Chat, raw)
			if got := c.CountItem("gpt-5", it); got != want {
				t.Fatalf("%s is %d tokens, want %d", raw, got, want)
			}
		}
	})
}

func FuzzCountItem(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}}]}`))
	f.Add([]byte(`{"type":"x","a":[[{"b":1.5e3}],true,null,"\ud800"],"id":{"c":[]}}`))
	c := New()
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			it, err := wire.ParseItem(d, raw)
			if err != nil {
				continue
			}
			first := c.CountItem("gpt-5", it)
			if first < itemTokens || first > itemTokens+mediaTokens*(1+len(raw)) {
				t.Fatalf("%d tokens for %d bytes", first, len(raw))
			}
			if again := c.CountItem("gpt-5", it); again != first {
				t.Fatalf("%d tokens, then %d", first, again)
			}
		}
	})
}
