// Package script is the language in which a user message tells the scripted upstream what to answer. It is described
// in the documentation of package scripted. It is pure: the same prompt gives the same answer.
package script

import (
	"fmt"
	"strconv"
	"strings"
)

// Prompt is the input of an answer.
type Prompt struct {
	// Path is the endpoint below /v1: "chat/completions" or "responses".
	Path string
	// Model is the model asked for.
	Model string
	// User is the text of the last user message; where it has several text parts and one of them is a script, that one.
	User string
	// Round is the number of answers that the model gave since then.
	Round int
	// Results are the texts of the tool results since then.
	Results []string
	// Seen has a line for each message or item, in order: who or what, and the first 40 characters.
	Seen []string
	// Texts are the texts of all messages or items, in order and whole, where User asks for what the user has told ([Asks]).
	Texts []string
	// Body is the request's body. It must not be changed.
	Body []byte
}

// Answer is the model's answer, in the order of its fields.
type Answer struct {
	Reasoning string
	Text      string
	Refusal   string
	Calls     []Call
	// Hosted are the types of calls that the vendor runs itself ("web_search_call"), and of other items that only the vendor
	// can read ("compaction"). They stand behind the reasoning. Responses only.
	Hosted []string
	// Thinks repeats the reasoning before the items behind the first one, as models do that think between their calls.
	Thinks bool
	// Ending is how a Responses answer ends other than complete: Incomplete or Failed.
	Ending string
	// Sound makes the text of a Chat answer the transcript of its sound.
	Sound bool
	// Signed gives reasoning and calls of a Chat answer a signature that only the vendor accepts.
	Signed bool
	// Usage is the reported usage of the prompt; the zero value reports a quarter of its bytes, none cached.
	Usage Usage
}

// What Answer.Ending may be.
const (
	Incomplete = "incomplete"
	Failed     = "failed"
)

// Usage is the cost of a prompt, in tokens.
type Usage struct{ Prompt, Cached int }

// Call is one tool call. Arguments are sent as they are, be they JSON or not.
type Call struct {
	Name, Arguments string
	// ID is the call's id; empty leaves it to the server.
	ID string
}

// Limits of a script, which arrives from outside.
const (
	maxTurns = 1000
	maxLoop  = 100_000
	maxCalls = 128 // what the real APIs allow in one answer
)

// turn is one answer of the model, or each of the answers of a LOOP.
type turn struct {
	say   Answer
	see   bool
	times int // 0: an answer without calls, which ends the script
}

// Play returns the answer that a prompt's script asks for.
func Play(p Prompt) Answer {
	turns, err := parse(p.User)
	if err != nil {
		return Answer{Text: "Script error: " + err.Error()}
	}
	if turns == nil {
		if q, ok := asked(p.User); ok {
			return Answer{Text: recall(q, p.Texts) + results(p)}
		}
		return Answer{Text: "You said: " + FirstRunes(p.User, 200) + results(p)}
	}
	before := 0
	for _, t := range turns {
		if round := p.Round - before; round < max(t.times, 1) {
			return t.answer(p, round+1)
		}
		before += max(t.times, 1)
	}
	return Answer{Text: "Done." + results(p)}
}

func results(p Prompt) string {
	if len(p.Results) == 0 {
		return ""
	}
	last := p.Results[len(p.Results)-1]
	return fmt.Sprintf(" Tool results: %d, the last: %s", len(p.Results), FirstRunes(last, 200))
}

func (t *turn) answer(p Prompt, round int) Answer {
	fill := func(s string) string { return strings.ReplaceAll(s, "{{i}}", strconv.Itoa(round)) }
	a := Answer{Reasoning: fill(t.say.Reasoning), Text: fill(t.say.Text), Refusal: fill(t.say.Refusal)}
	if t.see {
		a.Text = joinLines(a.Text, strings.Join(p.Seen, "\n"))
	}
	for _, c := range t.say.Calls {
		a.Calls = append(a.Calls, Call{Name: c.Name, Arguments: fill(c.Arguments)})
	}
	return a
}

