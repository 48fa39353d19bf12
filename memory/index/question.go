package index

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Question is the query of a search.
type Question struct {
	Text string
	Now  time.Time // when it is asked, for "last week" and the like; the zero time is unknown
	Meaning
}

// maxTerms is how many terms of a question count, the rarest.
const maxTerms = 24

// question is a parsed Question.
type question struct {
	terms   []queryTerm
	unknown []string    // words that the index does not have
	pairs   [][2]uint32 // neighbours
	spans   []span
	byDate  bool   // only about dates: turns from these dates or about them are the answer
	weekday bool   // the date is a weekday: turns about it name the weekday, too
	today   int32  // the day of the question, 0 for unknown
	speaker int32  // the only named speaker, -1 for none or several
	role    string // the role that a pronoun means, empty for none or several
	wants   want
	mass    float32 // of all terms' rarity

	// How much of the question are words that the index has, and one word that it does not have.
	familiar, strange, one float32
}

type queryTerm struct {
	term   uint32
	rarity float32
	name   bool // of a speaker
}

// want is the kind of answer that a question asks for.
type want uint8

const (
	wantName   want = 1 << iota // of a person, a place, a title
	wantTime                    // a date or how long
	wantNumber                  // how many
	wantReason                  // why
)

var (
	// questionWords are words that ask for an answer of a kind.
	questionWords = wantsOf(map[want]string{
		wantName:   "who whose whom where wer wo où qui dónde quién welche welcher welches welchen 哪 谁 叫什 何と どこ だれ",
		wantTime:   "when wann quand cuándo 时候 いつ",
		wantNumber: "wieviel wieviele combien cuántos cuántas 几 多少 何人",
		wantReason: "why warum pourquoi 为什 なぜ",
	})
	// asked are words after "what" and "which" that say what kind of answer is wanted.
	asked = wantsOf(map[want]string{
		wantName: "name named called title book books movie movies film song songs band bands artist artists city cities country countries " +
			"state states place places town game games company brand author restaurant musician series show team school",
		wantTime:   "date day month year time week season holiday",
		wantNumber: "number age amount price percentage score",
	})
)

// wantsOf returns the kind of answer of each word of some lists.
func wantsOf(lists map[want]string) map[string]want {
	all := map[string]want{}
	for kind, list := range lists {
		for w := range strings.FieldsSeq(list) {
			all[w] = kind
		}
	}
	return all
}

// read parses a question with the vocabulary of an index.
func (q *question) read(from Question, ix *Index, sc *scanner) {
	*q = question{terms: q.terms[:0], unknown: q.unknown[:0], pairs: q.pairs[:0], spans: q.spans[:0], speaker: -1}
	sc.scan(from.Text)
	q.today = dayOf(from.Now)
	q.spans = dateReader{sc, q.today}.all(q.spans)
	dated := len(q.spans) > 0
	q.spans, q.byDate = sc.onlyDates(q.today, q.spans)
	q.weekday = q.byDate && !dated

	several, both := false, false
	name := func(speaker int32) {
		switch {
		case q.speaker >= 0 && q.speaker != speaker, speaker < 0:
			several = true
		default:
			q.speaker = speaker
		}
	}
	q.one = 1
	if len(ix.items) >= fewItems {
		q.one = rarityOf(0, len(ix.items))
	}
	last, gap := uint32(0), true
	for i := range sc.tokens {
		t := &sc.tokens[i]
		q.wants |= wantAt(sc, i)
		if t.stop {
			if role := pronoun(sc.text(t)); role != "" {
				both = both || q.role != "" && q.role != role
				q.role = role
			}
			continue
		}
		term, ok := ix.vocabulary.numbers[string(sc.stem(t))]
		if !ok {
			q.strange += q.one
			if len(q.unknown) < maxTerms {
				q.unknown = append(q.unknown, string(sc.stem(t)))
			}
			gap = true
			continue
		}
		speaker, isName := ix.named[term]
		if isName {
			name(speaker)
		}
		if !gap && term != last {
			q.pairs = append(q.pairs, [2]uint32{last, term})
		}
		last, gap = term, false
		if !q.has(term) {
			q.terms = append(q.terms, queryTerm{term: term, rarity: rarityOf(len(ix.postings[term]), len(ix.items)), name: isName})
		}
	}
	if several {
		q.speaker = -1
	}
	if both {
		q.role = ""
	}
	for len(q.terms) > maxTerms {
		q.dropCommonest()
	}
	for _, t := range q.terms {
		q.mass += t.rarity
	}
	if q.familiar = q.mass; len(ix.items) < fewItems {
		q.familiar = float32(len(q.terms))
	}
}

