package wire_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	. "remora/wire"
	"remora/wire/wiretest"
)

// TestContentHashMeaning has groups of elements: within a group the meaning is the same, between groups it differs.
func TestContentHashMeaning(t *testing.T) {
	t.Parallel()
	type group struct {
		dialect   Dialect
		spellings []string
	}
	groups := []group{
		{Chat, []string{
			`{"role":"user","content":"hé\n"}`,
			`{ "content" : "h\u00e9\u000a" , "role":"\u0075ser" }`,
			`{"role":"user","content":[{"type":"text","text":"h"},{"type":"text","text":"é\n","cache_control":{"type":"ephemeral"}}]}`,
			`{"role":"user","content":["hé\n"],"id":"x","status":"y","name":"","annotations":[]}`,
			`{"role":"user","name":null,"content":[{"type":"text","text":"hé\n"},{"type":"text","text":""}]}`,
		}},
		{Chat, []string{`{"role":"user","content":"h"}`}},
		{Chat, []string{`{"role":"user","name":"bob","content":"h"}`}},
		{Chat, []string{`{"role":"system","content":"h"}`, `{"role":"developer","content":"h"}`}},
		{Chat, []string{`{"role":"critic","content":"h"}`}},
		{Chat, []string{`{"role":"user","content":""}`, `{"role":"user","content":[]}`, `{"role":"user","content":null}`, `{"role":"user"}`}},
		{Chat, []string{
			`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,1","detail":"low"}},{"type":"text","text":"b"}]}`,
			`{"role":"user","content":[{"type":"text","text":"a"},{"cache_control":null,"image_url":{"detail":"low","url":"data:\u002c1"},"type":"image_url"},{"type":"text","text":""},{"type":"text","text":"b"}]}`,
		}},
		{Chat, []string{`{"role":"user","content":[{"type":"text","text":"ab"},{"type":"image_url","image_url":{"url":"data:,1","detail":"low"}}]}`}},
		{Chat, []string{`{"role":"user","content":[{"type":"text","text":"ab"},{"type":"image_url","image_url":{"url":"data:,2","detail":"low"}}]}`}},
		{Chat, []string{
			`{"role":"assistant","content":"x","refusal":null,"annotations":[]}`,
			`{"role":"assistant","content":"x","reasoning_content":"r","reasoning":"r","reasoning_details":[1],"name":"bot"}`,
			`{"role":"assistant","content":[{"type":"text","text":"x"}],"tool_calls":null,"function_call":null,"audio":null}`,
			`{"role":"assistant","content":"x","tool_calls":[],"index":0}`,
		}},
		{Chat, []string{`{"role":"assistant","content":null,"refusal":"x"}`, `{"role":"assistant","content":[{"type":"refusal","refusal":"x"}]}`}},
		{Chat, []string{`{"role":"assistant","audio":{"id":"a","data":"AAAA","transcript":"x","expires_at":1}}`, `{"role":"assistant","content":"","audio":{"id":"a"}}`}},
		{Chat, []string{
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"b\":1.0,\"a\":[{\"y\":\"é\",\"x\":null}]}"}}]}`,
			`{"role":"assistant","content":"","tool_calls":[{"index":0,"function":{"arguments":"{ \"a\" : [ {\"x\":null,\"y\":\"\\u00e9\"} ] , \"b\":1.0 }","name":"f"},"id":"c","extra_content":{"s":1}}]}`,
			`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{"a":[{"x":null,"y":"é"}],"b":1.0}}}]}`,
			`{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"b\":2,\"a\":[{\"y\":\"é\",\"x\":null}],\"b\":1.0}"}}]}`,
		}},
		{Chat, []string{`{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"b\":1,\"a\":[{\"y\":\"é\",\"x\":null}]}"}}]}`}},
		{Chat, []string{`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{}"}}]}`, `{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f","arguments":""}}]}`, `{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f"}}]}`}},
		{Chat, []string{`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{\"index\":1,\"id\":2}"}}]}`}},
		{Chat, []string{`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{\"index\":2,\"id\":2}"}}]}`}},
		{Chat, []string{`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{\"index\":2,\"id\":2,\"a\":null}"}}]}`}},
		{Chat, []string{`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{\"a\":"}}]}`}},
		{Chat, []string{`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{\"a\": "}}]}`}},
		{Chat, []string{`{"role":"assistant","tool_calls":[{"id":"d","type":"custom","custom":{"name":"f","input":"{}"}}]}`}},
		{Chat, []string{`{"role":"assistant","content":"x","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{}"}}]}`}},
		{Chat, []string{`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{}"}},{"id":"e","function":{"name":"f","arguments":"{}"}}]}`}},
		{Chat, []string{`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{ }"}}`, `{"role":"assistant","function_call":{"arguments":"{}","name":"f"}}`}},
		{Chat, []string{`{"role":"tool","tool_call_id":"c","content":"x"}`, `{"role":"tool","tool_call_id":"c","name":"f","content":[{"type":"text","text":"x"}]}`}},
		{Chat, []string{`{"role":"tool","tool_call_id":"d","content":"x"}`}},
		{Chat, []string{`{"role":"function","name":"f","content":"x"}`}},
		{Chat, []string{`{"role":"function","name":"g","content":"x"}`}},
		{Chat, []string{`"x"`, `"\u0078"`}},
		{Responses, []string{
			`{"role":"assistant","content":"only here"}`,
			`{"type":"message","role":"assistant","content":"only here"}`,
			`{"type":"message","id":"msg_1","status":"completed","phase":"final","role":"assistant","content":[{"type":"output_text","text":"only ","annotations":[],"logprobs":[]},{"type":"input_text","text":"here"}]}`,
		}},
		{Responses, []string{`{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{\"a\":1,\"b\":2}","status":"completed"}`, `{"type":"function_call","call_id":"c","name":"f","arguments":"{\"b\":2, \"a\":1}"}`}},
		{Responses, []string{`{"type":"custom_tool_call","call_id":"c","name":"f","input":"{\"a\":1,\"b\":2}"}`}},
		{Responses, []string{`{"type":"custom_tool_call","call_id":"c","name":"f","input":"{\"b\":2, \"a\":1}"}`}},
		{Responses, []string{`{"type":"custom_tool_call_output","call_id":"cc","output":"x"}`, `{"type":"custom_tool_call_output","id":"1","call_id":"cc","output":[{"type":"input_text","text":"x"}]}`, `{"type":"function_call_output","call_id":"cc","output":"x"}`}},
		{Responses, []string{`{"type":"local_shell_call","id":"l1","call_id":"c","action":{"type":"exec","command":["ls"]},"status":"completed"}`, `{"type":"local_shell_call","call_id":"c","action":{"command":["ls"],"type":"exec"}}`}},
		{Responses, []string{`{"type":"local_shell_call_output","id":"c","output":"x"}`}},
		{Responses, []string{`{"type":"local_shell_call_output","id":"d","output":"x"}`}},
		{Responses, []string{`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"e"}`, `{"type":"reasoning","summary":[],"encrypted_content":"e"}`}},
		{Responses, []string{`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"t"}]}`, `{"type":"reasoning","summary":[{"text":"t","type":"summary_text"}]}`}},
		{Responses, []string{`{"type":"reasoning","id":"rs_1","summary":[]}`, `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null}`}},
		{Responses, []string{`{"type":"reasoning","id":"rs_2","summary":[]}`}},
		{Responses, []string{`{"type":"item_reference","id":"msg_1"}`, `{"id":"msg_1"}`}},
		{Responses, []string{`{"type":"item_reference","id":"msg_2"}`}},
		{Responses, []string{`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"query":"q","type":"search"}}`, `{"action":{"type":"search","query":"q"},"type":"web_search_call","results":null}`}},
		{Responses, []string{`{"type":"web_search_call","action":{"query":"q","type":"search","status":"x"}}`}},
		{Responses, []string{`{"type":"compaction","encrypted_content":"e"}`, `{"type":"compaction","id":"cmp_1","encrypted_content":"e"}`}},
	}
	seen := make(map[Hash]string)
	for _, g := range groups {
		want := wiretest.Parse(t, g.dialect, g.spellings[0]).ContentHash()
		if other, ok := seen[want]; ok {
			t.Errorf("equal hash:\n%s\n%s", other, g.spellings[0])
		}
		seen[want] = g.spellings[0]
		for _, s := range g.spellings[1:] {
			it := wiretest.Parse(t, g.dialect, s)
			if it.ContentHash() != want {
				a, b := Hashing()(wiretest.Parse(t, g.dialect, g.spellings[0])), Hashing()(it)
				t.Errorf("unequal hash:\n%s\n%s\n%q\n%q", g.spellings[0], s, a, b)
			}
		}
	}
}

