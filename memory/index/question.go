package index

import (
	"math"
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

// question is a Question as an index sees it.
type question struct {
	terms   []queryTerm
	unknown []string    // words that the index does not have
	pairs   [][2]uint32 // neighbours
	spans   []span
	speaker int32  // the only one that is named, -1 for none or several
	role    string // whom a pronoun means, empty for nobody or several
	wants   want
	mass    float32 // of all terms' rarity
	strange float32 // likewise, of words that the index does not have
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

// asked are words after "what" and "which" that say what kind of answer is wanted.
var asked = map[string]want{
	"name": wantName, "named": wantName, "called": wantName, "title": wantName, "book": wantName, "books": wantName, "movie": wantName,
	"movies": wantName, "film": wantName, "song": wantName, "songs": wantName, "band": wantName, "bands": wantName, "artist": wantName,
	"artists": wantName, "city": wantName, "cities": wantName, "country": wantName, "countries": wantName, "state": wantName, "states": wantName,
	"place": wantName, "places": wantName, "town": wantName, "game": wantName, "games": wantName, "company": wantName, "brand": wantName,
	"author": wantName, "restaurant": wantName, "musician": wantName, "series": wantName, "show": wantName, "team": wantName, "school": wantName,
	"date": wantTime, "day": wantTime, "month": wantTime, "year": wantTime, "time": wantTime, "week": wantTime, "season": wantTime, "holiday": wantTime,
	"number": wantNumber, "age": wantNumber, "amount": wantNumber, "price": wantNumber, "percentage": wantNumber, "score": wantNumber,
}

// read takes a question apart.
func (ix *Index) read(q Question, s *scratch) *question {
	out := &s.question
	*out = question{terms: out.terms[:0], unknown: out.unknown[:0], pairs: out.pairs[:0], spans: out.spans[:0], speaker: -1}
	sc := &s.scan
	sc.scan(q.Text)
	out.spans = sc.dates(dayOf(q.Now), out.spans)

	several, both := false, false
	name := func(speaker int32) {
		switch {
		case out.speaker >= 0 && out.speaker != speaker, speaker < 0:
			several = true
		default:
			out.speaker = speaker
		}
	}
	last, gap := uint32(0), true
	for i := range sc.tokens {
		t := &sc.tokens[i]
		out.wants |= sc.wantAt(i)
		if t.stop {
			if role := pronoun(sc.text(t)); role != "" {
				both = both || out.role != "" && out.role != role
				out.role = role
			}
			continue
		}
		term, ok := ix.vocabulary[string(sc.stem(t))]
		if !ok {
			out.strange += ix.rarity(0, len(ix.items))
			if len(out.unknown) < maxTerms {
				out.unknown = append(out.unknown, string(sc.stem(t)))
			}
			gap = true
			continue
		}
		speaker, isName := ix.named[term]
		if isName {
			name(speaker)
		}
		if !gap && term != last {
			out.pairs = append(out.pairs, [2]uint32{last, term})
		}
		last, gap = term, false
		if !out.has(term) {
			out.terms = append(out.terms, queryTerm{term: term, rarity: ix.rarity(len(ix.postings[term]), len(ix.items)), name: isName})
		}
	}
	if several {
		out.speaker = -1
	}
	if both {
		out.role = ""
	}
	for len(out.terms) > maxTerms {
		out.dropCommonest()
	}
	for _, t := range out.terms {
		out.mass += t.rarity
	}
	return out
}

// known is the share of the question's words, by rarity, that the index has.
func (q *question) known() float32 { return q.mass / max(q.mass+q.strange, 1e-6) }

func (q *question) has(term uint32) bool {
	for _, t := range q.terms {
		if t.term == term {
			return true
		}
	}
	return false
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

// rarity is the weight of a term that n of all documents have.
func (*Index) rarity(n, all int) float32 {
	return float32(math.Log(1 + (float64(all)-float64(n)+0.5)/(float64(n)+0.5)))
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
func (s *scanner) wantAt(i int) want {
	word := func(i int) string {
		if i >= len(s.tokens) {
			return ""
		}
		return string(s.text(&s.tokens[i]))
	}
	switch word(i) {
	case "who", "whose", "whom", "where", "wer", "wo", "où", "qui", "dónde", "quién", "welche", "welcher", "welches", "welchen", "哪", "谁", "叫什", "何と", "どこ", "だれ":
		return wantName
	case "when", "wann", "quand", "cuándo", "时候", "いつ":
		return wantTime
	case "why", "warum", "pourquoi", "为什", "なぜ":
		return wantReason
	case "wieviel", "wieviele", "combien", "cuántos", "cuántas", "几", "多少", "何人":
		return wantNumber
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