// fewItems is the number of turns from which rarity of words is meaningful. With fewer, all words of a question weigh the same.
const fewItems = 50

// known returns the share of the question's words, weighted by rarity, in the index.
func (q *question) known() float32 { return q.familiar / max(q.familiar+q.strange, 1e-6) }

// ofDay are words that ask for a day as a whole.
var ofDay = sync.OnceValue(func() WordSet {
	return Words("tell told remind recap summarize summarise list talk talked talking discuss discussed mention mentioned speak spoke chat chatted happen happened happens conversation conversations " +
		"plan plans planned schedule scheduled calendar appointment appointments gemacht gesprochen erzählt passiert geredet vor habe hatte fait dit parlé passé quest jai hice hicimos dije hablamos pasó")
})

// onlyDates reports whether a text has no word but those of its dates, stop words and those that ask for a day. A weekday that
// stands for itself is then the last one before today, which it appends.
func (s *scanner) onlyDates(today int32, spans []span) ([]span, bool) {
	if s.eastern != "" {
		for d := range (eastern{s.eastern, today}).find {
			if d.weekday && len(spans) == 0 && today != 0 {
				spans = append(spans, lastWeekday(d.span.from, today))
			}
		}
		return spans, len(spans) > 0 && onlyEastern(s.eastern)
	}
	var weekdays []int32
	for i := range s.tokens {
		switch t := &s.tokens[i]; {
		case t.stop, t.inDate, ofDay()[string(s.stem(t))]:
		case t.date.kind == weekday && !s.plural(t): // on Sundays is no date
			weekdays = append(weekdays, int32(t.date.value))
		default:
			return spans, false
		}
	}
	if len(weekdays) == 1 && today != 0 {
		spans = append(spans, lastWeekday(weekdays[0], today))
	}
	return spans, len(spans) > 0
}

// plural reports whether a day of the week is an English plural.
func (s *scanner) plural(t *token) bool {
	w, isPlural := strings.CutSuffix(string(s.text(t)), "s")
	return isPlural && dateWords()[w].kind == weekday
}

// ofDate reports whether a turn answers a question for dates: it was said on one of them, before today, or speaks of one.
func (q *question) ofDate(it *item, said []span) bool {
	for _, d := range q.spans {
		on := d
		if d.yearless {
			on = d.inYearOf(it.day)
		}
		if it.day >= on.from && it.day <= on.to && (q.today == 0 || it.day < q.today) {
			return true
		}
		for _, o := range said {
			if o.meets(d) > 0 {
				return true
			}
		}
	}
	return false
}

func (q *question) has(term uint32) bool {
	return slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.term == term })
}

func (q *question) dropCommonest() {
	at := 0
	for i, t := range q.terms {
		if t.rarity < q.terms[at].rarity {
			at = i
		}
	}
	q.terms = append(q.terms[:at], q.terms[at+1:]...)
}

// pronoun returns the role that a user's "I" or "you" means, empty for other words.
func pronoun(w []byte) string {
	switch string(w) {
	case "i", "me", "my", "mine", "myself", "ive", "im", "id", "ich", "mein", "meine", "meinen", "meinem", "meiner", "je", "mon", "ma", "mes", "mi", "mis", "yo", "我的":
		return RoleUser
	case "you", "your", "yours", "youve", "youre":
		return RoleAssistant
	}
	return ""
}

// wantAt returns the kind of answer that the word at i, with those after it, asks for.
func wantAt(s *scanner, i int) want {
	word := func(i int) string {
		if i >= len(s.tokens) {
			return ""
		}
		return string(s.text(&s.tokens[i]))
	}
	if w := questionWords[word(i)]; w != 0 {
		return w
	}
	switch word(i) {
	case "how":
		switch word(i + 1) {
		case "long", "recently", "soon":
			return wantTime | wantNumber
		case "many", "much", "often", "old", "far", "tall", "big", "heavy", "high":
			return wantNumber
		}
	case "what", "which", "whats":
		for j := i + 1; j <= i+4 && j < len(s.tokens); j++ {
			if w := asked[word(j)]; w != 0 {
				return w
			}
		}
		if word(i) == "which" {
			return wantName
		}
	}
	return 0
}
