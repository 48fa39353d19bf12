package redact

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// endsOf yields the places where a sign ends in a text.
func endsOf(text, sign string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := 0; ; {
			i := strings.Index(text[at:], sign)
			if i < 0 {
				return
			}
			if at += i + len(sign); !yield(at) {
				return
			}
		}
	}
}

// privateKeys finds keys in PEM. One without its end goes to the end of the text, one without its beginning begins with its lines.
func privateKeys(text string, found []span) []span {
	const begin, end = "-----BEGIN ", "-----END "
	last := 0 // the end of the key before
	for from := range endsOf(text, begin) {
		if from < last {
			continue
		}
		head, _, _ := strings.Cut(text[from:], "-----")
		if len(head) > 60 || !strings.Contains(head, "PRIVATE KEY") {
			continue
		}

		to := len(text)
		if j := strings.Index(text[from:], end); j >= 0 {
			to = from + j + len(end)
			if k := strings.Index(text[to:], "-----"); k >= 0 {
				to += k + len("-----")
			}
		}
		found, last = append(found, span{from - len(begin), to}), to
	}
	for to := range endsOf(text, end) {
		head, _, _ := strings.Cut(text[to:], "-----")
		at := to - len(end)
		if at < last || len(head) > 60 || !strings.Contains(head, "PRIVATE KEY") {
			continue
		}
		if from := keyLines(text, at); strings.TrimSpace(text[from:at]) != "" {
			found = append(found, span{from, min(to+len(head)+len("-----"), len(text))})
		}
	}
	return found
}

// keyLines returns where the lines of a key begin that ends at a place of a text.
func keyLines(text string, end int) int {
	from := end
	for from > 0 && (base64Byte(text[from-1]) || text[from-1] == '\r' || text[from-1] == '\n' && (from == end || text[from] != '\n')) {
		from--
	}
	if from > 0 && text[from-1] != '\n' { // in the middle of a line of something else
		if n := strings.IndexByte(text[from:end], '\n'); n >= 0 {
			from += n + 1
		}
	}
	return from
}

// base64Byte reports whether a key in PEM may have the byte, with line ends as JSON escapes them.
func base64Byte(c byte) bool {
	return alphanumeric(c) || strings.IndexByte(`+/=\`, c) >= 0
}

// passwordsInURLs finds the password in scheme://user:password@host.
func passwordsInURLs(text string, found []span) []span {
	for from := range endsOf(text, "://") {
		authority := text[from:]
		if n := strings.IndexAny(authority, "/?# \t\r\n\"'`<>"); n >= 0 {
			authority = authority[:n]
		}
		host := strings.LastIndexByte(authority, '@')
		if host < 0 {
			continue
		}
		if user := strings.IndexByte(authority[:host], ':'); user >= 0 {
			found = append(found, span{from + user + 1, from + host})
		}
	}
	return found
}

// passwordsInOptions finds the passwords that curl takes with a user: -u name:password. Other commands take a group there.
func passwordsInOptions(text string, found []span) []span {
	from := 0 // of the line
	for line := range strings.Lines(text) {
		if command := strings.Index(line, "curl "); command >= 0 {
			found = passwordsOfCurl(text, from+command+len("curl"), from+len(line), found)
		}
		from += len(line)
	}
	return found
}

// passwordsOfCurl finds them in text[from:to], the options of one command.
func passwordsOfCurl(text string, from, to int, found []span) []span {
	for _, option := range [...]string{" -u ", " -u", " --user ", " --user="} {
		for at := range endsOf(text[from:to], option) {
			v := wordAt(text, from+at)
			_, word, _ := strings.Cut(text[v.from:v.to], ":")
			if word != "" && !placeholder(word) {
				found = append(found, span{v.to - len(word), v.to})
			}
		}
	}
	return found
}

// prefix is how a service's keys begin, and how many characters follow at least; with digit one of them is.
type prefix struct {
	text  string
	least int
	digit bool
}

// prefixes are those of all services, by their first byte.
var prefixes = func() (all [256][]prefix) {
	for _, w := range words("prefixes") {
		text, rest, _ := strings.Cut(w, " ")
		least, digit := strings.CutSuffix(rest, " d")
		n, err := strconv.Atoi(least)
		if err != nil {
			panic("BUG: words.txt: prefixes: " + w)
		}
		all[text[0]] = append(all[text[0]], prefix{text, n, digit})
	}
	return all
}()

