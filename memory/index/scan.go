package index

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// token is a word of a text, or a few characters of a script that has no spaces.
type token struct {
	from, to int32 // in scanner.lower: the word in lower case
	at       int32 // where it stands in the text
	stop     bool  // says nothing about what the text is about
	capital  bool  // begins with a capital inside of a sentence, so that it is likely a name
	upper    bool  // begins with a capital
	opens    bool  // begins a sentence
	pair     bool  // of a script without spaces: its characters are in other tokens as well
	single   bool  // likewise, and one character alone
	number   int32 // its value, -1 for none
	date     dateWord
	inDate   bool // of a date that the text names
}

// scanner takes texts apart. It can be used again, for one text at a time.
type scanner struct {
	lower  []byte
	tokens []token
	quotes int // texts in quotation marks
	asks   int // sentences that end in a question mark
	tells  int // other sentences of two words or more
	dated  bool
	// eastern is the text where it has characters that Chinese and Japanese dates are written with, else empty.
	eastern string
	stems   []byte
}

// Limits of a text: a longer one is cut, and a longer word is skipped.
const (
	maxText = 8 << 10 // bytes
	maxWord = 48      // bytes
)

// scan takes a text apart. Characters that Unicode spells in several ways (composed or not, of full width or not) are one.
func (s *scanner) scan(text string) {
	s.lower, s.tokens, s.quotes, s.asks, s.tells, s.dated = s.lower[:0], s.tokens[:0], 0, 0, 0, false
	text = norm.NFKC.String(head(text, maxText))
	s.eastern = ""

	begin, words := true, 0 // of a sentence
	quoteFrom := -1
	for i := 0; i < len(text); {
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(text[i:])
		}
		switch {
		case unspaced(r):
			end := i + n
			for end < len(text) {
				next, m := utf8.DecodeRuneInString(text[end:])
				if !unspaced(next) && !unicode.IsMark(next) {
					break
				}
				end += m
			}
			s.pairs(text, i, end)
			if s.eastern == "" && strings.ContainsAny(text[i:end], "日天月年周週曜昨末夜晚晩お星礼禮早朝") {
				s.eastern, s.dated = text, true
			}
			words += 2
			begin = false
			i = end
			continue
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			end := s.word(text, i, begin)
			words++
			begin = false
			i = end
			continue
		case r == '?' || r == '\uFF1F' || r == '\u061F':
			if !begin {
				s.asks++
			}
			begin, words = true, 0
		case r == '.' && i+1 < len(text) && !isGap(text[i+1]): // of a number, an address or an abbreviation
		case r == '.' || r == '!' || r == '\n' || r == '\u3002' || r == '\uFF01':
			if words > 1 {
				s.tells++
			}
			begin, words = true, 0
		case r == '"' || r == '\u201C' || r == '\u201D' || r == '\u00AB' || r == '\u00BB' || r == '\u300C' || r == '\u300D':
			if quoteFrom >= 0 && len(s.tokens) > quoteFrom {
				s.quotes++
				quoteFrom = -1
			} else {
				quoteFrom = len(s.tokens)
			}
		}
		i += n
	}
	if words > 1 {
		s.tells++
	}
}

func isGap(c byte) bool { return c <= ' ' || c == '"' || c == '\'' || c == ')' }

// word reads the word at i, and returns its end. It drops apostrophes and possessive endings. Accents stay, since stop words
// and names of months are known by them; stem takes them away.
func (s *scanner) word(text string, i int, begin bool) int {
	t := token{from: small(len(s.lower)), at: small(i), opens: begin, number: -1}
	digits, letters := 0, 0
	value, end, apostrophe := int32(0), i, -1
	first := true
	for end < len(text) {
		r, n := rune(text[end]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(text[end:])
		}
		switch {
		case r >= 'a' && r <= 'z':
			letters++
			s.lower = append(s.lower, byte(r))
		case r >= 'A' && r <= 'Z':
			letters++
			t.upper = t.upper || first
			s.lower = append(s.lower, byte(r-'A'+'a'))
		case r >= '0' && r <= '9':
			digits++
			value = min(value, 1<<27)*10 + (r - '0')
			s.lower = append(s.lower, byte(r))
		case r == '\'' || r == '\u2019':
			if next, _ := utf8.DecodeRuneInString(text[end+n:]); !unicode.IsLetter(next) {
				goto done
			}
			apostrophe = len(s.lower)
		case r < utf8.RuneSelf || unspaced(r) || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r):
			goto done
		default:
			letters++
			t.upper = t.upper || first && unicode.IsUpper(r)
			s.lower = utf8.AppendRune(s.lower, unicode.ToLower(r))
		}
		first = false
		end += n
	}
