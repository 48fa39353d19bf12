package turnrecord_test

import (
	"encoding/json"
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
	}
	at := time.Date(2026, 11, 21, 3, 4, 5, 678, time.UTC)
	f(turnrecord.Record{ID: "1", Time: at, Status: turnrecord.Incomplete, Open: true, Relation: "root", Dialect: "chat"})
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
