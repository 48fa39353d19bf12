package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/kit"
	"remora/test/scripted"
)

// TestTurnShowsTheView: `remora transcript --turn` prints the items that upstream got, with blocks of layers and hidden calls.
// The export of an imported export is the same.
func TestTurnShowsTheView(t *testing.T) {
	g := startGate(t, notes, scripted.Options{})
	var turns []string
	var views [][]string
	for _, d := range dialects {
		session := "X-Session-Id: " + d.String()
		g.say(t, d, `SAY One moment. ;; CALL working-memory_update {"name":"Ada </working_memory>"} ;; SAY Noted.`, session)
		r := g.say(t, d, "SAY Bye.", session)
		turns = append(turns, r.header.Get("X-Turn-Id"))
		views = append(views, sent(t, g.seen(t)))
	}
	g.sound(t)
	g.proxy.Stop()
	for i, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			var got []string
			for line := range strings.Lines(g.proxy.transcriptOf(t, "--session", d.String(), "--turn", turns[i])) {
				got = append(got, facts(t, json.RawMessage(line))...)
			}
			if diff := cmp.Diff(views[i], got); diff != "" {
				t.Errorf("--turn is not what was sent (-sent +shown):\n%s", diff)
			}
			if !strings.Contains(strings.Join(got, "\n"), "<working_memory>") || !strings.Contains(strings.Join(got, "\n"), "call ") {
				t.Errorf("the view has no block or no hidden call: %q", got)
			}
			export := g.proxy.transcriptOf(t, "--session", d.String())
			file := filepath.Join(t.TempDir(), "export.jsonl")
			if err := os.WriteFile(file, []byte(export), 0o600); err != nil {
				t.Fatal(err)
			}
			g.proxy.transcriptOf(t, "--session", "copy of "+d.String(), "--import", file)
			again := g.proxy.transcriptOf(t, "--session", "copy of "+d.String())
			if diff := cmp.Diff(unsessioned(export), unsessioned(again)); diff != "" {
				t.Errorf("the import is not the export (-export +again):\n%.3000s", diff)
			}
		})
	}
}

// sent returns the facts of all items of a body, including the system prompt.
func sent(t *testing.T, body string) []string {
	t.Helper()
	return factsOf(t, listed(t, []byte(body)))
}

// unsessioned returns an export's lines without the first, which names the session.
func unsessioned(export string) []string {
	return strings.Split(export, "\n")[1:]
}

// TestChildGivesBack: the notes of a child session are its parent's once the child is complete, and not before: an answer may
// be followed by another message.
func TestChildGivesBack(t *testing.T) {
	admin := fmt.Sprintf("127.0.0.1:%d", kit.FreePort(t))
	g := startGateWith(t, setup{layers: "[{kind: task_state, id: task}]", admin: admin}, scripted.Options{})
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			parent, child := "X-Session-Id: parent "+d.String(), "X-Session-Id: child "+d.String()
			above := "X-Parent-Session-Id: parent " + d.String()
			g.say(t, d, `CALL task_setTaskData {"key":"plan","value":"by rail"} ;; SAY Noted.`, parent)
			g.say(t, d, `CALL task_setTaskData {"key":"hotel","value":"Schweizerhof"} | ls {} ;; SAY Noted.`, child, above)
			g.say(t, d, "SAY Where are we?", parent)
			if strings.Contains(g.seen(t), "Schweizerhof") {
				t.Error("a child that waits for its tools has given back already")
			}
			g.say(t, d, "SAY All done.", child, above)
			g.say(t, d, "SAY Where are we now?", parent)
			if strings.Contains(g.seen(t), "Schweizerhof") {
				t.Error("a child that has answered has given back already: it may go on")
			}

			g.complete(t, admin, "child "+d.String())
			g.say(t, d, "SAY And now?", parent)
			if seen := g.seen(t); !strings.Contains(seen, "Schweizerhof") || !strings.Contains(seen, "by rail") {
				t.Errorf("the parent does not know what its child noted: %s", seen)
			}
		})
	}
	g.sound(t)
}

// complete completes a session by the admin API.
func (g *gate) complete(t *testing.T, admin, session string) {
	t.Helper()
	url := "http://" + admin + "/admin/v1/sessions/" + neturl.PathEscape(session) + "/complete"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"key": %q}`, credential)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // empty
	if res.StatusCode != http.StatusNoContent {
		t.Fatalf("complete %s: %s", session, res.Status)
	}
}

// TestReplicasShareNotes: two proxies on one Redis write the same resource's memory concurrently, and no note is lost.
func TestReplicasShareNotes(t *testing.T) {
	const updates, workers = 200, 4
	up := startUpstream(t, scripted.Options{})
	s := setup{upstream: up.URL(), store: kit.StartRedis(t).URL(), layers: "[{kind: working_memory, scope: resource, budget: 60000}]"}
	gates := []*gate{gateTo(t, s), gateTo(t, s)}
	d := dialect{"chat/completions", false}
	key := func(proxy, n int) string { return fmt.Sprintf("key-%d-%d-", proxy, n) }
	var work []func()
	for i, g := range gates {
		g.up = up
		for w := range workers {
			work = append(work, func() {
				for n := w; n < updates; n += workers {
					script := fmt.Sprintf(`CALL working-memory_update {%q:1} ;; SAY Noted.`, key(i, n))
					r := g.ask(t, d.path, d.body(t, script), fmt.Sprintf("X-Session-Id: %d %d", i, w), "X-Resource-Id: ada")
					if r.status != http.StatusOK || !strings.Contains(r.body, "Noted.") {
						t.Errorf("proxy %d, note %d: %d %s", i, n, r.status, r.body)
					}
				}
			})
		}
	}
	var all sync.WaitGroup
	for _, f := range work {
		all.Go(f)
	}
	all.Wait()
	gates[0].say(t, d, "SAY What do you have?", "X-Session-Id: reader", "X-Resource-Id: ada")
	seen := gates[0].seen(t)
	lost := 0
	for i := range gates {
		for n := range updates {
			if !strings.Contains(seen, key(i, n)) {
				lost++
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d notes are lost", lost, len(gates)*updates)
	}
	gates[0].sound(t)
}
