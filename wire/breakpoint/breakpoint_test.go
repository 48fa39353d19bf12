package breakpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// failer is implemented by the T of rapid and of testing.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func cache(t failer, body string, told ...int) string {
	t.Helper()
	r := wiretest.Request(t, dialects.Chat, body)
	return string(Cache(r, told...))
}

// TestSpelling: what a breakpoint changes, byte for byte.
func TestSpelling(t *testing.T) {
	t.Parallel()
	const cc = `,"cache_control":{"type":"ephemeral"}`
	f := func(name, messages, want string) {
		t.Helper()
		const head, tail = ` { "model":"m" , "messages": `, ` ,"x":1.0}`
		if d := cmp.Diff(head+want+tail, cache(t, head+messages+tail)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	f("a string", `[ {"role":"user" , "content": "a\u0041" ,"name":"n"} ]`,
		`[ {"role":"user" , "content": [{"type":"text","text":"a\u0041"`+cc+`}] ,"name":"n"} ]`)
	f("a list: its last text", `[{"role":"user","content":[ {"type":"text","text":"a"}, {"text":"b" ,"type":"text" } , {"type":"image_url","image_url":{"url":"u"}} ]}]`,
		`[{"role":"user","content":[ {"type":"text","text":"a"}, {"text":"b" ,"type":"text"`+cc+` } , {"type":"image_url","image_url":{"url":"u"}} ]}]`)
	f("a blank part", `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":" \n"}]}]`,
		`[{"role":"user","content":[{"type":"text","text":"a"`+cc+`},{"type":"text","text":" \n"}]}]`)
	f("tool results, and an answer of the model", `[{"role":"user","content":"q"},{"role":"assistant","content":"x","tool_calls":[{"id":"1"},{"id":"2"}]},`+
		`{"role":"tool","tool_call_id":"1","content":"r"},{"role":"tool","tool_call_id":"2","content":"s"}]`,
		`[{"role":"user","content":[{"type":"text","text":"q"`+cc+`}]},{"role":"assistant","content":"x","tool_calls":[{"id":"1"},{"id":"2"}]},`+
			`{"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"r"}]},{"role":"tool","tool_call_id":"2","content":[{"type":"text","text":"s"`+cc+`}]}]`)
	f("lists: only where a breakpoint is", `[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"text","text":"b"}]}]`,
		`[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"text","text":"b"`+cc+`}]}]`)
	f("two letters of an escape", `[{"role":"user","content":"at"}]`, `[{"role":"user","content":[{"type":"text","text":"at"`+cc+`}]}]`)
	f("escapes that are no space", `[{"role":"user","content":"\\"}]`, `[{"role":"user","content":[{"type":"text","text":"\\"`+cc+`}]}]`)
	f("another list with content", `[{"role":"user","content":"a"}],"documents":[{"content":"a"}]`,
		`[{"role":"user","content":[{"type":"text","text":"a"`+cc+`}]}],"documents":[{"content":"a"}]`)
	f("a part about breakpoints", `[{"role":"user","content":[{"type":"text","text":"what is cache_control?"}]}]`,
		`[{"role":"user","content":[{"type":"text","text":"what is cache_control?"`+cc+`}]}]`)
	for name, same := range map[string]string{
		"nothing to mark":      `[{"role":"user","content":" \t"},{"role":"user","content":null},{"role":"assistant","content":"a"}]`,
		"the client's":         `[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"` + cc + `}]}]`,
		"the client's, outer":  `[{"role":"user","content":"a"` + cc + `}]`,
		"nothing at all":       `[]`,
		"legacy result":        `[{"role":"function","name":"f","content":"r"}]`,
		"image":                `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]`,
		"no content":           `[{"role":"user"}]`,
		"no items":             `[null,1,"a"]`,
		"a whole body's":       `[{"role":"user","content":"a"}],"cache_control":{"type":"ephemeral"}`,
		"a tool's":             `[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}` + cc + `}]`,
		"a tool's, inside":     `[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"` + cc + `}}]`,
		"a text part's, blank": `[{"role":"user","content":[{"type":"text","text":""}]}]`,
	} {
		f(name, same, same)
		r, err := wire.Parse(dialects.Chat, []byte(`{"messages":`+same+`}`))
		if err != nil || !wire.SameBytes(Cache(r), r.Body) {
			t.Errorf("%s: %v, or the body is copied", name, err)
		}
	}
	if got := cache(t, `{"messages":[{"role":"user","content":"what is cache_control?"}],"tools":[{"function":{"parameters":{"cache_control":{}}}}]}`); !strings.Contains(got, cc) {
		t.Errorf("talk of breakpoints is taken for one: %s", got)
	}
	r := wiretest.Request(t, dialects.Responses, `{"input":[{"role":"user","content":"a"}]}`)
	if got := Cache(r); &got[0] != &r.Body[0] {
		t.Errorf("Responses: %s", got)
	}
}

// spelled are messages of one letter each: s and d instructions, u, a and t what user, assistant and tools say, l what
// layers say in the user's role, c an answer of calls alone, and - a user message without text.
func spelled(letters string) string {
	roles := map[rune]string{'s': "system", 'd': "developer", 'u': "user", 'l': "user", 'a': "assistant", 't': "tool"}
	var out []string
	for i, c := range letters {
		switch c {
		case 'c':
			out = append(out, fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"%d"}]}`, i))
		case '-':
			out = append(out, `{"role":"user","content":[]}`)
		default:
			out = append(out, fmt.Sprintf(`{"role":"%s","content":"%c %d"}`, roles[c], c, i))
		}
	}
	return `{"messages":[` + strings.Join(out, ",") + `]}`
}

// breakpoints are the indices of the messages that have one.
func breakpoints(t failer, body string) (at []int) {
	t.Helper()
	var b struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for i, m := range b.Messages {
		for range bytes.Count(m, []byte(breakpoint)) {
			at = append(at, i)
		}
	}
	return at
}

// TestPlaces: where breakpoints are, shown by a ^ below each message that has one.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, messages, want string }{
		{"first request", "su", "^^"},
		{"no instructions", "u", "^"},
		{"a tool loop", "suct", "^^.^"},
		{"parallel calls", "suctttctt", "^....^..^"},
		{"the next round", "suctau", "^..^.^"},
		{"a chat", "suauau", "^..^.^"},
		{"anchored blocks", "sdduau", "..^^.^"},
		{"what a round began with", "suausd", "^^.^.^"},
		{"its loop", "suausdct", "^..^.^.^"},
		{"its loop goes on", "suausdctct", "^..^...^.^"},
		{"in the user's role", "suaull", "^^.^.^"},
		{"its loop", "suaullct", "^..^.^.^"},
		{"the round after", "suausctaus", "^..^....^^"},
		{"live blocks behind a loop", "suctsd", "^^.^.."},
		{"live blocks behind a longer one", "suctcts", "^..^.^."},
		{"a user message without text", "sua-", "^^.."},
		{"instructions alone", "sds", "..^"},
		{"prefilled answer", "sua", "^^."},
		{"nothing but answers", "aa", ".."},
	} {
		want := []byte(strings.Repeat(".", len(c.messages)))
		var told []int
		for i, letter := range c.messages {
			if letter == 'l' {
				told = append(told, i)
			}
		}
		for _, i := range breakpoints(t, cache(t, spelled(c.messages), told...)) {
			want[i] = '^'
		}
		if string(want) != c.want {
			t.Errorf("%s: %s\n got  %s\n want %s", c.name, c.messages, want, c.want)
		}
	}
}

// TestBesideTheClients: a request with breakpoints of the client (! in its second line) gets one more, ^, before what layers say
// behind a user message, if there is room and the client has one behind it.
func TestBesideTheClients(t *testing.T) {
	t.Parallel()
	const hour = `,"cache_control":{"type":"ephemeral","ttl":"1h"}`
	for _, c := range []struct{ name, messages, want string }{
		{"a round's loop", "suausdctct", "!..^...!.!"},
		{"in the user's role", "suaullctct", "!..^...!.!"},
		{"the first request of a round", "suausctausd", "!..^....!.."},
		{"with a breakpoint there", "suausct", "!..!..!"},
		{"with four", "suausctct", "!!....!.!"},
		{"without one behind it", "suausct", "!......"},
		{"nothing said", "suauct", "!..!.!"},
	} {
		var told []int
		body, want := spelled(c.messages), []byte(strings.ReplaceAll(c.want, "!", "^"))
		for i := len(c.messages) - 1; i >= 0; i-- {
			if c.messages[i] == 'l' {
				told = append(told, i)
			}
			if text := fmt.Sprintf(`"content":"%c %d"`, c.messages[i], i); c.want[i] == '!' {
				body = strings.Replace(body, text, fmt.Sprintf(`"content":[{"type":"text","text":"%c %d"%s}]`, c.messages[i], i, hour), 1)
			}
		}
		r := wiretest.Request(t, dialects.Chat, body)
		out := string(Cache(r, told...))
		got := []byte(strings.Repeat(".", len(c.messages)))
		for _, i := range breakpoints(t, strings.ReplaceAll(out, hour, breakpoint)) {
			got[i] = '^'
		}
		if string(got) != string(want) {
			t.Errorf("%s: %s\n got  %s\n want %s", c.name, c.messages, got, want)
		}
		if strings.Contains(out, breakpoint) {
			t.Errorf("%s: a breakpoint unlike the client's: %s", c.name, out)
		}
		if cut := strings.Contains(c.want, "^"); !cut && out != body {
			t.Errorf("%s: %s", c.name, out)
		}
	}
}

// TestNextRequestFinds: in a conversation that goes on as agents' do, each request has a breakpoint where the one before
// had its last that still holds, and says the same up to there.
func TestNextRequestFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		history := rapid.SampledFrom([]string{"", "s", "sd"}).Draw(t, "system")
		var before string
		var last int
		tells := rapid.SampledFrom([][]string{{""}, {"s", "ss"}}).Draw(t, "layers")
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			told := rapid.SampledFrom(tells).Draw(t, "told")
			history += strings.Repeat("u", rapid.IntRange(1, 2).Draw(t, "said"))
			round := told
			for i := range rapid.IntRange(1, 4).Draw(t, "requests") {
				if i > 0 {
					round += "c" + strings.Repeat("t", rapid.IntRange(1, 30).Draw(t, "results"))
				}
				// Texts name their place, so that an item inserted for one round moves the rest.
				body := cache(t, spelled(history+round))
				at := breakpoints(t, body)
				if len(at) > 4 || !slices.IsSorted(at) {
					t.Fatalf("%s: breakpoints %v", body, at)
				}
				if before != "" {
					if !slices.Contains(at, last) {
						t.Fatalf("%s: none at %d, the last of\n%s", history+round, last, before)
					}
					if a, b := head(t, before, last), head(t, body, last); a != b {
						t.Fatalf("up to %d\n%s\nbecomes\n%s", last, a, b)
					}
				}
				before, last = body, at[len(at)-1]
			}
			if told != "" {
				last = len(history) - 1 // what the round was told is gone with it
			}
			history += strings.TrimPrefix(round, told) + "a"
			if told != "" {
				before = cache(t, spelled(history))
			}
		}
	})
}

// head is a body up to a message, without breakpoints.
func head(t failer, body string, last int) string {
	t.Helper()
	r := wiretest.Request(t, dialects.Chat, strings.ReplaceAll(body, breakpoint, ""))
	var b strings.Builder
	for _, it := range r.Items()[:last+1] {
		b.Write(it.Raw)
	}
	return b.String()
}

// FuzzCache marks any readable body: its meaning stays, and so do all bytes outside of the content of messages.
func FuzzCache(f *testing.F) {
	for _, s := range []string{"su", "suausdctct", "sua-", "aa"} {
		f.Add([]byte(spelled(s)))
	}
	f.Add([]byte("\n{\"messages\":[ {\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"} ] , \"content\":\"b\"} ], \"messages2\":[]}"))
	f.Add([]byte(`{"m\u0065ssages":[{"role":"system","cont\u0065nt":"a"},{"role":"tool","tool_call_id":"x","content":["a"]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := wire.Parse(dialects.Chat, body)
		if err != nil {
			return
		}
		out := Cache(r)
		again, err := wire.Parse(dialects.Chat, out)
		if err != nil || len(again.Items()) != len(r.Items()) {
			t.Fatalf("%q becomes %q: %v", body, out, err)
		}
		for i, it := range r.Items() {
			got := again.Items()[i]
			if it.ContentHash() != got.ContentHash() || it.Text() != got.Text() || it.Role == wire.Assistant && !bytes.Equal(it.Raw, got.Raw) {
				t.Fatalf("%q becomes %q", it.Raw, got.Raw)
			}
		}
		if a, b := wire.WithoutMember(body, "messages"), wire.WithoutMember(out, "messages"); !bytes.Equal(a, b) {
			t.Fatalf("outside of messages %q becomes %q", a, b)
		}
		if second := Cache(again); !bytes.Equal(second, out) {
			t.Fatalf("%q becomes %q the second time", out, second)
		}
	})
}
