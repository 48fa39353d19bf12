package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/tokens"
	"remora/test/scripted"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func TestDistinctive(t *testing.T) {
	text := `See ./internal/store/lease.go:12, parseHeader and v2.14.1. The word configuration is plain, so is Step-by-step and README-FILES.
	MAX_SIZE again; parseHeader again; 120000 and user@example.com, short a.b, and #issue-77.`
	want := []string{"internal/store/lease.go:12", "parseHeader", "v2.14.1", "MAX_SIZE", "120000", "user@example.com", "issue-77"}
	if diff := cmp.Diff(want, distinctive(text)); diff != "" {
		t.Error(diff)
	}
}

// TestNeeds: strings that an answer repeats from its client's history count as cut if the prompt lacks them; new strings do not
// count.
func TestNeeds(t *testing.T) {
	history := []string{"the file internal/store/lease.go", "\tif err := parseHeader(ctx, reply); err != nil {\n\t}"}
	for range oldItems - 2 {
		history = append(history, "")
	}
	history = append(history, "port_8443")
	a := &scripted.Answer{Text: "port_8443 and brandNew1", Calls: []scripted.Call{{
		Arguments: `{"path":"internal/store/lease.go","old":"if err := parseHeader(ctx, reply); err != nil {"}`,
	}}}
	all := strings.Join(history, "\n")
	for _, c := range []struct {
		name, prompt string
		want         needs
	}{
		{"everything", all, needs{repeats{3, 0}, repeats{2, 0}, repeats{1, 0}}},
		{"the end", "port_8443", needs{repeats{3, 2}, repeats{2, 2}, repeats{1, 1}}},
		{"names alone", "port_8443 parseHeader internal/store/lease.go", needs{repeats{3, 0}, repeats{2, 0}, repeats{1, 1}}},
	} {
		want := c.want
		if diff := cmp.Diff(want, needsOf(a, history, c.prompt), cmp.AllowUnexported(needs{}, repeats{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestPrice: instructions and tools have the configured cost in every request, and are cached with the items after them. After
// a pause nothing is cached, and uncached tokens cost the surcharge.
func TestPrice(t *testing.T) {
	m := tokens.New()
	req := wiretest.Request(t, dialects.Chat, `{"tools":[{"type":"function","name":"f"}],"messages":[{"role":"user","content":"go"}]}`)
	const head = 28_000
	var l ledger
	l.price(m, req, head)
	items := m.CountItem(model, req.Items()[0])
	first, second, late := l.enter(m, req, false), l.enter(m, req, false), l.enter(m, req, true)
	cached := (head + items) / cacheStep * cacheStep
	for i, u := range []scripted.Usage{first, second, late} {
		if want := []int{0, cached, 0}[i]; u.Prompt != head+items || u.Cached != want {
			t.Errorf("request %d: %d tokens, %d cached; want %d and %d", i+1, u.Prompt, u.Cached, head+items, want)
		}
	}
	uncached := float64(3*(head+items) - cached)
	if got, want := l.cost(0.1, 0.25), 1.25*uncached+0.1*float64(cached); got != want {
		t.Errorf("cost %.0f, want %.0f", got, want)
	}
}

// TestPromptsStay: a client that keeps user messages puts its summary after them.
func TestPromptsStay(t *testing.T) {
	s, err := parse(strings.NewReader(strings.Replace(recording, `"keep":1`, `"keep":1,"prompts":true`, 1)), "file")
	if err != nil {
		t.Fatal(err)
	}
	var last string
	a := &agent{dialect: dialects.Chat, session: s[0]}
	for i := range s[0].steps {
		for _, in := range s[0].steps[i].input {
			if err := a.take(in); err != nil {
				t.Fatal(err)
			}
		}
		last = string(a.body())
		a.answers++
		a.recall(&s[0].steps[i])
	}
	prompt, summary, kept := strings.Index(last, `"go"`), strings.Index(last, "so far"), strings.Index(last, "c1")
	if prompt < 0 || summary < prompt || kept < summary {
		t.Error(last)
	}
}

// TestSeveralFiles: sessions with the same name get different ones.
func TestSeveralFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(name, []byte(recording), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := readAll([]string{name, name})
	if err != nil || len(all) != 2 || all[0].name != "one" || all[1].name != "one (2)" {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := readAll([]string{name, name + "x"}); err == nil || !strings.Contains(err.Error(), name+"x") {
		t.Error(err)
	}
}
