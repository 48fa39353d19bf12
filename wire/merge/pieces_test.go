package merge_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
	"remora/wire/dialects"
	. "remora/wire/merge"
)

// TestCallsToldInPieces: for any order of an upstream's deltas, the judged calls are the calls of the answer.
func TestCallsToldInPieces(t *testing.T) {
	for name, deltas := range map[string][]string{
		"one after the other": {
			`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`, `"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]`,
			`"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]`,
		},
		"name in pieces": {
			`"tool_calls":[{"index":0,"id":"a","function":{"name":"get_"}}]`, `"tool_calls":[{"index":0,"function":{"name":"weather","arguments":"{}"}}]`,
		},
		"name repeated": {
			`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]`, `"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]`,
		},
		"name with escapes": {
			`"tool_calls":[{"index":0,"id":"a","function":{"name":"f\u005f"}}]`, `"tool_calls":[{"index":0,"function":{"name":"g","arguments":"{}"}}]`,
		},
		"each with the index 0": {
			`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`, `"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]`,
		},
		"without an index": {
			`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]`,
		},
		"id late": {
			`"tool_calls":[{"index":0,"function":{"name":"f"}}]`, `"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]`,
		},
		"custom": {
			`"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"f","input":"x"}}]`,
		},
		"legacy": {
			`"function_call":{"name":"f","arguments":""}`, `"function_call":{"arguments":"{}"}`,
		},
	} {
		for _, o := range []Options{{HoldCalls: true}, {HoldAll: true}} {
			s := New(dialects.Chat, o)
			for _, d := range deltas {
				s.Write(fmt.Appendf(nil, "data: {\"choices\":[{\"index\":0,\"delta\":{%s}}]}\n\n", d))
			}
			s.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n"))
			var judged []wire.Call
			s.Release(func(c wire.Call) bool {
				judged = append(judged, c)
				return true
			})
			want := callsOf(s.Reply().Choices[0][0])
			if d := cmp.Diff(want, judged); d != "" {
				t.Errorf("%s, %+v: judged are others than those of the answer:\n%s", name, o, d)
			}
			s.Finish()
			if d := cmp.Diff(want, callsOf(s.Merged().Choices[0][0])); d != "" {
				t.Errorf("%s, %+v: the client has others than those of the answer:\n%s", name, o, d)
			}
		}
	}
}

func callsOf(it wire.Item) (calls []wire.Call) {
	for _, c := range it.Calls() {
		calls = append(calls, c)
	}
	return calls
}
