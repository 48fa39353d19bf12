package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkItems compares the body of a request with its whole history with what upstream got. Without layers that add blocks,
// upstream gets the client's items byte for byte, in order, except for those counted in X-Memory: items left out by the window,
// their orphans, and items repaired because upstream would refuse them.
func checkItems(t *testing.T, what string, sent, got []byte, memory string) {
	t.Helper()
	windowed, orphans, fixed := count(t, memory, "windowed"), count(t, memory, "orphans"), count(t, memory, "repaired")
	if bytes.Equal(sent, got) {
		if windowed+orphans+fixed > 0 {
			t.Errorf("%s: nothing changed, and X-Memory is %q", what, memory)
		}
		return
	}
	if diff := cmp.Diff(members(t, sent, "messages", "input"), members(t, got, "messages", "input")); diff != "" {
		t.Errorf("%s: more than the items differ (-client +upstream):\n%s", what, diff)
	}

	var lost int
	before, after := listed(t, sent), listed(t, got)
	for _, it := range before {
		if len(after) > 0 && bytes.Equal(it, after[0]) {
			after = after[1:]
		} else {
			lost += units(t, it)
		}
	}
	for _, it := range after {
		t.Errorf("%s: upstream got what the client did not send: %s", what, it)
	}
	if lost != windowed+orphans || fixed > orphans {
		t.Errorf("%s: %d items of the client's are missing, and X-Memory is %q", what, lost, memory)
	}
	if windowed == 0 && fixed != lost {
		t.Errorf("%s: %d items of the client's are missing that no window left out, and X-Memory is %q", what, lost, memory)
	}
}

// listed returns the bytes of a body's items, including the system prompt.
func listed(t *testing.T, body []byte) []json.RawMessage {
	t.Helper()
	var b requestBody
	decode(t, body, &b)
	items := b.Messages
	if len(b.Input) > 0 {
		decode(t, b.Input, &items)
	}
	return items
}

// units returns an item's number of units in X-Memory: a message with calls is one for its text, if it has any, and one for
// each call.
func units(t *testing.T, item json.RawMessage) int {
	t.Helper()
	var m struct {
		Content   any   `json:"content"`
		ToolCalls []any `json:"tool_calls"`
	}
	decode(t, item, &m)
	if m.Content != nil && m.Content != "" || len(m.ToolCalls) == 0 {
		return 1 + len(m.ToolCalls)
	}
	return len(m.ToolCalls)
}

// count returns a number in X-Memory, 0 if it is absent.
func count(t *testing.T, memory, name string) int {
	t.Helper()
	parts := strings.Split(memory, ";")
	i := slices.IndexFunc(parts, func(p string) bool { return strings.HasPrefix(p, name+"=") })
	if i < 0 {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimPrefix(parts[i], name+"="))
	if err != nil {
		t.Fatal(fmt.Errorf("read X-Memory %q: %w", memory, err))
	}
	return n
}
