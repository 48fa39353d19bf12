package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
)

// sending is one request of a client, and what upstream gets. ID is the id of the last call.
type sending struct {
	items   string // comma-separated, ID for that id
	headers []string
	want    []string // as facts
	memory  string   // a part of X-Memory
}

func (s sending) play(t *testing.T, g *gate, d dialect, session, id string) (nextID string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"m","stream":%v,%q:[%s]}`, d.stream, d.list(), strings.ReplaceAll(s.items, "ID", id))
	r := g.ask(t, d.path, body, append([]string{"X-Session-Id: " + session}, s.headers...)...)
	if r.status != http.StatusOK {
		t.Fatalf("%s: status %d, %.500s", s.items, r.status, r.body)
	}
	var got []string
	for _, f := range sent(t, g.seen(t)) {
		if id != "" {
			f = strings.ReplaceAll(f, id, "ID")
		}
		got = append(got, f)
	}
	if diff := cmp.Diff(s.want, got); diff != "" {
		t.Errorf("%s: upstream sees (-want +got):\n%s", s.items, diff)
	}
	if got := r.header.Get("X-Memory"); !strings.Contains(got, s.memory) {
		t.Errorf("%s: X-Memory %q, want %q", s.items, got, s.memory)
	}
	if last := d.lastCall(t, r); last != "" {
		return last
	}
	return id
}

// TestResultsAreSentAgain: a client that sends only new items keeps its conversation when it resends results.
func TestResultsAreSentAgain(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			begin := []string{"user Hi", "assistant You said: Hi", "user CALL w {}", "call ID w {}", "result ID r1"}
			corrected := append(begin[:4:4], "result ID r2")
			first := sending{items: user("Hi"), want: begin[:1]}
			id := sending{items: user("CALL w {}"), want: begin[:3]}.play(t, g, d, t.Name(), first.play(t, g, d, t.Name(), ""))
			for _, s := range []sending{
				{items: d.result("ID", "r1"), want: begin, memory: "orphans=0"},
				{items: d.result("ID", "r1"), want: begin, memory: "orphans=0"}, // the SDK lost its connection
				{items: d.result("ID", "r2"), want: append(corrected[:5:5], counted+"r1"), memory: "orphans=1"},
				{items: d.result("unknown", "r3"), want: append(corrected[:5:5], counted+"r1", counted+"r2"), memory: "orphans=2"},
				{items: user("Bye"), want: append(corrected[:5:5], counted+"r1", counted+"r2", counted+"r2", "user Bye")},
			} {
				s.play(t, g, d, t.Name(), id)
			}
		})
	}
	g.sound(t)
}

// counted is the scripted upstream's answer after the end of the script.
const counted = "assistant Done. Tool results: 1, the last: "

// user returns a user message; in Responses its type is optional.
func user(text string) string { return fmt.Sprintf(`{"role":"user","content":%q}`, text) }

// TestSessionsAreAsDocumented: the statements of docs/sessions.md on new and resent items.
func TestSessionsAreAsDocumented(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	system := func(text string) string { return fmt.Sprintf(`{"role":"system","content":%q},`, text) }
	const hi = "assistant You said: Hi"
	for _, c := range []struct {
		name  string
		turns []sending
	}{
		{"the first message again is a retry", []sending{
			{items: user("Hi"), want: []string{"user Hi"}},
			{items: user("Hi"), want: []string{"user Hi"}},
			{items: user("Yo"), want: []string{"user Hi", hi, "user Yo"}},
		}},
		{"later, the same message twice is two turns", []sending{
			{items: user("Hi"), want: []string{"user Hi"}},
			{items: user("Yo"), want: []string{"user Hi", hi, "user Yo"}},
			{items: user("Yo"), want: []string{"user Hi", hi, "user Yo", "assistant You said: Yo", "user Yo"}},
			{items: user("Hi"), want: []string{
				"user Hi", hi, "user Yo", "assistant You said: Yo", "user Yo", "assistant You said: Yo", "user Hi",
			}},
		}},
		{"other instructions are the same conversation", []sending{
			{items: system("It is Monday") + user("Hi"), want: []string{"system It is Monday", "user Hi"}},
			{items: system("It is Tuesday") + user("Yo"), want: []string{"system It is Tuesday", "user Hi", hi, "user Yo"}, memory: "ok;"},
			{items: user("Bye"), want: []string{"system It is Tuesday", "user Hi", hi, "user Yo", "assistant You said: Yo", "user Bye"}},
		}},
		{"a known prompt of a helper makes it a side request", []sending{
			{items: system("Be brief") + user("Hi"), want: []string{"system Be brief", "user Hi"}},
			{items: system("Generate a short title for this conversation.") + user("Hi"), want: []string{"system Generate a short title for this conversation.", "user Hi"}, memory: "side;"},
			{items: user("Yo"), want: []string{"system Be brief", "user Hi", hi, "user Yo"}, memory: "ok;"},
		}},
		{"a client that has resent its history and no longer does has replaced it", []sending{
			{items: user("Hi"), want: []string{"user Hi"}},
			{items: user("Hi") + `,{"role":"assistant","content":"You said: Hi"},` + user("Yo"), want: []string{"user Hi", hi, "user Yo"}},
			{items: user("A summary."), want: []string{"user A summary."}, memory: "ok;"},
			{items: user("A summary.") + `,{"role":"assistant","content":"You said: A summary."},` + user("Go on"), want: []string{
				"user A summary.", "assistant You said: A summary.", "user Go on",
			}},
			{items: user("Bye"), headers: []string{"X-History: server"}, want: []string{
				"user A summary.", "assistant You said: A summary.", "user Go on", "assistant You said: Go on", "user Bye",
			}},
		}},
		{"with X-History: server nothing is sent twice", []sending{
			{items: user("Hi"), want: []string{"user Hi"}},
			{items: user("Hi") + `,{"role":"assistant","content":"You said: Hi"},` + user("Yo"), headers: []string{"X-History: server"}, want: []string{"user Hi", hi, "user Yo"}},
			{items: user("Yo") + `,{"role":"assistant","content":"You said: Yo"},` + user("Bye"), headers: []string{"X-History: server"}, want: []string{
				"user Hi", hi, "user Yo", "assistant You said: Yo", "user Bye",
			}},
		}},
		{"instructions behind the message are new", []sending{
			{items: system("Be brief") + user("Hi"), want: []string{"system Be brief", "user Hi"}},
			{items: user("Yo") + `,{"role":"developer","content":"In French"}`, want: []string{
				"system Be brief", "user Hi", hi, "user Yo", "developer In French",
			}},
		}},
		{"an answer that was not given here is a history of its own", []sending{
			{items: user("Hi"), want: []string{"user Hi"}},
			{items: `{"role":"assistant","content":"Ask."},` + user("Yo"), want: []string{"assistant Ask.", "user Yo"}},
			{items: user("Bye"), want: []string{"user Hi", hi, "user Bye"}},
		}},
		{"what the client sends is the history", []sending{
			{items: user("Hi"), want: []string{"user Hi"}},
			{items: user("Yo"), headers: []string{"X-History: client"}, want: []string{"user Yo"}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range c.turns {
				s.play(t, g, dialect{path: "chat/completions"}, t.Name(), "")
			}
		})
	}
	g.sound(t)
	r := g.ask(t, "chat/completions", `{"model":"m","messages":[`+user("Hi")+`]}`, "X-Session-Id: Grüße 1%")
	if got := r.header.Get("X-Session-Id"); got != "Gr%C3%BC%C3%9Fe%201%25" {
		t.Errorf("the session is named %q in the answer", got)
	}
}

// TestRoundBeginsWithTheLastUserMessage: the current run begins with the last user message, and what the client says before its first
// question stays in front (docs/sessions.md).
func TestRoundBeginsWithTheLastUserMessage(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: history_window, max_items: 4, evict_batch: 1, in_flight: keep}]", scripted.Options{})
	const document = "The document."
	for _, c := range []struct {
		name, items string
		sees        bool
	}{
		{"two messages", user("SAY Hi.") + `,{"role":"assistant","content":"Hi."},` + user(document) + "," + user("SAY Hm. ;; LOOP 3 read {}"), false},
		{"two messages at the beginning", user(document) + "," + user("SAY Hm. ;; LOOP 3 read {}"), true},
		{"one message", user("SAY " + document + " ;; LOOP 3 read {}"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			items := c.items
			for range 3 {
				r := g.ask(t, "chat/completions", `{"model":"m","messages":[`+items+`]}`, "X-Session-Id: "+t.Name())
				var body struct {
					Choices []struct {
						Message struct {
							ToolCalls []struct{ ID string } `json:"tool_calls"`
						}
					}
				}
				decode(t, []byte(r.body), &body)
				if len(body.Choices) != 1 || len(body.Choices[0].Message.ToolCalls) != 1 {
					t.Fatalf("no call in %s", r.body)
				}
				id := body.Choices[0].Message.ToolCalls[0].ID
				items += fmt.Sprintf(`,{"role":"assistant","content":"Reading.","tool_calls":[{"id":%q,"type":"function","function":{"name":"read","arguments":"{}"}}]}`, id) +
					fmt.Sprintf(`,{"role":"tool","tool_call_id":%q,"content":"x"}`, id)
			}
			g.ask(t, "chat/completions", `{"model":"m","messages":[`+items+`]}`, "X-Session-Id: "+t.Name())
			if strings.Contains(g.seen(t), document) != c.sees || !strings.Contains(g.seen(t), "LOOP") {
				t.Errorf("upstream sees the document: %v, want %v: %s", !c.sees, c.sees, g.seen(t))
			}
		})
	}
	g.sound(t)
}

// TestFunctionsWithoutIDs: a client of the old functions, without ids of calls, sends only new items.
func TestFunctionsWithoutIDs(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		seen = append(seen, string(body))
		mu.Unlock()
		message := `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`
		if strings.Contains(string(body), `"function"`) {
			message = `{"role":"assistant","content":"It is 42."}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":%s,"finish_reason":"stop"}]}`, message)
	}))
	t.Cleanup(up.Close)
	g := gateTo(t, setup{upstream: up.URL})
	const question, call, result = `{"role":"user","content":"What is it?"}`,
		`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`, `{"role":"function","name":"f","content":"42"}`
	for _, items := range []string{question, result, result} {
		if r := g.ask(t, "chat/completions", `{"model":"m","messages":[`+items+`]}`); r.status != http.StatusOK {
			t.Fatalf("status %d: %s", r.status, r.body)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	whole := `{"model":"m","messages":[` + question + "," + call + "," + result + `]}`
	if diff := cmp.Diff([]string{`{"model":"m","messages":[` + question + `]}`, whole, whole}, seen); diff != "" {
		t.Errorf("upstream sees (-want +got):\n%s", diff)
	}
}
