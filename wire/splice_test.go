package wire_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	. "remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func diff(want, got any) string { return cmp.Diff(want, got) }

// TestScenarios plays testdata/*/*.txtar: a body, the items expected in it, an edit and the body expected then. An edit
// is one line for each item of the new list: the index of an item; an index and the calls to leave out, as "2 -0 -1";
// or an element's JSON, of the other dialect if an exclamation mark stands before it.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			d, err := dialects.Parse(filepath.Base(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			scenario(t, d, sections(t, file))
		})
	}
}

// sections reads an archive.
func sections(t *testing.T, file string) map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, f := range archive.Files {
		out[f.Name] = string(f.Data)
	}
	return out
}

func scenario(t *testing.T, d Dialect, section map[string]string) {
	t.Helper()
	r := wiretest.Request(t, d, section["body"])
	var list strings.Builder
	for i, it := range r.Items() {
		fmt.Fprintln(&list, i, describe(it))
	}
	if d := diff(section["items"], list.String()); d != "" {
		t.Errorf("items:\n%s", d)
	}
	got, err := r.With(edit(t, d, r.Items(), section["edit"]))
	if want, ok := section["error"]; ok {
		if err == nil || err.Error()+"\n" != want {
			t.Errorf("got error %v, want %s", err, want)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(section["want"], string(got)); d != "" {
		t.Errorf("edited body:\n%s", d)
	}
}

func edit(t *testing.T, d Dialect, items []Item, script string) []Item {
	t.Helper()
	var out []Item
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if raw, foreign := strings.CutPrefix(line, "!"); foreign || line[0] == '{' {
			dialect := d
			if foreign {
				dialect = other(d)
			}
			it := wiretest.Parse(t, dialect, raw)
			out = append(out, it)
			continue
		}
		words := strings.Fields(line)
		i, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		it, ok := dropCalls(items[i], func(i int) bool { return slices.Contains(words[1:], "-"+strconv.Itoa(i)) })
		if ok {
			out = append(out, it)
		}
	}
	return out
}

// dropCalls leaves out calls, by their number among those of the item.
func dropCalls(it Item, drop func(i int) bool) (Item, bool) {
	n := -1
	return it.WithoutCalls(func(Call) bool {
		n++
		return drop(n)
	})
}

func callsOf(it Item) (calls []Call) {
	for _, c := range it.Calls() {
		calls = append(calls, c)
	}
	return calls
}

func describe(it Item) string {
	kinds := []string{"other", "message", "call", "result", "reasoning", "reference", "compaction"}
	roles := []string{"", " system", " developer", " user", " assistant", " tool", " role?"}
	s := kinds[it.Kind] + roles[it.Role]
	if it.ID != "" {
		s += " id=" + it.ID
	}
	for _, c := range it.Calls() {
		s += fmt.Sprintf(" call(%s %s %s)", c.Family, c.ID, c.Name)
	}
	if it.Kind == ToolResult {
		c := it.Answers()
		s += fmt.Sprintf(" answers(%s %s %s)", c.Family, c.ID, c.Name)
	}
	return s + fmt.Sprintf(" %q", it.Text())
}

// TestWithKeepsBytes edits drawn bodies: all bytes outside the list are the body's, and the elements are the items',
// byte for byte.
func TestWithKeepsBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]Dialect{Chat, Responses}).Draw(t, "dialect")
		ws := rapid.SampledFrom([]string{"", " ", "\n  "})
		var list, head, tail bytes.Buffer
		n := rapid.IntRange(0, 6).Draw(t, "items")
		for i := range n {
			if i > 0 {
				list.WriteString(ws.Draw(t, "space") + "," + ws.Draw(t, "space"))
			}
			list.WriteString(drawValue(t, 3))
		}
		head.WriteString(ws.Draw(t, "space") + `{"a":` + drawOther(t) + `,"` + d.Rules().List + `":`)
		tail.WriteString(`,"b":` + drawOther(t) + `}` + ws.Draw(t, "space"))
		body := head.String() + "[" + ws.Draw(t, "space") + list.String() + ws.Draw(t, "space") + "]" + tail.String()
		r := wiretest.Request(t, d, body)
		items := r.Items()
		if len(items) != n {
			t.Fatalf("%q: %d items, want %d", body, len(items), n)
		}
		var edited []Item
		for _, it := range items {
			if rapid.Bool().Draw(t, "insert") {
				edited = append(edited, Item{Dialect: d, Raw: []byte(`{"role":"user","content":"x"}`)})
			}
			if rapid.Bool().Draw(t, "keep") {
				edited = append(edited, it)
			}
		}
		out, err := r.With(edited)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(out, head.Bytes()) || !bytes.HasSuffix(out, tail.Bytes()) || !strict(out) {
			t.Fatalf("%q becomes %q", body, out)
		}
		again, err := Parse(d, out)
		if err != nil || len(again.Items()) != len(edited) {
			t.Fatalf("%q becomes %q: %v", body, out, err)
		}
		for i, it := range again.Items() {
			if !bytes.Equal(it.Raw, edited[i].Raw) {
				t.Fatalf("item %d: got %q, want %q", i, it.Raw, edited[i].Raw)
			}
		}
	})
}