// TestMeaningInBothDialects: a conversation is at the same position after each message of it, however a dialect makes items of
// what the model says and calls.
func TestMeaningInBothDialects(t *testing.T) {
	t.Parallel()
	end := func(d Dialect, raws ...string) Hash {
		var at Hash
		for _, raw := range raws {
			m := wiretest.Parse(t, d, raw).Meaning()
			if m.Content != wiretest.Parse(t, d, raw).ContentHash() {
				t.Errorf("%s: its content is not its content hash", raw)
			}
			at = m.After(at)
		}
		return at
	}
	f := func(name string, chat, responses []string) {
		t.Helper()
		if end(Chat, chat...) != end(Responses, responses...) {
			t.Errorf("%s: the positions differ", name)
		}
	}
	f("an image, a file, and words around them", []string{
		`{"role":"user","content":[{"type":"text","text":"see "},{"type":"text","text":"this"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"text","text":"!"},{"type":"file","file":{"filename":"a.pdf","file_data":"data:,x"}}]}`,
	}, []string{
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"see this"},{"type":"input_image","detail":"auto","image_url":"data:image\/png;base64,AAAA"},{"type":"input_text","text":"!"},{"type":"input_file","file_data":"data:,x","filename":"a.pdf"}]}`,
	})
	f("words and calls", []string{
		`{"role":"assistant","content":"I look.","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","type":"custom","custom":{"name":"g","input":"y"}}]}`,
		`{"role":"tool","tool_call_id":"a","content":"1"}`, `{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"2"}]}`,
	}, []string{
		`{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"I look.","annotations":[]}]}`,
		`{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{\"x\":1}"}`, `{"type":"custom_tool_call","call_id":"b","name":"g","input":"y"}`,
		`{"type":"function_call_output","call_id":"a","output":"1"}`, `{"type":"custom_tool_call_output","call_id":"b","output":"2"}`,
	})
	f("a call alone", []string{
		`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":""}}]}`,
	}, []string{`{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`})
	f("a refusal", []string{`{"role":"assistant","content":null,"refusal":"No."}`},
		[]string{`{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`})
	f("instructions", []string{`{"role":"system","content":"Be brief."}`}, []string{`{"role":"developer","content":[{"type":"input_text","text":"Be brief."}]}`})

	apart := [][]string{
		{`{"role":"assistant","content":"ab"}`},
		{`{"role":"assistant","content":"a"}`, `{"role":"assistant","content":"b"}`},
		{`{"role":"user","content":"ab"}`},
		{`{"role":"user","content":[{"type":"image_url","image_url":{"url":"x","detail":"low"}}]}`},
		{`{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}`},
		{`{"role":"user","content":[{"type":"file","file":{"file_id":"x"}}]}`},
	}
	for i := range apart {
		for j := range i {
			if end(Chat, apart[i]...) == end(Chat, apart[j]...) {
				t.Errorf("%s and %s are at one position", apart[i], apart[j])
			}
		}
	}
}

