package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"remora/test/scripted"
)

// words converts texts to items of every kind with pairs. u, a, s and d are messages. Every other letter is a kind of call, and
// its capital the result, which for functions is r; digits are ids. In Chat c12 is one message with two calls, and b12 one that
// also has the text a12.
type words struct {
	dialect
	// sealed are reasoning items of upstream, for i.
	sealed []json.RawMessage
}

// modelSays are the words for what a model says. A client that sends none of them sends only new items.
const modelSays = "abcfghilmpqtwx"

// callsOfResponses are the members, besides call_id, of calls and results that are paired by call_id alone.
var callsOfResponses = map[byte]string{
	'c': `"type":"function_call","name":"ls","arguments":"{}"`,
	'r': `"type":"function_call_output","output":"ok"`,
	'x': `"type":"custom_tool_call","name":"ed","input":""`,
	'X': `"type":"custom_tool_call_output","output":"ok"`,
	'h': `"type":"shell_call","action":{"commands":["ls"]}`,
	'H': `"type":"shell_call_output","output":[]`,
	'p': `"type":"apply_patch_call","status":"completed","operation":{"type":"delete_file","path":"x"}`,
	'P': `"type":"apply_patch_call_output","status":"completed"`,
	'm': `"type":"computer_call","action":{"type":"screenshot"},"pending_safety_checks":[]`,
	'M': `"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,AA=="}`,
	't': `"type":"tool_search_call","execution":"client","arguments":{}`,
	'T': `"type":"tool_search_output","execution":"client","tools":[]`,
}

// items returns the items of a text.
func (w words) items(t *testing.T, text string) (items []json.RawMessage) {
	t.Helper()
	roles := map[byte]string{'u': "user", 'a': "assistant", 's': "system", 'd': "developer"}
	add := func(format string, args ...any) { items = append(items, json.RawMessage(fmt.Sprintf(format, args...))) }
	for word := range strings.FieldsSeq(text) {
		kind, ids := word[0], word[1:]
		if roles[kind] != "" {
			add(`{"role":%q,"content":%q}`, roles[kind], word)
			continue
		}
		if w.path != "responses" {
			add("%s", w.message(t, kind, ids))
			continue
		}
		switch kind {
		case 'i':
			items = append(items, w.sealed[ids[0]-'0'])
		case 'l':
			add(`{"type":"local_shell_call","id":"lsh_%s","call_id":"call_%s","status":"completed","action":{"type":"exec","command":["ls"],"env":{}}}`, ids, ids)
		case 'L':
			add(`{"type":"local_shell_call_output","id":"call_%s","output":"ok"}`, ids)
		case 'w':
			add(`{"type":"web_search_call","id":"ws_%s","status":"completed","action":{"type":"search","query":"x"}}`, ids)
		case 'q':
			add(`{"type":"mcp_approval_request","id":"mcpr_%s","name":"f","arguments":"{}","server_label":"s"}`, ids)
		case 'Q':
			add(`{"type":"mcp_approval_response","approval_request_id":"mcpr_%s","approve":true}`, ids)
		case 'g':
			add(`{"type":"program","id":"prog_%s","call_id":"call_%s","code":"f()"}`, ids, ids)
		case 'G':
			add(`{"type":"program_output","id":"pout_%s","call_id":"call_%s","result":"x","status":"completed"}`, ids, ids)
		case 'b', 'c':
			if kind == 'b' {
				add(`{"role":"assistant","content":"a%s"}`, ids)
			}
			for _, id := range ids {
				add(`{%s,"call_id":"call_%c"}`, callsOfResponses['c'], id)
			}
		default:
			add(`{%s,"call_id":"call_%s"}`, callsOfResponses[kind], ids)
		}
	}
	return items
}