// drawOther draws a value for a member beside the list; valid JSON never holds the list twice at the top level.
func drawOther(t *rapid.T) string { return drawValue(t, 2) }

// A member is added after the last one, and only where none has its name.
func TestWithMember(t *testing.T) {
	t.Parallel()
	f := func(body, want string) {
		t.Helper()
		r := wiretest.Request(t, Responses, body)
		got, err := r.WithMember("k\"", []byte(`"v"`))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", body, err, got, want)
		}
		if body == want && !SameBytes(got, r.Body) {
			t.Errorf("%s: is copied", body)
		}
	}
	f(`{}`, `{"k\"":"v"}`)
	f(` { } `, ` {"k\"":"v" } `)
	f("{ \"a\" : 1.0\n, \"input\":[ ] }\n", "{ \"a\" : 1.0\n, \"input\":[ ],\"k\\\"\":\"v\" }\n")
	for _, has := range []string{`{"k\"":null}`, `{"k\u0022":"mine","a":1}`, `{"k\"":1,"k\"":2}`} {
		f(has, has)
	}
}

// FuzzWithMember adds a member to any body that can be read: the bytes of the body stay as they are around it.
func FuzzWithMember(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`), "prompt_cache_key")
	f.Add([]byte("\t{ }"), "")
	f.Add([]byte(`{"a\u0062":{"x":[1]},"input":"x" } `), "ab")
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		r, err := Parse(Responses, body)
		if err != nil || len(r.Members()) == MaxMembers || name == "input" || !utf8.ValidString(name) {
			return
		}
		out, err := r.WithMember(name, []byte(`"v"`))
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		again := wiretest.Request(t, Responses, string(out))
		if r.MemberIndex(name) >= 0 {
			if !SameBytes(out, body) {
				t.Fatalf("%q has %q and becomes %q", body, name, out)
			}
			return
		}
		i := again.MemberIndex(name)
		if i != len(r.Members()) || len(again.Members()) != i+1 || string(again.Members()[i].Value) != `"v"` {
			t.Fatalf("%q becomes %q", body, out)
		}
		end := again.Members()[i].End
		if !bytes.Equal(slices.Concat(out[:end-(len(out)-len(body))], out[end:]), body) {
			t.Fatalf("%q becomes %q", body, out)
		}
	})
}

// TestKeep leaves out calls by their number, and the text where drop has a t.
func TestKeep(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, raw, drop, want string) {
		t.Helper()
		it := wiretest.Parse(t, d, raw)
		got, ok := it.Keep(func(i int) bool {
			if it.HasContent() {
				i--
			}
			return i < 0 && !strings.Contains(drop, "t") || i >= 0 && !strings.Contains(drop, strconv.Itoa(i))
		})
		if string(got.Raw) != want || ok != (want != "") {
			t.Errorf("%s without %q:\n got %s, %v\nwant %s", raw, drop, got.Raw, ok, want)
		}
		if ok {
			if parsed, err := ParseItem(d, got.Raw); err != nil || diff(parsed, got) != "" {
				t.Errorf("item differs from its bytes: %v\n%s", err, diff(parsed, got))
			}
		}
	}
	two := `{ "role":"assistant", "content":"hi" , "tool_calls" : [ {"id":"a","x":1} , {"id":"b"} ] , "z":1.0 }`
	f(Chat, two, "", two)
	f(Chat, two, "0", `{ "role":"assistant", "content":"hi" , "tool_calls" : [ {"id":"b"} ] , "z":1.0 }`)
	f(Chat, two, "1", `{ "role":"assistant", "content":"hi" , "tool_calls" : [ {"id":"a","x":1} ] , "z":1.0 }`)
	f(Chat, two, "01", `{ "role":"assistant", "content":"hi", "z":1.0 }`)
	f(Chat, two, "t", `{ "role":"assistant", "content":null , "tool_calls" : [ {"id":"a","x":1} , {"id":"b"} ] , "z":1.0 }`)
	f(Chat, two, "t0", `{ "role":"assistant", "content":null , "tool_calls" : [ {"id":"b"} ] , "z":1.0 }`)
	f(Chat, two, "t01", "")
	f(Chat, `{"tool_calls":[{"id":"a"}],"role":"assistant","content":"hi"}`, "0", `{"role":"assistant","content":"hi"}`)
	f(Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"a"},{"id":"b"}]}`, "01", "")
	f(Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"a"},{"id":"b"}]}`, "0", `{"role":"assistant","content":null,"tool_calls":[{"id":"b"}]}`)
	f(Chat, `{"role":"assistant","content":"x","tool_calls":[{"id":"a"}],"tool\u005fcalls":[{"id":"b"},{"id":"c"}]}`, "0", `{"role":"assistant","content":"x","tool\u005fcalls":[{"id":"c"}]}`)
	f(Chat, `{"role":"assistant","content":"x","function_call":{"name":"f"}}`, "0", `{"role":"assistant","content":"x"}`)
	f(Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"a"}],"function_call":{"name":"f"}}`, "0", `{"role":"assistant","content":null,"function_call":{"name":"f"}}`)
	f(Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"a"}],"function_call":{"name":"f"}}`, "1", `{"role":"assistant","content":null,"tool_calls":[{"id":"a"}]}`)
	f(Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"a"}],"function_call":{"name":"f"}}`, "01", "")
	f(Responses, `{"type":"function_call","call_id":"a"}`, "0", "")
	f(Responses, `{"type":"function_call","call_id":"a"}`, "", `{"type":"function_call","call_id":"a"}`)
	f(Responses, `{"role":"user","content":"x"}`, "", `{"role":"user","content":"x"}`)
}

