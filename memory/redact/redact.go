// Package redact removes secrets from text that layers keep about users: keys, passwords, one-time codes, numbers of payment
// cards, bank accounts and social security. What only looks like one of them (orders, tickets, parcels, phones, commits)
// stays.
//
// It decides by form and checksum where a secret has them, and by the words beside it where it has not: "my password is
// ...". It is a filter for text that is derived from conversations, not a promise that a text holds no secret: a password
// that is said without any word about it looks like any other word.
package redact

import (
	"cmp"
	"slices"
	"strings"
)

// Mark stands in the place of what was taken out.
const Mark = "[removed]"

// maxPasses bounds how often a text is searched again after something was taken out of it. What is still found then is
// taken out with its whole text.
const maxPasses = 6

// Text returns text with Mark in the place of each secret, and text itself where there is none. Nothing is found in what
// it returns.
func Text(text string) string {
	for range maxPasses {
		spans := find(text)
		if len(spans) == 0 {
			return text
		}
		text = without(text, spans)
	}
	return Mark
}

// Removed reports whether a text has had a secret removed.
func Removed(text string) bool { return strings.Contains(text, Mark) }

// span is where a secret stands in a text, in bytes.
type span struct{ from, to int }

// find returns where the secrets of a text stand, in order and apart from each other.
func find(text string) []span {
	var found []span
	found = privateKeys(text, found)
	found = passwordsInURLs(text, found)
	found = passwordsInOptions(text, found)
	found = tokens(text, found)
	found = numbers(text, found)
	found = ibans(text, found)
	found = labelled(text, found)

	found = slices.DeleteFunc(found, func(s span) bool { return s.from >= s.to || removed(text, s) })
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.from, b.from) })

	apart := found[:0]
	for _, s := range found {
		if n := len(apart); n > 0 && s.from < apart[n-1].to {
			apart[n-1].to = max(apart[n-1].to, s.to)
			continue
		}
		apart = append(apart, s)
	}
	return apart
}

// removed reports whether a span of a text has nothing but a Mark, or a part of one.
func removed(text string, s span) bool {
	const around = " \t\n\"'`*"
	from := s.to - len(strings.TrimLeft(text[s.from:s.to], around))
	to := s.from + len(strings.TrimRight(text[s.from:s.to], around))
	near := max(0, from-len(Mark))
	mark := strings.LastIndex(text[near:min(from+len(Mark), len(text))], Mark)
	return from >= to || mark >= 0 && to <= near+mark+len(Mark)
}

func without(text string, spans []span) string {
	var b strings.Builder
	b.Grow(len(text))
	done := 0
	for _, s := range spans {
		b.WriteString(text[done:s.from])
		b.WriteString(Mark)
		done = s.to
	}
	b.WriteString(text[done:])
	return b.String()
}
