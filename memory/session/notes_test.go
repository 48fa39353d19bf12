package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// lab is a log whose store records writes.
type lab struct {
	cache.Store
	t   *testing.T
	log *Log
	n   int

	puts  []string   // names, of all commits so far
	reads [][]string // names, by round trip
}

func newLab(t *testing.T) *lab {
	t.Helper()
	store, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &lab{t: t, Store: store}
	l.log = New(l, 0)
	return l
}

func (l *lab) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	for _, p := range batches[0].Puts {
		l.puts = append(l.puts, p.Name)
	}
	return l.Store.Commit(ctx, batches)
}

func (l *lab) Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
	var names []string
	for _, q := range queries {
		names = append(names, q.Names...)
	}
	l.reads = append(l.reads, names)
	return l.Store.Read(ctx, queries)
}

// wrote counts the values with a prefix that were written.
func (l *lab) wrote(prefix string) (n int) {
	for _, name := range l.puts {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

var scope = Scope{Tenant: "tenant", Session: "session", Resource: "session"}

// enter begins a turn that sends words.
func (l *lab) enter(mode History, words string) *Entry {
	l.t.Helper()
	l.n++
	e, _, err := l.log.Enter(context.Background(), fmt.Sprintf("turn%02d", l.n), time.Unix(int64(l.n), 0), l.call(mode, words), Want{})
	if err != nil {
		l.t.Fatal(err)
	}
	return e
}

func (l *lab) call(mode History, words string) Call {
	l.t.Helper()
	list := string(bytes.Join(raws(sayAll(l.t, words)), []byte(",")))
	req, err := wire.Parse(dialects.Chat, []byte(`{"model":"m","messages":[`+list+`]}`))
	if err != nil {
		l.t.Fatal(err)
	}
	return Call{Scope: scope, Request: req, History: mode}
}

// view returns the items that the turn sends, without a window.
func (l *lab) view(e *Entry) string {
	l.t.Helper()
	c, err := e.History.Conversation(context.Background(), 1000)
	if err != nil {
		l.t.Fatal(err)
	}
	v := view.Assemble(view.Request{System: c.System, Items: c.Items, Offset: c.Offset, Resolved: e.Resolved(c.Items)})
	e.View.Chosen(&c, &v, 0)
	return hear(v.Items)
}

func (l *lab) amend(e *Entry, h Hidden, words string) {
	l.t.Helper()
	h.Items, h.Dialect = raws(sayAll(l.t, words)), dialects.Chat.Code()
	if err := e.Notes.Amend(h); err != nil {
		l.t.Fatal(err)
	}
}

// commit commits a turn until no other one is faster.
func commit(e *Entry, a *Answer) error {
	for {
		_, changed, err := e.Commit(context.Background(), a, Puts{})
		if changed == nil {
			return err
		}
	}
}

func (l *lab) commit(e *Entry, words string) {
	l.t.Helper()
	a := &Answer{HTTPStatus: 200, Reply: wire.Reply{Choices: [][]wire.Item{sayAll(l.t, words)}, Complete: true}}
	if words == "" {
		a = nil
	}
	if err := commit(e, a); err != nil {
		l.t.Fatal(err)
	}
}

// sees plays a turn without hidden items, and returns the items sent.
func (l *lab) sees(mode History, words, answer string) string {
	l.t.Helper()
	e := l.enter(mode, words)
	sent := l.view(e)
	l.commit(e, answer)
	return sent
}

func (l *lab) want(what, got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// toolTurn plays a turn in which a layer's tool runs before the answer: u:1, then a:1.
func (l *lab) toolTurn() {
	l.t.Helper()
	e := l.enter(HistoryAuto, "s:0 u:1")
	l.want("first", l.view(e), "s:0 u:1")
	l.commit(e, "")
	l.amend(e, Hidden{After: 1, Led: true}, "c:x r:x")
	l.commit(e, "a:1")
}

// Hidden items are in later views, for every habit of clients.
func TestHiddenItemsComeBack(t *testing.T) {
	for _, c := range []struct {
		name string
		mode History
		sent []string
		want string // of the last
	}{
		{"resent", HistoryAuto, []string{"s:0 u:1 a:1 u:2"}, "s:0 u:1 c:x r:x a:1 u:2"},
		{"only what is new", HistoryServer, []string{"u:2"}, "s:0 u:1 c:x r:x a:1 u:2"},
		{"made anew", HistoryAuto, []string{"s:0 u:1"}, "s:0 u:1"},
		{"another branch", HistoryAuto, []string{"s:0 u:1", "s:0 u:1 b:1 u:3"}, "s:0 u:1 b:1 u:3"},
		{"and back", HistoryAuto, []string{"s:0 u:1", "s:0 u:1 a:1 u:3"}, "s:0 u:1 c:x r:x a:1 u:3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.toolTurn()
			got := ""
			for i, words := range c.sent {
				words = strings.ReplaceAll(words, "b:", "a:b")
				answer := fmt.Sprintf("a:b%d", i+2)
				if words == "s:0 u:1" {
					answer = "a:b1"
				}
				got = l.sees(c.mode, words, answer)
			}
			l.want("view", got, strings.ReplaceAll(c.want, "b:", "a:b"))
		})
	}
}

// A client that trims the beginning of its history gets the hidden items of the rest.
func TestHiddenItemsOfTrimmedHistories(t *testing.T) {
	for _, c := range []struct{ name, sent, want string }{
		{"trimmed", "u:1 a:1 u:2 a:2 u:3", "u:1 c:x r:x a:1 u:2 a:2 u:3"},
		{"with a summary", "u:sum u:1 a:1 u:2 a:2 u:3", "u:sum u:1 c:x r:x a:1 u:2 a:2 u:3"},
		{"cut behind it", "u:sum u:2 a:2 u:3", "u:sum u:2 a:2 u:3"},
		{"cut right behind it", "u:sum a:1 u:2 a:2 u:3", "u:sum a:1 u:2 a:2 u:3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.sees(HistoryClient, "u:0", "a:0")
			e := l.enter(HistoryClient, "u:0 a:0 u:1")
			l.view(e)
			l.amend(e, Hidden{After: 3, Led: true}, "c:x r:x")
			l.commit(e, "a:1")
			l.sees(HistoryClient, "u:0 a:0 u:1 a:1 u:2", "a:2")
			e = l.enter(HistoryClient, c.sent)
			if e.plan.relation != relTrim {
				t.Fatalf("relation %s", e.plan.relation)
			}
			l.want("view", l.view(e), c.want)
			l.commit(e, "a:3")
			l.want("TurnView", l.turnView("turn04"), c.want)
			l.want("next", l.sees(HistoryClient, c.sent+" a:3 u:4", "a:4"), c.want+" a:3 u:4")
		})
	}
}

// Once a layer has replaced a new item, the model sees the replacement from then on.
func TestReplacedItemsStayReplaced(t *testing.T) {
	l := newLab(t)
	e := l.enter(HistoryAuto, "u:1")
	l.amend(e, Hidden{After: 1, Replaces: true}, "u:one d:note")
	l.want("at once", l.view(e), "u:one d:note")
	l.commit(e, "a:1")
	l.want("resent", l.sees(HistoryAuto, "u:1 a:1 u:2", "a:2"), "u:one d:note a:1 u:2")
	l.want("only what is new", l.sees(HistoryServer, "u:3", "a:3"), "u:one d:note a:1 u:2 a:2 u:3")
	l.want("made anew", l.sees(HistoryClient, "u:1", "a:4"), "u:one d:note")
	l.want("TurnView", l.turnView("turn02"), "u:one d:note a:1 u:2")
	l.want("TurnView, made anew", l.turnView("turn04"), "u:one d:note")
}

// An answer that mixes calls of layers and of the client is one answer for the model.
func TestMixedAnswer(t *testing.T) {
	l := newLab(t)
	e := l.enter(HistoryAuto, "u:1")
	l.view(e)
	l.amend(e, Hidden{After: 2, Replaces: true}, "c:x,y r:x")
	l.commit(e, "c:y")
	l.want("resent", l.sees(HistoryAuto, "u:1 c:y r:y", "a:1"), "u:1 c:x,y r:x r:y")
	l.want("only what is new", l.sees(HistoryServer, "u:2", "a:2"), "u:1 c:x,y r:x r:y a:1 u:2")
	l.want("TurnView", l.turnView("turn02"), "u:1 c:x,y r:x r:y")
}

// A turn whose input was written moves after a faster one, and its hidden items with it.
func TestHiddenItemsMoveWithTheirTurn(t *testing.T) {
	for _, journal := range []bool{false, true} {
		l := newLab(t)
		l.sees(HistoryServer, "u:1", "a:1")
		slow := l.enter(HistoryServer, "u:2")
		l.amend(slow, Hidden{After: 1}, "d:note")
		l.want("slow", l.view(slow), "u:1 a:1 u:2 d:note")
		if journal {
			l.commit(slow, "")
		}
		l.sees(HistoryServer, "u:3", "a:3")
		l.commit(slow, "a:2")
		l.want("next", l.sees(HistoryServer, "u:4", "a:4"), "u:1 a:1 u:3 a:3 u:2 d:note a:2 u:4")
		l.want("TurnView", l.turnView("turn02"), "u:1 a:1 u:2 d:note")
		l.want("log", l.headLine(), "u:1 a:1 u:3 a:3 u:2 (d:note) a:2 u:4 a:4")
		results, err := l.Read(context.Background(), []cache.Query{{Group: scope.Group(), Names: []string{amendName}}})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := decodeAmendments(results[0].Values[0]); err != nil || len(a) != 1 {
			t.Errorf("journal %t: amendments %d, %v", journal, len(a), err)
		}
	}
}

func (l *lab) turnView(id string) string {
	l.t.Helper()
	items, err := l.log.TurnView(context.Background(), scope, id)
	if err != nil {
		l.t.Fatal(err)
	}
	return hear(items)
}

// headLine returns the conversation in the log, hidden items in brackets.
func (l *lab) headLine() string {
	l.t.Helper()
	var line []string
	err := l.log.Walk(context.Background(), scope, func(x ExportLine) error {
		if x.Item == nil || !x.Item.OnHead {
			return nil
		}
		it, err := wire.ParseItem(dialects.Chat, x.Item.Bytes())
		word := hear([]wire.Item{it})
		if x.Item.Hidden {
			word = "(" + word + ")"
		}
		line = append(line, word)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.Join(line, " ")
}

func (l *lab) export(s Scope) string {
	l.t.Helper()
	var b bytes.Buffer
	if err := l.log.Export(context.Background(), s, &b); err != nil {
		l.t.Fatal(err)
	}
	return b.String()
}

// An export shows what was hidden at its place, and another store is told the same by it.
func TestExportOfHiddenItemsAndBlocks(t *testing.T) {
	l := newLab(t)
	l.toolTurn()
	e := l.enter(HistoryAuto, "s:0 u:1 a:1 u:2")
	l.amend(e, Hidden{After: 3, Replaces: true}, "u:two")
	l.want("view", l.view(e), "s:0 u:1 c:x r:x a:1 u:two")
	e.Notes.Blocks = []view.Block{{Layer: "plan", Slot: 10, Tokens: 3, Texts: []string{"the plan"}}, {Layer: "time", Slot: 90, Tokens: 2, Place: view.End(), Texts: []string{"noon"}, Role: wire.System}}
	e.Notes.Layers = []turnrecord.LayerNote{{ID: "plan", Tokens: 3, Ms: 1}, {ID: "web", Ms: 250, Error: "recall: timeout"}}
	l.commit(e, "a:2")
	l.want("TurnView", l.turnView("turn02"), "s:0 d:the plan u:1 c:x r:x a:1 u:two s:noon")

	var record turnrecord.Record
	err := l.log.Walk(context.Background(), scope, func(x ExportLine) error {
		if x.Turn == nil {
			return nil
		}
		return json.Unmarshal(x.Turn, &record)
	})
	if err != nil {
		t.Fatal(err)
	}
	l.want("log", l.headLine(), "u:1 (c:x) (r:x) a:1 u:2 (u:two) a:2")
	if want := []turnrecord.LayerNote{{ID: "plan", Tokens: 3, Ms: 1}, {ID: "web", Ms: 250, Error: "recall: timeout"}}; !reflect.DeepEqual(record.Layers, want) {
		t.Errorf("layers %+v", record.Layers)
	}
	if len(record.Hidden) != 1 || len(record.Blocks) != 2 {
		t.Errorf("hidden %d, blocks %+v", record.Hidden, record.Blocks)
	}

	text, other := l.export(scope), newLab(t)
	if err := other.log.Import(context.Background(), scope, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, other.export(scope)); diff != "" {
		t.Error(diff)
	}
	other.n = l.n
	other.want("TurnView", other.turnView("turn02"), "s:0 d:the plan u:1 c:x r:x a:1 u:two s:noon")
	other.want("next", other.sees(HistoryAuto, "s:0 u:1 a:1 u:2 a:2 u:3", "a:3"), "s:0 u:1 c:x r:x a:1 u:two a:2 u:3")
	other.want("a branch", other.sees(HistoryAuto, "s:0 u:1 a:1 u:2 a:z u:3", "a:3"), "s:0 u:1 c:x r:x a:1 u:two a:z u:3")
	other.want("its TurnView", other.turnView("turn04"), "s:0 u:1 c:x r:x a:1 u:two a:z u:3")

	changed := strings.Replace(text, `"text":"dGhl`, `"text":"dGhm`, 1)
	if err := newLab(t).log.Import(context.Background(), scope, strings.NewReader(changed)); err == nil || !strings.Contains(err.Error(), "text was changed") {
		t.Errorf("changed block: %v", err)
	}
}

// Layers cost nothing where there are none, and what they say again is not written again.
func TestOnlyWhatChangesIsWritten(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryAuto, "u:1", "a:1")
	if n := l.wrote(amendName) + l.wrote(blockPrefix); n != 0 {
		t.Errorf("%d values for a turn without layers", n)
	}
	conversation := "u:1 a:1"
	for i := 2; i < 5; i++ {
		conversation += fmt.Sprintf(" u:%d", i)
		e := l.enter(HistoryAuto, conversation)
		if i == 2 {
			l.amend(e, Hidden{After: 3}, "d:note")
		}
		e.Notes.Blocks = []view.Block{{Layer: "plan", Texts: []string{"the plan"}}}
		l.view(e)
		l.commit(e, "") // the input alone, before the answer
		l.commit(e, fmt.Sprintf("a:%d", i))
		conversation += fmt.Sprintf(" a:%d", i)
	}
	if n := l.wrote(itemPrefix); n != 9 {
		t.Errorf("%d items of 4 turns and a note", n)
	}
	if a, b := l.wrote(amendName), l.wrote(blockPrefix); a != 1 || b != 1 {
		t.Errorf("amendments were written %d times, the block %d times", a, b)
	}
}

// What is too much to be kept for views stays in the log, and no view of any habit shows it.
func TestDroppedAmendmentsStayInTheLog(t *testing.T) {
	l := newLab(t)
	e := l.enter(HistoryAuto, "u:1")
	l.view(e)
	l.amend(e, Hidden{After: 1}, "d:"+strings.Repeat("x", maxAmendBytes))
	l.commit(e, "a:1")
	l.want("resent", l.sees(HistoryClient, "u:1 a:1 u:2", "a:2"), "u:1 a:1 u:2")
	l.want("only what is new", l.sees(HistoryServer, "u:3", "a:3"), "u:1 a:1 u:2 a:2 u:3")
	if line := l.headLine(); !strings.HasPrefix(line, "u:1 (d:xxx") || !strings.HasSuffix(line, "x) a:1 u:2 a:2 u:3 a:3") {
		t.Errorf("the log has %d bytes", len(line))
	}
}

// A turn that waits in the spool keeps its notes.
func TestNotesOfResumedTurns(t *testing.T) {
	l := newLab(t)
	c := l.call(HistoryAuto, "u:1")
	e := l.log.Detached("turn01", time.Unix(1, 0), c)
	l.amend(e, Hidden{After: 1, Replaces: true}, "u:one")
	e.Notes.Blocks = []view.Block{{Layer: "plan", Texts: []string{"the plan"}}}
	l.want("view", l.view(e), "u:one")
	b, err := json.Marshal(e.Notes.Save())
	if err != nil {
		t.Fatal(err)
	}
	var n *SavedNotes
	if err := json.Unmarshal(b, &n); err != nil {
		t.Fatal(err)
	}
	again, err := l.log.Resumed("turn01", time.Unix(1, 0), c, e.View.Save(), n)
	if err != nil {
		t.Fatal(err)
	}
	l.commit(again, "a:1")
	l.want("TurnView", l.turnView("turn01"), "d:the plan u:one")
	l.n = 1
	l.want("next", l.sees(HistoryAuto, "u:1 a:1 u:2", "a:2"), "u:one a:1 u:2")
}

// A turn whose input and hidden calls were written before its answer, and whose answer waits in the spool, shows the
// calls once, and not for a regenerated answer.
func TestHiddenItemsOfResumedTurns(t *testing.T) {
	l := newLab(t)
	e := l.enter(HistoryAuto, "u:1")
	l.view(e)
	l.amend(e, Hidden{After: 1, Led: true}, "c:x r:x")
	l.commit(e, "")
	again, err := l.log.Resumed(e.id, e.started, e.call, e.View.Save(), e.Notes.Save())
	if err != nil {
		t.Fatal(err)
	}
	l.commit(again, "a:1")
	l.want("next", l.sees(HistoryAuto, "u:1 a:1 u:2", "a:2"), "u:1 c:x r:x a:1 u:2")
	l.want("another answer", l.sees(HistoryAuto, "u:1 a:3 u:4", "a:4"), "u:1 a:3 u:4")
}

// TestStepsOfAFailedTurn: the client asks again, and the model goes on from the tools that have run.
func TestStepsOfAFailedTurn(t *testing.T) {
	l := newLab(t)
	e := l.enter(HistoryAuto, "u:1")
	l.view(e)
	l.amend(e, Hidden{After: 1, Led: true}, "c:x r:x")
	if err := commit(e, &Answer{HTTPStatus: 500}); err != nil {
		t.Fatal(err)
	}
	l.want("again", l.sees(HistoryAuto, "u:1", "a:1"), "u:1 c:x r:x")
	l.want("next", l.sees(HistoryAuto, "u:1 a:1 u:2", "a:2"), "u:1 c:x r:x a:1 u:2")
}

// What can't be kept is refused as a whole.
func TestAmendRefuses(t *testing.T) {
	l := newLab(t)
	e := l.enter(HistoryAuto, "u:1")
	for _, h := range []Hidden{
		{After: -1},
		{After: 0, Replaces: true},
		{After: 1, Dialect: dialects.Chat.Code(), Items: [][]byte{[]byte(`{"role":"user","content":"a"}`), []byte(`secret`)}},
		{After: 1, Items: make([][]byte, maxAmendItems+1)},
	} {
		if err := e.Notes.Amend(h); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", h, err)
		}
	}
	if e.Notes.Save() != nil {
		t.Error("something was kept")
	}
}

// TestSessionThatVanishesUnderATurn: a store that evicts or loses a session while upstream works has lost the turn's input as well,
// so it is written again.
func TestSessionThatVanishesUnderATurn(t *testing.T) {
	for name, earlier := range map[string][]string{"its first turn": nil, "a later turn": {"u:zero", "a:null"}} {
		l := newLab(t)
		words := "u:one"
		if earlier != nil {
			l.commit(l.enter(HistoryAuto, earlier[0]), earlier[1])
			words = strings.Join(earlier, " ") + " " + words
		}
		e := l.enter(HistoryAuto, words)
		l.commit(e, "")
		if err := l.Delete(t.Context(), e.History.stored.group); err != nil {
			t.Fatal(err)
		}
		l.commit(e, "a:two")

		if got, want := l.sees(HistoryServer, "u:three", "a:four"), words+" a:two u:three"; got != want {
			t.Errorf("%s: the next turn sees %q, want %q", name, got, want)
		}
		var export bytes.Buffer
		if err := l.log.Export(t.Context(), scope, &export); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