func FuzzSplice(f *testing.F) {
	f.Add([]byte(`{"role":"assistant","content":"x","tool_calls":[{"id":"a"},{"id":"b"}],"function_call":{"name":"f"}}`), uint16(1))
	f.Add([]byte(`{"tool_calls":[ {} , {} ],"role":"assistant","tool_calls":[{}]}`), uint16(2))
	f.Add([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}`), uint16(0))
	f.Fuzz(func(t *testing.T, raw []byte, mask uint16) {
		it, err := ParseItem(Chat, raw)
		if err != nil {
			return
		}
		drop := func(i int) bool { return mask>>(i%16)&1 == 1 }
		var want []Call
		for i, c := range callsOf(it) {
			if !drop(i) {
				want = append(want, c)
			}
		}
		rest, ok := dropCalls(it, drop)
		if !ok {
			if it.HasContent() || len(want) > 0 {
				t.Fatalf("%q is dropped", raw)
			}
			return
		}
		if d := diff(want, callsOf(rest)); d != "" {
			t.Fatalf("%q becomes %q:\n%s", raw, rest.Raw, d)
		}
		if strict(raw) != strict(rest.Raw) && strict(raw) {
			t.Fatalf("%q becomes %q", raw, rest.Raw)
		}
		if rest.HasContent() != it.HasContent() || rest.Text() != it.Text() {
			t.Fatalf("%q: text of %q", raw, rest.Raw)
		}
	})
}

// TestConvert: what items become in the other dialect; nothing for what has no counterpart there.
func TestConvert(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, raw string, want ...string) {
		t.Helper()
		it := wiretest.Parse(t, other(d), raw)
		made, ok := it.Convert(d)
		var got []string
		for _, it := range made {
			got = append(got, string(it.Raw))
		}
		if d := diff(want, got); d != "" || ok != (len(want) > 0) {
			t.Errorf("%s: %v\n%s", raw, ok, d)
		}
	}
	f(Chat, `{"type":"computer_call","call_id":"a"}`)
	f(Chat, `{"type":"local_shell_call_output","id":"a","output":"x"}`)
	f(Chat, `{"role":"user","content":[{"type":"input_image"}]}`)
	f(Chat, `{"role":"user","content":[{"type":"input_image","file_id":"f","image_url":null}]}`, `{"role":"user","content":"(an image)"}`)
	f(Chat, `{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","file_id":"f"}]}`,
		`{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"(an image)"}]}`)
	f(Chat, `{"type":"image_generation_call","id":"ig","result":"AAAA"}`, `{"role":"assistant","content":"(an image)"}`)
	f(Chat, `{"role":"critic","content":"x"}`)
	f(Chat, `{"role":"user","content":{"type":"input_text","text":"x"}}`)
	f(Chat, `{"role":"user","content":[{"type":"input_image","image_url":"u"},{"type":"input_image","image_url":"v","detail":"low"},{"type":"input_file","file_id":"f"}]}`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}},{"type":"image_url","image_url":{"url":"v","detail":"low"}},{"type":"file","file":{"file_id":"f"}}]}`)
	f(Chat, `{"role":"user","content":[{"type":"input_file","file_url":"u","detail":"low"},{"type":"input_file","file_data":"d","filename":"a.pdf","detail":"low"}]}`,
		`{"role":"user","content":[{"type":"text","text":"(a file)"},{"type":"file","file":{"file_data":"d","filename":"a.pdf"}}]}`)
	f(Chat, `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`)
	f(Chat, `{"type":"custom_tool_call","call_id":"a","name":"f","input":"x"}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"custom","custom":{"name":"f","input":"x"}}]}`)
	f(Chat, `{"type":"function_call_output","call_id":"a","output":[{"type":"input_image","file_id":"f"}]}`, `{"role":"tool","tool_call_id":"a","content":"(an image)"}`)

	f(Responses, `{"role":"function","name":"f","content":"x"}`)
	f(Responses, `{"role":"user","content":[{"type":"file","file":{}}]}`)
	f(Responses, `{"role":"user","content":[{"type":"file","file":{}},{"type":"image_url","image_url":{"url":"u"}},{"type":"file","file":{"file_id":"f"}}]}`,
		`{"role":"user","content":[{"type":"input_image","image_url":"u"},{"type":"input_file","file_id":"f"}]}`)
	f(Responses, `{"role":"assistant","content":[{"type":"file","file":{}}],"function_call":{"name":"g"},"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"new"},{"id":"c","custom":{"name":"f","input":"x"}}]}`,
		`{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`, `{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}`,
		`{"type":"function_call","call_id":"call_ada38ff15ca0ff4e9e0d7bb6f9eae7f4","name":"g","arguments":""}`)
	f(Responses, `{"role":"assistant","content":null,"refusal":"no"}`, `{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`)
}

