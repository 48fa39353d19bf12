package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func TestEntriesOf(t *testing.T) {
	f := func(d wire.Dialect, raw string, want ...entry) {
		t.Helper()
		it := wiretest.Parse(t, d, raw)
		if diff := cmp.Diff(want, entriesOf([]wire.Item{it}), cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("%s:\n%s", raw, diff)
		}
	}
	f(dialects.Chat, `{"role":"user","content":"a"}`, entry{who: "user", text: "a"})
	f(dialects.Chat, `{"role":"tool","tool_call_id":"c1","content":"a"}`, entry{who: "result", id: "c1", text: "a"})
	f(dialects.Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}}]}`,
		entry{who: "call", id: "c1", text: "f{}"})
	f(dialects.Chat, `{"role":"assistant","content":"a","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}},`+
		`{"id":"c2","function":{"name":"g","arguments":"{}"}}]}`,
		entry{who: "assistant", text: "a"}, entry{who: "call", id: "c1", text: "f{}"}, entry{who: "call", id: "c2", text: "g{}"})
	// Responses items give the same entries.
	f(dialects.Responses, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}`, entry{who: "assistant", text: "a"})
	f(dialects.Responses, `{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`, entry{who: "call", id: "c1", text: "f{}"})
	f(dialects.Responses, `{"type":"function_call_output","call_id":"c1","output":"a"}`, entry{who: "result", id: "c1", text: "a"})
	f(dialects.Responses, `{"type":"mcp_call"}`, entry{who: "mcp_call"})
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
	f("abab", "ab", "--++") // of equal entries the last ones match
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

// played returns a conversation of ten turns, each with one new entry and one answer, and a window of four. From the second
// turn on the view has a block of five tokens.
func played() []turn {
	tk := &talk{session: "s", line: letters("abcdefghijklmnopqrst")}
	var turns []turn
	for i := range 10 {
		said := 2*i + 1
		left := max(0, said-4)
		t := turn{
			talk: tk, id: fmt.Sprint(i), said: said, heard: said + 1, fresh: 1, saw: tk.line[left:said], prompts: 1,
			report: report{windowed: left},
		}
		if i > 0 {
			t.blocks, t.report.recalled = []string{"told"}, 5
		}
		turns = append(turns, t)
	}
	return turns
}

// stored returns a transcript with these letters, and with the block of played.
func stored(tk *talk, letters string) snapshot {
	s := snapshot{talk: tk, turns: len(letters) / 2, said: len(tk.line)}
	for i, r := range letters {
		raw := fmt.Appendf(nil, `{"role":"user","content":"%c"}`, r)
		s.lines = append(s.lines, memory.ExportLine{Item: &memory.ExportedItem{
			Seq: uint64(i) + 1, Turn: fmt.Sprint(i / 2), Chain: fmt.Sprint(i), OnHead: true, Dialect: dialects.Chat.String(), JSON: json.RawMessage(raw),
		}})
	}
	var block memory.ExportLine
	if err := json.Unmarshal([]byte(`{"block":{"hash":"h","text":"dG9sZA=="}}`), &block); err != nil {
		panic(err)
	}
	s.lines = append(s.lines, block)
	for i := 1; i < 10; i++ {
		s.lines = append(s.lines, memory.ExportLine{
			Turn: fmt.Appendf(nil, `{"id":"%d","blocks":[{"layer":"l","slot":100,"tokens":5,"hash":"h"}]}`, i),
		})
	}
	return s
}

// failures returns the failed checks, in one line.
func failures(checks ...check) string {
	var failed []string
	for _, c := range checks {
		if c.err != nil {
			failed = append(failed, c.name+": "+c.err.Error())
		}
	}
	return strings.Join(failed, "; ")
}

// TestChecksCanFail breaks one thing at a time, and expects only the check for it to fail.
func TestChecksCanFail(t *testing.T) {
	f := func(want string, change func(p []turn, s *snapshot) []turn) {
		t.Helper()
		p := played()
		s := stored(p[0].talk, "abcdefghijklmnopqrst")
		if changed := change(p, &s); changed != nil {
			p = changed
		}
		all := []snapshot{s}
		if got := failures(checkWindow(p), checkViews(p), checkBlocks(p, all), checkAllStored(all)); got != want {
			t.Errorf("want %q, have %q", want, got)
		}
	}
	f("", func([]turn, *snapshot) []turn { return nil })
	f("window: it fired on 0 turns; the model got up to 3 of 3 items", func(p []turn, _ *snapshot) []turn { return p[:2] })
	f("views: turn 7: the model got something that was not said, or in another order", func(p []turn, _ *snapshot) []turn {
		p[6].saw = append(letters("z"), p[6].saw[1:]...)
		return nil
	})
	f("views: turn 7: the model did not get what is new", func(p []turn, _ *snapshot) []turn {
		p[6].saw = p[6].talk.line[7:11]
		return nil
	})
	f("views: turn 7: X-Memory says 8 windowed, 0 orphans; the model did not get 9", func(p []turn, _ *snapshot) []turn {
		p[6].report.windowed--
		return nil
	})
	f("views: turn 7: the model got the instructions 0 times", func(p []turn, _ *snapshot) []turn {
		p[6].prompts = 0
		return nil
	})
	f("blocks: turn 7: X-Memory says 6 tokens, the stored blocks have 5", func(p []turn, _ *snapshot) []turn {
		p[6].report.recalled++
		return nil
	})
	f("blocks: turn 7: the model got 1 blocks, other than the 1 that are stored", func(p []turn, _ *snapshot) []turn {
		p[6].blocks = []string{"tolt"}
		return nil
	})
	f("blocks: turn 1: the model got 1 blocks, other than the 0 that are stored", func(p []turn, _ *snapshot) []turn {
		p[0].blocks = []string{"told"}
		return nil
	})
	g := func(want string, change func(s *snapshot)) {
		t.Helper()
		f(`transcript: session "s": `+want, func(_ []turn, s *snapshot) []turn { change(s); return nil })
	}
	g(`1 of 20 are missing at the end, first user "t"`, func(s *snapshot) { s.lines = slices.Delete(s.lines, 19, 20) })
	g(`number 8 is user "i", but what was said is user "h"`, func(s *snapshot) { s.lines = slices.Delete(s.lines, 7, 8) })
	g(`number 3 is user "b", but what was said is user "c"`, func(s *snapshot) { s.lines = slices.Insert(s.lines, 2, s.lines[1]) })
	g(`number 5 is user "f", but what was said is user "e"`, func(s *snapshot) {
		s.lines[4], s.lines[5] = s.lines[5], s.lines[4]
	})
	g(`2 more are stored than were said, first user "u"`, func(s *snapshot) {
		lines := stored(s.talk, "abcdefghijklmnopqrstuv").lines
		s.lines = append(lines[:22:22], s.lines[20:]...)
	})
	g("item 20 is not a whole part of the conversation's line", func(s *snapshot) { s.lines[19].Item.OnHead = false })
	g("item 20 is not a whole part of the conversation's line", func(s *snapshot) { s.lines[19].Item.Partial = true })
	g(`number 4 is hidden user "d", but what was said is user "d"`, func(s *snapshot) { s.lines[3].Item.Hidden = true })
}

func TestRestartCheckCanFail(t *testing.T) {
	p := played()
	before, after := stored(p[0].talk, "abcdefghijklmnopqrst"), stored(p[0].talk, "abcdefghijklmnopqrst")
	f := func(want string, before, after []snapshot) {
		t.Helper()
		if got := failures(checkRestart(before, after)); got != want {
			t.Errorf("want %q, have %q", want, got)
		}
	}
	f("", []snapshot{before}, []snapshot{after})
	f("restart: it did not take place", nil, []snapshot{after})
	after.lines = slices.Delete(after.lines, 3, 4)
	f("restart: item 4 was on disk before the restart, and is not any more", []snapshot{before}, []snapshot{after})
}

// remembered returns a story with the effects of all layers: a note that later views show, a recalled fact and one that is not
// recalled, and a denied call.
func remembered() []turn {
	hidden := func(who, id, text string) entry { return entry{who: who, id: id, text: text, hidden: true} }
	first := &talk{session: "a", resource: shop, line: []entry{
		{who: "user", text: "u"},
		hidden("call", "1", noteTool+noteFact), hidden("result", "1", "ok"),
		{who: "assistant", text: "v"},
		{who: "user", text: "w"},
		{who: "assistant", text: "x"},
	}}
	second := &talk{session: "b", resource: shop, line: []entry{
		{who: "user", text: "Whose is shelf 9?"},
		{who: "assistant", text: "It is Bento's."},
		{who: "user", text: "Order."},
		hidden("call", "2", `order{"copies":500}`), hidden("result", "2", refusal),
		{who: "assistant", text: "No."},
	}}
	third := &talk{session: "c", resource: "library", line: []entry{
		{who: "user", text: "Do you know whose shelf 9 is?"}, {who: "assistant", text: unknown},
	}}
	tools, recalled := []string{noteTool}, act{say: "It is Bento's.", fact: shelfOwner}
	turns := []turn{
		{talk: first, said: 1, heard: 4, tools: tools},
		{talk: first, said: 5, heard: 6, tools: tools, blocks: []string{"note: " + noteWord}},
		{talk: second, said: 1, heard: 2, tools: tools, blocks: []string{"- " + shelfFact}, act: recalled},
		{talk: second, said: 3, heard: 6, tools: tools},
		{talk: third, said: 1, heard: 2, tools: tools, act: recalled},
	}
	for i, t := range turns {
		turns[i].saw = t.talk.line[t.said-1 : t.said]
	}
	return turns
}

func TestChecksOfLayersCanFail(t *testing.T) {
	f := func(want string, change func(p []turn)) {
		t.Helper()
		p := remembered()
		change(p)
		got := failures(checkNotes(p), checkRecall(p), checkDenied([]*talk{p[0].talk, p[2].talk, p[4].talk}))
		if got != want {
			t.Errorf("want %q, have %q", want, got)
		}
	}
	f("", func([]turn) {})
	f("notes: turn 1: the client got the call of working-memory_update", func(p []turn) { p[0].talk.line[1].hidden = false })
	f("notes: turn 2: the model was not shown what it had noted", func(p []turn) { p[1].blocks = nil })
	f("notes: turn 3: the model was not offered working-memory_update", func(p []turn) { p[2].tools = nil })
	f("notes: of a note in turn 1, 0 views told that did not hold the call any more", func(p []turn) { p[1].saw = p[1].talk.line[:5] })
	f(`recall: turn 3: the model said assistant "I do not know."`, func(p []turn) { p[2].talk.line[1].text = unknown })
	f(`recall: turn 5: the model said assistant "It is Bento's."`, func(p []turn) { p[4].talk.line[1].text = "It is Bento's." })
	f(`recall: turn 5: "Bento" in the blocks is not false`, func(p []turn) { p[4].blocks = []string{shelfFact} })
	f(`recall: turn 3: "Bento" in the blocks is not true`, func(p []turn) { p[2].blocks = nil })
	f(`denied: session "b": a client got call "order(500)"`, func(p []turn) { p[2].talk.line[3].hidden = false })
	f(`denied: session "b": the model was not told why hidden call "order(500)" is refused`, func(p []turn) { p[2].talk.line[4].text = "ok" })
	f("denied: no call was", func(p []turn) { p[2].talk.line[3].text = "order{\"copies\":5}" })
}

// TestInsertHidden: hidden entries are inserted where the model saw them.
func TestInsertHidden(t *testing.T) {
	f := func(line, saw, want string) {
		t.Helper()
		tk := &talk{line: marked(line)}
		tk.insertHidden(marked(saw))
		if diff := cmp.Diff(marked(want), tk.line, cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("%q in %q:\n%s", saw, line, diff)
		}
	}
	f("abc", "abc", "abc")
	f("abc", "aXYbc", "aXYbc")
	f("abc", "abcXY", "abcXY")   // asked again, in the same turn
	f("abXYc", "XYc", "abXYc")   // known already
	f("abXac", "aZac", "abXZac") // of equal texts the last one
	f("abc", "zXbc", "aXbc")     // checkViews reports the unknown z
}

// marked returns entries; capitals are hidden ones.
func marked(s string) []entry {
	list := letters(s)
	for i := range list {
		list[i].hidden = list[i].text < "a"
	}
	return list
}

func TestShorten(t *testing.T) {
	f := func(n int, wanted []int, want ...int) {
		t.Helper()
		if got := shorten(n, 2, func(i int) bool { return slices.Contains(wanted, i) }); !slices.Equal(got, want) {
			t.Errorf("%d with %v: want %v, have %v", n, wanted, want, got)
		}
	}
	f(0, nil)
	f(4, nil, 0, 1, 2, 3)
	f(5, nil, 0, 1, 2, 3, 4)
	f(6, nil, 0, 1, -2, 4, 5)
	f(9, []int{4}, 0, 1, -2, 4, -2, 7, 8)
	f(9, []int{3}, 0, 1, 2, 3, -3, 7, 8)
}

func TestReadReport(t *testing.T) {
	f := func(header string, want report) {
		t.Helper()
		got, err := readReport(header)
		if err != nil || got != want {
			t.Errorf("%q: want %v, have %v, %v", header, want, got, err)
		}
	}
	f(`ok;items=12;sent=9;windowed=3;orphans=0;recalled=7;source="x-session-id"`, report{windowed: 3, recalled: 7})
	f("ok;windowed=30;orphans=2", report{windowed: 30, orphans: 2})
	f("ok", report{})
	for _, header := range []string{"", "degraded;items=1;sent=1", "bypass"} {
		if _, err := readReport(header); err == nil {
			t.Errorf("%q: want an error", header)
		}
	}
}

// TestStory: each chapter shows what it is about.
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
					if call.Name == noteTool {
						continue
					}
					if out, err := runTool(call.Name, call.Arguments); err != nil || strings.Contains(out, ": 0") || strings.Contains(out, "no tool") {
						t.Errorf("%s%s: %q, %v", call.Name, call.Arguments, out, err)
					}
				}
			}
		}
	}
}
