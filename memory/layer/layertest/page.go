package layertest

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/wire/dialects"
)

// Page compares the blocks of text that a kind's page (README.md beside the test) shows with what the layer recalls, each
// message as one block.
func Page(t *testing.T, messages ...string) {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, m := range regexp.MustCompile("(?s)```text\n(.*?)\n```").FindAllStringSubmatch(string(page), -1) {
		shown = append(shown, m[1])
	}
	if diff := cmp.Diff(messages, shown); diff != "" {
		t.Errorf("blocks (-code +page):\n%s", diff)
	}
}

// PageTurn is the turn in which the pages show what a layer recalls: Ann's, in a session named "a", on 5 March 2026 at 9:07.
func PageTurn() *layer.Turn {
	return &layer.Turn{
		ID: "1", Thread: "a", Resource: "ann", Execution: "e", Dialect: dialects.Chat, Model: "gpt-5",
		Now:   time.Date(2026, 3, 5, 9, 7, 0, 0, time.UTC),
		Count: func(s string) int { return (len(s) + 3) / 4 },
		Note:  func(string, any) {},
	}
}

// PageRecall returns the messages that a layer recalls in that turn.
func PageRecall(t *testing.T, l layer.Recaller, s layer.State) []string {
	t.Helper()
	return Must(l.Recall(t.Context(), PageTurn(), s, 1000))(t).Messages
}
