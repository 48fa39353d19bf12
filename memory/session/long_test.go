package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory/media"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// portions is a store that notes how many items each batch writes, and fails one commit.
type portions struct {
	cache.Store
	items  []int
	fail   int    // the commit that fails, counted from 1
	before func() // is called before each commit
}

var errGone = errors.New("gone")

func (p *portions) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	n := 0
	for _, put := range batches[0].Puts {
		if strings.HasPrefix(put.Name, itemPrefix) {
			n++
		}
	}
	p.items = append(p.items, n)
	if len(p.items) == p.fail {
		return []cache.Outcome{{Err: errGone}}
	}
	if p.before != nil {
		p.before()
	}
	return p.Store.Commit(ctx, batches)
}

func longTalk(items int) string {
	var b strings.Builder
	for i := range items {
		fmt.Fprintf(&b, "%c:%d ", "ua"[i%2], i)
	}
	return strings.TrimSpace(b.String())
}

// TestVeryLongTurnsAreWrittenInPortions: the store serves others between two batches of a turn of any length.
func TestVeryLongTurnsAreWrittenInPortions(t *testing.T) {
	const items = 2*maxBatchItems + 101
	talk := longTalk(items)
	for _, c := range []struct {
		name string
		play func(l *lab, p *portions)
		want []int // items of each commit
	}{
		{"at once", func(l *lab, _ *portions) { l.sees(HistoryAuto, talk, "a:end") }, []int{maxBatchItems, maxBatchItems, 102}},
		{"opened first", func(l *lab, _ *portions) {
			e := l.enter(HistoryAuto, talk)
			l.view(e)
			l.commit(e, "")
			l.commit(e, "a:end")
		}, []int{maxBatchItems, maxBatchItems, 101, 1}},
		{"the store fails in the middle", func(l *lab, p *portions) {
			p.fail = 2
			e := l.enter(HistoryAuto, talk)
			l.view(e)
			a := &Answer{HTTPStatus: 200, Reply: wire.Reply{Choices: [][]wire.Item{sayAll(l.t, "a:end")}, Complete: true}}
			if err := commit(e, a); !errors.Is(err, errGone) {
				l.t.Fatal(err)
			}
			l.n--
			e = l.enter(HistoryAuto, talk)
			l.view(e)
			l.commit(e, "a:end")
		}, []int{maxBatchItems, maxBatchItems, maxBatchItems, 102}},
		{"another turn comes between", func(l *lab, p *portions) {
			p.before = func() {
				if len(p.items) != 2 {
					return
				}
				p.before = nil
				l.sees(HistoryAuto, "u:x", "a:x")
			}
			e := l.enter(HistoryAuto, talk)
			l.view(e)
			l.commit(e, "a:end")
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			p := &portions{Store: l.Store}
			l.Store = p
			c.play(l, p)
			for i, n := range p.items {
				if n > maxBatchItems {
					t.Errorf("commit %d writes %d items", i, n)
				}
			}
			if c.want != nil && fmt.Sprint(p.items) != fmt.Sprint(c.want) {
				t.Errorf("commits write %v items, want %v", p.items, c.want)
			}

			before := len(p.items)
			l.n += 10
			got := l.sees(HistoryAuto, talk+" a:end u:next", "a:next")
			if want := talk + " a:end u:next"; got != want {
				t.Errorf("the next view has %d bytes, want %d", len(got), len(want))
			}
			if fmt.Sprint(p.items[before:]) != "[2]" {
				t.Errorf("the next turn writes %v items", p.items[before:])
			}

			e, _, err := l.log.Enter(context.Background(), "last", time.Unix(99, 0), l.call(HistoryServer, "u:only"), Want{})
			if err != nil {
				t.Fatal(err)
			}
			view, err := e.History.Conversation(context.Background(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if said := hear(view.Items); said != talk+" a:end u:next a:next u:only" {
				t.Errorf("the stored history has %d bytes: %.60s ... %s", len(said), said, said[max(0, len(said)-60):])
			}
		})
	}
}

// largest is a store that notes the bytes of the largest batch.
type largest struct {
	cache.Store
	bytes int
}

func (l *largest) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	n := 0
	for _, put := range batches[0].Puts {
		n += len(put.Data)
	}
	l.bytes = max(l.bytes, n)
	return l.Store.Commit(ctx, batches)
}

// TestLargeTurnsAreWrittenInPortions: what is encoded at one time of a turn is small, however large its body is.
func TestLargeTurnsAreWrittenInPortions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('!' + random.IntN(64))
			if b[i] == '"' || b[i] == '\\' {
				b[i] = ' '
			}
		}
		return string(b)
	}
	var messages []string
	for size := 0; size < 3*maxBatchBytes; {
		messages = append(messages, fmt.Sprintf(`{"role":"user","content":"%s"}`, letters(4000+random.IntN(media.Large))))
		size += len(messages[len(messages)-1])
	}
	store, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &largest{Store: store}
	log := New(l, 0)
	enter := func(turn, messages string, h History) *Entry {
		t.Helper()
		req := wiretest.Request(t, dialects.Chat, `{"model":"m","messages":[`+messages+`]}`)
		c := Call{Scope: Scope{Tenant: "t", Session: "s"}, Request: req, History: h}
		e, _, err := log.Enter(t.Context(), turn, time.Unix(1_700_000_000, 0), c, Want{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}

	e := enter("t", strings.Join(messages, ","), HistoryAuto)
	if err := commit(e, nil); err != nil {
		t.Fatal(err)
	}
	if err := commit(e, &Answer{HTTPStatus: 200, Reply: wire.Reply{Choices: [][]wire.Item{sayAll(t, "a:end")}, Complete: true}}); err != nil {
		t.Fatal(err)
	}
	if most := maxBatchBytes / 4 * 5; l.bytes > most || l.bytes < maxBatchBytes/2 {
		t.Errorf("a batch has %d bytes, want at most %d", l.bytes, most)
	}

	view, err := enter("u", `{"role":"user","content":"and?"}`, HistoryServer).History.Conversation(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(view.Items) != len(messages)+2 {
		t.Fatalf("%d items, want %d", len(view.Items), len(messages)+2)
	}
	for i, want := range messages {
		if string(view.Items[i].Raw) != want {
			t.Errorf("item %d has %d bytes, want the %d that were sent", i, len(view.Items[i].Raw), len(want))
		}
	}
}

// owned is a store that notes which values of a commit a store may keep as they are.
type owned struct {
	cache.Store
	lasting, copied int
}

func (o *owned) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	for _, put := range batches[0].Puts {
		if put.Lasting {
			o.lasting++
		} else {
			o.copied++
		}
	}
	return o.Store.Commit(ctx, batches)
}

// TestTurnsNeedNoCopy: what a turn writes is in memory that nothing else uses.
func TestTurnsNeedNoCopy(t *testing.T) {
	for _, large := range []bool{false, true} {
		store, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o := &owned{Store: store}
		log := New(o, 0)

		count := 3
		if large {
			count = largeTurn>>13 + 1
		}
		messages := make([]string, count)
		for i := range messages {
			messages[i] = fmt.Sprintf(`{"role":"user","content":"%d %s"}`, i, strings.Repeat("x", 8<<10))
		}
		req := wiretest.Request(t, dialects.Chat, `{"model":"m","messages":[`+strings.Join(messages, ",")+`]}`)
		e, _, err := log.Enter(t.Context(), "t", time.Unix(1_700_000_000, 0), Call{Scope: Scope{Tenant: "t", Session: "s"}, Request: req}, Want{})
		if err != nil {
			t.Fatal(err)
		}
		if err := commit(e, &Answer{HTTPStatus: 200}); err != nil {
			t.Fatal(err)
		}
		if o.copied > 0 || o.lasting < 2*count {
			t.Errorf("large %t: %d values may be kept and %d have to be copied", large, o.lasting, o.copied)
		}
	}
}

// TestReadsOfALine: a line is read without the large strings of other lines, and a summary is found by pages.
func TestReadsOfALine(t *testing.T) {
	l := newLab(t)
	long := strings.Repeat("long", 5000)
	l.sees(HistoryAuto, "u:1", "a:1")
	l.sees(HistoryAuto, "u:1 a:1 u:"+long, "a:"+long)
	l.sees(HistoryAuto, "u:1 a:1 u:2", "a:2")
	l.reads = nil
	l.want("view", l.view(l.enter(HistoryServer, "u:3")), "u:1 a:1 u:2 a:2 u:3")
	for _, names := range l.reads {
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, mediaPrefix) }) {
			t.Error("large strings of another line are read")
		}
	}

	history := "u:1 a:1 u:2 a:2"
	for i, asked := range []string{"u:same", "u:same", "u:same", "u:same", "u:same", "u:same", "u:other", "u:same"} {
		l.sees(HistoryAuto, history+" "+asked, fmt.Sprint("a:then", i))
		history += " " + asked + fmt.Sprint(" a:then", i)
	}
	words := strings.Fields(history)
	l.reads = nil
	e := l.enter(HistoryAuto, "u:summary "+strings.Join(words[5:len(words)-2], " ")+" u:new")
	if e.plan.relation != relTrim || e.plan.summary != 1 || len(l.reads) > 12 {
		t.Errorf("%s with %d items of a summary, by %d reads", e.plan.relation, e.plan.summary, len(l.reads))
	}
}

