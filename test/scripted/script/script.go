// Package script is the language in which a user message determines the answer of the scripted upstream. The documentation of
// package scripted describes it. The same prompt always gives the same answer.
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
	// Model is the requested model.
	Model string
	// User is the text of the last user message. If one of several text parts is a script, it is that part.
	User string
	// Round is the number of the model's answers since then.
	Round int
	// Results are the texts of the tool results since then.
	Results []string
	// Seen has a line for each message or item, in order: its role or type, and the first 40 characters.
	Seen []string
	// Texts are the texts of all messages or items, in order. They are only set if User is a question about the user ([Asks]).
	Texts []string
	// Body is the request's body. It must not be modified.
	Body []byte
}

// Answer is the model's answer, in the order of its fields.
type Answer struct {
	Reasoning string
	Text      string
	Refusal   string
	Calls     []Call
	// Hosted are the types of calls that the vendor runs itself ("web_search_call"), and of other items that only the vendor
	// can read ("compaction"). They follow the reasoning. Responses only.
	Hosted []string
	// Thinks repeats the reasoning before each item after the first one, as models that think between calls do.
	Thinks bool
	// Ending is Incomplete or Failed for a Responses answer that is not complete.
	Ending string
	// Sound makes the text of a Chat answer the transcript of its sound.
	Sound bool
	// Signed adds a signature that only the vendor accepts to reasoning and calls of a Chat answer.
	Signed bool
	// Usage is the reported usage of the prompt; the zero value reports a quarter of its bytes, none cached.
	Usage Usage
}

// Values of Answer.Ending.
const (
	Incomplete = "incomplete"
	Failed     = "failed"
)

// Usage is the cost of a prompt, in tokens.
type Usage struct{ Prompt, Cached int }

// Call is one tool call. Arguments are sent unchanged, even if they are not JSON.
type Call struct {
	Name, Arguments string
	// ID is the call's id. If it is empty, the server generates one.
	ID string
}

// Limits of a script, which is untrusted.
const (
	maxTurns = 1000
	maxLoop  = 100_000
	maxCalls = 128 // the real APIs' limit for one answer
)

// turn is one answer of the model, or each of the answers of a LOOP.
type turn struct {
	say   Answer
	see   bool
	times int // 0: an answer without calls, which ends the script
}

// Play returns the answer to a prompt.
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

// verb returns the step's verb and the text after it. The verb is "" if text does not begin with one.
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

// Is reports whether text is a script: whether it begins with a step.
func Is(text string) bool {
	v, _ := verb(text)
	return v != ""
}

// parse returns the turns of a script, nil for a text that is no script.
func parse(text string) ([]turn, error) {
	if !Is(text) {
		return nil, nil
	}
	var (
		turns []turn
		now   turn
		dirty bool // now has steps that are not in turns yet
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

// step adds one step to the turn, and returns the text after its ";;".
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
			return "", fmt.Errorf("LOOP: want a number from 1 to %d", maxLoop)
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

// objectEnd returns the length of the {...} at the beginning of text, -1 if it does not end. It counts braces outside of
// strings, so that {{i}} can be a number.
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
