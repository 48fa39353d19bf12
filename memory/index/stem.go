package index

import (
	"bytes"
	_ "embed"
	"iter"
	"slices"
	"strings"
	"sync"
)

//go:embed irregular.txt
var irregularForms string

// irregular has the forms that no rule of endings brings together, each under its stem.
var irregular = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for forms := range wordLines(irregularForms) {
		stemmed := string(regular([]byte(forms[0])))
		for _, f := range forms {
			all[f] = stemmed
		}
	}
	return all
})

// wordLines yields the words of each line of a list, without comments.
func wordLines(list string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(list) {
			if words := strings.Fields(line); len(words) > 0 && words[0] != "#" && !yield(words) {
				return
			}
		}
	}
}

// stem takes the commonest English endings off a word in lower case, so that plans, planned, planning and planner are one.
// It may change w, and returns a part of it or a constant.
func stem(w []byte) []byte {
	if base, ok := irregular()[string(w)]; ok {
		return append(w[:0], base...)
	}
	return regular(w)
}

func regular(w []byte) []byte {
	if len(w) <= 3 || !plain(w) {
		return w
	}

	switch {
	case ends(w, "ies") && len(w) > 4:
		w = append(w[:len(w)-3], 'y')
	case ends(w, "sses"), ends(w, "xes"), ends(w, "ches"), ends(w, "shes"), ends(w, "zes"):
		w = w[:len(w)-2]
	case ends(w, "s") && !ends(w, "ss") && !ends(w, "us") && !ends(w, "is"):
		w = w[:len(w)-1]
	}

	switch {
	case ends(w, "ied") && len(w) > 4:
		w = append(w[:len(w)-3], 'y')
	case ends(w, "ing") && len(w) > 5 && voiced(w[:len(w)-3]):
		w = undouble(w[:len(w)-3])
	case ends(w, "ed") && len(w) > 4 && voiced(w[:len(w)-2]):
		w = undouble(w[:len(w)-2])
	}

	switch {
	case ends(w, "ly") && len(w) > 5:
		w = w[:len(w)-2]
	case ends(w, "ment") && len(w) > 7:
		w = w[:len(w)-4]
	case ends(w, "ness") && len(w) > 7:
		w = w[:len(w)-4]
	case ends(w, "tion") && len(w) > 6, ends(w, "sion") && len(w) > 6:
		w = w[:len(w)-3]
	case ends(w, "er") && len(w) > 5:
		w = undouble(w[:len(w)-2])
	case ends(w, "or") && len(w) > 6:
		w = w[:len(w)-2]
	}

	switch {
	case ends(w, "e") && len(w) > 3:
		w = w[:len(w)-1]
	case ends(w, "y") && len(w) > 3:
		w[len(w)-1] = 'i'
	}
	return w
}

// plain reports whether a word has Latin letters alone: endings of numbers and of other scripts are left alone.
func plain(w []byte) bool {
	return !slices.ContainsFunc(w, func(c byte) bool { return c < 'a' || c > 'z' })
}

func ends(w []byte, ending string) bool {
	return len(w) >= len(ending) && string(w[len(w)-len(ending):]) == ending
}

// voiced reports whether a word has a vowel, without which what looks like an ending is the word itself, as in "bring".
func voiced(w []byte) bool { return bytes.ContainsAny(w, "aeiouy") }

// undouble takes away the second of two equal consonants at the end, as in "plann".
func undouble(w []byte) []byte {
	n := len(w)
	if n > 3 && w[n-1] == w[n-2] && !bytes.ContainsRune([]byte("aeiouls"), rune(w[n-1])) {
		return w[:n-1]
	}
	return w
}
