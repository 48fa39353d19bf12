package memory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// lab is a Memory over a store, and the clients that talk to it.
type lab struct {
	t       *testing.T
	m       *memory.Memory
	store   cache.Store
	spool   *queue // where a test looks into it
	replies int
	counts  bool // the test counts round trips: what was sent is not read again
}

func newLab(t *testing.T, o memory.Options) *lab {
	t.Helper()
	store, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, store: store}
	l.m = memory.New(store, nil, patient(o))
	t.Cleanup(func() {
		l.m.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

var scope = memory.Scope{Tenant: "tenant", Session: "session"}

// patient keeps a machine that is busy with other tests from making turns late: what happens then is tested by the clock.
func patient(o memory.Options) memory.Options {
	for _, wait := range []*time.Duration{&o.CommitWait, &o.ReadWait} {
		if *wait == 0 {
			*wait = time.Minute
		}
	}
	return o
}

// say is a Chat message: "u:hello" is the user's, "a:", "s:" and "d:" are the assistant's and so on; "c:x,y" is an
// assistant message that calls x and y, "c:x=look" one that calls x with the argument look, "r:x" the result of x and "r:x=1" another one; "fc:x" and "fr:x" are a call of the
// function x and its result as they were before calls had ids. A line break in a text is ¶.
func say(word string) string {
	kind, text, _ := strings.Cut(word, ":")
	switch kind {
	case "c":
		var calls []string
		for id := range strings.SplitSeq(text, ",") {
			id, arguments := callOf(id)
			calls = append(calls, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"f","arguments":%q}}`, id, arguments))
		}
		return fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[%s]}`, strings.Join(calls, ","))
	case "r":
		id, content, ok := strings.Cut(text, "=")
		if content = "another " + content; !ok {
			content = "result of " + id
		}
		return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":%q}`, id, content)
	case "fc":
		return fmt.Sprintf(`{"role":"assistant","content":null,"function_call":{"name":%q,"arguments":"{}"}}`, text)
	case "fr":
		return fmt.Sprintf(`{"role":"function","name":%q,"content":"42"}`, text)
	}
	role := map[string]string{"u": "user", "a": "assistant", "s": "system", "d": "developer"}[kind]
	return fmt.Sprintf(`{"role":%q,"content":%q}`, role, strings.ReplaceAll(text, "¶", "\n"))
}

// callOf returns the id and the arguments of a call: "x", or "x=look" with a text as an argument.
func callOf(word string) (id, arguments string) {
	id, text, ok := strings.Cut(word, "=")
	if !ok {
		return id, "{}"
	}
	return id, fmt.Sprintf(`{"of":{"input":%q}}`, text)
}

func messages(words string) string {
	var list []string
	for w := range strings.FieldsSeq(words) {
		list = append(list, say(w))
	}
	return strings.Join(list, ",")
}

// told is the inverse of messages.
func told(t *testing.T, items []wire.Item) string {
	t.Helper()
	var words []string
	for _, it := range items {
		var m struct {
			Role, Content, Name string
			ToolCallID          string                `json:"tool_call_id"`
			Calls               []struct{ ID string } `json:"tool_calls"`
			FunctionCall        struct{ Name string } `json:"function_call"`
		}
		if err := json.Unmarshal(it.Raw, &m); err != nil {
			t.Fatalf("item %s: %v", it.Raw, err)
		}
		switch {
		case m.FunctionCall.Name != "":
			words = append(words, "fc:"+m.FunctionCall.Name)
		case m.Role == "function":
			words = append(words, "fr:"+m.Name)
		case m.ToolCallID != "":
			word := "r:" + m.ToolCallID
			if other, ok := strings.CutPrefix(m.Content, "another "); ok {
				word += "=" + other
			}
			words = append(words, word)
		case len(m.Calls) > 0:
			var ids []string
			for _, c := range m.Calls {
				ids = append(ids, c.ID)
			}
			words = append(words, "c:"+strings.Join(ids, ","))
		default:
			words = append(words, m.Role[:1]+":"+m.Content)
		}
	}
	return strings.Join(words, " ")
}

func (l *lab) begin(c memory.Call, words string) *memory.Turn {
	l.t.Helper()
	return l.beginWith(c, words, "")
}

// beginWith is begin with tools, as JSON, empty for none.
func (l *lab) beginWith(c memory.Call, words, tools string) *memory.Turn {
	l.t.Helper()
	return l.beginJSON(c, messages(words), tools)
}

// beginJSON is beginWith for messages that are JSON.
func (l *lab) beginJSON(c memory.Call, messages, tools string) *memory.Turn {
	l.t.Helper()
	if tools != "" {
		tools = `,"tools":` + tools
	}
	return l.beginBody(c, []byte(`{"model":"m","messages":[`+messages+`]`+tools+`}`))
}

// beginBody is begin for a whole body, whose memory the turn uses.
func (l *lab) beginBody(c memory.Call, body []byte) *memory.Turn {
	l.t.Helper()
	req, err := wire.Parse(dialects.Chat, body)
	if err != nil {
		l.t.Fatal(err)
	}
	if c.Scope.Session == "" {
		c.Scope = scope
	}
	c.Request = req
	turn, err := l.m.Begin(context.Background(), c)
	if err != nil {
		l.t.Fatal(err)
	}
	return turn
}

func answer(t *testing.T, words string) memory.Answer {
	t.Helper()
	a := memory.Answer{HTTPStatus: 200, Reply: wire.Reply{Complete: true, ID: "chatcmpl-1", Finish: "stop"}}
	for choice := range strings.SplitSeq(words, "|") {
		var items []wire.Item
		for w := range strings.FieldsSeq(choice) {
			items = append(items, wiretest.Parse(t, dialects.Chat, say(w)))
		}
		a.Reply.Choices = append(a.Reply.Choices, items)
	}
	return a
}

// turn plays one whole turn and returns the view that went upstream.
func (l *lab) turn(words, reply string) string {
	l.t.Helper()
	return l.turnOf(memory.Call{}, words, reply)
}

func (l *lab) turnOf(c memory.Call, words, reply string) string {
	l.t.Helper()
	turn := l.begin(c, words)
	turn.Commit(answer(l.t, reply))
	if turn.Summary.Status != memory.StatusOK {
		l.t.Errorf("turn %q: status %s", words, turn.Summary.Status)
	}
	sent := told(l.t, turn.View)
	if l.counts {
		return sent
	}
	if got := l.shownOf(c.Scope, turn.ID); got != sent {
		l.t.Errorf("turn %q is shown as %s, sent was %s", words, got, sent)
	}
	return sent
}

// transcript returns the stored line that ends with the head, and the number of all items.
func (l *lab) transcript(s memory.Scope) (line string, all int) {
	l.t.Helper()
	line, all, err := l.readTranscript(s)
	if err != nil {
		l.t.Error(err)
	}
	return line, all
}

// readTranscript is transcript for a test that deals with errors itself.
func (l *lab) readTranscript(s memory.Scope) (line string, all int, err error) {
	var items []wire.Item
	chains := map[string]uint64{}
	err = l.m.Walk(context.Background(), s, func(line memory.ExportLine) error {
		if line.Item == nil {
			return nil
		}
		all++
		if other, ok := chains[line.Item.Chain]; ok && !line.Item.Off && !line.Item.Side {
			return fmt.Errorf("items %d and %d are the same item twice", other, line.Item.Seq)
		}
		if !line.Item.Side { // a side request may quote the user before the conversation has that
			chains[line.Item.Chain] = line.Item.Seq
		}
		if !line.Item.OnHead {
			return nil
		}
		it, err := wire.ParseItem(dialects.Chat, append(line.Item.Raw, line.Item.JSON...))
		items = append(items, it)
		return err
	})
	if err == nil {
		err = l.importable(s)
	}
	return told(l.t, items), all, err
}

// importable returns an error unless an export is complete.
func (l *lab) importable(s memory.Scope) error {
	store, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		return err
	}
	m := memory.New(store, nil, memory.Options{})
	var exported bytes.Buffer
	err = l.m.Export(context.Background(), s, &exported)
	if err == nil {
		err = m.Import(context.Background(), s, bytes.NewReader(exported.Bytes()))
	}
	m.Close()
	if err = errors.Join(err, store.Close()); err != nil {
		return fmt.Errorf("an export cannot be imported: %w\n%s", err, exported.Bytes())
	}
	return nil
}

