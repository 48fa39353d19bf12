package demo

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
)

func TestEntriesOf(t *testing.T) {
	f := func(raw string, want ...entry) {
		t.Helper()
		got, err := entriesOf([]byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("%s:\n%s", raw, diff)
		}
	}
	f(`{"role":"user","content":"a"}`, entry{who: "user", text: "a"})
	f(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, entry{who: "user", text: "ab"})
	f(`{"role":"tool","tool_call_id":"c1","content":"a"}`, entry{"result", "c1", "a"})
	f(`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}}]}`,
		entry{"call", "c1", "f{}"})
	f(`{"role":"assistant","content":"a","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}},`+
		`{"id":"c2","function":{"name":"g","arguments":"{}"}}]}`,
		entry{who: "assistant", text: "a"}, entry{"call", "c1", "f{}"}, entry{"call", "c2", "g{}"})
	// Responses says the same in other words.
	f(`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}`, entry{who: "assistant", text: "a"})
	f(`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`, entry{"call", "c1", "f{}"})
	f(`{"type":"function_call_output","call_id":"c1","output":"a"}`, entry{"result", "c1", "a"})

	for _, raw := range []string{`{"type":"mcp_call"}`, `[]`} {
		if got, err := entriesOf([]byte(raw)); err == nil {
			t.Errorf("%s: want an error, have %v", raw, got)
		}
	}
}

func TestPlacesIn(t *testing.T) {
	f := func(conversation, view, want string) {
		t.Helper()
		got, ok := placesIn(letters(conversation), letters(view))
		marks := ""
		for _, sent := range got {
			marks += map[bool]string{true: "+", false: "-"}[sent]
		}
		if ok != (want != "") || marks != want {
			t.Errorf("%q in %q: want %q, have %q, %t", view, conversation, want, marks, ok)
		}
	}
	f("abcd", "abcd", "++++")
	f("abcd", "cd", "--++")
	f("abcd", "ad", "+--+")
	f("abab", "ab", "--++") // what is equal is taken from the end
	f("abcd", "dc", "")
	f("abcd", "ax", "")
	f("ab", "abb", "")
}

func letters(s string) []entry {
	entries := make([]entry, 0, len(s))
	for _, r := range s {
		entries = append(entries, entry{who: "user", text: string(r)})
	}
	return entries
}

// played is a conversation of ten turns, each with one new entry and one answer, whose window keeps four.
func played() *player {
	p := &player{said: letters("abcdefghijklmnopqrst")}
	for i := range 10 {
		said := 2*i + 1
		left := max(0, said-4)
		p.turns = append(p.turns, turn{
			id: fmt.Sprint(i), said: said, heard: said + 1, fresh: 1, saw: p.said[left:said], lead: 1,
			report: report{windowed: left},
		})
	}
	return p
}

// stored is a transcript with these letters.
func stored(letters string) snapshot {
	s := snapshot{turns: len(letters) / 2}
	for i, r := range letters {
		raw := fmt.Appendf(nil, `{"role":"user","content":"%c"}`, r)
		s.lines = append(s.lines, memory.Line{Item: &memory.ItemLine{
			Seq: uint64(i) + 1, Turn: fmt.Sprint(i / 2), OnHead: true, JSON: json.RawMessage(raw),
		}})
	}
	return s
}

// TestChecksCanFail breaks one thing at a time and wants the check that is about it, and no other, to say so.
func TestChecksCanFail(t *testing.T) {
	f := func(want string, change func(p *player, s *snapshot)) {
		t.Helper()
		p, s := played(), stored("abcdefghijklmnopqrst")
		change(p, &s)
		var failed []string
		for _, c := range []check{
			checkWindow(p.turns), checkViews(p.turns, p.said), checkStored("transcript", s, p, "%d %d"),
		} {
			if c.err != nil {
				failed = append(failed, c.name+": "+c.err.Error())
			}
		}
		if got := strings.Join(failed, "; "); got != want {
			t.Errorf("want %q, have %q", want, got)
		}
	}
	f("", func(*player, *snapshot) {})
	f("window: it fired on 0 turns; the model got up to 3 of 3 items", func(p *player, s *snapshot) {
		p.turns, *s = p.turns[:2], stored("abcd")
	})
	f("views: turn 7: the model got something that was not said, or in another order", func(p *player, _ *snapshot) {
		p.turns[6].saw = append(letters("z"), p.turns[6].saw[1:]...)
	})
	f("views: turn 7: the model did not get what is new", func(p *player, _ *snapshot) {
		p.turns[6].saw = p.said[7:11]
	})
	f("views: turn 7: X-Memory says 8 windowed, 0 orphans; the model did not get 9",
		func(p *player, _ *snapshot) { p.turns[6].report.windowed-- })
	f("views: turn 7: the model got the instructions 0 times", func(p *player, _ *snapshot) { p.turns[6].lead = 0 })
	f(`transcript: 1 of 20 are missing at the end, first user "t"`, func(_ *player, s *snapshot) {
		s.lines = s.lines[:19]
	})
	f(`transcript: number 8 is user "i", but what was said is user "h"`, func(_ *player, s *snapshot) {
		s.lines = append(s.lines[:7:7], s.lines[8:]...)
	})
	f(`transcript: number 3 is user "b", but what was said is user "c"`, func(_ *player, s *snapshot) {
		s.lines = append(s.lines[:2:2], s.lines[1:]...)
	})
	f(`transcript: number 5 is user "f", but what was said is user "e"`, func(_ *player, s *snapshot) {
		s.lines[4], s.lines[5] = s.lines[5], s.lines[4]
	})
	f(`transcript: 2 more are stored than were said, first user "u"`, func(_ *player, s *snapshot) {
		*s = stored("abcdefghijklmnopqrstuv")
		s.turns = 10
	})
	f("transcript: item 20 is not a whole part of the conversation's line", func(_ *player, s *snapshot) {
		s.lines[19].Item.OnHead = false
	})
	f("transcript: it did not take place", func(_ *player, s *snapshot) { s.turns = 0 })
}

func TestReadReport(t *testing.T) {
	f := func(header string, want report) {
		t.Helper()
		got, err := readReport(header)
		if err != nil || got != want {
			t.Errorf("%q: want %v, have %v, %v", header, want, got, err)
		}
	}
	f(`ok;items=12;sent=9;windowed=3;orphans=0;recalled=0;source="x-session-id"`, report{windowed: 3})
	f("ok;windowed=30;orphans=2", report{windowed: 30, orphans: 2})
	f("ok", report{})
	for _, header := range []string{"", "degraded;items=1;sent=1", "bypass"} {
		if _, err := readReport(header); err == nil {
			t.Errorf("%q: want an error", header)
		}
	}
}

// TestStory holds the story to what the chapters are about.
func TestStory(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range story() {
		for _, a := range c.acts {
			if seen[a.user] {
				t.Errorf("%q is said twice: the model could not tell the acts apart", a.user)
			}
			seen[a.user] = true
			for _, round := range a.rounds {
				for _, call := range round.Calls {
					if out, err := runTool(call.Name, call.Arguments); err != nil || strings.Contains(out, ": 0") {
						t.Errorf("%s%s: %q, %v", call.Name, call.Arguments, out, err)
					}
				}
			}
		}
	}
}
