package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/test/kit"
	"remora/test/recall/corpus"
)

func day(n int) time.Time { return time.Date(2024, 3, n, 10, 0, 0, 0, time.UTC) }

// conversation has two sessions: the cat is called Pixel, and later the tea is Oolong.
func conversation() *corpus.Conversation {
	c := &corpus.Conversation{Name: "c", Speakers: [2]string{"Ada", "Ben"}}
	for i, texts := range [][]string{
		{"My cat is called Pixel and she is three years old.", "What a lovely name!", "She sleeps all day on my keyboard, which is warm."},
		{"My favourite tea is Oolong from the Wuyi mountains.", "What a lovely name!"},
	} {
		s := corpus.Session{Name: fmt.Sprintf("session_%d", i+1), At: day(1 + 7*i)}
		for n, text := range texts {
			s.Turns = append(s.Turns, corpus.Turn{ID: fmt.Sprintf("D%d:%d", i+1, n+1), Speaker: c.Speakers[n%2], Text: text})
		}
		c.Sessions = append(c.Sessions, s)
	}
	c.Questions = []corpus.Question{
		{Text: "What is Ada's cat called?", Category: corpus.SingleHop, Evidence: []string{"D1:1"}},
		{Text: "Which tea does Ada like?", Category: corpus.SingleHop, Evidence: []string{"D2:1"}},
		{Text: "What names did Ben like?", Category: corpus.MultiHop, Evidence: []string{"D1:2", "D2:2"}},
	}
	return c
}

func TestFind(t *testing.T) {
	said := newTranscript(conversation())
	for text, want := range map[string]map[string]bool{
		"": {},
		"- user: My cat is called Pixel and she is three years old.":                        {"D1:1": true},
		"[2024-03-01 ab12-1] user: Ada: My cat is called Pixel and she is three years old.": {"D1:1": true},
		"[2024-03-01 ab12-2] user: My cat is called Pixel and she is three years old.":      {}, // of another item
		"[2024-03-02 ab12-1] user: My cat is called Pixel and she is three years old.":      {}, // on another day
		"What a lovely name!":                                  {"D1:2": true, "D2:2": true},
		"[2024-03-08] assistant: Ben: What a   lovely name!":   {"D2:2": true},
		`- user: "She sleeps all day on my keyboard"`:          {"D1:3": true}, // a part
		"- user: my keyboard":                                  {},             // too little
		"She sleeps all day.\nMy favourite tea is Oolong from": {"D2:1": true},
	} {
		if diff := cmp.Diff(want, said.find(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestGain(t *testing.T) {
	wanted := map[string]bool{"a": true, "b": true}
	for _, c := range []struct {
		sessions string
		want     float64
	}{
		{"", 0}, {"a b", 1}, {"b a c", 1}, {"c a b", (1/math.Log2(3) + 0.5) / (1 + 1/math.Log2(3))}, {"c d e f g a b", 0},
	} {
		if got := gain(strings.Fields(c.sessions), wanted); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%q: %.4f, want %.4f", c.sessions, got, c.want)
		}
	}
}

// TestFigures compares figures with values computed by hand. The first question's turn is recalled with all budgets but the
// smallest, the second's with none, and one of the third's two.
func TestFigures(t *testing.T) {
	c := conversation()
	filler := strings.Repeat("x", 2000) + "\n"
	told := []string{filler + "[2024-03-01 s-1] user: My cat is called Pixel and she is three years old.", "", "[2024-03-08 s-2] assistant: What a lovely name!"}
	p := &pass{told: [][]string{told}}
	m := &measurement{conversations: []*corpus.Conversation{c}, byTokens: map[int]*pass{}, byItems: map[int]*pass{}}
	for _, n := range tokenSteps {
		m.byTokens[n] = p
	}
	for _, n := range itemSteps {
		m.byItems[n] = p
	}
	f := m.judge()[""]
	got := []float64{float64(f.questions), f.covered[500], f.covered[1000], f.recall[1], f.firstHit, float64(f.empty)}
	if diff := cmp.Diff([]float64{3, 0.5, 1.5, 1.5, 2, 1}, got); diff != "" {
		t.Error(diff)
	}
	if f := m.judge()[string(corpus.MultiHop)]; f.questions != 1 || f.covered[500] != 0.5 {
		t.Errorf("%+v", f)
	}
}

// TestThroughTheProxy is a short `make recall`: layers that learn only from traffic get the conversations in requests, the
// default layers by import, and both recall them.
func TestThroughTheProxy(t *testing.T) {
	t.Parallel()
	configs, err := readLayers("shipped,observational")
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range configs {
		l := &lab{binary: kit.BuildProxy(t), dir: t.TempDir(), conversations: []*corpus.Conversation{conversation()}, layers: config, progress: io.Discard}
		m, err := l.measure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		single := m.judge()[string(corpus.SingleHop)]
		if single.questions != 2 || single.covered[1000] != 2 {
			t.Errorf("%s: %+v", config.name, single)
		}
		var b strings.Builder
		m.report(&b)
		if !strings.Contains(b.String(), "| all | 3 |") || !strings.Contains(b.String(), "A question, with an upstream that refuses at once: p50 ") {
			t.Error(b.String())
		}
	}
}

// TestImportedItemsAreNumberedAsTurns: number and date distinguish a line from an equal one.
func TestImportedItemsAreNumberedAsTurns(t *testing.T) {
	var b strings.Builder
	if err := writeMessages(&b, []*corpus.Conversation{conversation()}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	want := `{"message":{"role":"assistant","content":"Ben: What a lovely name!"},"time":"2024-03-08T10:00:00Z"}`
	if len(lines) != 7 || lines[6] != want || lines[0] != `{"resource":"c","session":"c/session_1"}` {
		t.Error(b.String())
	}
}

func TestUnknownArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"-layers", "none"}, {"-file", "none.json"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