func (l *lab) wantTranscript(line string, all int) {
	l.t.Helper()
	gotLine, gotAll := l.transcript(scope)
	if gotLine != line || gotAll != all {
		l.t.Errorf("transcript:\n got %s (%d items in all)\nwant %s (%d)", gotLine, gotAll, line, all)
	}
}

func (l *lab) wantView(got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("view:\n got %s\nwant %s", got, want)
	}
}

// exchanged is a request, its answer, empty for a failure of upstream, and the expected view, empty for any.
type exchanged struct{ sent, reply, view string }

// conversation is what clients say in a session, and what is stored of it in the end: the line that ends with the head, and how
// many items there are.
type conversation struct {
	name  string
	turns []exchanged
	line  string
	items int
}

// playEach plays conversations that begin alike.
func playEach(t *testing.T, begin []exchanged, list []conversation) {
	t.Helper()
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, memory.Options{})
			for _, e := range slices.Concat(begin, c.turns) {
				if e.reply == "" {
					l.begin(memory.Call{}, e.sent).Commit(memory.Answer{HTTPStatus: 500})
				} else if view := l.turn(e.sent, e.reply); e.view != "" {
					l.wantView(view, e.view)
				}
			}
			l.wantTranscript(c.line, c.items)
		})
	}
}

// TestResentHistories: a client that sends its history again continues, repeats or edits the conversation.
func TestResentHistories(t *testing.T) {
	playEach(t, nil, []conversation{
		{"plain continuation", []exchanged{
			{"s:be u:1", "a:1", ""},
			{"s:be u:1 a:1 u:2", "c:x,y", ""},
			{"s:be u:1 a:1 u:2 c:x,y r:x r:y", "a:2", "s:be u:1 a:1 u:2 c:x,y r:x r:y"},
		}, "u:1 a:1 u:2 c:x,y r:x r:y a:2", 7},
		{"another system prompt is the same conversation", []exchanged{
			{"s:it-is-9 u:1", "a:1", ""}, {"s:it-is-10 u:1 a:1 u:2", "a:2", ""},
		}, "u:1 a:1 u:2 a:2", 4},
		{"exact resend", []exchanged{{"u:1", "a:1", ""}, {"u:1 a:1 u:2", "a:2", ""}, {"u:1 a:1 u:2", "a:2", ""}}, "u:1 a:1 u:2 a:2", 4},
		{"a regeneration keeps both answers", []exchanged{{"u:1", "a:1", ""}, {"u:1", "a:other", ""}}, "u:1 a:other", 3},
		{"and the user goes back to the first", []exchanged{
			{"u:1", "a:1", ""}, {"u:1", "a:other", ""}, {"u:1 a:1 u:2", "a:2", ""},
		}, "u:1 a:1 u:2 a:2", 5},
		{"an edit branches", []exchanged{
			{"u:1", "a:1", ""}, {"u:1 a:1 u:2", "a:2", ""}, {"u:1 a:1 u:2 a:2 u:3", "a:3", ""}, {"u:1 a:1 u:edited", "a:4", ""},
		}, "u:1 a:1 u:edited a:4", 8},
		{"choices are siblings", []exchanged{{"u:1", "a:first|a:second|a:third", ""}}, "u:1 a:first", 4},
		{"and the user goes on from any", []exchanged{
			{"u:1", "a:first|a:second|a:third", ""}, {"u:1 a:second u:2", "a:2", ""},
		}, "u:1 a:second u:2 a:2", 6},
	})
}

