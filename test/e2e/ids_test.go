package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"remora/test/scripted"
)

// TestIDsLeadToTheEnd: after a hidden call the client has the id of upstream's first answer, which has that call but not the rest
// of the merged answer. For the same caller, all requests with this id use the last answer.
func TestIDsLeadToTheEnd(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			g := startGate(t, "[{kind: working_memory}]", scripted.Options{})
			ask := func() (id string) {
				t.Helper()
				body := strings.Replace(d.body(t, `CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`), "{", `{"store":true,`, 1)
				r := g.ask(t, d.path, body)
				if r.status != http.StatusOK {
					t.Fatalf("%d %s", r.status, r.body)
				}
				return idOf(t, r.body)
			}
			id := ask()

			got := g.get(t, d.path+"/"+id, "X-Session-Id: ")
			if got.status != http.StatusOK || !strings.Contains(got.body, "Noted.") || idOf(t, got.body) != id {
				t.Errorf("the answer is kept as %d %s", got.status, got.body)
			}
			end := strings.TrimPrefix(last(t, g.up).Target, "/v1/"+d.path+"/")
			if end == id {
				t.Error("the id leads to the first answer")
			}
			if got := g.get(t, d.path+"/"+id, "Authorization: Bearer other"); strings.Contains(got.body, "Noted.") || idOf(t, got.body) != id {
				t.Errorf("another key is led to the end, too: %s", got.body)
			}

			if d.path == "responses" {
				for _, headers := range [][]string{
					{"X-Session-Id: s"}, {"X-Session-Id: "}, {"X-Session-Id: another"}, {"X-Memory: off"}, {"X-Memory: off", "X-Session-Id: "},
				} {
					body := strings.Replace(d.body(t, "SAY Fine."), "{", fmt.Sprintf(`{"previous_response_id":%q,`, id), 1)
					if r := g.ask(t, d.path, body, headers...); r.status != http.StatusOK {
						t.Errorf("%q: %d %s", headers, r.status, r.body)
					}
				}
				g.get(t, "responses/"+id+"/input_items?limit=5")
				if target := last(t, g.up).Target; target != "/v1/responses/"+end+"/input_items?limit=5" {
					t.Errorf("input_items leads to %s", target)
				}
				g.ask(t, "responses/"+id+"/cancel", "")
				if target := last(t, g.up).Target; target != "/v1/responses/"+end+"/cancel" {
					t.Errorf("cancel leads to %s", target)
				}
				g.ask(t, "responses/compact", fmt.Sprintf(`{"model":"m","previous_response_id":%q}`, id))
				if seen := g.seen(t); seen != fmt.Sprintf(`{"model":"m","previous_response_id":%q}`, end) {
					t.Errorf("compact is sent %s", seen)
				}
			}

			if got := g.do(t, http.MethodDelete, d.path+"/"+id, ""); got.status != http.StatusOK || idOf(t, got.body) != id {
				t.Errorf("deleted as %d %s", got.status, got.body)
			}
			if got := g.get(t, d.path+"/"+id); got.status != http.StatusNotFound {
				t.Errorf("after it was deleted: %d %s", got.status, got.body)
			}
			g.sound(t)
		})
	}
}

// TestIDsLeadToTheirProvider: a request that names an answer in its path names no model, and goes to the provider that gave the
// answer.
func TestIDsLeadToTheirProvider(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			other := startUpstream(t, scripted.Options{Organization: "a"})
			its := startUpstream(t, scripted.Options{Organization: "b"})
			const provider = "{name: %s, kind: openai, api_key: k, base_url: '%s/v1', models: [%[1]s]}"
			providers := "[" + fmt.Sprintf(provider, "a", other.URL()) + ", " + fmt.Sprintf(provider, "b", its.URL()) + "]"
			g := gateTo(t, setup{upstream: other.URL(), providers: providers, layers: "[{kind: working_memory}]"})
			g.up = its
			for _, text := range []string{"SAY Noted.", `CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`} {
				body := strings.Replace(d.body(t, text), "{", `{"store":true,`, 1)
				r := g.ask(t, d.path, strings.Replace(body, `"model":"m"`, `"model":"b"`, 1))
				if r.status != http.StatusOK {
					t.Fatalf("%d %s", r.status, r.body)
				}
				id := idOf(t, r.body)

				for _, path := range []string{id, id + "?include=x"} {
					if got := g.get(t, d.path+"/"+path, "X-Session-Id: "); got.status != http.StatusOK || !strings.Contains(got.body, "Noted.") || idOf(t, got.body) != id {
						t.Errorf("%s: %s is kept as %d %s", text, path, got.status, got.body)
					}
				}
				if d.path == "responses" {
					if got := g.get(t, "responses/"+id+"/input_items"); got.status != http.StatusOK {
						t.Errorf("%s: %d %s", text, got.status, got.body)
					}
					g.ask(t, "responses/"+id+"/cancel", "")
					if target := last(t, g.up).Target; !strings.HasSuffix(target, "/cancel") {
						t.Errorf("%s: cancel does not reach the provider, which has seen %s last", text, target)
					}
				}
				if got := g.do(t, http.MethodDelete, d.path+"/"+id, ""); got.status != http.StatusOK {
					t.Errorf("%s: deleted as %d %s", text, got.status, got.body)
				}
			}
			if n := len(other.Requests()); n > 0 {
				t.Errorf("the other provider got %d requests", n)
			}
		})
	}
}

// idOf returns the id of an answer.
func idOf(t *testing.T, body string) string {
	t.Helper()
	for line := range strings.Lines(body) {
		line = strings.TrimPrefix(line, "data: ")
		if _, rest, ok := strings.Cut(line, `"id":"`); ok {
			id, _, _ := strings.Cut(rest, `"`)
			return id
		}
	}
	t.Fatalf("no id in %s", body)
	return ""
}