// tokens finds keys by how they begin, and strings that only a generator makes.
func tokens(text string, found []span) []span {
	const shortest = 9
	for from := 0; from < len(text); {
		if !tokenByte(text[from]) {
			from++
			continue
		}
		to := from
		for to < len(text) && tokenByte(text[to]) {
			to++
		}
		for to < len(text) && text[to] == '=' && to-from >= shortest { // padding
			to++
		}
		if to-from >= shortest {
			if at := keyIn(strings.TrimRight(text[from:to], "=./")); at >= 0 {
				found = append(found, span{from + at, to})
			} else if random(text[from:to]) {
				found = append(found, span{from, to})
			}
		}
		from = to
	}
	return found
}

func tokenByte(c byte) bool {
	switch c {
	case '_', '-', '.', '~', '+', '/':
		return true
	default:
		return alphanumeric(c)
	}
}

// keyIn returns where a key begins in a token, as in a URL, -1 for none.
func keyIn(token string) int {
	// They are looked for once, since a token may be full of prefixes.
	slash, digit := strings.LastIndexByte(token, '/'), strings.LastIndexAny(token, "0123456789")
	for at := 0; ; {
		if at == len(token) {
			return -1
		}
		for _, p := range prefixes[token[at]] {
			rest := at + len(p.text)
			if strings.HasPrefix(token[at:], p.text) && len(token)-rest >= p.least && slash < rest && (!p.digit || digit >= rest) {
				return at
			}
		}
		next := strings.IndexAny(token[at:], "/.~+")
		if next < 0 {
			return -1
		}
		at += next + 1
	}
}

// random reports whether a token alternates between lower case, upper case and digits too often for a name, path or
// identifier. Hexadecimal tokens do not count: most are commits, digests and ids.
func random(token string) bool {
	const shortest, tenths = 24, 4
	const secretAccessKey = 40 // characters, which may be slashes
	if len(token) < shortest || strings.Count(token, "/") > 3 || strings.Count(token, ".") > 1 {
		return false
	}
	changes, digits, capitals, small := 0, 0, 0, 0
	was := 0
	for i := range len(token) {
		is := 0
		switch c := token[i]; {
		case '0' <= c && c <= '9':
			is, digits = 1, digits+1
		case 'A' <= c && c <= 'Z':
			is, capitals = 2, capitals+1
		case 'a' <= c && c <= 'z':
			is, small = 3, small+1
		}
		if i > 0 && is != 0 && was != 0 && is != was {
			changes++
		}
		was = is
	}
	if digits >= 1 && capitals >= 8 && small >= 8 && len(token) == secretAccessKey && !strings.ContainsAny(token, "-_.~") {
		return true
	}
	return digits >= 2 && capitals >= 4 && small >= 4 && changes*10 >= len(token)*tenths
}

// secretLike reports whether a word looks like a made-up secret: it mixes letters with other characters, and has no
// other known form.
func secretLike(word string) bool {
	const shortest = 4
	letters, digits, others, capitals := 0, 0, 0, 0
	for i, r := range word {
		switch {
		case unicode.IsLetter(r):
			letters++
			if i > 0 && unicode.IsUpper(r) {
				capitals++
			}
		case unicode.IsDigit(r):
			digits++
		case strings.ContainsRune("-_./'’", r):
		default:
			others++
		}
	}
	switch n := letters + digits + others; {
	case n < shortest || placeholder(word):
		return false
	case letters > 0 && digits > 0, others > 0 && n > others:
		return true
	default:
		return capitals >= 3 && letters > capitals+1 || digits >= 6 && letters == 0 // FooBarBaz, 12345678
	}
}

// longestSource is at least the length of the names of places that placeholder knows.
const longestSource = 16

// placeholder reports whether a word stands for a secret stored elsewhere: $PASSWORD, <token>, ****, {{secret}}.
func placeholder(word string) bool {
	w := strings.Trim(word, "\"'`")
	switch {
	case w == "", strings.Trim(w, "*x.•X…_?-#") == "":
		return true
	case strings.HasPrefix(w, "<"), strings.HasPrefix(w, "{{"), strings.HasPrefix(w, "${"), strings.HasPrefix(w, "%("):
		return true
	case strings.HasPrefix(w, "$") && strings.ToUpper(w) == w && len(w) > 1 && !strings.ContainsAny(w[1:2], "0123456789"):
		return true
	case strings.HasPrefix(w, Mark), strings.HasPrefix(w, "["), strings.HasPrefix(w, "http://"), strings.HasPrefix(w, "https://"):
		return true
	}
	lower := strings.ToLower(w[:min(len(w), longestSource)])
	sources := []string{"process.env", "os.environ", "os.getenv", "env.", "env(", "getenv", "secrets.", "vault:", "file:", "op://"}
	return slices.ContainsFunc(sources, func(p string) bool { return strings.HasPrefix(lower, p) })
}
