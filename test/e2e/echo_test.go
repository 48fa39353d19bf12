package e2e

import (
	"net/http"
	"strings"
	"testing"

	"remora/test/scripted"
)

// TestEchoedBlocksAreNotStatements: a block that a client repeats does not count as the user's statement.
func TestEchoedBlocksAreNotStatements(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: static_content, text: Be kind.}]", scripted.Options{})
	ask := func(messages string) {
		t.Helper()
		if r := g.ask(t, "chat/completions", `{"model":"m","messages":[`+messages+`]}`); r.status != http.StatusOK {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	const (
		block = `{"role":"system","content":"<instructions>\nBe kind.\n</instructions>"}`
		first = `{"role":"user","content":"SAY Yes."}`
		yes   = `{"role":"assistant","content":"Yes."}`
	)
	ask(first)
	ask(block + "," + first + "," + yes + `,` + block + `,{"role":"user","content":"SAY Again."}`)
	ask(first + "," + yes + `,{"role":"user","content":"SAY Again."},{"role":"assistant","content":"Again."},{"role":"user","content":"SAY Bye."}`)
	requests := g.up.Requests()
	for i, r := range requests {
		if n := strings.Count(string(r.Body), "Be kind."); n != 1 {
			t.Errorf("request %d has the block %d times: %s", i, n, r.Body)
		}
	}
	if last := string(requests[2].Body); !strings.Contains(last, "SAY Bye.") {
		t.Errorf("last request %s", last)
	}
}
