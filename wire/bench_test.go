package wire_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	. "remora/wire"
)

// conversation is a Chat body of n messages in rounds of four, with text of textBytes each: prose with the escapes that
// code brings.
func conversation(n, textBytes int) []byte {
	prose := strings.Repeat(`The quick brown fox says \"hello\", then\n\tjumps over the lazy dog near the r\u00e9sum\u00e9. `, textBytes/90+1)
	var b strings.Builder
	b.WriteString(`{"model":"gpt-x","stream":true,"temperature":0.7,"messages":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, `{"role":"user","content":"%d %s"}`, i, prose)
		case 1:
			fmt.Fprintf(&b, `{"role":"assistant","content":null,"tool_calls":[{"id":"call_%d","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"/src/main.go\",\"from\":%d,\"note\":\"%s\"}"}}]}`, i, i, strings.Repeat("n", textBytes/2))
		case 2:
			fmt.Fprintf(&b, `{"role":"tool","tool_call_id":"call_%d","content":"%s"}`, i-1, prose)
		default:
			fmt.Fprintf(&b, `{"role":"assistant","content":[{"type":"text","text":"%s"}]}`, prose)
		}
	}
	b.WriteString(`],"user":"u-1","metadata":{"session_id":"s-1"}}`)
	return []byte(b.String())
}

func bodies() map[string][]byte {
	return map[string][]byte{"0.4KB": conversation(2, 90), "256KB": conversation(400, 540)}
}

func bench(b *testing.B, f func(b *testing.B, body []byte)) {
	b.Helper()
	for name, body := range bodies() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			f(b, body)
		})
	}
}

func mustParse(tb testing.TB, body []byte) *Request {
	tb.Helper()
	r, err := Parse(Chat, body)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func BenchmarkParse(b *testing.B) {
	bench(b, func(b *testing.B, body []byte) {
		b.Helper()
		for b.Loop() {
			mustParse(b, body)
		}
	})
}

// BenchmarkNames looks for names that are in none of the bodies, as for most requests without a session.
func BenchmarkNames(b *testing.B) {
	n := NewNames("previous_response_id", "session_key", "conversation", "conversation_id", "thread_id", "litellm_session_id")
	bench(b, func(b *testing.B, body []byte) {
		b.Helper()
		for b.Loop() {
			if n.In(body) {
				b.Fatal("found")
			}
		}
	})
}

func BenchmarkGlance(b *testing.B) {
	bench(b, func(b *testing.B, body []byte) {
		b.Helper()
		for b.Loop() {
			if Glance(body, "absent") != nil {
				b.Fatal("found")
			}
		}
	})
}

func BenchmarkItems(b *testing.B) {
	bench(b, func(b *testing.B, body []byte) {
		b.Helper()
		r := mustParse(b, body)
		for b.Loop() {
			r.Decode()
		}
	})
}

func BenchmarkContentHash(b *testing.B) {
	bench(b, func(b *testing.B, body []byte) {
		b.Helper()
		r := mustParse(b, body)
		for b.Loop() {
			for _, it := range r.Items() {
				it.ContentHash()
			}
		}
	})
}

// BenchmarkWith drops the older half and puts a block in its place.
func BenchmarkWith(b *testing.B) {
	bench(b, func(b *testing.B, body []byte) {
		b.Helper()
		r := mustParse(b, body)
		items := r.Items()
		edited := append([]Item{{Dialect: Chat, Raw: []byte(`{"role":"developer","content":"recalled"}`)}}, items[len(items)/2:]...)
		for b.Loop() {
			if _, err := r.With(edited); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkFold(b *testing.B) {
	chunks := make([]string, 200)
	for i := range chunks {
		chunks[i] = delta(`{"content":" some words"}`)
	}
	stream := []byte(chatStream(append(chunks, finishStop, usageChunk)...))
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		f := NewFolder(Chat)
		f.Write(stream)
		_ = f.Reply()
	}
}

// TestAllocations holds the ceilings of the hot path.
func TestAllocations(t *testing.T) {
	body := conversation(400, 540)
	r := mustParse(t, body)
	items := r.Items()
	half := items[200:]
	f := func(name string, ceiling float64, run func()) {
		t.Helper()
		if got := testing.AllocsPerRun(20, run); got > ceiling {
			t.Errorf("%s: %.0f allocations, ceiling %.0f", name, got, ceiling)
		}
	}
	f("parse", 4, func() { mustParse(t, body) })
	names := NewNames("conversation", "thread_id")
	f("names", 0, func() { _ = names.In(body) })
	f("glance", 0, func() { _ = Glance(body, "stream") })
	f("items", 24, func() { r.Decode() })
	if &items[0].Parts[0] != &items[3].Parts[0] {
		t.Error("texts do not share their part")
	}
	if size := reflect.TypeFor[Item]().Size(); size > 80 { // a history has thousands
		t.Errorf("an item takes %d bytes", size)
	}
	f("unchanged", 0, func() { _, _ = r.With(items) })
	f("half", 1, func() { _, _ = r.With(half) })
	spaced := mustParse(t, []byte(`{"messages" : [ {"role":"user","content":"a"} , {"role":"user","content":"b"} , {"role":"user","content":"c"} ] }`)).Items()
	other := Item{Kind: Message, Role: User, Dialect: Chat, Raw: []byte(`{"role":"user","content":"` + strings.Repeat("new", 50) + `"}`)}
	f("others between", 1, func() {
		_, _ = r.With([]Item{other, items[0], items[1], other, items[3], items[2], other, spaced[1], items[4]})
	})
	hashed := Hashing() // not from the pool, which forgets at random under the race detector
	hash := func(it Item) { hashed(it) }
	f("hash of text", 0, func() { hash(items[0]) })
	f("hash of a call", 0, func() { hash(items[1]) })
	f("hash of parts", 0, func() { hash(items[3]) })
	f("model", 1, func() { _ = r.Text("model") })
	f("session", 1, func() { _ = r.Text("metadata.session_id") })
}
