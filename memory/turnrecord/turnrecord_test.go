package turnrecord_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/turnrecord"
	"remora/memory/view"
)

// What is written by hand reads back as what was written.
func TestTurnRecordReadsBack(t *testing.T) {
	pinned := 3
	f := func(r turnrecord.Record) {
		t.Helper()
		var got turnrecord.Record
		if err := json.Unmarshal(r.AppendTo(nil), &got); err != nil {
			t.Fatalf("%v\n%s", err, r.AppendTo(nil))
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Error(diff)
		}
		if size := r.Size(); len(r.AppendTo(nil)) > size {
			t.Errorf("%d bytes, more than its Size, %d", len(r.AppendTo(nil)), size)
		}
	}
	at := time.Date(2026, 11, 21, 3, 4, 5, 678, time.UTC)
	f(turnrecord.Record{ID: "1", Time: at, Status: turnrecord.Incomplete, Open: true, Relation: "root", Dialect: "chat"})
	f(turnrecord.Record{ // as most are
		ID: "06GZR82WJGS4MM1DQGMARCCJEG", Time: at.Add(123456789), Status: turnrecord.Complete, Relation: "continue", Rule: "known_history", Dialect: "chat", Model: "gpt-5-mini",
		Resource: strings.Repeat("u", 36), Execution: "80ca932a1c45e049", HTTPStatus: 200, SystemPrompt: strings.Repeat("0f", 16), Parent: 1006, Tip: 1007,
		Input: []uint64{1007}, Output: [][]uint64{{1008}}, ResponseID: "chatcmpl-B0000000000000000000000000000", Finish: "stop",
		Usage: json.RawMessage(`{"prompt_tokens":90,"completion_tokens":20,"total_tokens":110}`),
		View: turnrecord.View{
			Conversation: 80, Sent: 80, SystemPrompt: strings.Repeat("0f", 16), Messages: "joined", Tokens: &turnrecord.Tokens{System: 1500, Tools: 2000, History: 15200, Total: 18700, Estimated: true},
			Items: []turnrecord.Span{{End: "18a2e1f5fd5eea88", N: 79}, {Is: []byte{1, 2, 3, 4, 5, 6, 7, 8}}},
		},
		Blocks: []turnrecord.BlockRef{{Block: view.Block{Layer: "working_memory", Slot: 100, Tokens: 120}, Hash: strings.Repeat("0f", 16)}},
		Layers: []turnrecord.LayerNote{{ID: "working_memory", Name: "Working memory", Tokens: 120, Items: 1, Ms: 1}, {ID: "semantic_recall", Ms: 1}},
	})
	f(turnrecord.Record{
		ID: "06GZR82WJGS4MM1DQGMARCCJEG", Time: at, Status: turnrecord.Complete, Relation: "delta", Dialect: "responses",
		Model: "a \"model\"\\ of <é>\n", Side: "compaction", HTTPStatus: 200, Cut: "client", Degraded: true, SystemPrompt: "00ff", Before: "06GZR82WJGS4MM1DQGMARCCJEF",
		Resource: "u", Execution: "e", ParentID: "p", Parent: 7, Tip: 9, Input: []uint64{8, 9}, Output: [][]uint64{{10}, {11, 12}}, ResponseID: "resp_1", Finish: "stop",
		Usage: json.RawMessage(`{"total_tokens": 3}`),
		View: turnrecord.View{
			Conversation: 9, Sent: 5, From: 4, Pinned: &pinned, Windowed: 3, Orphans: 1, Repaired: 1, Stored: true, Items: []turnrecord.Span{{End: "00ff", N: 9, Off: []byte{0, 1, 2, 3, 4}}, {Is: []byte{1, 2, 3, 4, 5, 6, 7, 255}}}, SystemPrompt: "0a", PrefixReason: "cold-start",
			Tokens:  &turnrecord.Tokens{System: 1, Tools: 2, History: 3, Layers: 4, Total: 10, Estimated: true},
			LeftOut: []view.LeftOut{{Item: 5, Call: `c"1`}},
		},
		Hidden: []uint64{10, 11}, Blocks: []turnrecord.BlockRef{{Block: view.Block{Layer: "plan", Slot: -1, Tokens: 3, Place: view.End()}, Hash: "0b"}, {Block: view.Block{Layer: "w"}}},
		Layers: []turnrecord.LayerNote{{ID: "plan", Tokens: 3, Items: 1, Ms: 7}, {ID: "w", Error: `recall: "x"`, Notes: map[string]any{"strategy": "x"}}},
	})
}