func joinLines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// verb returns the step's verb and what follows it; "" if text does not begin with a verb.
func verb(text string) (string, string) {
	text = strings.TrimSpace(text)
	for _, v := range [...]string{"SAY", "REASON", "REFUSE", "SEE", "CALL", "LOOP"} {
		rest, ok := strings.CutPrefix(text, v)
		if ok && (rest == "" || rest[0] == ' ' || strings.HasPrefix(rest, ";;")) {
			return v, strings.TrimLeft(rest, " ")
		}
	}
	return "", text
}

// Is reports whether text is a script, that is, whether it begins with a step.
func Is(text string) bool {
	v, _ := verb(text)
	return v != ""
}

// parse returns the turns of a script, nil for a text that is none.
func parse(text string) ([]turn, error) {
	if !Is(text) {
		return nil, nil
	}
	var (
		turns []turn
		now   turn
		dirty bool // now has something that no turn has said yet
	)
	for rest := text; strings.TrimSpace(rest) != ""; {
		v, after := verb(rest)
		var err error
		if rest, err = now.step(v, after); err != nil {
			return nil, err
		}
		if dirty = now.times == 0; dirty {
			continue
		}
		if turns = append(turns, now); len(turns) > maxTurns {
			return nil, fmt.Errorf("more than %d turns", maxTurns)
		}
		now = turn{}
	}
	if dirty {
		turns = append(turns, now)
	}
	return turns, nil
}

// step adds one step to the turn and returns what follows its ";;".
func (t *turn) step(v, text string) (string, error) {
	switch v {
	case "":
		return "", fmt.Errorf("no step begins with %q", FirstRunes(text, 20))
	case "CALL":
		t.times = 1
		return t.calls(text, maxCalls)
	case "LOOP":
		count, rest, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || n > maxLoop {
			return "", fmt.Errorf("LOOP wants a number from 1 to %d", maxLoop)
		}
		t.times = n
		return t.calls(rest, 1)
	}
	said, rest, _ := strings.Cut(text, ";;")
	said = strings.TrimRight(said, " ")
	switch v {
	case "SAY":
		t.say.Text = joinLines(t.say.Text, said)
	case "REASON":
		t.say.Reasoning = joinLines(t.say.Reasoning, said)
	case "REFUSE":
		t.say.Refusal = joinLines(t.say.Refusal, said)
	case "SEE":
		t.see = true
	}
	return rest, nil
}

// calls parses "name {json} | name {json}" up to ";;" or the end.
func (t *turn) calls(text string, most int) (string, error) {
	for {
		text = strings.TrimLeft(text, " ")
		end := strings.IndexAny(text, " {|;")
		if end < 0 {
			end = len(text)
		}
		call := Call{Name: text[:end], Arguments: "{}"}
		if call.Name == "" {
			return "", fmt.Errorf("a call without a name")
		}
		text = strings.TrimLeft(text[end:], " ")
		if strings.HasPrefix(text, "{") {
			n := objectEnd(text)
			if n < 0 {
				return "", fmt.Errorf("the arguments of %q do not end", call.Name)
			}
			call.Arguments, text = text[:n], strings.TrimLeft(text[n:], " ")
		}
		if t.say.Calls = append(t.say.Calls, call); len(t.say.Calls) > most {
			return "", fmt.Errorf("more than %d calls in a turn", most)
		}
		if rest, more := strings.CutPrefix(text, "|"); more {
			text = rest
			continue
		}
		if rest, more := strings.CutPrefix(text, ";;"); more || strings.TrimSpace(text) == "" {
			return rest, nil
		}
		return "", fmt.Errorf("%q after the call of %q", FirstRunes(text, 20), call.Name)
	}
}

// objectEnd returns the length of the {...} that text begins with, -1 if it does not end. It counts braces outside
// strings, so {{i}} may stand where JSON wants a number.
func objectEnd(text string) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// FirstRunes returns the first n characters of a text.
func FirstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}
