package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// added are layers that add blocks and have a tool.
const added = "[{kind: working_memory}, {kind: observational_memory}, {kind: history_window, max_tokens: 64000, in_flight: window}]"

// TestAddedLayersAreUnseen is TestSameResults with layers that add to requests: upstream gets a tool and recalled blocks, and
// the client sees nothing of them.
func TestAddedLayersAreUnseen(t *testing.T) {
	want := withoutProxy(t)
	got := play(t, remembering, setup{layers: added})
	if len(got.faults) > 0 {
		t.Errorf("upstream met faulty histories: %q", got.faults)
	}
	want.records = maps.Clone(want.records)
	for _, o := range []*outcome{&want, &got} {
		for name, r := range o.records {
			if slices.Contains(compressed, "node "+name) {
				r.Tries = slices.Clone(r.Tries)
				r.Tries[0].Headers = maps.Clone(r.Tries[0].Headers)
				delete(r.Tries[0].Headers, "content-encoding")
			}
			o.records[name] = unnamed(t, r)
		}
	}
	got.uncorrected()
	compare(t, want, got, slices.Concat(repaired, lists, []string{brokenBody}))
	offered := 0
	pairs(t, got, func(what string, front, back exchange) {
		if !remembered(&front.req) {
			same(t, what+": request body", string(front.req.body), string(back.req.body))
			return
		}
		if memory := front.resp.header("X-Memory"); !strings.HasPrefix(memory, "ok") || strings.Contains(memory, "skipped") {
			t.Errorf("%s: X-Memory is %q", what, memory)
		}
		changed := []string{"messages", "input", "tools"}
		if diff := cmp.Diff(members(t, front.req.body, changed...), members(t, back.req.body, changed...)); diff != "" {
			t.Errorf("%s: more than the items and tools differ (-client +upstream):\n%s", what, diff)
		}
		if strings.Contains(string(front.resp.body), "working-memory") {
			t.Errorf("%s: the client sees a layer's tool: %.300q", what, front.resp.body)
		}
		if strings.Contains(string(back.req.body), "working-memory_update") {
			offered++
		}
		if front.resp.start == "HTTP/1.1 502 Bad Gateway" && !back.resp.whole {
			return // see brokenBody
		}
		if slices.Contains(compressed, front.req.header("X-Session-Id")) {
			return // compared above
		}
		back.resp.body = layerTool.ReplaceAll(back.resp.body, nil)
		sameAnswer(t, what, front, back, slices.Concat(hopResponse, own))
	})
	if offered == 0 {
		t.Error("upstream saw no layer's tool at all")
	}
	for session, c := range sessions(t, got.client) {
		t.Run(session, func(t *testing.T) { checkTranscript(t, c, got.proxy.transcript(t, session)) })
	}
}

var (
	ids = regexp.MustCompile(`(?:\b|gAAAAA)(chatcmpl|resp|msg|rs|fc|ctc|call|req|gen)[-_][0-9a-f]{16,}`)
	// counts matches numbers that depend on the length of upstream's request, or on ids.
	counts  = regexp.MustCompile(`(\\*"(?:prompt_tokens|input_tokens|total_tokens|inputTokens|totalTokens|promptTokens|noCache|noCacheTokens|created|created_at|total|x-ratelimit-remaining-tokens|openai-processing-ms)\\*": ?\\*"?)[0-9.]+`)
	padding = regexp.MustCompile(`(\\*"obfuscation\\*": ?\\*")[0-9a-f]+`)
	stamps  = regexp.MustCompile(`20\d\d-\d\d-\d\dT[0-9:.]+Z`)
)

// unnamed returns a record without the values that upstream derives from the bytes of a request: ids are numbered by their
// first appearance, and token counts removed.
func unnamed(t *testing.T, r record) record {
	t.Helper()
	text := string(encode(t, r))
	seen := make(map[string]string)
	text = ids.ReplaceAllStringFunc(text, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("id%d", len(seen))
		}
		return seen[id]
	})
	text = counts.ReplaceAllString(text, "${1}0")
	text = padding.ReplaceAllString(text, "${1}")
	text = stamps.ReplaceAllString(text, "then")
	var out record
	decode(t, []byte(text), &out)
	return out
}

// layerTool matches the added layers' tool in a Responses answer, which repeats the tools.
var layerTool = regexp.MustCompile(`,?\{"type":"function","name":"working-memory_update".*?"strict":false\}`)

// lists are the scenarios in which upstream lists its stored input, including layers' blocks.
var lists = []string{"responses.conversation", "responses.previousResponse", "responses.stored"}

// compressed are the scenarios of an upstream that always compresses streams. Layers read them, so clients get them uncompressed.
var compressed = []string{"node faults.gzipStream"}

// uncorrected removes corrective retries from upstream's traffic: requests that upstream refused, and refused again without the
// layer's tool.
func (o *outcome) uncorrected() {
	var kept []exchange
	next := 0 // of the client's
	for _, e := range o.upstream {
		if n := len(kept); n > 0 && next < len(o.client) && e.req.header("X-Session-Id") == kept[n-1].req.header("X-Session-Id") &&
			strings.HasPrefix(kept[n-1].resp.start, "HTTP/1.1 4") && bytes.Count(e.req.body, []byte("working-memory_update")) < bytes.Count(kept[n-1].req.body, []byte("working-memory_update")) {
			continue
		}
		kept = append(kept, e)
		next++
	}
	o.upstream = kept
}