// TestContentHashGolden notices any change to the hashed bytes. Hashes are stored: if this fails, hashVersion and a
// migration are needed, not new values here.
func TestContentHashGolden(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, raw, want string) {
		t.Helper()
		h := wiretest.Parse(t, d, raw).ContentHash()
		if got := hex.EncodeToString(h[:]); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
	f(Chat, `{"role":"user","content":"hello"}`, "07c8ab07e7df1ae5664992113dea4f2d")
	f(Responses, `{"role":"user","content":"hello"}`, "07c8ab07e7df1ae5664992113dea4f2d")
	f(Chat, `{"role":"user","content":[{"type":"text","text":"a\ud83d\ude00"},{"type":"image_url","image_url":{"url":"data:,1"}}]}`, "6aa23febbd3098af9d6078fc891d5b14")
	f(Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"b\":\"\\n\",\"a\":1.0}"}}]}`, "aa8d3fca0803fb87393b4690cdb03253")
	f(Chat, `{"role":"tool","tool_call_id":"c","content":"ok"}`, "1649ab19ff4e811f08c94dd971bd46e6")
	f(Responses, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`, "cce1fb994977c3a663433aae1be8ac70")
	f(Responses, `{"type":"custom_tool_call_output","call_id":"c","output":"ok"}`, "1649ab19ff4e811f08c94dd971bd46e6")
	f(Responses, `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"}`, "a5f46094c0468cf8ee1ca8ef1530958a")
	f(Responses, `{"type":"item_reference","id":"msg_1"}`, "52a6ea66551036b0493b243ec6a573f0")
	f(Responses, `{"type":"future_thing","z":[1,{"b":2,"a":3}]}`, "2ce4f8b46f6c4475a13e5cc437813b28")
	c := Chain(Hash{1}, Hash{2})
	if got := hex.EncodeToString(c[:]); got != "dcd96fbcf76fb49f5af50b7bc71fe50f" {
		t.Errorf("chain: got %s", got)
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	f := func(raw, want string) {
		t.Helper()
		got, ok := Canonical(true, nil, []byte(raw))
		if !ok || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", raw, got, ok, want)
		}
	}
	f(` "a" `, `"a"`)
	f(`-1.0E+2`, `-1.0E+2`)
	f(`[1e5,1E-7]`, `[1e5,1E-7]`)
	f(`{}`, `{}`)
	f(`[ { } , [ ] , {"b":{"d":1,"c":[{"f":1,"e":2},3]},"a":4} , {"z":0} ]`, `[{},[],{"a":4,"b":{"c":[{"e":2,"f":1},3],"d":1}},{"z":0}]`)
	f(`{"a":1,"\u0061":2,"b":{"x":1},"a":{"y":[{}]}}`, `{"a":{"y":[{}]},"b":{"x":1}}`)
	f(`{"\"\\\/\b\f\n\r\t\u0001\u00e9\ud83d\ude00\ud800x":"\u0022"}`, `{"\"\\/\b\f\n\r\t\u0001é😀`+"\ufffd"+`x":"\""}`)
	deep := strings.Repeat(`{"b":0,"a":`, 500) + "1" + strings.Repeat("}", 500)
	f(deep, strings.Repeat(`{"a":`, 500)+"1"+strings.Repeat(`,"b":0}`, 500))
	for _, bad := range []string{``, `{`, `{"a":1}x`, `[1,]`, `"`} {
		if got, ok := Canonical(false, []byte("kept"), []byte(bad)); ok || string(got) != "kept" {
			t.Errorf("%q: got %q, %v", bad, got, ok)
		}
	}
	if _, ok := Canonical(false, nil, []byte("["+strings.Repeat("{},", MaxCanonicalMembers+1)+"{}]")); ok {
		t.Error("the index is not bounded")
	}
}