// TestAnswersBecomeOneMessage: what a model said and called in one answer is one message of Chat.
func TestAnswersBecomeOneMessage(t *testing.T) {
	t.Parallel()
	const (
		a, b  = `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`, `{"type":"custom_tool_call","call_id":"b","name":"g","input":"x"}`
		ra    = `{"type":"function_call_output","call_id":"a","output":"1"}`
		rb    = `{"type":"custom_tool_call_output","call_id":"b","output":"2"}`
		think = `{"type":"reasoning","id":"rs","summary":[]}`
		user  = `{"role":"user","content":"q"}`
		image = `{"type":"image_generation_call","id":"ig","result":"AAAA"}`

		ca, cb = `{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}`, `{"id":"b","type":"custom","custom":{"name":"g","input":"x"}}`
		ta, tb = `{"role":"tool","tool_call_id":"a","content":"1"}`, `{"role":"tool","tool_call_id":"b","content":"2"}`
	)
	said := func(content string) string { return `{"type":"message","role":"assistant","content":` + content + `}` }
	text := func(text string) string {
		return said(`[{"type":"output_text","text":"` + text + `","annotations":[]}]`)
	}
	message := func(content, calls string) string {
		return `{"role":"assistant","content":` + content + `,"tool_calls":[` + calls + `]}`
	}
	for _, c := range []struct{ items, want []string }{
		{[]string{user, text("Look."), a, b, ra, rb}, []string{user, message(`"Look."`, ca+","+cb), ta, tb}},
		{[]string{text("Look."), think, a, ra, text("And."), b, rb, text("Done.")}, []string{message(`"Look."`, ca), ta, message(`"And."`, cb), tb, `{"role":"assistant","content":"Done."}`}},
		{[]string{a, text("Meanwhile."), b, ra, rb}, []string{message(`"Meanwhile."`, ca+","+cb), ta, tb}},
		{[]string{text("One."), text("Two."), a, ra}, []string{message(`"One.\n\nTwo."`, ca), ta}},
		{[]string{text("One."), said(`[{"type":"refusal","refusal":"No."}]`), a, ra}, []string{message(`[{"type":"text","text":"One."},{"type":"refusal","refusal":"No."}]`, ca), ta}},
		{[]string{said(`[]`), said(`""`), a, ra}, []string{message(`null`, ca), ta}},
		{[]string{text("Look."), `{"type":"web_search_call","id":"ws"}`, a, ra}, []string{message(`"Look."`, ca), ta}},
		// A call without a result is left out, what was said beside it is not.
		{[]string{text("Look."), a, b, rb}, []string{message(`"Look."`, cb), tb}},
		{[]string{text("Look."), a, user}, []string{`{"role":"assistant","content":"Look."}`, user}},
		{[]string{user, image, user, image, image, text("Two cats.")}, []string{user, `{"role":"assistant","content":"(an image)"}`, user, `{"role":"assistant","content":"Two cats."}`}},
		// Messages without calls stay apart.
		{[]string{text("One."), text("Two."), user}, []string{`{"role":"assistant","content":"One."}`, `{"role":"assistant","content":"Two."}`, user}},
		// So does what the client has sent itself.
		{[]string{text("One."), message(`null`, ca), ta}, []string{`{"role":"assistant","content":"One."}`, message(`null`, ca), ta}},
	} {
		var items []Item
		for _, raw := range c.items {
			d := Responses
			if strings.Contains(raw, `"tool_call`) {
				d = Chat
			}
			items = append(items, wiretest.Parse(t, d, raw))
		}
		var got []string
		for _, it := range ConvertAll(items, Chat) {
			got = append(got, string(it.Raw))
		}
		if d := diff(c.want, got); d != "" {
			t.Errorf("%s:\n%s", strings.Join(c.items, " "), d)
		}
	}
}
