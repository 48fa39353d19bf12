package tokens

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func TestAtMost(t *testing.T) {
	c := New()
	for _, test := range []struct {
		raw  string
		want int // beside its bytes; -1 for no bound
	}{
		{`{"role":"user","content":"an \"image_url\" and a \"type\": \"file\""}`, slack},
		{`{"role":"user","content":[{"type":"text","text":"what is it?"},{"type":"image_url","image_url":{"url":"http://x"}}]}`, slack + mediaTokens},
		{`{"role":"user","content":[{"type" : "input_image"},{"type":"\/file"}]}`, slack + 2*mediaTokens},
		{`{"role":"user","content":[{"\u0074ype":"file"}]}`, -1},
		{`{"role":"user","content":[{"type":["file","file","file"]}]}`, -1},
		{`{"role":"user","content":"caf\u00e9"}`, slack},
		{`{"role":"user","x":["data:;base64,","data:;base64,"],"content":""}`, slack + 2*mediaTokens},
		{`{"role":"user","x":["data:;base64\u002c"],"content":""}`, -1},
		{`{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`, slack + callTokens},
	} {
		it := wiretest.Parse(t, dialects.Chat, test.raw)
		want := len(test.raw) + test.want
		if test.want < 0 {
			want = math.MaxInt32
		}
		if got := AtMost(it); got != want {
			t.Errorf("%s: %d, want %d", test.raw, got, want)
		}
		checkBound(t, c, it)
	}
}

// checkBound counts an item, and compares the count with the bound.
func checkBound(t interface{ Fatalf(string, ...any) }, c *Counter, it wire.Item) {
	limit := AtMost(it)
	if n := c.CountItem("gpt-5", it); n > limit {
		t.Fatalf("%d tokens for %s, which should be at most %d", n, it.Raw, limit)
	}
}

// TestNothingCostsMore draws JSON that is as dear as can be: short, with words that have a meaning in any place.
func TestNothingCostsMore(t *testing.T) {
	c := New()
	word := rapid.SampledFrom([]string{
		"type", "content", "role", "user", "file", "audio", "image_url", "input_image", "output", "x", "", "tool_calls", "arguments",
		"data:;base64,", "text", "function_call", "function_call_output", "call_id", "id", "\u00e9", "日本", "assistant", "name", "encrypted_content",
	})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			switch k := rapid.IntRange(0, 6).Draw(t, "kind"); {
			case k == 0 && depth > 0:
				return rapid.SliceOfN(value(depth-1), 0, 4).Draw(t, "list")
			case k <= 3 && depth > 0:
				return rapid.MapOfN(word, value(depth-1), 0, 4).Draw(t, "object")
			case k == 4:
				return rapid.IntRange(0, 9).Draw(t, "number")
			default:
				return word.Draw(t, "word")
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(word, value(3), 0, 6).Draw(t, "item")
		raw, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			if it, err := wire.ParseItem(d, raw); err == nil {
				checkBound(t, c, it)
			}
		}
	})
}

func FuzzAtMost(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}`))
	f.Add([]byte(`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`))
	f.Add([]byte(fmt.Sprintf(`{"role":"assistant","x":%q}`, "data:;base64,")))
	c := New()
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			if it, err := wire.ParseItem(d, raw); err == nil {
				checkBound(t, c, it)
			}
		}
	})
}