// respell writes JSON in another spelling of the same meaning, and so the JSON in strings that are members named as
// jsonIn says. It is false for what a strict reader refuses.
func respell(r *rand.Rand, data []byte, jsonIn string) ([]byte, bool) {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	var b bytes.Buffer
	if !respellValue(r, d, &b, respelling{jsonIn: jsonIn}) {
		return nil, false
	}
	if len(bytes.TrimSpace(data[d.InputOffset():])) > 0 {
		return nil, false
	}
	return b.Bytes(), true
}

type respelling struct{ name, jsonIn string }

func respellValue(r *rand.Rand, d *jsontext.Decoder, b *bytes.Buffer, at respelling) bool {
	space := func() { b.WriteString([]string{"", "", " ", "\n\t"}[r.IntN(4)]) }
	tok, err := d.ReadToken()
	if err != nil {
		return false
	}
	space()
	defer space()
	switch tok.Kind() {
	case '"':
		s := tok.String()
		if inner, ok := respell(r, []byte(s), ""); ok && at.name == "arguments" && at.jsonIn != "" {
			s = string(inner)
		}
		respellString(r, b, s)
	case '[':
		b.WriteByte('[')
		for i := 0; d.PeekKind() != ']'; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			if !respellValue(r, d, b, respelling{jsonIn: at.jsonIn}) {
				return false
			}
		}
		_, err = d.ReadToken()
		b.WriteByte(']')
	case '{':
		var members []string
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return false
			}
			n := name.String()
			var m bytes.Buffer
			m.WriteByte(' ')
			respellString(r, &m, n)
			m.WriteString(" :")
			if !respellValue(r, d, &m, respelling{n, at.jsonIn}) {
				return false
			}
			members = append(members, m.String())
		}
		_, err = d.ReadToken()
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		b.WriteString("{" + strings.Join(members, ",") + "}")
	default:
		b.WriteString(tok.String())
	}
	return err == nil
}