func TestTrimmedByTheClient(t *testing.T) {
	l := newLab(t, memory.Options{})
	history := "u:1 a:1"
	l.turn("u:1", "a:1")
	for i := 2; i <= 6; i++ {
		l.turn(fmt.Sprintf("%s u:%d", history, i), fmt.Sprintf("a:%d", i))
		history += fmt.Sprintf(" u:%d a:%d", i, i)
	}
	l.turn("u:5 a:5 u:6 a:6 u:7", "a:7")
	l.wantTranscript(history+" u:7 a:7", 14)
	l.turn("a:6 u:7 a:7 u:8", "a:8")
	l.wantTranscript(history+" u:7 a:7 u:8 a:8", 16)
	l.turn("a:6 u:7 a:7 u:8", "a:again") // trimmed, and asked again
	l.wantTranscript(history+" u:7 a:7 u:8 a:again", 17)
}

func TestCompactedByTheClient(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("u:1", "a:1")
	l.turn("u:1 a:1 u:2", "a:2")
	l.turn("u:summary u:2 a:2 u:3", "a:3")
	l.turn("u:summary u:2 a:2 u:3 a:3 u:4", "a:4")
	line, all := l.transcript(scope)
	if want := "u:1 a:1 u:2 a:2 u:summary u:3 a:3 u:4 a:4"; line != want || all != 9 {
		t.Errorf("got %s (%d)", line, all)
	}
}

func TestSideRequests(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("s:agent u:1", "a:1")
	l.turn("s:agent u:1 a:1 u:2", "a:2")
	l.turn(titles+" u:name-it", "a:title")
	l.wantTranscript("u:1 a:1 u:2 a:2", 6)
	l.turn(titles+" u:name-it", "a:title") // and once more
	l.turn(titles+" u:1", "a:title")       // in the words of the conversation itself
	l.wantTranscript("u:1 a:1 u:2 a:2", 7)
	l.wantView(l.turn("s:agent", "a:warm"), "s:agent") // nothing is asked: a client warms up
	l.wantTranscript("u:1 a:1 u:2 a:2", 8)
	side := memory.Call{Side: "compaction"}
	l.wantView(l.turnOf(side, "s:agent u:1 a:1 u:2 a:2 u:summarise", "a:sum"), "s:agent u:1 a:1 u:2 a:2 u:summarise")
	l.wantTranscript("u:1 a:1 u:2 a:2", 10)
	l.turn("s:agent u:1 a:1 u:2 a:2 u:3", "a:3")
	l.wantTranscript("u:1 a:1 u:2 a:2 u:3 a:3", 12)
	l.turn(titles+" u:name-it a:title u:shorter", "a:t") // the user goes on with it
	l.wantTranscript("u:name-it a:title u:shorter a:t", 14)
	marked := map[string]int{}
	for _, record := range l.records() {
		marked[record.Side]++
	}
	if diff := cmp.Diff(map[string]int{"": 4, "title": 3, "unrelated": 1, "compaction": 1}, marked); diff != "" {
		t.Error("side requests by their mark: " + diff)
	}
}

// titles are instructions as chat pages and agents send them for a title, in one word.
const titles = "s:Generate_a_short_title_for_this_conversation"

