package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"remora/cmd/proxy/proxytest"
	"remora/providers/scripted"
)

// TestEchoedBlocksAreNobodysWords: a client that repeats what a layer had put into the view has not said it.
func TestEchoedBlocksAreNobodysWords(t *testing.T) {
	t.Parallel()
	up := startUpstream(t, scripted.Options{})
	p := proxytest.Start(t, t.TempDir(), fmt.Sprintf(
		"providers: [{kind: compatible, base_url: %q}]\nmemory: {layers: [{kind: static_content, text: Be kind.}]}\n", up.URL()+"/v1"))
	ask := func(messages string) {
		t.Helper()
		body := `{"model":"m","messages":[` + messages + `]}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Session-Id", "s")
		req.Header.Set("Authorization", "Bearer "+credential)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s %v", resp.StatusCode, b, err)
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
	requests := up.Requests()
	for i, r := range requests {
		if n := strings.Count(string(r.Body), "Be kind."); n != 1 {
			t.Errorf("request %d has the block %d times: %s", i, n, r.Body)
		}
	}
	if last := string(requests[2].Body); !strings.Contains(last, "SAY Bye.") {
		t.Errorf("last request %s", last)
	}
}