func respellString(r *rand.Rand, b *bytes.Buffer, s string) {
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '/' && r.IntN(2) == 0:
			b.WriteString(`\/`)
		case c >= ' ' && c != '"' && c != '\\' && r.IntN(4) > 0:
			b.WriteRune(c)
		case c > 0xffff:
			hi, lo := utf16.EncodeRune(c)
			fmt.Fprintf(b, `\u%04x\u%04X`, hi, lo)
		case c == '\n' && r.IntN(2) == 0:
			b.WriteString(`\n`)
		default:
			fmt.Fprintf(b, `\u%04x`, c)
		}
	}
	b.WriteByte('"')
}

// equalRespelled compares an element's hash with the hash of another spelling.
func equalRespelled(raw []byte, jsonIn string, seed uint64) error {
	again, ok := respell(rand.New(rand.NewPCG(seed, 1)), raw, jsonIn)
	if !ok {
		return nil
	}
	for _, d := range []Dialect{Chat, Responses} {
		x, err := ParseItem(d, raw)
		if err != nil {
			return err
		}
		y, err := ParseItem(d, again)
		if err != nil {
			return fmt.Errorf("%q respelled %q: %w", raw, again, err)
		}
		if x.ContentHash() != y.ContentHash() || x.Text() != y.Text() {
			a, b := Hashing()(x), Hashing()(y)
			return fmt.Errorf("%s %q and %q:\n%q\n%q", d, raw, again, a, b)
		}
	}
	return nil
}

func TestContentHashRespelled(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw, jsonIn := drawValue(t, 3), ""
		if rapid.Bool().Draw(t, "message") {
			jsonIn = "arguments"
			raw = `{"role":"assistant","content":` + drawValue(t, 2) + `,"tool_calls":[{"id":"a","function":{"name":"f","arguments":` + string(AppendString(nil, drawValue(t, 3))) + `}}]}`
		}
		if err := equalRespelled([]byte(raw), jsonIn, rapid.Uint64().Draw(t, "seed")); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzHash(f *testing.F) {
	for i, s := range []string{
		`{"role":"user","content":"hé\n\ud83d\ude00"}`,
		`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,1"}},{"type":"refusal","refusal":"r"}]}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"b\":[1,{\"d\":1,\"c\":2}],\"a\":\"x\"}"}}],"audio":{"id":"x"}}`,
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"b\":1e5,\"a\":{}}"}`,
		`{"type":"shell_call_output","call_id":"c","output":[{"stdout":"x","outcome":{"type":"exit"}}]}`,
		`{"type":"reasoning","id":"r","summary":[{"text":"s"}],"encrypted_content":"e"}`,
		`{"type":"unknown","z":[[],{},{"b":1,"a":null}]}`, `[1]`, `"x"`,
		`{"content":[{"text":"a","refusal":"b"}]}`,
	} {
		f.Add([]byte(s), uint64(i))
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		if err := equalRespelled(raw, "", seed); err != nil && Valid(raw) {
			t.Fatal(err)
		}
	})
}