// message returns a Chat message with calls, or a result.
func (w words) message(t *testing.T, kind byte, ids string) string {
	t.Helper()
	switch kind {
	case 'b', 'c':
		content := "null"
		if kind == 'b' {
			content = fmt.Sprintf("%q", "a"+ids)
		}
		var calls []string
		for _, id := range ids {
			calls = append(calls, fmt.Sprintf(`{"id":"call_%c","type":"function","function":{"name":"ls","arguments":"{}"}}`, id))
		}
		return fmt.Sprintf(`{"role":"assistant","content":%s,"tool_calls":[%s]}`, content, strings.Join(calls, ","))
	case 'x':
		return fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"call_%s","type":"custom","custom":{"name":"ed","input":""}}]}`, ids)
	case 'r':
		return fmt.Sprintf(`{"role":"tool","tool_call_id":"call_%s","content":"ok"}`, ids)
	case 'f':
		return fmt.Sprintf(`{"role":"assistant","content":null,"function_call":{"name":"f%s","arguments":"{}"}}`, ids)
	case 'F':
		return fmt.Sprintf(`{"role":"function","name":"f%s","content":"ok"}`, ids)
	}
	t.Fatalf("there is no word %c%s in Chat", kind, ids)
	return ""
}

// body returns a request with the items of a text.
func (w words) body(t *testing.T, text string) string {
	t.Helper()
	return w.bodyOf(w.items(t, text))
}

// bodyOf returns a request with items.
func (w words) bodyOf(items []json.RawMessage) string {
	return fmt.Sprintf(`{"model":"m","stream":%v,%q:[%s]}`, w.stream, w.list(), bytes.Join(raws(items), []byte(",")))
}

func raws(items []json.RawMessage) (list [][]byte) {
	for _, it := range items {
		list = append(list, it)
	}
	return list
}

// thoughts returns reasoning items of a gate's upstream, which it can read.
func thoughts(t *testing.T, g *gate, n int) (list []json.RawMessage) {
	t.Helper()
	for i := range n {
		body := fmt.Sprintf(`{"model":"m","store":false,"include":["reasoning.encrypted_content"],"input":"REASON %d ;; SAY Done."}`, i)
		var answer struct{ Output []json.RawMessage }
		decode(t, []byte(g.ask(t, "responses", body, "X-Memory: off").body), &answer)
		list = append(list, answer.Output[0])
	}
	return list
}

// pairsApart are requests with separated pairs: what the client sends, and what upstream gets in Chat and in Responses, empty if
// it accepts what the client sends; "-" is a case that the dialect does not have.
var pairsApart = []struct{ name, sent, chat, responses string }{
	{"in order", "u1 c1 r1 u2", "", ""},
	{"a user message between", "u1 c1 u2 r1", "u1 c1 r1 u2", ""},
	{"a system message between", "u1 c1 s2 r1 u3", "u1 c1 r1 s2 u3", ""},
	{"an assistant message between", "u1 c1 a2 r1 u3", "u1 c1 r1 a2 u3", ""},
	{"far behind", "u1 c1 u2 a2 u3 a3 r1 u4", "u1 c1 r1 u2 a2 u3 a3 u4", ""},
	{"before its call", "u1 r1 c1 u2", "u1 c1 r1 u2", "u1 c1 r1 u2"},
	{"two callers, then two results", "u1 c1 c2 r1 r2 u2", "u1 c1 r1 c2 r2 u2", ""},
	{"two results", "u1 c1 r1 r1 u2", "u1 c1 r1 u2", "u1 c1 r1 u2"},                             //nolint:dupword // items
	{"one id twice", "u1 c1 c1 r1 u2", "u1 c1 r1 u2", "u1 c1 r1 u2"},                            //nolint:dupword // items
	{"one id twice, with two results", "u1 c1 c1 r1 r1 u2", "u1 c1 r1 c1 r1 u2", "u1 c1 r1 u2"}, //nolint:dupword // items
	{"an id that comes back", "u1 c1 r1 u2 c1 r1 u3", "", ""},
	{"a result of a run before", "u1 r1 u2 c1 r1 u3", "u1 u2 c1 r1 u3", "u1 u2 c1 r1 u3"},
	{"a call without a result", "u1 c1 u2", "u1 u2", "u1 u2"},
	{"a result without a call", "u1 r1 u2", "u1 u2", "u1 u2"},
	{"parallel calls, results in another order", "u1 c12 r2 r1 u2", "", ""},
	{"parallel calls, a user message between the results", "u1 c12 r1 u2 r2 u3", "u1 c12 r1 r2 u2 u3", ""},
	{"parallel calls, all results behind a user message", "u1 c12 u2 r2 r1 u3", "u1 c12 r2 r1 u2 u3", ""},
	{"parallel calls, one without a result", "u1 c12 r1 u2", "u1 c1 r1 u2", "u1 c1 r1 u2"},
	{"parallel calls, none with a result", "u1 c12 u2", "u1 u2", "u1 u2"},
	{"parallel calls, none with a result at the end", "u1 c12", "u1", "u1"},
	{"parallel calls, one with a result at the end", "u1 c12 r2", "u1 c2 r2", "u1 c2 r2"},
	{"parallel calls, results before them", "u1 r1 r2 c12 u2", "u1 c12 r1 r2 u2", "u1 c12 r1 r2 u2"},
	{"parallel calls, a result twice", "u1 c12 r1 r2 r1 u2", "u1 c12 r1 r2 u2", "u1 c12 r1 r2 u2"},
	{"parallel calls, a result of another", "u1 c12 r1 r2 r3 u2", "u1 c12 r1 r2 u2", "u1 c12 r1 r2 u2"},
	{"parallel calls of one id", "u1 c11 r1 u2", "u1 c1 r1 u2", "u1 c1 r1 u2"},
	{"text beside calls without results", "u1 b12 u2", "u1 a12 u2", "u1 a12 u2"},
	{"text beside a call without a result", "u1 b12 r2 u2", "-", "u1 a12 c2 r2 u2"},
	{"a developer message between", "u1 c1 d2 r1 u3", "u1 c1 r1 d2 u3", ""},
	{"several messages between", "u1 c1 s2 u3 d4 r1 u5", "u1 c1 r1 s2 u3 d4 u5", ""},
	{"other calls between", "u1 c1 c2 r2 r1 u3", "u1 c1 r1 c2 r2 u3", ""},
	{"a call without a result, and its id again", "u1 c1 u2 c1 r1 u3", "u1 u2 c1 r1 u3", "u1 u2 c1 r1 u3"},
	{"a call without a result in a later run", "u1 c1 r1 u2 c1 u3", "u1 c1 r1 u2 u3", "u1 c1 r1 u2 u3"},
	{"a call without a result at the end", "u1 c1 r1 u2 c2", "u1 c1 r1 u2", "u1 c1 r1 u2"},
	{"a result at the beginning", "r1 u1 c2 r2 u2", "u1 c2 r2 u2", "u1 c2 r2 u2"},
	{"a result far before its call", "r1 u1 a1 c1 u2", "u1 a1 u2", "u1 a1 u2"},
	{"custom tools", "u1 x1 u2 r1 u3", "u1 x1 r1 u2 u3", "-"},
	{"legacy functions", "u1 f1 u2 F1 u3", "u1 f1 F1 u2 u3", "-"},
	{"legacy functions without results", "u1 f1 u2 F2 u3", "u1 u2 u3", "-"},
	{"a custom tool's result before its call", "u1 X1 x1 u2", "-", "u1 x1 X1 u2"},
	{"a shell's result twice", "u1 h1 H1 u2 H1 u3", "-", "u1 h1 H1 u2 u3"},
	{"a shell's result behind a user message", "u1 h1 u2 H1 u3", "-", ""},
	{"a patch without a result", "u1 p1 u2", "-", "u1 u2"},
	{"a computer's screenshot twice", "u1 m1 M1 M1 u2", "-", "u1 m1 M1 u2"}, //nolint:dupword // items
	{"a search of tools behind its result", "u1 T1 t1 u2", "-", "u1 t1 T1 u2"},
	{"a local shell, answered by a function's result", "u1 l1 u2 r1 u3", "-", ""},
	{"a local shell, its result before it", "u1 L1 l1 u2", "-", "u1 l1 L1 u2"},
	{"the result of another kind of tool", "u1 c1 X1 u2", "-", "u1 u2"},
	{"one id, two kinds of tools", "u1 c1 x1 X1 r1 u2", "-", ""},
	{"an approval behind a user message", "u1 q1 u2 Q1 u3", "-", ""},
	{"an approval before its request", "u1 Q1 q1 u2", "-", "u1 q1 Q1 u2"},
	{"an approval without a request", "u1 Q1 u2", "-", "u1 u2"},
	{"an approval twice", "u1 q1 Q1 Q1 u2", "-", "u1 q1 Q1 u2"}, //nolint:dupword // items
	{"a program behind its output", "u1 G1 g1 u2", "-", "u1 g1 G1 u2"},
	{"a program's output without it", "u1 c2 r2 G1 u2", "-", "u1 c2 r2 u2"},
	{"a program and its calls, results late", "u1 g1 c2 u2 G1 r2 u3", "-", ""},
	{"reasoning, and a result far behind", "u1 i1 c1 u2 r1 u3", "-", ""},
	{"reasoning of a call without a result", "u1 i1 c1 u2", "-", "u1 u2"},
	{"reasoning of parallel calls, one without a result", "u1 i1 c12 r2 u2", "-", "u1 i1 c2 r2 u2"},
	{"reasoning between parallel calls", "u1 i1 c1 i2 c2 r2 r1 u2", "-", ""},
	{"reasoning between a call and its result", "u1 c1 i1 r1 u2", "-", "u1 c1 r1 u2"},
	{"reasoning apart from its call by a result", "u1 c1 i1 r1 c2 r2 u2", "-", "u1 c1 r1 i1 c2 r2 u2"},
	{"reasoning before a user message", "u1 i1 u2", "-", "u1 u2"},
	{"reasoning at the end", "u1 c1 r1 i1", "-", "u1 c1 r1"},
	{"reasoning twice", "u1 i1 a1 u2 i1 a2 u3", "-", "u1 i1 a1 u2 a2 u3"},
	{"one item twice", "u1 w1 a1 u2 w1 u3", "-", "u1 w1 a1 u2 u3"},
	{"a pair twice, with the ids of its items", "u1 l1 L1 u2 l1 L1 u3", "-", "u1 l1 L1 u2 u3"},
}

// TestPairsApart: calls and results in an order that upstream refuses are reordered, and those that do not fit are left out, in
// a new session or after what is stored. Requests with memory off or without a session are forwarded unchanged, and upstream
// refuses most of them.
func TestPairsApart(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	sealed := thoughts(t, g, 3)
	refused := 0 // requests that upstream refuses as the client sends them: most of them
	for _, c := range pairsApart {
		for _, d := range dialects {
			w := words{d, sealed}
			want := c.chat
			if d.path == "responses" {
				want = c.responses
			}
			if want == "-" {
				continue
			}
			t.Run(c.name+" "+d.String(), func(t *testing.T) {
				sent, body := c.sent, w.body(t, c.sent)
				onlyNew := !strings.ContainsAny(sent, modelSays) // it is put after what is stored
				for _, header := range []string{"X-Memory: off", "X-Session-Id: "} {
					r := g.ask(t, d.path, body, header)
					if g.seen(t) != body || r.status != http.StatusOK && (want == "" || r.status != http.StatusBadRequest) {
						t.Errorf("%s: %d %.200s; sent as %s", header, r.status, r.body, g.seen(t))
					}
					if r.status != http.StatusOK {
						refused++
					}
				}

				faults := len(g.up.Faults())
				for _, c := range []struct {
					history string
					stored  bool
				}{{"auto", false}, {"client", false}, {"server", false}, {"auto", true}} {
					session := fmt.Sprint("X-Session-Id: ", t.Name(), c)
					if c.stored {
						g.say(t, d, "SAY Before.", session)
					}
					r := g.ask(t, d.path, body, session, "X-History: "+c.history)
					if r.status != http.StatusOK {
						t.Errorf("%v: %d %.300s", c, r.status, r.body)
					}
					seen := g.seen(t)
					if c.stored && onlyNew {
						seen = w.bodyOf(listed(t, []byte(seen))[2:])
					}
					if accepted := w.body(t, cmp.Or(want, sent)); seen != accepted {
						t.Errorf("%v: upstream is sent\n%s, want\n%s", c, seen, accepted)
					}
					if memory := r.header.Get("X-Memory"); (count(t, memory, "repaired") > 0) != (want != "") {
						t.Errorf("%v: X-Memory is %q", c, memory)
					}
				}
				// The next requests of both habits are valid too.
				for _, stored := range []bool{false, true} {
					session := fmt.Sprint("X-Session-Id: ", t.Name(), "{auto ", stored, "}")
					g.say(t, d, "SAY Behind.", session)
					if r := g.ask(t, d.path, w.body(t, sent+" a8 u9"), session); r.status != http.StatusOK {
						t.Errorf("resent, stored=%v: %d %.300s", stored, r.status, r.body)
					}
				}
				if f := g.up.Faults()[faults:]; len(f) > 0 {
					t.Errorf("upstream met faulty histories: %q", f)
				}
			})
		}
	}
	if refused < 200 {
		t.Errorf("upstream refuses %d of the requests as the client sends them, want at least 200", refused)
	}
}

// TestRepairedHistoriesKeepThePrefix: a reordered or shortened history stays the same in all later requests, for clients of both
// habits. Each request begins with the bytes of the previous one, so that the prompt cache is used.
func TestRepairedHistoriesKeepThePrefix(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	sealed := thoughts(t, g, 3)
	for _, c := range pairsApart {
		for _, path := range []string{"chat/completions", "responses"} {
			w := words{dialect{path, false}, sealed}
			if path == "responses" && c.responses == "-" || path != "responses" && c.chat == "-" || c.sent[len(c.sent)-2] != 'u' {
				continue
			}
			for _, resends := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s resends=%v", c.name, path, resends), func(t *testing.T) {
					var before []json.RawMessage
					sent := c.sent
					habit := "server" // without it, a client that has sent calls counts as one that resends its history
					if resends {
						habit = "auto"
					}
					for turn := range 4 {
						body := w.body(t, sent)
						r := g.ask(t, path, body, "X-Session-Id: "+t.Name(), "X-History: "+habit)
						if r.status != http.StatusOK {
							t.Fatalf("turn %d: %d %.300s", turn, r.status, r.body)
						}
						now := listed(t, []byte(g.seen(t)))
						if len(now) < len(before) || !bytes.Equal(bytes.Join(raws(now[:len(before)]), nil), bytes.Join(raws(before), nil)) {
							t.Errorf("turn %d: upstream is sent\n%s\nbehind\n%s", turn, now, before)
						}
						before = now
						next := fmt.Sprintf("u%d", 6+turn)
						if sent += fmt.Sprintf(" a%d %s", 6+turn, next); !resends {
							sent = next
						}
					}
				})
			}
		}
	}
	g.sound(t)
}

// TestApprovalsAndPrograms: a window does not separate an approval from its request, or a program from its calls and output, and
// leaves out incomplete pairs. A client that sends only new items sends only the approval.
func TestApprovalsAndPrograms(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: history_window, max_items: 6, evict_batch: 1, in_flight: window}]", scripted.Options{})
	for _, stream := range []bool{false, true} {
		w := words{dialect: dialect{"responses", stream}}
		for n := 1; n < 14; n++ { // the window starts at each of them
			items := strings.Fields("u1 c1 r1 q1 Q1 g8 c2 r2 G8" + strings.Repeat(" c3 r3", n))
			for _, from := range []int{0, 4, 8} { // the client itself shortens its history
				part := strings.Join(items[from:], " ")
				session := fmt.Sprint("X-Session-Id: ", t.Name(), stream, n, from)
				if r := g.ask(t, w.path, w.body(t, part), session); r.status != http.StatusOK {
					t.Errorf("%s: %d %.300s", part, r.status, r.body)
				}
			}
		}

		session := fmt.Sprint("X-Session-Id: new ", stream)
		g.ask(t, w.path, w.body(t, "u1 q1"), session)
		if r := g.ask(t, w.path, w.body(t, "Q1"), session); r.status != http.StatusOK || !strings.Contains(g.seen(t), "mcpr_1") {
			t.Errorf("only what is new: %d %.300s; sent %s", r.status, r.body, g.seen(t))
		}
	}
	g.sound(t)
}

// TestAnyOrderIsAccepted: for any order of calls, results, reasoning and messages, upstream accepts every request: the first one,
// and those that resend or continue the history.
func TestAnyOrderIsAccepted(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	sealed := thoughts(t, g, 8)
	random := rand.New(rand.NewPCG(12, 3))
	for n := range 240 {
		w := words{dialect{"chat/completions", false}, sealed}
		letters := "uuasdcccrrrrbfF"
		if n%2 == 0 {
			w.path, letters = "responses", "uuasdcrcrbxXlLrhHpPmMtTiiqQgGw"
		}
		text := "u9"
		for range 3 + random.IntN(8) {
			letter, id := string(letters[random.IntN(len(letters))]), fmt.Sprint(random.IntN(3))
			if (letter == "c" || letter == "b") && random.IntN(2) == 0 {
				id = []string{"01", "12", "012", "00"}[random.IntN(4)]
			}
			if letter == "i" {
				id = fmt.Sprint(random.IntN(len(sealed)))
			}
			text += " " + letter + id
		}
		if random.IntN(3) > 0 {
			text += " u8"
		}
		session := []string{fmt.Sprint("X-Session-Id: any ", n), "X-History: " + []string{"auto", "client", "server"}[n%3]}
		for _, sent := range []string{text, "u7", text + " a5 u5"} {
			r := g.ask(t, w.path, w.body(t, sent), session...)
			if f := g.up.Faults(); r.status != http.StatusOK || len(f) > 0 {
				t.Fatalf("%s %s, then %s: %d %q\nupstream was sent %s", session[1], text, sent, r.status, f, g.seen(t))
			}
		}
	}
}
