package session

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/wire"
	"remora/wire/dialects"
)

// Whatever stands in the store, reading it neither panics nor takes more memory than it is long.
func FuzzRecords(f *testing.F) {
	pos := position{Seq: 7, Chain: wire.Hash{1}, Units: 9, Compaction: 2}
	h := head{Pos: pos, NextSeq: 8, LastTurn: "t", Run: 9, Ring: []echo{{Content: 1, Seq: 2}}, Open: []string{"c"}, Tails: []tail{{Pos: pos}}}
	layered := h
	layered.Blocks = []wire.Hash{{1}, {2}}
	it := storedItem{Parent: 6, Pos: pos, Turn: "t", Made: Origin{"openai", "m", true}, Raw: bytes.Repeat([]byte(`{"role":"user"}`), 200)}
	f.Add(h.encode())
	f.Add(layered.encode())
	layered.Begun = []position{pos, {Seq: 3}}
	layered.Line, layered.Lines, layered.TurnsApart, layered.LastEmpty = 2, 3, 1, "turn"
	layered.Habits = []habit{{Dialect: dialects.Chat, Client: 1}, {Client: 2, Resends: true}}
	layered.Offer = offer{Client: 1, Tools: 2, Model: 3, Format: formatSchema}
	layered.Tails = []tail{{Pos: pos, Line: 3, Side: true, Turns: 1, Open: []uint64{7}}}
	f.Add(layered.encode())
	f.Add(it.encode())
	f.Add((&linePosition{Pos: pos, Side: true}).encode())
	f.Add(encode(&replyPosition{linePosition{Pos: pos}, "first"}))
	f.Add(encode(&reference{Kind: wire.ToolCall, Pair: wire.Call{ID: "c"}}))
	f.Add(encode(shownBlocks{{wire.Hash{1}, wire.Hash{2}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if told, err := decodeShownBlocks(b); err == nil && !bytes.Equal(encode(told), b) {
			t.Errorf("shownBlocks changed when they were written again: %x", b)
		}
		if h, err := decodeHead(b); err == nil {
			again, err := decodeHead(h.encode())
			if err != nil || !reflect.DeepEqual(again, h) {
				t.Errorf("head changed when it was written again: %v", err)
			}
		}
		if it, err := decodeItem(b); err == nil {
			again, err := decodeItem(it.encode())
			if err != nil || !bytes.Equal(again.Raw, it.Raw) || again.Pos != it.Pos {
				t.Errorf("item changed when it was written again: %v", err)
			}
		}
		if p, err := decode[linePosition](b, "place"); err == nil && p.Pos.Seq == 0 && p.Side {
			_ = p.encode()
		}
		if r, err := decode[reference](b, "reference"); err == nil {
			if again, err := decode[reference](encode(&r), "reference"); err != nil || again != r {
				t.Errorf("reference changed when it was written again: %v", err)
			}
		}
	})
}

// Whatever two bodies say, merging the second after the first keeps its promises.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"a"}]}`), []byte(`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`), uint8(0))
	f.Add([]byte(`{"input":"a"}`), []byte(`{"input":[{"type":"item_reference","id":"x"},{"type":"reasoning","id":"y"}]}`), uint8(1))
	f.Add([]byte(`{"messages":[{"role":"user","content":"a"}]}`), []byte(`{"messages":[{"role":"tool","tool_call_id":"b","content":"c"},{"role":"user","content":"d"}]}`), uint8(0))
	f.Add([]byte(`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`), []byte(`{"messages":[{"role":"assistant","content":"c"},{"role":"user","content":"d"}]}`), uint8(HistoryServer))
	f.Fuzz(func(t *testing.T, first, second []byte, mode uint8) {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			one, err := wire.Parse(d, first)
			if err != nil {
				continue
			}
			two, err := wire.Parse(d, second)
			if err != nil {
				continue
			}
			said := newIncoming(&Call{Request: one}, &state{head: new(head)}, newHashCache())
			st := &state{head: headAfter(said)}
			in := newIncoming(&Call{Request: two}, st, newHashCache())
			c := Call{Request: two, History: History(mode % 3)}
			log := New(storedItems{named: itemsOf(said)}, 0)
			p, err := log.newEntry("turn", time.Time{}, c).placement(st, in, c.History).find(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			checkPlan(t, st.head, in, p)
			if History(mode%3) == HistoryAuto && p.relation == relRoot && onlyResults(in.items) && !in.stateful {
				t.Errorf("a conversation begins with a result: %+v", p)
			}
		}
	})
}

// storedItems is a store that has these items of a transcript by their names, and no index of them.
type storedItems struct {
	cache.Store
	named map[string][]byte
}

func (items storedItems) Read(_ context.Context, queries []cache.Query) ([]cache.Result, error) {
	results := make([]cache.Result, len(queries))
	for i, q := range queries {
		for _, name := range q.Names {
			results[i].Values = append(results[i].Values, items.named[name])
		}
	}
	return results, nil
}

// itemsOf returns the stored items when the head is headAfter(in).
func itemsOf(in *incoming) map[string][]byte {
	items := map[string][]byte{}
	var pos position
	for i, it := range in.items {
		stored := storedItem{Parent: pos.Seq, Content: in.marks[i].Content, Dialect: it.Dialect, Turn: "t", Raw: it.Raw}
		pos = pos.after(in.marks[i])
		pos.Seq = uint64(i + 1)
		if stored.Pos = pos; !in.marks[i].onChain {
			stored.Flags = flagOffChain
		}
		items[itemName(pos.Seq)] = stored.encode()
	}
	return items
}

// onlyResults reports whether the items are results of calls, at least one.
func onlyResults(items []wire.Item) bool {
	return len(items) > 0 && !slices.ContainsFunc(items, func(it wire.Item) bool { return it.Kind != wire.ToolResult })
}

func headAfter(in *incoming) *head {
	h := &head{NextSeq: uint64(len(in.items)) + 1, Answered: true, SystemPrompt: in.systemPrompt}
	for i, it := range in.items {
		h.Pos = h.Pos.after(in.marks[i])
		h.Pos.Seq = uint64(i + 1)
		h.remember(it, in.marks[i], h.Pos.Seq)
	}
	return h
}

func checkPlan(t *testing.T, h *head, in *incoming, p plan) {
	t.Helper()
	if p.fresh < 0 || p.fresh > len(in.items) || p.summary < 0 || p.summary > p.fresh || p.offset < 0 {
		t.Fatalf("plan %+v of %d items", p, len(in.items))
	}
	if p.relation == relContinue && p.parent.Chain != in.ends[p.fresh-1].Chain {
		t.Errorf("continues where the request's history does not end")
	}
	if p.before && (in.stateful || p.parent != h.Pos) {
		t.Errorf("stored history put before a request that does not follow it: %+v", p)
	}
}

func TestHeadIsReadAsItWasWritten(t *testing.T) {
	at := position{Seq: 3, Chain: wire.Hash{1}, Units: 4, Compaction: 2}
	for _, h := range []*head{
		{NextSeq: 8},
		{
			Pos: at, NextSeq: 8, LastTurn: "turn", Answered: true, Ring: []echo{{1, 2}}, Open: []string{"c"}, Tails: []tail{{Pos: at, Turns: 1}},
			Blocks: []wire.Hash{{1}}, Run: 9, Begun: []position{at}, LastEmpty: "turn",
		},
	} {
		if got, err := decodeHead(h.encode()); err != nil || !cmp.Equal(got, h, cmp.AllowUnexported(head{})) {
			t.Errorf("%+v, %v, want %+v", got, err, h)
		}
	}
}
