package observational

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"remora/memory/layer"
)

// weight rates a statement; 0 is not worth keeping.
type weight int

const (
	fact     weight = 1 + iota // something is so: a name, a number, a date
	decision                   // something was settled
	personal                   // a speaker says something about themselves, or how they want things to be
)

// The rules, beside the cues. They are English first; of other languages they know how people speak of themselves.
var (
	// name begins a sentence that is about somebody or something with a name.
	name = layer.Lazily(`^\p{Lu}[\p{L}\d'’-]*\.?\s`)
	// label precedes a value: "Budget: 4000 EUR".
	label = layer.Lazily(`^[\p{L}][\p{L}\d _'’-]{1,40}[:=]\s*\S`)
	// turned is where a statement goes over into a question: "I am Ann, what is your name?"
	turned = layer.Lazily(`(?i)^[,;:–—-]\s+(and |so |but |now )?(what|what's|whats|who|who's|how|how's|where|where's|when|why|which|can|could|would|will|do|does|did|is|are|should)\b`)
	ago    = layer.Lazily(`(?i)\b\S+ (days?|weeks?|months?) ago\b`)
)

// tongues are words by which people speak of themselves in other languages.
var tongues = sync.OnceValue(func() map[string]bool {
	return layer.Words(`ich wir mein meine meinen meiner unser unsere je nous mon notre nos yo soy somos vivo tengo mi
		mis nuestro nuestra prefiero eu meu minha nosso nossa moro prefiro mio mia preferisco abito ik mijn onze jag mitt jeg
		benim adım أنا اسمي عندي لدي لدينا نحن أعيش وأعيش أسكن وأسكن أعمل وأعمل أحب أكره أفضل زوجتي زوجي ابني ابنتي أمي أبي أخي أختي
		אני שמי שלי אשתי בעלי я мой моя моё мои меня мне мы наш наша зовут mam mój moja jestem`)
})

// tongueParts does the same for several words together: "ma" is also Italian, "mes" also Spanish, and Spanish verbs need no pronoun.
// unspacedSelves does for scripts without spaces; people name their own relatives there without "my".
var (
	tongueParts = layer.Lazily(`(?i)(^|[^\p{L}])(j['’]\p{L}+|m['’]appelle|me llamo)($|[^\p{L}])|` +
		`(^|[,;:]\s|(^|[^\p{L}])(et|à|de|pour|avec|chez|que|sur|dans)\s)(ma|mes|nos)\s\p{L}{4}|` +
		`^((ya|no|nunca|siempre|ahora|también)\s)*me\s\p{L}{3,}(é|í|[aeo]n?)($|[^\p{L}])|^(ya no|nunca|siempre)\s\p{L}{2,}(é|í|oy?)($|[^\p{L}])`)
	partly         = layer.Words("j appelle ma mes nos me nunca siempre ya")
	unspacedSelves = []string{
		"私", "僕", "俺", "わたし", "我", "나는", "저는", "제 ", "내 ", "住んで", "引っ越", "が好き", "好きな", "が嫌い", "アレルギー",
		"妹", "姉", "兄", "弟", "娘", "息子", "妻", "夫", "上司", "同僚", "住在", "过敏", "살아요", "좋아해", "싫어해",
	}
)

// weigh rates a sentence, given its speaker.
func weigh(text, by string) weight {
	if !worded(text) {
		return 0
	}
	if by != layer.ByUser {
		return weighReport(text)
	}
	s := signsOf(text)
	notable := s.has(remember)
	if !notable && (question(text) || s.has(asked)) {
		return 0
	}
	told := s.has(own)
	switch {
	case notable, s.has(standing):
		return personal
	case !told && s.has(passing):
		return 0
	case told, s.has(me), elsewhere(text):
		return personal
	case s.has(decided):
		return decision
	case s.has(named), s.thing(), s.exact() && s.has(subject):
		return fact
	default:
		return s.precise()
	}
}

// stated is the part of a sentence that states something: all of it, or what stands before a question.
func stated(text string) string {
	if !question(text) {
		return text
	}
	if s := signsOf(text); s.has(remember) || s.has(supposed) {
		return text
	}
	const breaks = ",;:–—-"
	for at := strings.IndexAny(text, breaks); at >= 0; {
		if turned().MatchString(text[at:]) {
			return strings.TrimRight(text[:at], space)
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		next := strings.IndexAny(text[at+size:], breaks)
		if next < 0 {
			break
		}
		at += size + next
	}
	return text
}

// space is the characters that `\s` matches.
const space = "\t\n\f\r "

// weighReport rates statements of assistants and tools: they talk much, so only settled or precise ones count.
func weighReport(text string) weight {
	if question(text) {
		return 0
	}
	s := signsOf(text)
	switch {
	case s.has(filler):
		return 0
	case s.has(decided):
		return decision
	default:
		return s.precise()
	}
}

// precise is a fact if the sentence says of something that it is so, with a name, a number or a date. Of a script that
// the rules cannot read, a number is enough.
func (s *signs) precise() weight {
	switch {
	case (s.has(copula) || strings.ContainsAny(s.text, ":=") && label().MatchString(s.text)) && (s.exact() || proper(s.text)):
		return fact
	case !strings.ContainsFunc(s.text, latin) && strings.ContainsFunc(s.text, unicode.IsDigit):
		return fact
	default:
		return 0
	}
}

// exact reports whether the statement has a number or a date.
func (s *signs) exact() bool { return s.digit || s.has(exact) }

// thing reports whether the sentence begins with a name, or with "The" and its like, followed by a verb.
func (s *signs) thing() bool {
	at := name().FindStringIndex(s.text)
	return at != nil && s.begins(verb, at[1])
}

// proper reports whether a word within the text has a capital, as names have: `[\p{L}\d,;:.]\s+["'(]?\p{Lu}[\p{L}\d'’-]+`.
func proper(text string) bool {
	for i, r := range text {
		if !unicode.IsUpper(r) {
			continue
		}
		before := text[:i]
		if n := len(before); n > 0 && strings.IndexByte(`"'(`, before[n-1]) >= 0 {
			before = before[:n-1]
		}
		lead := strings.TrimRight(before, space)
		last, _ := utf8.DecodeLastRuneInString(lead)
		next, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(r):])
		if len(lead) < len(before) && alphanumeric(last, ",;:.") && alphanumeric(next, "'’-") {
			return true
		}
	}
	return false
}

// alphanumeric reports whether a character is a letter, an ASCII digit, or one of the others.
func alphanumeric(r rune, others string) bool {
	return unicode.IsLetter(r) || '0' <= r && r <= '9' || strings.ContainsRune(others, r)
}

// elsewhere reports whether a speaker talks about themselves in another language than English.
func elsewhere(text string) bool {
	selves, parts := tongues(), false
	for w := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
		w = strings.ToLower(w)
		if selves[w] {
			return true
		}
		parts = parts || partly[w]
	}
	return parts && tongueParts().MatchString(text) ||
		slices.ContainsFunc(unspacedSelves, func(w string) bool { return strings.Contains(text, w) })
}

func question(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimRight(text, `"')* `))
	return r == '?' || r == '？' || r == '؟'
}

// worded reports whether a sentence is long enough to say something: two words, or four signs of a script without spaces.
func worded(text string) bool {
	const few = 4
	if !strings.ContainsFunc(text, latin) {
		return utf8.RuneCountInString(text) >= few
	}
	return strings.ContainsFunc(strings.TrimSpace(text), unicode.IsSpace)
}

func latin(r rune) bool {
	if r <= unicode.MaxASCII {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	return unicode.Is(unicode.Latin, r)
}