done:
	if apostrophe >= 0 && string(s.lower[apostrophe:]) == "s" && !contraction(s.lower[t.from:apostrophe]) {
		s.lower = s.lower[:apostrophe]
	}
	if digits > 0 && letters > 0 && ordinal(s.lower[t.from:], digits) {
		s.lower, letters = s.lower[:int(t.from)+digits], 0
	}
	if digits > 0 && letters == 0 {
		t.number = value
	}
	t.to = small(len(s.lower))
	w := s.lower[t.from:t.to]
	if len(w) > maxWord {
		return end
	}
	t.stop = stopWords()[string(w)] || len(w) == 1 && t.number < 0
	t.capital = t.upper && !begin && !t.stop
	if t.number < 0 {
		if t.date = dateWords()[string(w)]; t.date.kind != 0 {
			s.dated = true
		}
	} else if t.number >= 1900 && t.number < 2100 || digits >= 2 {
		s.dated = true
	}
	s.tokens = append(s.tokens, t)
	return end
}

// contraction reports whether 's after a word is short for "is" or "us", which the stop words have with the word.
func contraction(w []byte) bool {
	switch string(w) {
	case "it", "he", "she", "that", "what", "who", "where", "how", "there", "let", "when":
		return true
	}
	return false
}

// ordinal reports whether a word is a number with an English ending: 1st, 22nd, 3rd, 8th.
func ordinal(w []byte, digits int) bool {
	if len(w) != digits+2 {
		return false
	}
	switch string(w[digits:]) {
	case "st", "nd", "rd", "th":
		return true
	}
	return false
}

// pairs takes a run of characters of a script without spaces apart: every two that stand together, and each alone where
// one character can be a word.
func (s *scanner) pairs(text string, from, to int) {
	before := -1
	for i := from; i < to; {
		r, n := utf8.DecodeRuneInString(text[i:])
		// A vowel or a tone that is a mark belongs to the consonant before it, and comes with it in the next pair.
		if !unicode.IsMark(r) {
			if unicode.Is(unicode.Han, r) || to-from == n {
				s.piece(text[i:i+n], i)
				s.tokens[len(s.tokens)-1].single = true
			}
			if before >= 0 {
				s.piece(text[before:i+n], before)
			}
			before = i
		}
		i += n
	}
}

func (s *scanner) piece(text string, at int) {
	from := small(len(s.lower))
	s.lower = append(s.lower, text...)
	t := token{from: from, to: small(len(s.lower)), at: small(at), pair: true, number: -1, stop: particles()[text], date: dateWords()[text]}
	s.dated = s.dated || t.date.kind != 0
	s.tokens = append(s.tokens, t)
}

// text returns the word of a token, in lower case.
func (s *scanner) text(t *token) []byte { return s.lower[t.from:t.to] }

// stem returns the stem of a token. It holds until the next call.
func (s *scanner) stem(t *token) []byte {
	if t.pair || t.number >= 0 {
		return s.text(t)
	}
	s.stems = unaccented(s.stems[:0], s.text(t))
	return stem(s.stems)
}

// unaccented appends a word without its accents, which people leave out where a keyboard has none, as capitals do in Greek and
// vowels in Arabic and Hebrew.
func unaccented(dst, w []byte) []byte {
	if !slices.ContainsFunc(w, func(c byte) bool { return c >= utf8.RuneSelf }) {
		return append(dst, w...)
	}
	for i := 0; i < len(w); {
		r, n := utf8.DecodeRune(w[i:])
		i += n
		if plain, ok := spelledPlain[r]; ok {
			dst = append(dst, plain...)
			continue
		}
		if r < utf8.RuneSelf || !unicode.In(r, unicode.Latin, unicode.Greek, unicode.Arabic, unicode.Hebrew, unicode.Inherited) {
			dst = utf8.AppendRune(dst, r)
			continue
		}
		var decomposed [utf8.UTFMax]byte
		for _, base := range string(norm.NFD.Append(decomposed[:0], w[i-n:i]...)) {
			if !unicode.IsMark(base) {
				dst = utf8.AppendRune(dst, base)
			}
		}
	}
	return dst
}

// spelledPlain are letters that do not decompose, or that are letters of their own to Unicode alone.
var spelledPlain = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'đ': "d", 'ð': "d", 'ł': "l", 'þ': "th", 'ı': "i", 'ς': "σ", 'ё': "е", 'ى': "ي",
}

// unspaced reports whether the script of a character has no spaces between words.
func unspaced(r rune) bool {
	return r > 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// head is the beginning of a text, at most limit bytes of it, cut between characters.
func head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