// records are the turns of the session.
func (l *lab) records() (list []turnrecord.Record) {
	l.t.Helper()
	err := l.m.Walk(context.Background(), scope, func(line memory.ExportLine) error {
		if line.Turn == nil {
			return nil
		}
		list = append(list, turnrecord.Record{})
		return json.Unmarshal(line.Turn, &list[len(list)-1])
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return list
}

// An agent asks for a title before, or while, it asks its first question; what it asks for need not be recognised if the
// agent has tools and that request has none.
func TestTitleBeforeTheFirstQuestion(t *testing.T) {
	for name, c := range map[string]struct {
		title string
		tools string
	}{
		"a known prompt":           {titles + " u:name-it", ""},
		"a known prompt, same ask": {titles + " u:1", ""},
		"an unknown one":           {"s:odd u:name-it", `[{"type":"function","function":{"name":"ls"}}]`},
	} {
		for _, habit := range []string{"resends", "only new"} {
			t.Run(name+", "+habit, func(t *testing.T) {
				l := newLab(t, memory.Options{})
				l.turn(c.title, "a:title")
				said := ""
				for i := range 3 {
					ask := fmt.Sprintf("u:%d", i+1)
					whole := strings.TrimSpace(said + " " + ask)
					if habit == "resends" {
						ask = whole
					}
					turn := l.beginWith(memory.Call{}, "s:agent "+ask, c.tools)
					l.wantView(told(t, turn.View), "s:agent "+whole)
					said = fmt.Sprintf("%s a:%d", whole, i+1)
					turn.Commit(answer(t, fmt.Sprintf("a:%d", i+1)))
				}
				line, _ := l.transcript(scope)
				if line != said {
					t.Errorf("the conversation is %s, want %s", line, said)
				}
			})
		}
	}
}

// A guardrail that asks the same in every turn, and was answered first in the first of them, is taken for the beginning of
// the conversation where nothing tells the two apart, and never again.
func TestGuardBeforeTheFirstAnswer(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("s:judge u:judge", "a:ok")
	l.wantView(l.turn("s:agent u:1", "a:1"), "s:agent u:judge a:ok u:1")
	l.wantView(l.turn("s:agent u:1 a:1 u:2", "a:2"), "s:agent u:1 a:1 u:2")
	line := "u:judge a:ok u:1 a:1 u:2 a:2"
	for n := range 20 { // more than the head remembers ends of
		l.wantView(l.turn("s:judge u:judge", fmt.Sprintf("a:ok%d", n)), "s:judge u:judge")
		l.wantTranscript(line, 7+n)
	}
	l.wantView(l.turn("s:agent u:1 a:1 u:2 a:2 u:3", "a:3"), "s:agent u:1 a:1 u:2 a:2 u:3")
	l.wantTranscript(line+" u:3 a:3", 28)
	l.turn("s:judge u:1 a:1 u:2", "a:other") // the conversation itself, under other instructions
	l.wantTranscript("u:judge a:ok u:1 a:1 u:2 a:other", 29)
}

// What is asked again under instructions that a side request shares is the conversation all the same.
func TestOlderInstructionsAskAgain(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("s:agent u:1", "a:1")
	l.turn("s:agent u:1 a:1 u:2", "a:2")
	l.turnOf(memory.Call{Side: "compaction"}, "s:agent u:1 a:1 u:2 a:2 u:summarise", "a:sum")
	l.turn("s:next u:1 a:1 u:2 a:2 u:3", "a:3")
	l.turn("s:agent u:1 a:1 u:2", "a:other")
	l.wantTranscript("u:1 a:1 u:2 a:other", 9)
}

func TestOnlyWhatIsNew(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.wantView(l.turn("s:be u:1", "a:1"), "s:be u:1")
	l.wantView(l.turn("u:2", "c:x,y"), "s:be u:1 a:1 u:2")
	l.wantView(l.turn("s:be r:x r:y", "a:2"), "s:be u:1 a:1 u:2 c:x,y r:x r:y")
	l.wantView(l.turn("s:be u:2", "a:3"), "s:be u:1 a:1 u:2 c:x,y r:x r:y a:2 u:2")
	l.wantView(l.turn("s:be u:1", "a:4"), "s:be u:1 a:1 u:2 c:x,y r:x r:y a:2 u:2 a:3 u:1")
	l.wantTranscript("u:1 a:1 u:2 c:x,y r:x r:y a:2 u:2 a:3 u:1 a:4", 11)
}

func TestHistoryModes(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("u:1", "a:1")
	l.wantView(l.turnOf(memory.Call{History: memory.HistoryClient}, "u:2", "a:2"), "u:2")
	l.wantTranscript("u:2 a:2", 4)
	l.wantView(l.turnOf(memory.Call{History: memory.HistoryServer}, "a:said u:3", "a:3"), "u:2 a:2 a:said u:3")
}

func TestServerHistoryIsWindowed(t *testing.T) {
	l := newLab(t, memory.Options{Shape: memory.Shape{Window: &view.Window{MaxItems: 4, EvictBatch: 1, InFlight: view.InFlightKeep}}})
	for i := 1; i <= 50; i++ {
		l.turn(fmt.Sprintf("u:%d", i), fmt.Sprintf("a:%d", i))
	}
	turn := l.begin(memory.Call{}, "u:51")
	l.wantView(told(t, turn.View), "a:49 u:50 a:50 u:51")
	if s := turn.Summary; s.Items != 101 || s.Windowed != 97 || s.Sent != 4 {
		t.Errorf("summary %+v", s)
	}
	turn.Commit(answer(t, "a:51"))
	if _, all := l.transcript(scope); all != 102 {
		t.Errorf("%d items stored, want 102", all)
	}
}

func TestFailedTurnLeavesNoTraceInTheConversation(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("u:1", "a:1")
	failed := l.begin(memory.Call{}, "u:1 a:1 u:2")
	failed.Commit(memory.Answer{HTTPStatus: 500})
	l.wantTranscript("u:1 a:1", 3)
	l.turn("u:1 a:1 u:2", "a:2") // the SDK tries again
	l.wantTranscript("u:1 a:1 u:2 a:2", 4)
}

func TestPartialAnswerIsKeptAndMarked(t *testing.T) {
	l := newLab(t, memory.Options{})
	a := answer(t, "a:par")
	a.Reply.Complete, a.Aborted = false, memory.AbortedByClient
	l.begin(memory.Call{}, "u:1").Commit(a)
	var partial int
	err := l.m.Walk(context.Background(), scope, func(line memory.ExportLine) error {
		if line.Item != nil && line.Item.Partial {
			partial++
		}
		if line.Turn != nil && !bytes.Contains(line.Turn, []byte(`"status":"incomplete"`)) {
			t.Errorf("turn %s", line.Turn)
		}
		return nil
	})
	if err != nil || partial != 1 {
		t.Errorf("%d partial items, %v", partial, err)
	}
	l.turn("u:1 a:par u:2", "a:2")
	l.wantTranscript("u:1 a:par u:2 a:2", 4)
}

func TestInputIsDurableWhileUpstreamWorks(t *testing.T) {
	l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
	turn := l.begin(memory.Call{}, "u:1")
	l.forward(turn, 1)
	turn.Commit(answer(t, "a:1"))
	l.wantTranscript("u:1 a:1", 2)
}

// Two clients that send only new items begin a session. The second finds the input of the first, which is not answered
// yet; the one answered later follows the other, and both stay on the line.
func TestSessionsThatTwoClientsBegin(t *testing.T) {
	for _, stored := range []int{0, 1, 2} { // inputs that are durable before the first answer
		l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
		one := l.begin(memory.Call{}, "u:one")
		if stored > 0 {
			l.forward(one, 1)
		}
		two := l.begin(memory.Call{}, "u:two")
		if stored > 1 {
			l.forward(two, 2)
		}
		one.Commit(answer(t, "a:one"))
		two.Commit(answer(t, "a:two"))
		l.wantTranscript("u:one a:one u:two a:two", 4)
		l.wantView(l.turn("u:3", "a:3"), "u:one a:one u:two a:two u:3")
	}
}

// TestGuardBesideAnAgent: a framework runs a guard beside each question of an agent: without tools, with JSON as its answer, and
// under instructions of its own. Whichever is answered first, neither gets the other's words.
func TestGuardBesideAnAgent(t *testing.T) {
	const tools, format = `[{"type":"function","function":{"name":"f"}}]`, `[],"response_format":{"type":"json_schema"}`
	for _, resends := range []bool{true, false} {
		for _, guardFirst := range []bool{true, false} {
			for _, stored := range []bool{true, false} {
				l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
				sent, said := "", ""
				for i := range 4 {
					question, call := fmt.Sprintf(" u:%d", i), fmt.Sprintf(" c:%d", i)
					sent, said = sent+question, said+question
					agent := l.beginWith(memory.Call{}, "s:agent"+sent, tools)
					if stored && i == 0 {
						l.forward(agent, 1)
					}
					guard := l.beginWith(memory.Call{}, fmt.Sprintf("s:guard u:ok%d?", i), format)
					l.wantView(told(t, agent.View), "s:agent"+said)
					l.wantView(told(t, guard.View), fmt.Sprintf("s:guard u:ok%d?", i))
					if guardFirst {
						guard.Commit(answer(t, "a:yes"))
					}
					agent.Commit(answer(t, call))
					if !guardFirst {
						guard.Commit(answer(t, "a:yes"))
					}

					result := fmt.Sprintf(" r:%d", i)
					if said += call + result; resends {
						sent += call + result
					} else {
						sent = result
					}
					next := l.beginWith(memory.Call{}, "s:agent"+sent, tools)
					l.wantView(told(t, next.View), "s:agent"+said)
					reply := fmt.Sprintf(" a:%d", i)
					next.Commit(answer(t, reply))
					if said += reply; resends {
						sent += reply
					} else {
						sent = ""
					}
				}
			}
		}
	}
}

// TestGuardInTheWordsOfTheUser: a guard that gets the same words as the agent, at the same time or just after it, is no retry of the
// question.
func TestGuardInTheWordsOfTheUser(t *testing.T) {
	const tools, format = `[{"type":"function","function":{"name":"f"}}]`, `[],"response_format":{"type":"json_schema"}`
	for _, order := range []string{"guard first", "agent first", "one after the other"} {
		for _, stored := range []bool{true, false} {
			l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
			said := ""
			for i := range 3 {
				question, reply := fmt.Sprintf("u:%d", i), answer(t, fmt.Sprintf("a:%d", i))
				agent := l.beginWith(memory.Call{}, "s:agent "+question, tools)
				if stored && i == 0 {
					l.forward(agent, 1)
				}
				if order == "one after the other" {
					agent.Commit(reply)
				}
				guard := l.beginWith(memory.Call{}, "s:guard "+question, format)
				l.wantView(told(t, agent.View), "s:agent "+said+question)
				l.wantView(told(t, guard.View), "s:guard "+question)
				if order == "agent first" {
					agent.Commit(reply)
				}
				guard.Commit(answer(t, "a:yes"))
				if order == "guard first" {
					agent.Commit(reply)
				}
				said += fmt.Sprintf("u:%d a:%d ", i, i)
			}
			line, _ := l.transcript(scope)
			if line+" " != said {
				t.Errorf("%s, stored: %v: the conversation is %s, want %s", order, stored, line, said)
			}
		}
	}
}

// forward waits until the turn's input is durable, as the last of n items.
func (l *lab) forward(turn *memory.Turn, n int) {
	l.t.Helper()
	turn.Forwarded()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if have, err := l.tryTranscript(); err == nil && have == n {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the input was not written")
		}
	}
}

func (l *lab) tryTranscript() (n int, err error) {
	err = l.m.Walk(context.Background(), scope, func(line memory.ExportLine) error {
		if line.Item != nil {
			n++
		}
		return nil
	})
	return n, err
}

func TestConcurrentTurnsAreBranches(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("u:1", "a:1")
	one, two := l.begin(memory.Call{}, "u:1 a:1 u:one"), l.begin(memory.Call{}, "u:1 a:1 u:two")
	one.Commit(answer(t, "a:one"))
	two.Commit(answer(t, "a:two"))
	l.wantTranscript("u:1 a:1 u:two a:two", 6)
	l.turn("u:1 a:1 u:one a:one u:2", "a:2")
	l.wantTranscript("u:1 a:1 u:one a:one u:2 a:2", 8)
}

func TestConcurrentTurnsOfOnlyWhatIsNewFollowOneAnother(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("u:1", "a:1")
	one, two := l.begin(memory.Call{}, "u:one"), l.begin(memory.Call{}, "u:two")
	one.Commit(answer(t, "a:one"))
	two.Commit(answer(t, "a:two"))
	l.wantTranscript("u:1 a:1 u:one a:one u:two a:two", 6)
}

func TestIdenticalConcurrentTurnsAreStoredOnce(t *testing.T) {
	l := newLab(t, memory.Options{})
	one, two := l.begin(memory.Call{}, "u:1"), l.begin(memory.Call{}, "u:1")
	one.Commit(answer(t, "a:1"))
	two.Commit(answer(t, "a:1"))
	l.wantTranscript("u:1 a:1", 2)
}

// The window limits the items sent, not the items stored, and sessions never see each other's items.
func TestReplayAfterHundredWindowedTurns(t *testing.T) {
	l := newLab(t, memory.Options{Shape: memory.Shape{Window: &view.Window{MaxItems: 6, EvictBatch: 2, InFlight: view.InFlightKeep}}})
	history := ""
	for i := 1; i <= 100; i++ {
		ask := strings.TrimSpace(fmt.Sprintf("%s u:%d", history, i))
		sent := strings.Fields(l.turn(ask, fmt.Sprintf("a:%d", i)))
		if len(sent) > 7 {
			t.Fatalf("turn %d sent %d items", i, len(sent))
		}
		history = fmt.Sprintf("%s a:%d", ask, i)
	}
	l.wantTranscript(history, 200)

	other := scope
	other.Session = "another"
	l.wantView(l.turnOf(memory.Call{Scope: other, History: memory.HistoryServer}, "u:hello", "a:hello"), "u:hello")
	for _, crafted := range []memory.Scope{
		{Tenant: "tenant", Session: "session\x00"},
		{Tenant: "tenan", Session: "tsession"},
		{Tenant: "tenant:s", Session: "session"},
		{Tenant: "other", Session: "session"},
	} {
		l.wantView(l.turnOf(memory.Call{Scope: crafted, History: memory.HistoryServer}, "u:hi", "a:hi"), "u:hi")
	}
}

func TestExportAndImport(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("s:be u:1", "a:1")
	l.turn("s:be u:1", "a:other")
	l.turn("s:be u:1", "a:1")
	l.turn("s:later u:1", "a:other")
	l.turn("s:be u:1 a:1 u:2", "c:x")
	l.turn("s:be u:1 a:1 u:2 c:x r:x", "a:2")
	var first, second bytes.Buffer
	if err := l.m.Export(context.Background(), scope, &first); err != nil {
		t.Fatal(err)
	}
	copyOf := memory.Scope{Tenant: "someone else", Session: "copy"}
	if err := l.m.Import(context.Background(), copyOf, bytes.NewReader(first.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := l.m.Export(context.Background(), copyOf, &second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("exports differ:\n%s\n%s", first.Bytes(), second.Bytes())
	}
	l.wantTurns(6)
	if err := l.m.Import(context.Background(), copyOf, bytes.NewReader(first.Bytes())); err == nil {
		t.Error("imported over an existing session")
	}
	tampered := bytes.Replace(first.Bytes(), []byte(`"content":"other"`), []byte(`"content":"forge"`), 1)
	if err := l.m.Import(context.Background(), memory.Scope{Tenant: "x", Session: "y"}, bytes.NewReader(tampered)); err == nil {
		t.Error("imported a changed item")
	}
	l.wantView(l.turnOf(memory.Call{Scope: copyOf, History: memory.HistoryServer}, "u:3", "a:3"), "s:be u:1 a:1 u:2 c:x r:x a:2 u:3")
}

// A file that lacks a line, or has one twice or in another order, brings in nothing, and does not stand in the way of the
// right one.
func TestImportIsWhole(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("s:be u:1", "a:1")
	l.turn("s:be u:1", "a:other")
	l.turn("s:be u:1", "a:1") // stores no item
	l.turn("s:be u:1 a:1 u:2", "c:x")
	l.turn("s:be u:1 a:1 u:2 c:x r:x", "a:2")
	var exported bytes.Buffer
	if err := l.m.Export(t.Context(), scope, &exported); err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(exported.String()))
	to := memory.Scope{Tenant: "t", Session: "copy"}
	refused := func(name string, lines ...string) {
		t.Helper()
		if err := l.m.Import(t.Context(), to, strings.NewReader(strings.Join(lines, ""))); err == nil {
			t.Errorf("%s was imported", name)
		}
		if names, _, err := l.m.Sessions(t.Context(), to.Tenant, "", 10); err != nil || len(names) > 0 {
			t.Fatalf("%s left %q, %v", name, names, err)
		}
	}
	for n, line := range lines {
		refused(fmt.Sprintf("a file cut before line %d", n+1), lines[:n]...)
		refused(fmt.Sprintf("a file with line %d twice", n+1), slices.Insert(slices.Clone(lines), n, line)...)
		if !strings.HasPrefix(line, `{"system_prompt"`) {
			refused(fmt.Sprintf("a file without line %d", n+1), slices.Delete(slices.Clone(lines), n, n+1)...)
		}
		if n > 0 {
			refused(fmt.Sprintf("a file whose line %d is first", n+1), slices.Concat([]string{line}, lines[:n], lines[n+1:])...)
		}
	}
	for name, change := range map[string][2]string{
		"a cycle":                   {`"seq":2,"parent":1`, `"seq":2,"parent":2`},
		"a parent that comes later": {`"seq":2,"parent":1`, `"seq":2,"parent":4`},
		"the number 0":              {`"seq":1,"parent":0`, `"seq":0,"parent":0`},
		"a number beyond the last":  {`"seq":7,`, `"seq":700,`},
		"another head":              {`"head":7`, `"head":6`},
		"another count":             {`"items":7`, `"items":8`},
	} {
		changed := strings.Replace(exported.String(), change[0], change[1], 1)
		if changed == exported.String() {
			t.Fatalf("%s: %s is not in\n%s", name, change[0], changed)
		}
		refused(name, changed)
	}
	if err := l.m.Import(t.Context(), to, bytes.NewReader(exported.Bytes())); err != nil {
		t.Error(err)
	}
}

// TestImportThatBreaksOff: of a session whose import broke off after its first values, no turn is stored among them, and it can be
// imported again, or deleted.
func TestImportThatBreaksOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	words := ""
	for i := range 250 {
		words += fmt.Sprintf("u:%d a:%d ", i, i)
	}
	l.turn(words+"u:last", "a:last")
	var exported bytes.Buffer
	if err := l.m.Export(t.Context(), scope, &exported); err != nil {
		t.Fatal(err)
	}
	want, all := l.transcript(scope)

	for name, again := range map[string]func(to *lab){
		"imported again": func(*lab) {},
		"deleted": func(to *lab) {
			if err := to.m.Delete(t.Context(), scope); !errors.Is(err, memory.ErrNoSession) {
				t.Error(err)
			}
			r, err := to.store.Read(t.Context(), []cache.Query{{Group: scope.Group()}})
			if err != nil || r[0].Version != 0 {
				t.Error("values are left", r, err)
			}
		},
		"used": func(to *lab) {
			turn := to.begin(memory.Call{Scope: scope}, "u:new")
			if turn.Summary.Status != memory.StatusDegraded {
				t.Error(turn.Summary.Status)
			}
			turn.Commit(answer(t, "a:new"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var commits atomic.Int32
			store := &tapped{Store: newLab(t, memory.Options{}).store}
			store.onCommit = func(context.Context, []cache.Batch) error {
				if commits.Add(1) > 1 {
					return errOutage
				}
				return nil
			}
			store.onDelete = func(cache.Group) error { return errOutage }
			to := &lab{t: t, store: store, m: memory.New(store, nil, patient(memory.Options{Log: slog.New(slog.DiscardHandler)}))}
			defer to.m.Close()
			if err := to.m.Import(t.Context(), scope, bytes.NewReader(exported.Bytes())); !errors.Is(err, errOutage) {
				t.Fatal(err)
			}
			store.onCommit, store.onDelete = nil, nil
			again(to)
			if err := to.m.Import(t.Context(), scope, bytes.NewReader(exported.Bytes())); err != nil {
				t.Fatal(err)
			}
			to.wantTranscript(want, all)
		})
	}
}

// A client that did not see the end of a turn that was stored sends it again.
func TestRepeatedTurnIsStoredOnce(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("u:1", "a:1")
	l.turn("u:1 a:1 u:2", "a:2")
	failed := l.begin(memory.Call{}, "u:1 a:1 u:2 a:2 u:3")
	failed.Commit(memory.Answer{HTTPStatus: 500})
	for range 3 {
		l.turn("u:1 a:1 u:2 a:2 u:3", "a:3") // goes behind the input of the failed turn, not behind the head
	}
	l.turn("u:1 a:1 u:2", "a:2")
	l.turn("u:1 a:1 u:2 a:2 u:3", "a:3")
	l.wantTranscript("u:1 a:1 u:2 a:2 u:3 a:3", 6)
	l.wantTurns(8)
}

// A turn that stores no item is in the export, written before or with its answer, and between other such turns.
func TestTurnsWithoutAnItemAreExported(t *testing.T) {
	l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
	play := func(reply ...string) (turns []*memory.Turn) {
		for range reply {
			turns = append(turns, l.begin(memory.Call{History: memory.HistoryClient}, "u:1"))
		}
		for i, turn := range turns {
			turn.Forwarded()
			l.recorded(turn)
			defer turn.Commit(answer(t, reply[i]))
		}
		return turns
	}
	play("a:1")
	play("a:1", "a:1", "a:1")
	play("a:1", "a:2", "a:1")
	failed := l.begin(memory.Call{}, "u:1")
	failed.Commit(memory.Answer{HTTPStatus: 500})
	l.wantTurns(8)
	l.wantTranscript("u:1 a:1", 3)
}

// recorded waits until a turn is stored although its answer is still to come.
func (l *lab) recorded(turn *memory.Turn) {
	l.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if _, err := l.m.TurnRecord(l.t.Context(), scope, turn.ID); err == nil {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the turn was not stored")
		}
	}
}

// wantTurns wants so many turns in the export, each once.
func (l *lab) wantTurns(n int) {
	l.t.Helper()
	ids := map[string]bool{}
	for _, r := range l.records() {
		ids[r.ID] = true
	}
	if got := len(l.records()); got != n || len(ids) != n {
		l.t.Errorf("%d turns are exported, %d of them once, want %d", got, len(ids), n)
	}
}

func TestTrimmedFarBack(t *testing.T) {
	l := newLab(t, memory.Options{})
	var history []string
	for i := range 200 {
		history = append(history, fmt.Sprintf("u:%d", i))
		l.turn(strings.Join(history, " "), fmt.Sprintf("a:%d", i))
		history = append(history, fmt.Sprintf("a:%d", i))
	}
	// 300 items, the last answer asked for again: neither the head nor the start of the request is among the last items.
	sent := history[len(history)-301 : len(history)-1]
	l.turn(strings.Join(sent, " "), "a:again")
	history = append(history[:len(history)-1], "a:again")
	l.wantTranscript(strings.Join(history, " "), 401)
}

// shown is the view of a turn as it is put together again, or why it can't be.
func (l *lab) shown(turnID string) string {
	l.t.Helper()
	return l.shownOf(scope, turnID)
}

// shownOf is shown of another session, unless that has no name.
func (l *lab) shownOf(s memory.Scope, turnID string) string {
	l.t.Helper()
	if s.Session == "" {
		s = scope
	}
	items, err := l.m.TurnView(context.Background(), s, turnID)
	if err != nil {
		return err.Error()
	}
	return told(l.t, items)
}

// The view of every turn can be shown again.
func TestTurnViewIsWhatWasSent(t *testing.T) {
	l := newLab(t, memory.Options{Shape: memory.Shape{Window: &view.Window{MaxItems: 5, EvictBatch: 2, InFlight: view.InFlightWindow}}})
	sent := map[string]string{}
	play := func(words, reply string) {
		t.Helper()
		turn := l.begin(memory.Call{}, words)
		turn.Commit(answer(t, reply))
		sent[turn.ID] = told(t, turn.View)
	}
	play("s:be u:1", "c:x,y")
	play("s:be u:1 c:x,y r:x", "a:1")                                   // the call y is left out
	play("s:be u:1 c:x,y r:x a:1 u:2", "a:2")                           // again, within a longer history
	play("s:be u:1 c:x,y r:x a:1 u:2 a:2 u:3", "a:3")                   // windowed
	play("u:4", "a:4")                                                  // only what is new
	play("s:new u:2 a:2 u:3 a:3 u:4 a:4 u:5", "a:5")                    // trimmed, under other instructions
	play("s:be u:1 c:x,y r:x a:1 u:edited", "c:z")                      // a branch
	play("s:be u:1 c:x,y r:x a:1 u:edited c:z r:z", "a:6")              // the loop of it
	play("s:be u:summary u:edited c:z r:z a:6 u:7", "a:7")              // compacted by the client
	play("s:be u:1 c:x,y r:x a:1 u:edited c:z r:z r:orphan a:6", "a:8") // an orphan
	play("u:9", "c:late")
	play("u:summary u:10", "a:10")
	play("r:late", "a:11") // goes to its call, before what was said between
	play("r:late u:12", "a:12")
	for id, want := range sent {
		if got := l.shown(id); got != want {
			t.Errorf("shown %s\nsent  %s", got, want)
		}
	}
	if _, err := l.m.TurnView(context.Background(), scope, "another"); err == nil {
		t.Error("a turn that never was is shown")
	}
}
