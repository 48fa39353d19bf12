package tokens

import (
	"encoding/json"
	"testing"

	"remora/wire"
)

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

const (
	sevenJapanese = "こんにちは世界"
	weatherCall   = `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"location\":\"San Francisco\"}"}}]}`
)

func TestEstimators(t *testing.T) {
	f := func(e Estimator, text string, want int) {
		t.Helper()
		if got := e.Count(text); got != want {
			t.Errorf("%s: %q is %d tokens, want %d", e, text, got, want)
		}
		if got := New(Options{Estimator: e}).Count("gpt-5", text); got != want {
			t.Errorf("%s: a counter makes %q %d tokens, want %d", e, text, got, want)
		}
	}
	// SEMANTICS 1.2, as measured there.
	f(UTF16, "", 0)
	f(UTF16, "a", 1)
	f(UTF16, "abcd", 1)
	f(UTF16, "abcde", 2)
	f(UTF16, "😀", 1)
	f(UTF16, "😀😀😀", 2)
	f(UTF16, sevenJapanese, 2)
	f(UTF16, "<observations>\n- Processed 2 items\n</observations>", 13) // case 29

	// SEMANTICS 2: never less than one.
	f(Floor, "", 1)
	f(Floor, "abc", 1)
	f(Floor, "abcdefg", 1)
	f(Floor, "abcdefgh", 2)
	f(Floor, sevenJapanese, 1)

	// Case 106.
	f(Mixed, "", 0)
	f(Mixed, "abcde", 2)
	f(Mixed, sevenJapanese, 7)
	f(Mixed, "hello", 2)
	f(Mixed, "a", 1)
	f(Mixed, "aé", 1) // 1/4 + 2/3 = 11/12
	f(Mixed, "aaé", 2)
}

func TestEstimatorsOfItems(t *testing.T) {
	f := func(e Estimator, d wire.Dialect, raw string, want int) {
		t.Helper()
		it := item(t, d, raw)
		if got := e.CountItem(it); got != want {
			t.Errorf("%s: %s is %d tokens, want %d", e, raw, got, want)
		}
		if got := New(Options{Estimator: e}).CountItem("gpt-5", it); got != want {
			t.Errorf("%s: a counter makes %s %d tokens, want %d", e, raw, got, want)
		}
	}
	// Case 106.
	f(Mixed, wire.Chat, `{"role":"user","content":"hello"}`, 7)
	f(Mixed, wire.Chat, weatherCall, 20)
	f(Mixed, wire.Chat, `{"role":"user","content":[{"type":"text","text":"hello"}]}`, 5)
	f(Mixed, wire.Chat, `{"role":"system","content":"Be helpful"}`, 9) // the table of SEMANTICS 3
	f(Mixed, wire.Responses, `{"role":"user","content":"hello"}`, 7)
	f(Mixed, wire.Responses, `{"type":"function_call","call_id":"call_1","name":"get_weather","arguments":"{\"location\":\"San Francisco\"}"}`, 20)
	f(Mixed, wire.Responses, `{"type":"unknown","a": 1}`, 4+6) // its JSON, 24 bytes without the space

	// Case 97: five messages of 40 characters are 70 tokens.
	forty := `{"role":"user","content":"0123456789012345678901234567890123456789"}`
	f(Floor, wire.Chat, forty, 14)
	f(Floor, wire.Chat, `{"role":"user","content":""}`, 5)

	// The JSON as JSON.stringify writes it: 37 characters.
	f(UTF16, wire.Chat, `{ "role" : "user", "content" : "\u0041\/é😀" }`, 9)
	f(UTF16, wire.Chat, `{"role":"user","content":"A/é😀"}`, 9)

	five := []wire.Item{item(t, wire.Chat, forty), item(t, wire.Chat, forty), item(t, wire.Chat, forty), item(t, wire.Chat, forty), item(t, wire.Chat, forty)}
	if got := Floor.CountItems(five); got != 70 {
		t.Errorf("case 97: five messages are %d tokens, want 70", got)
	}
	if got := Mixed.CountItems(five[:1]); got != 3+15 { // SEMANTICS 3: a user's 40 characters are 15 tokens
		t.Errorf("a conversation of one message is %d tokens, want 18", got)
	}
}

func TestParseEstimator(t *testing.T) {
	for _, e := range []Estimator{Tiktoken, UTF16, Floor, Mixed} {
		if got, err := ParseEstimator(e.String()); err != nil || got != e {
			t.Errorf("%s: got %s, %v", e, got, err)
		}
	}
	for _, name := range []string{"", "unknown", "utf16"} {
		if _, err := ParseEstimator(name); err == nil {
			t.Errorf("%q is taken for an estimator", name)
		}
	}
}

func TestOtherEstimatorsLoadNothing(t *testing.T) {
	c := New(Options{Estimator: UTF16})
	if err := c.Load("gpt-5"); err != nil {
		t.Fatal(err)
	}
	c.Count("gpt-5", "text")
	c.Close()
	for e := range c.vocabularies {
		if c.vocabularies[e].v.Load() != nil {
			t.Errorf("%s was loaded", Encoding(e))
		}
	}
}
