package script_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/test/scripted/script"
)

func TestPlay(t *testing.T) {
	f := func(user string, want ...script.Answer) {
		t.Helper()
		for round, w := range want {
			got := script.Play(script.Prompt{User: user, Round: round, Seen: []string{"user: x", "tool: y"}})
			if diff := cmp.Diff(w, got); diff != "" {
				t.Errorf("%q, round %d:\n%s", user, round, diff)
			}
		}
	}
	text := func(s string) script.Answer { return script.Answer{Text: s} }
	calls := func(nameAndArguments ...string) script.Answer {
		var a script.Answer
		for i := 0; i < len(nameAndArguments); i += 2 {
			a.Calls = append(a.Calls, script.Call{Name: nameAndArguments[i], Arguments: nameAndArguments[i+1]})
		}
		return a
	}

	f("hello", text("You said: hello"), text("You said: hello"))
	f("SAYING x", text("You said: SAYING x"))
	f("SAY a ;; SAY b", text("a\nb"), text("Done."))
	f("SAY", text(""))
	f("  SAY a  ", text("a"))
	f("SEE", text("user: x\ntool: y"))
	f("SAY first ;; SEE", text("first\nuser: x\ntool: y"))
	f("REFUSE no", script.Answer{Refusal: "no"})

	f("CALL f", calls("f", "{}"), text("Done."))
	f(`CALL f {"a": 1.0, "b":"{;;|\"}"} | g{"c":{}} ;; SAY end`,
		calls("f", `{"a": 1.0, "b":"{;;|\"}"}`, "g", `{"c":{}}`), text("end"), text("Done."))
	f(`REASON r{{i}} ;; LOOP 2 f {"i":{{i}}} ;; CALL g`,
		script.Answer{Reasoning: "r1", Calls: []script.Call{{Name: "f", Arguments: `{"i":1}`}}},
		script.Answer{Reasoning: "r2", Calls: []script.Call{{Name: "f", Arguments: `{"i":2}`}}},
		calls("g", "{}"), text("Done."))

	f("SAY a ;; what", text(`Script error: no step begins with "what"`))
	f("CALL f {", text(`Script error: the arguments of "f" do not end`))
	f("CALL ", text("Script error: a call without a name"))
	f("CALL f {} x", text(`Script error: "x" after the call of "f"`))
	f("LOOP 0 f", text("Script error: LOOP: want a number from 1 to 100000"))
	f("LOOP 3 f | g", text("Script error: more than 1 calls in a turn"))
	f("CALL f"+strings.Repeat("|f", 128), text("Script error: more than 128 calls in a turn"))
	f(strings.Repeat("CALL f;;", 1001), text("Script error: more than 1000 turns"))
}

func TestPlayNamesToolResults(t *testing.T) {
	got := script.Play(script.Prompt{User: "hi", Results: []string{"a", strings.Repeat("é", 300)}})
	if want := "You said: hi Tool results: 2, the last: " + strings.Repeat("é", 200); got.Text != want {
		t.Errorf("got %q", got.Text)
	}
}

// TestPlayIsInOrder: a script is played turn by turn, with any texts and arguments.
func TestPlayIsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-zA-Z0-9é,.{}]{1,12}`)
		var steps []string
		var want []script.Answer
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			a := script.Answer{Text: word.Draw(t, "text")}
			step := "SAY " + a.Text + " ;; CALL "
			for j := range rapid.IntRange(1, 3).Draw(t, "calls") {
				c := script.Call{Name: "n" + rapid.StringMatching(`[a-z_]{0,5}`).Draw(t, "name"), Arguments: `{"k":"` + word.Draw(t, "value") + `"}`}
				if j > 0 {
					step += " | "
				}
				step += c.Name + " " + c.Arguments
				a.Calls = append(a.Calls, c)
			}
			steps, want = append(steps, step), append(want, a)
		}
		for i, w := range want {
			if diff := cmp.Diff(w, script.Play(script.Prompt{User: strings.Join(steps, ";; "), Round: i})); diff != "" {
				t.Fatalf("round %d of %q:\n%s", i, steps, diff)
			}
		}
	})
}

func FuzzPlay(f *testing.F) {
	f.Add(`SAY a ;; LOOP 3 f {"i":{{i}}} ;; CALL g {"x":"\""} | h`, 2)
	f.Add("CALL {", 0)
	f.Fuzz(func(t *testing.T, user string, round int) {
		p := script.Prompt{User: user, Round: max(round, 0)}
		first := script.Play(p)
		if diff := cmp.Diff(first, script.Play(p)); diff != "" {
			t.Errorf("not deterministic:\n%s", diff)
		}
		if !script.Is(user) && len(first.Calls) > 0 {
			t.Errorf("calls from what is no script")
		}
	})
}
