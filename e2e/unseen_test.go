package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestShippedLayersAreUnseen is the same promise with the layers that are shipped: upstream sees more, a tool and what
// is remembered, and the client nothing of it.
func TestShippedLayersAreUnseen(t *testing.T) {
	want := withoutProxy(t)
	got := play(t, remembering, setup{})
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
	compare(t, want, got, slices.Concat(repaired, lists, []string{brokenBody}))
	added := 0
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
			added++
		}
		if front.resp.start == "HTTP/1.1 502 Bad Gateway" && !back.resp.whole {
			return // see brokenBody
		}
		if slices.Contains(compressed, front.req.header("X-Session-Id")) {
			return // what it says is compared above
		}
		back.resp.body = layerTool.ReplaceAll(back.resp.body, nil)
		sameAnswer(t, what, front, back, slices.Concat(hopResponse, own))
	})
	if added == 0 {
		t.Error("upstream saw no layer's tool at all")
	}
	for session, c := range sessions(t, got.client) {
		t.Run(session, func(t *testing.T) { checkTranscript(t, c, got.proxy.in(t).transcript(session)) })
	}
}

var (
	ids = regexp.MustCompile(`(?:\b|gAAAAA)(chatcmpl|resp|msg|rs|fc|ctc|call|req|gen)[-_][0-9a-f]{16,}`)
	// counts are numbers that follow from the length of what upstream was sent, or from ids.
	counts  = regexp.MustCompile(`(\\*"(?:prompt_tokens|input_tokens|total_tokens|inputTokens|totalTokens|promptTokens|noCache|noCacheTokens|created|created_at|total|x-ratelimit-remaining-tokens|openai-processing-ms)\\*": ?\\*"?)[0-9.]+`)
	padding = regexp.MustCompile(`(\\*"obfuscation\\*": ?\\*")[0-9a-f]+`)
	stamps  = regexp.MustCompile(`20\d\d-\d\d-\d\dT[0-9:.]+Z`)
)

// unnamed is a record without what upstream derives from the bytes of a request: ids, by their first appearance, and
// the number of tokens.
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

// layerTool is the shipped layers' tool where a Responses upstream repeats what it was offered.
var layerTool = regexp.MustCompile(`,?\{"type":"function","name":"working-memory_update".*?"strict":false\}`)

// lists are the scenarios in which upstream tells what it was sent, blocks of layers included: it keeps them with the
// conversation or the response.
var lists = []string{"responses.conversation", "responses.previousResponse", "responses.stored"}

// compressed are the scenarios of an upstream that compresses streams unasked. Layers read them, so that clients get
// them plain.
var compressed = []string{"node faults.gzipStream"}