// TestPicturesAreReadFewAtATime: of a session with many large strings, a view reads about those that it may have, and an export never
// holds many.
func TestPicturesAreReadFewAtATime(t *testing.T) {
	const items = 60
	l := newLab(t)
	var said []string
	for i := range items {
		said = append(said, fmt.Sprintf("u:%d%s", i, strings.Repeat("x", media.Large)))
	}
	l.sees(HistoryAuto, strings.Join(said, " "), "a:end")
	pictures := func() (all, most int) {
		for _, names := range l.reads {
			n := 0
			for _, name := range names {
				if strings.HasPrefix(name, mediaPrefix) {
					n++
				}
			}
			all, most = all+n, max(most, n)
		}
		return all, most
	}

	l.reads = nil
	view, err := l.enter(HistoryServer, "u:new").History.Conversation(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if all, _ := pictures(); len(view.Items) < 4 || all > 2*mediaAtOnce {
		t.Errorf("a view of %d items reads %d pictures of %d", len(view.Items), all, items)
	}

	l.reads = nil
	if err := l.log.Export(t.Context(), scope, io.Discard); err != nil {
		t.Fatal(err)
	}
	if all, most := pictures(); all != items || most > mediaAtOnce {
		t.Errorf("an export reads %d pictures of %d, up to %d at once", all, items, most)
	}
}

// TestVeryLongRequestsAreLookedUpInPortions: the store serves others between two look-ups of a request of any length.
func TestVeryLongRequestsAreLookedUpInPortions(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryAuto, "u:1", "a:1")
	l.sees(HistoryServer, "u:2", "a:2")
	for _, c := range []struct {
		name, words string
		mode        History
	}{
		{"nothing known", longTalk(3 * maxNames), HistoryAuto},
		{"the beginning known", "u:1 a:1 " + longTalk(3*maxNames), HistoryAuto},
		{"the history before it", "u:1 a:1 " + longTalk(3*maxNames), HistoryServer},
		{"a run", "u:2 a:2 " + longTalk(3*maxNames), HistoryAuto},
	} {
		l.reads = nil
		e := l.enter(c.mode, c.words)
		l.commit(e, "a:end")
		for _, names := range l.reads {
			if len(names) > maxNames {
				t.Errorf("%s: %d values are read at once", c.name, len(names))
			}
		}
	}
}

// TestLongTurnThatMoves: a very long turn moves after a faster one, and the store fails before its end. The head names no end that
// was deleted.
func TestLongTurnThatMoves(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryServer, "u:1", "a:1")
	e := l.enter(HistoryServer, strings.ReplaceAll(longTalk(2*maxBatchItems), "a:", "u:a"))
	l.view(e)
	l.commit(e, "")
	l.sees(HistoryServer, "u:2", "a:2")
	p := &portions{Store: l.Store, fail: 3} // behind the conflict and the first batch
	l.Store = p
	a := &Answer{HTTPStatus: 200, Reply: wire.Reply{Choices: [][]wire.Item{sayAll(t, "a:end")}, Complete: true}}
	if err := commit(e, a); !errors.Is(err, errGone) {
		t.Fatal(err, p.items)
	}
	st, _, err := l.log.transcript(scope).head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range st.head.Tails {
		if _, err := l.log.transcript(scope).item(t.Context(), end.Pos.Seq); err != nil {
			t.Error(err)
		}
	}
}
