package entity

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lengths of a name, in bytes. Longer ones are data: encoded files, signed addresses.
const (
	minName = 6
	maxName = 160
)

// signs are the characters allowed in a name besides letters and digits.
const signs = "_./@#:+-"

// distinct yields the distinctive strings of a text: runs of six or more letters, digits and signs, without plain words. A position
// in a file, such as path:12:3, is yielded as the path.
func distinct(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for from := 0; from < len(text); {
			n := run(text[from:])
			if n == 0 {
				_, size := utf8.DecodeRuneInString(text[from:])
				from += size
				continue
			}
			name := trim(text[from : from+n])
			from += n
			if name = path(name); distinctive(name) && !yield(name) {
				return
			}
		}
	}
}

// run returns the length in bytes of the name at the beginning of text.
func run(text string) int {
	n := 0
	for n < len(text) {
		if c := text[n]; c < utf8.RuneSelf {
			if !letter(c) && !digit(c) && strings.IndexByte(signs, c) < 0 {
				break
			}
			n++
			continue
		}
		// In scripts without spaces between words, a whole sentence would be one name.
		const lastSpaced = 0x058F
		r, size := utf8.DecodeRuneInString(text[n:])
		if r > lastSpaced || !unicode.IsLetter(r) {
			break
		}
		n += size
	}
	return n
}

// trim removes punctuation at the end and the dashes of an option at the beginning.
func trim(s string) string { return strings.TrimLeft(strings.TrimRight(s, ".:-+#@/"), ":+-") }

// path strips line and column from a position in a file. Other names are returned unchanged.
func path(name string) string {
	at := strings.IndexByte(name, ':')
	if at < minName || at+1 == len(name) || !digit(name[at+1]) || !strings.ContainsAny(name[:at], "./") {
		return name
	}
	for i := at; i < len(name); i++ {
		if c := name[i]; c != ':' && c != '-' && !digit(c) {
			return name
		}
	}
	if host := strings.Trim(name[:at], "0123456789."); host == "" {
		return name // an address with its port
	}
	return trim(name[:at])
}

// distinctive reports whether a run is a name or a measure: it has a digit, a sign or a capital letter inside.
func distinctive(s string) bool {
	if len(s) < minName || len(s) > maxName {
		return false
	}
	var signed, digits, letters, capital, small bool
	runes := 0
	for i, r := range s {
		runes++
		switch {
		case r >= '0' && r <= '9':
			digits = true
		case strings.ContainsRune(signs, r):
			signed = signed || i > 0
		default:
			letters = true
			capital = capital || i > 0 && unicode.IsUpper(r)
			small = small || unicode.IsLower(r)
		}
	}
	named := digits || signed && letters || capital && small
	return runes >= minName && named
}

// compound reports whether a name consists of words joined by hyphens, such as "long-term". Such a word is a name only in an
// agent's calls, where it can be a package or a branch.
func compound(name string) bool {
	first := true
	for _, r := range name {
		switch {
		case r == '-':
			first = true
			continue
		case !unicode.IsLetter(r), !first && unicode.IsUpper(r):
			return false
		}
		first = false
	}
	return true
}

// measure reports whether a run is a time, a duration or a size, of which logs are full.
func measure(s string) bool {
	if !strings.ContainsAny(s, "0123456789") {
		return false
	}
	letters := strings.ToLower(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || strings.ContainsRune(".:-+", r) {
			return -1
		}
		return r
	}, s))
	switch letters {
	case "":
		return strings.Count(s, ":") > 1
	case "t", "tz":
		return strings.Contains(s, ":")
	case "ns", "us", "µs", "ms", "s", "m", "h", "b", "kb", "mb", "gb", "kib", "mib", "gib":
		return strings.HasSuffix(strings.ToLower(s), letters)
	default:
		return false
	}
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func digit(c byte) bool { return c >= '0' && c <= '9' }
