package script

import (
	"cmp"
	"iter"
	"regexp"
	"strings"
)

// A question about the user is answered only from the texts of the request, so the answer shows whether the model got the fact:
//
//	My name is Ada.          What is my name?        Your name is Ada.
//	Hi, I'm Ada.             Who am I?
//	My lucky number is 7.    Do you know my lucky number?
//	My cat is called Tom.    What is my cat called?
//	I live in Lisbon.        Where do I live?        You live in Lisbon.
//
// Of two statements about the same thing the later one is used.
var (
	askedMy  = regexp.MustCompile(`(?i)\b(?:what|who|when|where|which|how old)(?:['’]?s| is| are| was| were) my (.+)$`)
	askedFor = regexp.MustCompile(
		`(?i)\b(?:tell me|remind me of|do you (?:still )?(?:know|remember|recall))(?: what| who| where| when| how old)? my (.+)$`)
	askedI   = regexp.MustCompile(`(?i)\b(what|who|when|where) (?:do|did) I (\w+)$`)
	askedWho = regexp.MustCompile(`(?i)\bwho am I$`)
	// askedTail matches the words after the thing in a question.
	askedTail = regexp.MustCompile(`(?i)(?: again| is| are| called| named)+$`)

	toldMy   = regexp.MustCompile(`(?i)\bmy (.+?)(?: (is|are|was|were)|['’]s) (.+)$`)
	toldName = regexp.MustCompile(`\b(?:I am|I['’]m|I am called|I['’]m called|[Cc]all me) (\p{Lu}[\p{L}'’-]*(?: \p{Lu}[\p{L}'’-]*){0,2})$`)
	toldI    = regexp.MustCompile(`\bI (\w+) (.+)$`)
	// toldBoth matches the beginning of another statement within a sentence.
	toldBoth = regexp.MustCompile(`,? (?:and|but) (my |I |I['’]m )`)
)

// maxAsked is the length of the longest message that can be a question, in bytes.
const maxAsked = 64 << 10

// question is about a thing of the user ("name"), or about an activity: a verb ("live") and its question word ("where").
type question struct{ thing, word, verb string }

// Asks reports whether a message is a question about its user. Only such a prompt needs Texts.
func Asks(text string) bool {
	_, ok := asked(text)
	return ok
}

// asked returns the last question of a user message, without the paragraphs in tags that gateways add.
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

// recall answers a question from the texts of a request.
func recall(q question, texts []string) string {
	told, name := "", ""
	for _, text := range texts {
		for sentence, asks := range sentences(text) {
			if asks {
				continue
			}
			if m := toldMy.FindStringSubmatch(sentence); m != nil && q.verb == "" && alike(m[1], q.thing) {
				verb := m[2]
				verb = cmp.Or(verb, "is")
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

// alike reports whether two names of a thing are equal, in British or American spelling.
func alike(a, b string) bool {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "favorite", "favourite") }
	return plain(a) == plain(b)
}

// sentences yields the sentences of a text, without their last mark, and whether that is a question mark. A point within a word
// or a number does not end a sentence.
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
