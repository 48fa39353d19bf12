package observe

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"remora/memory/layer"
)

// How much the extractive observer keeps of what was said between two answers.
const (
	maxStatement = 200 // characters, who said it not counted
	maxOfUser    = 10  // statements
	maxOfOthers  = 3   // of the assistant, and of tools
	maxToolText  = 2000
	maxToolLines = 12
)

// statement is a sentence that may be worth keeping.
type statement struct {
	text   string
	by     string
	weight weight
	at     int // its place among all sentences
}

// extractive keeps the statements of the buffer that its observer's rules find, without those that are known.
func extractive(_ context.Context, t *layer.Turn, s state) ([]string, error) {
	var found []statement
	for _, e := range s.Buffer {
		if e.By == byTool && !prose(e.Text) {
			continue
		}
		for _, text := range sentences(e.Text) {
			text = stated(text)
			if w := judge(text, e.By); w > 0 {
				found = append(found, statement{text: text, by: e.By, weight: w, at: len(found)})
			}
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	known := newKnowledge(s.Observations)
	var kept []string
	for _, f := range choose(found) {
		text := line(f.text, maxStatement)
		if known.has(text, f.by) {
			continue
		}
		known.learn(text)
		who := f.by
		if relative(text) {
			who += " (" + t.Now.Format("2006-01-02") + ")" // "tomorrow" means nothing in another session
		}
		kept = append(kept, who+": "+text)
	}
	return kept, nil
}

// choose keeps the weightiest statements of each speaker, the later where they weigh the same, in the order in which
// they were said.
func choose(found []statement) []statement {
	byWeight := slices.Clone(found)
	slices.SortStableFunc(byWeight, func(a, b statement) int {
		if a.weight != b.weight {
			return int(b.weight) - int(a.weight)
		}
		return b.at - a.at
	})
	left := map[string]int{byUser: maxOfUser, byAssistant: maxOfOthers, byTool: maxOfOthers}
	kept := slices.DeleteFunc(byWeight, func(s statement) bool {
		left[s.by]--
		return left[s.by] < 0
	})
	slices.SortFunc(kept, func(a, b statement) int { return a.at - b.at })
	return kept
}

// prose tells that a tool's output is something said and not a dump.
func prose(text string) bool {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxToolText || strings.Count(text, "\n") >= maxToolLines || strings.ContainsRune("{[<", rune(text[0])) {
		return false
	}
	return plain(text)
}

// plain tells that a text is made of words rather than of the signs of code and data.
func plain(text string) bool {
	all, words := 0, 0
	for _, r := range text {
		all++
		if 'a' <= r && r <= 'z' || r == ' ' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) ||
			unicode.IsSpace(r) || strings.ContainsRune(".,'’!?。、", r) {
			words++
		}
	}
	return words*100 >= all*78
}

// relative tells of a time that means something only today: "tomorrow", "two days ago".
func relative(text string) bool {
	s := signsOf(text)
	return s.has(soon) || strings.Contains(strings.ToLower(text), "ago") && ago().MatchString(text)
}

// knowledge tells what has been observed already.
type knowledge struct {
	texts []string // normal, with a space before and behind, so that each word has two
}

func newKnowledge(observations []string) *knowledge {
	k := &knowledge{}
	for _, o := range observations {
		if _, text, ok := strings.Cut(o, ": "); ok {
			k.learn(text)
		}
	}
	return k
}

func (k *knowledge) learn(text string) {
	k.texts = append(k.texts, " "+normal(text)+" ")
}

// has tells that text says nothing new. Users are only taken not to repeat themselves: "my name is not Ann" differs
// from "my name is Ann" by one small word. What others say in the words of one observation echoes it.
func (k *knowledge) has(text, by string) bool {
	text = " " + normal(text) + " "
	if slices.Contains(k.texts, text) {
		return true
	}
	if by == byUser {
		return false
	}
	mine := significant(text)
	return slices.ContainsFunc(k.texts, func(theirs string) bool {
		return !slices.ContainsFunc(mine, func(word string) bool { return !strings.Contains(theirs, word) })
	})
}

// normal is a text without case, punctuation and spacing: words with a space between them.
func normal(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	apart := false
	for _, r := range text {
		switch {
		case 'A' <= r && r <= 'Z':
			r += 'a' - 'A'
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
		case r <= unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r):
			apart = b.Len() > 0
			continue
		default:
			r = unicode.ToLower(r)
		}
		if apart {
			b.WriteByte(' ')
			apart = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// significant are the words that carry what a normal text says, each with its spaces: long ones, and those with digits.
func significant(text string) []string {
	const long = 4
	var found []string
	for w := range strings.FieldsSeq(text) {
		if hollow[w] || len(w) < long && !strings.ContainsFunc(w, unicode.IsDigit) {
			continue
		}
		found = append(found, " "+w+" ")
	}
	return found
}

// hollow are long words that say nothing by themselves.
var hollow = map[string]bool{
	"your": true, "yours": true, "that": true, "this": true, "with": true, "have": true, "will": true, "from": true,
	"name": true, "you're": true, "mentioned": true, "said": true, "told": true,
}
