package wire_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	. "remora/wire"
	"remora/wire/wiretest"
)

// strict is a strict reader's verdict on data. It judges strings without the scanner.
func strict(data []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadValue(); err != nil {
		return false
	}
	return len(bytes.TrimRight(data[d.InputOffset():], " \t\r\n")) == 0
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	deep := func(n int) string {
		return `{"messages":[],"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	f := func(d Dialect, body, reason string, offset int) {
		t.Helper()
		_, err := Parse(d, []byte(body))
		var pe *ParseError
		if reason == "" {
			if err != nil {
				t.Errorf("parse %.60q: %v", body, err)
			}
			return
		}
		if !errors.As(err, &pe) || !strings.Contains(pe.Reason, reason) || pe.Offset != offset {
			t.Errorf("parse %.60q: got %v, want %q at %d", body, err, reason, offset)
		}
	}
	f(Chat, `{"messages":[]}`, "", 0)
	f(Chat, " \r\n\t{ \"messages\" : [ ] } \n", "", 0)
	f(Responses, `{}`, "", 0)
	f(Responses, `{"input":null}`, "", 0)
	f(Responses, `{"input":"x"}`, "", 0)
	f(Responses, `{"messages":1,"messages":2}`, "", 0)
	f(Chat, deep(MaxDepth-1), "", 0)

	f(Chat, ``, "truncated", 0)
	f(Chat, `[]`, "not an object", 0)
	f(Chat, "\ufeff{\"messages\":[]}", "not an object", 0)
	f(Chat, `{"messages":[]}x`, "data behind", 15)
	f(Chat, `{"messages":[]}{}`, "data behind", 15)
	f(Chat, `{"messages":[]`, "truncated", 14)
	f(Chat, `{"messages":["a`, "truncated", 15)
	f(Chat, `{"messages":["a\"]}`, "truncated", 19)
	f(Chat, `{"messages":[tr`, "truncated", 15)
	f(Chat, `{}`, "no messages", 0)
	f(Chat, `{"messages":{}}`, "no list", 12)
	f(Chat, `{"messages":null}`, "no list", 12)
	f(Chat, `{"messages":"x"}`, "no list", 12)
	f(Responses, `{"input":{}}`, "no list", 9)
	f(Chat, `{"messages":[],"messages":[]}`, "more than one", 16)
	f(Chat, `{"messages":[],"mess\u0061ges":[]}`, "more than one", 16)
	f(Responses, `{"inp\u0075t":[],"input":"x"}`, "more than one", 18)
	f(Chat, deep(MaxDepth), "too deep", 18+MaxDepth)
	f(Chat, `{"messages":`+strings.Repeat("[", 1<<20), "too deep", 11+MaxDepth)
	f(Chat, `{"messages":[`+strings.Repeat("0,", MaxElements)+`0]}`, "too many items", 13+2*MaxElements)
	f(Responses, `{`+strings.Repeat(`"a":0,`, MaxMembers)+`"a":0}`, "too many members", 5+6*MaxMembers)
	for _, bad := range []string{`[{]}]`, `[}`, `[1,]`, `[,1]`, `[1 2]`, `[{"a" 1}]`, `[{"a":1,}]`, `[{1:2}]`, `[01]`, `[+1]`, `[1.]`, `[1e]`, `[-]`, `[nul]`, `[truex]`, `['a']`, `[{"a":}]`} {
		if _, err := Parse(Chat, []byte(`{"messages":`+bad+`}`)); err == nil {
			t.Errorf("parse accepts %s", bad)
		}
	}
}

func TestParseErrorNeverQuotes(t *testing.T) {
	t.Parallel()
	_, err := Parse(Chat, []byte(`{"messages":[{"content":"secret"} secret]}`))
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Fatalf("got %v", err)
	}
}

func TestMember(t *testing.T) {
	t.Parallel()
	r := wiretest.Request(t, Responses, `{"model":"a\u0062", "n": -1.0 , "input":"x","metadata":{"session_id":"s","n":{"a":1}},"dup":1,"dup":2,"esc\u0061ped":"y","instructions":null,"empty":{}}`)
	f := func(path, raw, decoded string) {
		t.Helper()
		if got := string(r.Member(path)); got != raw {
			t.Errorf("member %s: got %q, want %q", path, got, raw)
		}
		if got := r.Text(path); got != decoded {
			t.Errorf("text %s: got %q, want %q", path, got, decoded)
		}
	}
	f("model", `"a\u0062"`, "ab")
	f("n", "-1.0", "-1.0")
	f("metadata.session_id", `"s"`, "s")
	f("metadata.n", `{"a":1}`, "")
	f("dup", "2", "2")
	f("escaped", `"y"`, "y")
	f("absent", "", "")
	f("model.x", "", "")
	f("empty.x", "", "")
	if r.Member("absent") != nil || r.Instructions() != nil {
		t.Error("absent and null members are not nil")
	}
}

func TestItemsOfString(t *testing.T) {
	t.Parallel()
	r := wiretest.Request(t, Responses, `{"input":"a\"b"}`)
	items := r.Items()
	if len(items) != 1 || string(items[0].Raw) != `{"role":"user","content":"a\"b"}` || items[0].Text() != `a"b` {
		t.Fatalf("got %+v", items)
	}
	if &r.Items()[0] != &items[0] {
		t.Error("items are decoded again")
	}
}

// drawValue draws JSON with the spellings that real bodies have and some that only tests have.
func drawValue(t *rapid.T, depth int) string {
	ws := rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n"})
	str := rapid.SampledFrom([]string{`""`, `"a"`, `"\\"`, `"\\\""`, `"{[\",:]}"`, `"\ud83d\ude00"`, `"\ud800"`, `"é"`, `"messages"`, `"inp\u0075t"`, "\"\xff\"", `"role"`})
	n := 5
	if depth == 0 {
		n = 3
	}
	switch rapid.IntRange(0, n).Draw(t, "shape") {
	case 0:
		return str.Draw(t, "string")
	case 1:
		return rapid.SampledFrom([]string{"0", "-0", "1.0", "1e400", "12345678901234567890", "-1.5E+3"}).Draw(t, "number")
	case 2:
		return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "literal")
	case 3, 4:
		var b strings.Builder
		b.WriteString("{" + ws.Draw(t, "space"))
		for i := range rapid.IntRange(0, 3).Draw(t, "members") {
			if i > 0 {
				b.WriteString("," + ws.Draw(t, "space"))
			}
			b.WriteString(str.Draw(t, "name") + ws.Draw(t, "space") + ":" + ws.Draw(t, "space") + drawValue(t, max(depth-1, 0)) + ws.Draw(t, "space"))
		}
		return b.String() + "}"
	default:
		var b strings.Builder
		b.WriteString("[" + ws.Draw(t, "space"))
		for i := range rapid.IntRange(0, 3).Draw(t, "elements") {
			if i > 0 {
				b.WriteString("," + ws.Draw(t, "space"))
			}
			b.WriteString(drawValue(t, max(depth-1, 0)) + ws.Draw(t, "space"))
		}
		return b.String() + "]"
	}
}

// TestScannerAgreesWithJSONText: the scanner accepts the same inputs as a strict reader, except for the insides of
// strings; here with single bytes broken too.
func TestScannerAgreesWithJSONText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := []byte(drawValue(t, 4))
		if !Valid(v) || !strict(v) {
			t.Fatalf("%q: scanner %v, jsontext %v", v, Valid(v), strict(v))
		}
		if len(v) == 0 {
			return
		}
		i := rapid.IntRange(0, len(v)-1).Draw(t, "at")
		v[i] = rapid.SampledFrom([]byte(`{}[],:"01 en.-`)).Draw(t, "byte")
		if strict(v) && !Valid(v) {
			t.Fatalf("%q: scanner refuses what jsontext accepts", v)
		}
		if Valid(v) && !strict(v) && !bytes.ContainsAny(v, `\`) {
			t.Fatalf("%q: scanner accepts what jsontext refuses", v)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"role":"user","content":"hi"}]}`,
		`{"input":[{"type":"function_call","call_id":"a","name":"f","arguments":"{\"a\":1}"} , {"type":"function_call_output","call_id":"a","output":"x"}],"n":1e400}`,
		`{"input":"x","model":"m"}`, `{}`, `{"input":null}`, `{"messages":[ ]}`, `{"mess\u0061ges":[1,"a",null]}`,
		`{"messages":[ {"content":[{"text":"","x":"y"},{"text":"longest \"one\""}],"role":"user"},{"x":{"y":"longest of these"},"role":"assistant",` +
			`"tool_calls":[{"id":"i","function":{"arguments":"{\"a\":\"of all\"}","name":"f"}}],"content":"" } , {"role":"tool","longest_is_a_name":1}]}`,
		"{\"messages\":[\"\xff\",{\"a\":\"\\ud800\"}]}\r\n", `{"messages":[{]}`, "{\"a\":\"\x01\",\"input\":[]}",
		`{"messages":[{"role":"user","content":"x","tool_calls":[1]}],"input":[{"type":"reasoning","role":"user"},{"type":"web_search_call","role":"system"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range []Dialect{Chat, Responses} {
			r, err := Parse(d, body)
			if err != nil {
				continue
			}
			items := r.Items()
			out, err := r.With(append([]Item(nil), items...))
			if err != nil || len(out) != len(body) || &out[0] != &body[0] {
				t.Fatalf("identity: %q, %v", out, err)
			}
			for _, it := range items {
				// What Parse has noted of the strings makes no difference.
				if alone, err := ParseItem(d, it.Raw); err != nil || !reflect.DeepEqual(alone, it) {
					t.Fatalf("%q alone is %+v, %v, and in its body %+v", it.Raw, alone, err, it)
				}
				if says := it.Role == System || it.Role == Developer || it.Role == User; says && it.Kind != Message {
					t.Fatalf("%q is no message, and has role %v", it.Raw, it.Role)
				}
				it.ContentHash()
				_ = it.Text()
				if rest, ok := it.Keep(func(i int) bool { return i%2 == 0 }); ok && strict(it.Raw) && !strict(rest.Raw) {
					t.Fatalf("without parts: %q becomes %q", it.Raw, rest.Raw)
				}
			}
			added := Item{Kind: Message, Role: User, Dialect: d, Parts: OnePart(Message), Raw: []byte(`{"role":"user","content":"added"}`)}
			out, err = r.With(append(append([]Item(nil), items...), added))
			if err != nil {
				t.Fatal(err)
			}
			if strict(body) != strict(out) {
				t.Fatalf("strictness: %q becomes %q", body, out)
			}
			again, err := Parse(d, out)
			if err != nil || len(again.Items()) != len(items)+1 {
				t.Fatalf("parse again %q: %v", out, err)
			}
			names := r.Tools()
			out, err = r.With(items, FunctionTool(d, "added", "", nil))
			if err != nil {
				continue // the tools are no list
			}
			again, err = Parse(d, out)
			if err != nil || len(again.Items()) != len(items) || strict(body) != strict(out) {
				t.Fatalf("with a tool %q: %v", out, err)
			}
			if got := again.Tools(); len(got) != len(names)+1 && len(got) < MaxMembers && r.Member("functions") == nil {
				t.Fatalf("tools of %q: %q", out, got)
			}
		}
	})
}

// TestWithTools: definitions go after the client's own, and no other byte changes.
func TestWithTools(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, body, want string, tools ...string) {
		t.Helper()
		r := wiretest.Request(t, d, body)
		var raw [][]byte
		for _, tool := range tools {
			raw = append(raw, []byte(tool))
		}
		got, err := r.With(r.Items(), raw...)
		if err != nil {
			got = []byte(err.Error())
		}
		if d := diff(want, string(got)); d != "" {
			t.Errorf("%s:\n%s", body, d)
		}
		if err != nil || len(tools) == 0 {
			return
		}
		// With another list too, on either side of the tools.
		item := Item{Kind: Message, Dialect: d, Raw: []byte(`{"role":"user","content":"new"}`)}
		items := append(append([]Item(nil), r.Items()...), item)
		both, err := r.With(items, raw...)
		if err != nil {
			t.Fatal(err)
		}
		first, err := r.With(items)
		if err != nil {
			t.Fatal(err)
		}
		again := wiretest.Request(t, d, string(first))
		second, err := again.With(again.Items(), raw...)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(string(second), string(both)); d != "" {
			t.Errorf("%s, items and tools at once:\n%s", body, d)
		}
	}
	f(Chat, ` {"messages" : [ ] , "n":1 }`, ` {"messages" : [ ] , "n":1 }`)
	f(Chat, ` {"messages" : [ ] , "n":1 }`, ` {"messages" : [ ],"tools":[{},{"a":1}] , "n":1 }`, `{}`, `{"a":1}`)
	f(Chat, `{"tools": [ {"type":"x"} ] ,"messages":[]}`, `{"tools": [ {"type":"x"},{} ] ,"messages":[]}`, `{}`)
	f(Chat, `{"messages":[],"tools": [ ]}`, `{"messages":[],"tools": [{} ]}`, `{}`)
	f(Chat, `{"tools":null,"messages":[{}]}`, `{"tools":[{}],"messages":[{}]}`, `{}`)
	f(Chat, `{"to\u006fls":[1],"tools":[2],"messages":[]}`, `{"to\u006fls":[1],"tools":[2,{}],"messages":[]}`, `{}`)
	f(Chat, `{"tools":{},"messages":[]}`, `encode tools: the tools of the request are no list`, `{}`)
	f(Responses, `{ }`, `{"tools":[{}] }`, `{}`)
	f(Responses, `{"model":"m" }`, `{"model":"m","tools":[{}] }`, `{}`)
	f(Responses, `{"tools":null,"input":"x"}`, `{"tools":[{}],"input":"x"}`, `{}`)
	f(Responses, `{"model":"m","tools":[]}`, `{"model":"m","tools":[{}]}`, `{}`)
}

func TestTools(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, tools string, want ...string) {
		t.Helper()
		r := wiretest.Request(t, d, `{"messages":[],"input":[],`+tools+`}`)
		if d := diff(want, r.Tools()); d != "" || r.OffersTools() != (len(want) > 0) {
			t.Errorf("%s: offers some: %v\n%s", tools, r.OffersTools(), d)
		}
	}
	f(Chat, `"tools":[{"type":"function","function":{"name":"a\u0062"}},{"type":"custom","custom":{"name":"c"}},{"type":"x"},{},1],"functions":[{"name":"old"}]`, "ab", "c", "x", "old")
	f(Responses, `"tools":[{"type":"function","name":"a"},{"type":"custom","name":"b"},{"type":"web_search"},{"type":"namespace","name":"n","tools":[{"name":"inner"}]}]`, "a", "b", "web_search", "n")
	f(Chat, `"tools":null`)
	f(Chat, `"tools":{"a":{"name":"x"}}`)

	for _, d := range []Dialect{Chat, Responses} {
		tool := FunctionTool(d, `a"b`, "says\n\"x\"", []byte(`{"type":"object"}`))
		f(d, `"tools":[`+string(tool)+`]`, `a"b`)
		if !strict(tool) {
			t.Errorf("no JSON: %s", tool)
		}
	}
	if got, want := string(FunctionTool(Chat, "f", "d", nil)), `{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(FunctionTool(Responses, "f", "d", []byte(`{}`))), `{"type":"function","name":"f","description":"d","parameters":{},"strict":false}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestNames is about bodies in which a name stands, or seems to.
func TestNames(t *testing.T) {
	t.Parallel()
	n := NewNames("session_id", "id", "größe")
	for body, want := range map[string]bool{
		``:                               false,
		`:`:                              false,
		`":`:                             false,
		`{"session_id":"s"}`:             true,
		"{\"session_id\" \t\r\n : null}": true,
		`{"messages":[{"content":[{"deep":{"id":1}}]}]}`:                     true,
		`{"\u0073ession_i\u0064":1}`:                                         true,
		`{"\u0073\u0065\u0073\u0073\u0069\u006f\u006e\u005f\u0069\u0064":1}`: true,
		`{"gr\u00f6\u00DFe":1}`:                                              true,
		`{"größe":1}`:                                                        true,
		`{"my_session_id":1,"idle":2,"i":3}`:                                 false,
		`{"a":"id","b":["session_id"],"c":"x id: y"}`:                        false,
		`{"arguments":"{\"id\": \"x\", \"session_id\":1}"}`:                  false,
		`{"id\\":1,"\\id":2}`:                                                false,
		`{"` + strings.Repeat("x", 500) + `":1,":id":2}`:                     false,
		`["id",":x"]`: false,
	} {
		if got := n.In([]byte(body)); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
	if !NewNames(`a\`).In([]byte(`{}`)) || !NewNames("a", `"`).In(nil) || NewNames().In([]byte(`{"a":1}`)) {
		t.Error("names that are not looked for are in every body, and no names in none")
	}
}

// TestGlance is about what can be had without reading lists and objects.
func TestGlance(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("x", MaxGlance) + `"`
	for body, want := range map[string]string{
		`{"model":"m","messages":[]}`:                        `"m"`,
		` { "a":1, "mod\u0065l" : "m" } `:                    `"m"`,
		`{"messages":[{"model":"x"}],"model":"m"}`:           `"m"`,
		`{"messages":[1],"model": "a\\\"b\\" , "n":-1.5E+3}`: `"a\\\"b\\"`,
		`{"input":"},\"model\":\"x\"","t":{},"model":"m"}`:   `"m"`,
		`{"m":[],"model":12}`:                                `12`,
		`{"m":[],"model":true,"t":` + long + `}`:             ``,
		`{"a":[],"model":"m","b":{}}`:                        ``,
		`{"a":[],"text":"\",\"model\":\"x\"}"}`:              ``,
		`{"a":["x","model":"m"]}`:                            ``,
		`{"model":{},"a":1}`:                                 ``,
		`{"a":1}`:                                            ``,
		`["model","m"]`:                                      ``,
		`{"model":`:                                          ``,
		`{"model":[`:                                         ``,
		``:                                                   ``,
	} {
		if got := Glance([]byte(body), "model"); string(got) != want {
			t.Errorf("%.80s: %.40q, want %q", body, got, want)
		}
	}
}

// FuzzNames compares both with Parse: no name of an accepted body is missed, and a glanced value is one of its values.
func FuzzNames(f *testing.F) {
	for _, body := range []string{
		`{"a":1,"messages":[{"b":"\":"}],"\u0063" : null}`, `{"\\":1,"x\\\"":{"y":[{"z":1}]},"e":-0.1}`, `{"input":"a:b","":":"}`,
		` {"a":"` + strings.Repeat(`\\`, 40) + `","b":[],"c":"` + strings.Repeat(`\"`, 700) + `","d":1} `, `{"a":[],"b":"\\"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_ = Glance(body, "model")
		r, err := Parse(Responses, body)
		if err != nil {
			return
		}
		var visit func(raw []byte, depth int)
		visit = func(raw []byte, depth int) {
			for p := range Children(raw) {
				if p.Name != nil && !NewNames(string(p.Name), "other").In(body) {
					t.Fatalf("%q is missed", p.Name)
				}
				if depth < 4 {
					visit(p.Value, depth+1)
				}
			}
		}
		visit(body, 0)
		for _, m := range r.Members() {
			name := string(m.Name)
			v := Glance(body, name)
			found := v == nil
			for _, other := range r.Members() {
				found = found || string(other.Name) == name && bytes.Equal(v, other.Value)
			}
			if !found {
				t.Fatalf("%q is glanced at as %q", name, v)
			}
		}
	})
}
