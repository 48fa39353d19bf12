package observational

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"

	"remora/memory/layer"
	"remora/memory/ownwords"
	"remora/memory/redact"
)

// How much the extractive observer keeps of what was said between two answers.
const (
	maxTopic     = 300 // bytes
	maxPlays     = 8   // sessions
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
	name   string
	from   layer.Source
	weight weight
	at     int // its place among all sentences
	said   time.Time
}

// extractive keeps the statements of the buffer that its observer's rules find. One that was made before is kept once, and
// one that corrects another takes its place.
func extractive(t *layer.Turn, s *state) []observation {
	var found []statement
	topics := map[int]string{} // by statement, what the message before it was about
	for _, e := range s.Texts {
		text := e.Text
		switch e.By {
		case layer.ByUser:
			playing := slices.Contains(s.Plays, e.Session)
			var plays bool
			if text, plays = ownwords.Of(text, playing); plays != playing {
				s.play(e.Session, plays)
			}
		case layer.ByTool:
			if !prose(text) {
				continue
			}
		}

		whose := s.whose(e.Session)
		for _, text := range ownwords.Sentences(text) {
			text = stated(text)
			if redact.Removed(text) {
				continue // what was said about a secret is worth nothing without it
			}
			var w weight
			if e.By == layer.ByUser {
				w, text = weighOwn(text, whose)
				if k := kin().FindString(text); k != "" && !hers().MatchString(text) {
					whose = k
				}
			} else if !instructs().MatchString(text) && !frames().MatchString(text) {
				w = weigh(text, e.By)
			}
			if w > 0 {
				if s.Topic.Session == e.Session {
					topics[len(found)] = s.Topic.Text
				}
				found = append(found, statement{text: text, by: e.By, name: e.Name, from: e.Source, weight: w, at: len(found), said: e.Time(t)})
			}
		}
		if e.By == layer.ByUser {
			s.Topic = heard{e.Session, layer.Head(normal(text), maxTopic)}
		}
	}
	if len(found) == 0 {
		return nil
	}

	all := newLedger(s.Observations)
	for _, f := range choose(found) {
		o := observation{By: f.by, Name: f.name, Text: layer.Line(f.text, maxStatement), From: layer.Sources{f.from}}
		if f.by == layer.ByUser {
			o.Text = withDates(o.Text, f.said)
		}
		if relative(o.Text) {
			o.Said = f.said.Format(time.DateOnly) // "tomorrow" means nothing in another session
		}
		all.take(o, topics[f.at])
	}
	s.Observations = all.known()
	return all.fresh()
}

// choose keeps the weightiest statements of each speaker, the later where they weigh the same, in the order in which
// they were said.
func choose(found []statement) []statement {
	byWeight := slices.Clone(found)
	slices.SortFunc(byWeight, func(a, b statement) int { return cmp.Or(cmp.Compare(b.weight, a.weight), b.at-a.at) })
	left := map[string]int{layer.ByUser: maxOfUser, layer.ByAssistant: maxOfOthers, layer.ByTool: maxOfOthers}
	kept := slices.DeleteFunc(byWeight, func(s statement) bool {
		left[s.by]--
		return left[s.by] < 0
	})
	slices.SortFunc(kept, func(a, b statement) int { return a.at - b.at })
	return kept
}

// prose reports whether a tool's output is something said and not a dump.
func prose(text string) bool {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxToolText || strings.Count(text, "\n") >= maxToolLines || strings.ContainsRune("{[<", rune(text[0])) {
		return false
	}
	return ownwords.Prose(text)
}

// relative reports whether the text has a time that means something only today: "tomorrow", "two days ago".
func relative(text string) bool {
	s := signsOf(text)
	return s.has(soon) || strings.Contains(strings.ToLower(text), "ago") && ago().MatchString(text)
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
