package layer

import (
	"iter"
	"strings"
	"sync"
	"unicode"
)

// maxWord is how long a word may be, in bytes.
const maxWord = 64

// stopWords say nothing about what a text is about.
var stopWords = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for w := range strings.FieldsSeq(`a about after all also am an and any are as at be been before but by can could did do does
		doing done for from get got had has have he her here him his how i if in into is it its just let like me more my no
		not now of on one or our out over please she should so some such than that the their them then there these they
		this those to too up us very was we were what when where which who whom whose why will with would you your
		der die das ein eine und ist nicht mit für auf le la les un une et est pas pour que el los las y es no por con`) {
		all[w] = true
	}
	return all
})

// Words yields what a text is about: its words in lower case, without their endings and without stop words; of scripts
// that put no spaces between words, every two characters that stand together.
func Words(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		stops := stopWords()
		for run := range strings.FieldsFuncSeq(strings.ToLower(text), separates) {
			for _, part := range parts(run) {
				w := part
				if !strings.ContainsFunc(part, unspaced) {
					if stops[part] || len(part) > maxWord {
						continue
					}
					w = stem(part)
				}
				if !yield(w) {
					return
				}
			}
		}
	}
}

// separates reports whether a character is of no word.
func separates(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }

// unspaced reports whether the script of a character has no spaces between words.
func unspaced(r rune) bool {
	return r > unicode.MaxLatin1 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// parts divides a run of letters where its script changes to one without spaces or back, and such a one into pairs of
// characters.
func parts(run string) []string {
	if !strings.ContainsFunc(run, unspaced) {
		return []string{run}
	}
	var found []string
	runes := []rune(run)
	for len(runes) > 0 {
		script, n := unspaced(runes[0]), 1
		for n < len(runes) && unspaced(runes[n]) == script {
			n++
		}
		if !script || n == 1 {
			found = append(found, string(runes[:n]))
		}
		for i := 1; script && i < n; i++ {
			found = append(found, string(runes[i-1:i+1]))
		}
		runes = runes[n:]
	}
	return found
}

// stem takes the commonest English endings off a word, so that "plans", "planned" and "planning" are one.
func stem(w string) string {
	switch {
	case len(w) > 4 && strings.HasSuffix(w, "ies"):
		w = w[:len(w)-3] + "y"
	case len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	switch {
	case len(w) > 5 && strings.HasSuffix(w, "ing"):
		w = undouble(w[:len(w)-3])
	case len(w) > 4 && strings.HasSuffix(w, "ed"):
		w = undouble(w[:len(w)-2])
	case len(w) > 5 && strings.HasSuffix(w, "ly"):
		w = w[:len(w)-2]
	}
	if len(w) > 3 && strings.HasSuffix(w, "e") {
		w = w[:len(w)-1]
	}
	return w
}

// undouble takes away the second of two equal consonants at the end, as in "plann".
func undouble(w string) string {
	n := len(w)
	if n > 3 && w[n-1] == w[n-2] && !strings.ContainsRune("aeiouls", rune(w[n-1])) {
		return w[:n-1]
	}
	return w
}
