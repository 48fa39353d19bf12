package script

import (
	"iter"
	"regexp"
	"strings"
)

// A question about what the user has told of himself is answered from the texts of the request and from nothing else, so
// whether the model knows shows what it was sent:
//
//	My name is Ada.          What is my name?        Your name is Ada.
//	Hi, I'm Ada.             Who am I?
//	My lucky number is 7.    Do you know my lucky number?
//	My cat is called Tom.    What is my cat called?
//	I live in Lisbon.        Where do I live?        You live in Lisbon.
//
// Of two statements about one thing the later one counts.
var (
	askedMy  = regexp.MustCompile(`(?i)\b(?:what|who|when|where|which|how old)(?:['’]?s| is| are| was| were) my (.{1,80})$`)
	askedFor = regexp.MustCompile(
		`(?i)\b(?:tell me|remind me of|do you (?:still )?(?:know|remember|recall))(?: what| who| where| when| how old)? my (.{1,80})$`)
	askedI   = regexp.MustCompile(`(?i)\b(what|who|when|where) (?:do|did) I (\w{1,30})$`)
	askedWho = regexp.MustCompile(`(?i)\bwho am I$`)
	// askedTail matches the words of a question behind the name of the thing.
	askedTail = regexp.MustCompile(`(?i)(?: again| is| are| called| named)+$`)

	toldMy   = regexp.MustCompile(`(?i)\bmy (.{1,80}?)(?: (is|are|was|were)|['’]s) (.{1,200})$`)
	toldName = regexp.MustCompile(`\b(?:I am|I['’]m|I am called|I['’]m called|[Cc]all me) (\p{Lu}[\p{L}'’-]*(?: \p{Lu}[\p{L}'’-]*){0,2})$`)
	toldI    = regexp.MustCompile(`\bI (\w{1,30}) (.{1,200})$`)
	// toldBoth is where a sentence goes on to another statement.
	toldBoth = regexp.MustCompile(`,? (?:and|but) (my |I |I['’]m )`)
)

// maxAsked is the length of the longest message that is looked at for a question, in bytes.
const maxAsked = 64 << 10

// question is about a thing of the user's ("name"), or about what the user does: a verb ("live") and its word ("where").
type question struct{ thing, word, verb string }

// Asks reports whether a user message asks for what its user has told. Only such a prompt needs Texts.
func Asks(text string) bool {
	_, ok := asked(text)
	return ok
}

// asked returns the last question of a user message, less the paragraphs in tags that gateways put beside it.
func asked(text string) (q question, ok bool) {
	if len(text) > maxAsked || !strings.Contains(text, " my ") && !strings.Contains(text, " I") || Is(text) {
		return question{}, false
	}
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(paragraph, "<") {
			continue
		}
		for s := range sentences(paragraph) {
			if of, found := questionOf(s); found {
				q, ok = of, true
			}
		}
	}
	return q, ok
}

func questionOf(sentence string) (question, bool) {
	for _, about := range []*regexp.Regexp{askedMy, askedFor} {
		if m := about.FindStringSubmatch(sentence); m != nil {
			thing := askedTail.ReplaceAllString(m[1], "")
			return question{thing: thing}, !toldMy.MatchString("my " + thing)
		}
	}
	if m := askedI.FindStringSubmatch(sentence); m != nil {
		return question{word: strings.ToLower(m[1]), verb: strings.ToLower(m[2])}, true
	}
	return question{thing: "name"}, askedWho.MatchString(sentence)
}

// recall answers a question from the texts that the model was sent.
func recall(q question, texts []string) string {
	told, name := "", ""
	for _, text := range texts {
		for sentence, asks := range sentences(text) {
			if asks {
				continue
			}
			if m := toldMy.FindStringSubmatch(sentence); m != nil && q.verb == "" && alike(m[1], q.thing) {
				verb := m[2]
				if verb == "" {
					verb = "is"
				}
				told = "Your " + q.thing + " " + strings.ToLower(verb) + " " + m[3] + "."
			}
			if m := toldI.FindStringSubmatch(sentence); m != nil && q.verb != "" && strings.EqualFold(m[1], q.verb) {
				told = "You " + q.verb + " " + m[2] + "."
			}
			if m := toldName.FindStringSubmatch(sentence); m != nil && alike("name", q.thing) {
				name = "Your name is " + m[1] + "."
			}
		}
	}
	switch {
	case told != "":
		return told
	case name != "":
		return name
	case q.verb != "":
		return "I do not know " + q.word + " you " + q.verb + "."
	}
	return "I do not know your " + q.thing + "."
}

// alike reports whether two names of a thing are the same, in either spelling of English.
func alike(a, b string) bool {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "favorite", "favourite") }
	return plain(a) == plain(b)
}

// sentences yields the statements and questions of a text, without their last mark, and whether that is a question mark. A
// point within a word or a number ends nothing.
func sentences(text string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for line := range strings.Lines(text) {
			line = strings.Join(strings.Fields(line), " ")
			for from := 0; from < len(line); {
				to := from
				for to < len(line) && !endsAt(line, to) {
					to++
				}
				sentence := toldBoth.ReplaceAllString(line[from:to], "\n$1")
				for part := range strings.SplitSeq(sentence, "\n") {
					if part = strings.Trim(part, ` "'*`); part != "" && !yield(part, to < len(line) && line[to] == '?') {
						return
					}
				}
				from = to + 1
			}
		}
	}
}

// endsAt reports whether a sentence ends at a byte of a line.
func endsAt(line string, i int) bool {
	return strings.IndexByte(".!?;", line[i]) >= 0 && (i+1 == len(line) || strings.IndexByte(` "')*<`, line[i+1]) >= 0)
}
