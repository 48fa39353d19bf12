package transcript

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"remora/memory/memo"
	"remora/wire"
)

// Whatever stands in the store, reading it neither panics nor takes more memory than it is long.
func FuzzRecords(f *testing.F) {
	pos := position{Seq: 7, Chain: wire.Hash{1}, Units: 9}
	h := head{Pos: pos, NextSeq: 8, LastTurn: "t", Run: 9, Ring: []echo{{Content: 1, Seq: 2}}, Open: []string{"c"}, Tails: []tail{{Pos: pos}}}
	layered := h
	layered.Blocks = []wire.Hash{{1}, {2}}
	it := storedItem{Parent: 6, Pos: pos, Turn: "t", Raw: bytes.Repeat([]byte(`{"role":"user"}`), 200)}
	f.Add(h.encode())
	f.Add(layered.encode())
	layered.Begun = []position{pos, {Seq: 3}}
	f.Add(layered.encode())
	f.Add(it.encode())
	f.Add(place{Pos: pos, Side: true}.encode())
	f.Add(reference{Kind: wire.ToolCall, Pair: wire.Call{ID: "c"}}.encode())
	f.Add(tellings{{wire.Hash{1}, wire.Hash{2}}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if told, err := decodeTellings(b); err == nil && !bytes.Equal(told.encode(), b) {
			t.Errorf("tellings changed when they were written again: %x", b)
		}
		if h, err := decodeHead(b); err == nil {
			again, err := decodeHead(h.encode())
			if err != nil || again.Pos != h.Pos || len(again.Tails) != len(h.Tails) || !slices.Equal(again.Blocks, h.Blocks) || again.Run != h.Run || !slices.Equal(again.Begun, h.Begun) {
				t.Errorf("head changed when it was written again: %v", err)
			}
		}
		if it, err := decodeItem(b); err == nil {
			again, err := decodeItem(it.encode())
			if err != nil || !bytes.Equal(again.Raw, it.Raw) || again.Pos != it.Pos {
				t.Errorf("item changed when it was written again: %v", err)
			}
			if behind := it.appendTo([]byte("others")); string(behind) != "others"+string(it.encode()) {
				t.Errorf("item behind others is written otherwise: %x", behind)
			}
		}
		if p, err := decodePlace(b); err == nil && p.Pos.Seq == 0 && p.Side {
			_ = p.encode()
		}
		if r, err := decodeReference(b); err == nil {
			if again, err := decodeReference(r.encode()); err != nil || again != r {
				t.Errorf("reference changed when it was written again: %v", err)
			}
		}
	})
}

// Whatever two bodies say, merging the second behind the first keeps its promises.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"a"}]}`), []byte(`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`), uint8(0))
	f.Add([]byte(`{"input":"a"}`), []byte(`{"input":[{"type":"item_reference","id":"x"},{"type":"reasoning","id":"y"}]}`), uint8(1))
	f.Add([]byte(`{"messages":[{"role":"user","content":"a"}]}`), []byte(`{"messages":[{"role":"tool","tool_call_id":"b","content":"c"},{"role":"user","content":"d"}]}`), uint8(0))
	f.Fuzz(func(t *testing.T, first, second []byte, mode uint8) {
		for _, d := range []wire.Dialect{wire.Chat, wire.Responses} {
			one, err := wire.Parse(d, first)
			if err != nil {
				continue
			}
			two, err := wire.Parse(d, second)
			if err != nil {
				continue
			}
			h := headAfter(newIncoming(one, new(state), memo.NewHashes()))
			in := newIncoming(two, new(state), memo.NewHashes())
			p, ok := h.merge(in, History(mode%3))
			if !ok {
				p = h.mergeUnknown(in, History(mode%3))
			}
			checkPlan(t, h, in, p)
			if History(mode%3) == HistoryAuto && p.relation == relRoot && onlyResults(in.items) && !in.stateful {
				t.Errorf("a conversation begins with a result: %+v", p)
			}
		}
	})
}

// onlyResults tells that the items are results of calls, one at least.
func onlyResults(items []wire.Item) bool {
	return len(items) > 0 && !slices.ContainsFunc(items, func(it wire.Item) bool { return it.Kind != wire.ToolResult })
}

func headAfter(in *incoming) *head {
	h := &head{NextSeq: uint64(len(in.items)) + 1, Answered: true, Lead: in.lead}
	for i, it := range in.items {
		h.Pos = h.Pos.after(in.marks[i])
		h.Pos.Seq = uint64(i + 1)
		h.remember(it, in.marks[i], h.Pos.Seq)
	}
	return h
}

func checkPlan(t *testing.T, h *head, in *incoming, p plan) {
	t.Helper()
	if p.fresh < 0 || p.fresh > len(in.items) || p.aside < 0 || p.aside > p.fresh || p.offset < 0 {
		t.Fatalf("plan %+v of %d items", p, len(in.items))
	}
	if p.relation == relContinue && p.parent.Chain != in.ends[p.fresh-1].Chain {
		t.Errorf("continues where the request's history does not end")
	}
	if p.before && (in.stateful || p.parent != h.Pos) {
		t.Errorf("stored history put before a request that does not follow it: %+v", p)
	}
}

// Sessions of earlier versions, whose heads end before the run, before where runs began, or before
// the turns without an item, go on.
func TestHeadsOfEarlierVersions(t *testing.T) {
	h := head{NextSeq: 8, Blocks: []wire.Hash{{1}}, Run: 9, Begun: []position{{Seq: 3, Chain: wire.Hash{1}, Units: 4}}, Bare: "turn"}
	whole := h.encode()
	bare := len(h.Bare) + 1
	begun := len(appendPosition(nil, h.Begun[0])) + 1
	for _, want := range []head{
		{NextSeq: 8, Blocks: h.Blocks, Run: 9, Begun: h.Begun}, {NextSeq: 8, Blocks: h.Blocks, Run: 9}, {NextSeq: 8, Blocks: h.Blocks},
	} {
		end := len(whole) - bare
		if want.Begun == nil {
			end -= begun
		}
		if want.Run == 0 {
			end -= 8
		}
		if got, err := decodeHead(whole[:end]); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	if got, err := decodeHead(whole); err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%+v, %v, want %+v", got, err, h)
	}
}
