package redact

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is the kind of secret that a label announces, and so the form of its value.
type kind uint8

const (
	none     kind = iota
	password      // any word
	token         // a word that looks made up
	pass          // likewise, after "my" or the like also where it stands after "to"
	phrase        // all words up to the end of the sentence
	code          // some digits, or a word with digits
	longCode      // likewise, where the word alone says little: four to eight digits, a colon or "is" before them
	account       // at least six digits
	cardNo        // at least twelve digits
)

// kinds are the kinds of labels, as words.txt names them.
var kinds = map[string]kind{
	"password": password, "token": token, "pass": pass, "phrase": phrase, "code": code, "long code": longCode, "account": account, "card": cardNo,
}

// label is a word, or several, that announces a secret.
type label struct {
	rest []string // the words after the first
	kind kind
}

// byFirst are the labels by their first word. unspacedLabels are those of languages without spaces between words.
var byFirst, unspacedLabels = func() (map[string][]label, map[string]kind) {
	all, unspaced := make(map[string][]label), make(map[string]kind)
	for name, k := range kinds {
		for _, l := range words("label " + name) {
			first, rest, _ := strings.Cut(l, " ")
			all[first] = append(all[first], label{strings.Fields(rest), k})
		}
		for _, l := range lists["unspaced "+name] {
			unspaced[l] = k
		}
	}
	return all, unspaced
}()

// part is a word of a text, or one of several that - or _ or a capital joins to a name.
type part struct {
	lower string
	span
}

// labelled finds the values of labels, after them or before them.
func labelled(text string, found []span) []span {
	// Labels and the words that they depend on have no comma and no line end between them, so that the words of a piece suffice:
	// all words of a large text take more memory than the text.
	const piece = 32 << 10
	var parts []part
	for from := 0; from < len(text); {
		to := min(from+piece, len(text))
		if i := strings.IndexAny(text[to:], ",\n"); i >= 0 {
			to += i + 1
		} else {
			to = len(text)
		}
		parts = partsOf(text, from, to, parts[:0])
		found = valuesOf(text, parts, found)
		from = to
	}
	if strings.IndexFunc(text, unspaced) < 0 {
		return found
	}
	lower := strings.Map(unicode.ToLower, text)
	if len(lower) != len(text) {
		lower = text
	}
	left := maxUnspaced
	for l, k := range unspacedLabels {
		for at := range endsOf(lower, l) {
			if left--; left < 0 {
				return append(found, span{0, len(text)})
			}
			if s := valueAfter(text, at, k, l); s.to > 0 {
				found = append(found, s)
			}
		}
	}
	return found
}

// maxUnspaced is the number of labels in text without spaces from which all of it is taken out: after each, up to 256 bytes are
// read, and no text that people write has so many.
const maxUnspaced = 4096

// valuesOf finds the values of the labels among the words of a piece.
func valuesOf(text string, parts []part, found []span) []span {
	for i := 0; i < len(parts); i++ {
		k, n := labelAt(text, parts, i)
		if k == none {
			continue
		}
		if k == pass && (i == 0 || !owners[parts[i-1].lower] || parts[i-1].lower == "a") {
			k = token // "I pass to", "a pass to"
		}
		end := parts[i+n-1].to
		if s := valueAfter(text, end, k, parts[i+n-1].lower); s.to > 0 {
			found = append(found, s)
		} else if s := valueBefore(text, parts, i, k); s.to > 0 {
			found = append(found, s)
		}
		i += n - 1
	}
	return found
}

// partsOf appends the words of text[begin:end]. "DB_PASSWORD", "db-password" and "dbPassword" are two each.
func partsOf(text string, begin, end int, parts []part) []part {
	const longest = 40 // bytes; longer ones are no label
	from := -1
	var was rune
	add := func(to int) {
		if from >= 0 && to-from <= longest {
			parts = append(parts, part{strings.ToLower(text[from:to]), span{from, to}})
		}
		from = -1
	}
	for i, r := range text[begin:end] {
		i += begin
		inWord := (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r)) && (!unspaced(r) || unicode.Is(unicode.Thai, r))
		if !inWord || from >= 0 && unicode.IsUpper(r) && unicode.IsLower(was) {
			add(i)
		}
		if inWord && from < 0 {
			from = i
		}
		was = r
	}
	add(end)
	return parts
}

// labelAt is the kind of the label that begins with a part, and how many parts it has.
func labelAt(text string, parts []part, at int) (k kind, n int) {
labels:
	for _, l := range byFirst[parts[at].lower] {
		if 1+len(l.rest) <= n || at+len(l.rest) >= len(parts) {
			continue
		}
		for j, word := range l.rest {
			next := parts[at+j+1]
			if next.lower != word || !slices.Contains(joins, text[parts[at+j].to:next.from]) {
				continue labels
			}
		}
		k, n = l.kind, 1+len(l.rest)
	}
	if k == none && endsIn(parts[at].lower, passwordSuffixes) {
		return password, 1
	}
	if k == longCode && at > 0 && otherCodes[parts[at-1].lower] {
		return none, 0
	}
	if k == token && n == 1 && at > 0 && strings.HasPrefix(parts[at-1].lower, "max") {
		return none, 0 // max_token: 4000
	}
	return k, n
}

// passwordSuffixes end words that are joined without a sign: PGPASSWORD, Datenbankpasswort.
var passwordSuffixes = []string{"password", "passwd", "passwort", "kennwort", "wachtwoord", "lösenord", "passord"}

// joins stand between the words of one label.
var joins = []string{"", " ", "-", "_", ".", "'", "’", "\u00a0"}

func endsIn(word string, suffixes []string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(word, s) })
}

// How a label is joined to its value, the strongest last.
type joint uint8

const (
	apart    joint = iota // nothing but a space
	towards               // "to", "auf"
	verb                  // "is", "ist", "est"
	equation              // ":" or "="
)

// Words around a label and its value; words.txt says of each list where they stand.
var (
	verbs, directions, prepositions = set("verbs"), set("directions"), set("prepositions")
	changes                         = set("changes")
	adverbs, conjunctions           = set("adverbs"), set("conjunctions")
	ordinary, otherCodes            = set("ordinary"), set("other codes")
	owners, links, uses             = set("owners"), set("links"), set("uses")
	accounts                        = set("accounts")
)

// suffixes end words that describe passwords.
var suffixes = []string{"ed", "ing", "able", "ible", "ly", "ful", "less", "ous", "ive", "ical", "lich", "bar", "iert", "ado", "ada", "ido", "ida", "ato", "ata"}

// closers may stand after a label: a quote, a bracket, the marks of bold text.
const closers = "\"'`*)]」』”’"

// valueAfter is the value of a label that ends at a place, nothing where none follows.
func valueAfter(text string, at int, k kind, last string) span {
	rest := text[at:]
	at += len(rest) - len(strings.TrimLeft(rest, closers)) // a closing quote of the label itself

	how, from := jointAfter(text, at, k, false)
	s := valueAt(text, from, how, k, last)
	if s.to == 0 && from > 0 && strings.IndexByte("([", text[from-1]) >= 0 {
		how, from = jointAfter(text, at, k, true) // "password (for GitHub) is"
		s = valueAt(text, from, how, k, last)
	}
	return s
}

// valueAt is the value that begins at a place, or another one of several: "ada / Xk29sLq0".
func valueAt(text string, from int, how joint, k kind, last string) span {
	if from < 0 {
		return span{}
	}
	value, quoted := valueWord(text, from)
	if value.to == 0 {
		return span{}
	}
	if s := valueOf(text, value, quoted, how, k, last); s.to > 0 || how < verb || k != password && k != token && k != pass {
		return s
	}

	if name, _, ok := strings.Cut(text[value.from:value.to], "/"); ok && name != "" && accounts[last] {
		value.to = value.from + len(name)
	}
	const mostMore = 3
	list := strings.HasSuffix(strings.TrimRight(text[:from], " "), " are") // "my passwords are hunter2 and Xk29sLq0"
	for range mostMore {
		next := nextOfList(text, value.to, list)
		if next < 0 || ordinary[strings.ToLower(text[value.from:min(value.to, value.from+longestListed)])] {
			break
		}
		if value = wordAt(text, next); value.to == 0 {
			break
		}
		word := text[value.from:value.to]
		switch {
		case secretLike(word):
			if s := valueOf(text, value, false, how, k, last); s.to > 0 {
				return s
			}
		case k == password, accounts[last] && plainPassword(word):
			if s := passwordValue(text, value, how, false); s.to > 0 {
				return s
			}
		}
	}
	return span{}
}

// plainPassword reports whether the second word after a login may be its password: not a path, a name or another label.
func plainPassword(word string) bool {
	first, _ := utf8.DecodeRuneInString(word)
	return unicode.IsLower(first) && !strings.Contains(word, "/") && byFirst[word] == nil
}

// valueWord is wordAt for a value that may stand in brackets, and whether it is quoted.
func valueWord(text string, at int) (v span, quoted bool) {
	if strings.HasPrefix(text[at:], "(") {
		at++
	}
	v = wordAt(text, at)
	return v, v.from > at
}

// nextOfList is where a value stands after one that ends at a place: after a slash, in a list also after "and" and a comma. -1 if
// there is none.
func nextOfList(text string, at int, list bool) int {
	next := skipSpace(text, at)
	if next >= len(text) {
		return -1
	}
	if text[next] == '/' || list && text[next] == ',' {
		return skipSpace(text, next+1)
	}
	if word, end := plainWord(text, next); list && conjunctions[strings.ToLower(word)] {
		return skipSpace(text, end)
	}
	return -1
}

// valueOf is the part of a word, or of what it begins, that is the value of a label of this kind.
func valueOf(text string, value span, quoted bool, how joint, k kind, last string) span {
	word := text[value.from:value.to]
	switch k {
	case password:
		return passwordValue(text, value, how, quoted)
	case token, pass:
		return tokenValue(word, value, how, quoted, last)
	case phrase:
		const fewWords = 3 // "my passphrase is too short" is none
		whole := span{value.from, sentenceEnd(text, value.to)}
		said := len(strings.Fields(text[whole.from:whole.to]))
		if how < verb || ordinary[strings.ToLower(word)] && how != equation && said < fewWords+1 {
			return span{}
		}
		return whole
	case code, longCode:
		return codeValue(text, value, how, k)
	case account:
		return digitsValue(text, value.from, 6)
	case cardNo:
		return digitsValue(text, value.from, 12)
	default:
		return span{}
	}
}

// passwordValue is a value if it can be a password: nearly any word after a colon, one that is made up elsewhere.
func passwordValue(text string, v span, how joint, quoted bool) span {
	word := text[v.from:v.to]
	lower := word
	if len(word) <= longestListed {
		lower = strings.ToLower(word)
	}
	plain := !secretLike(word) && !digitsOnly(word)
	switch {
	case placeholder(word), len(word) < 2:
		return span{}
	case quoted && how >= towards:
		return v
	case how == apart, how == towards:
		if plain || digitsOnly(word) && len(word) < 4 {
			return span{}
		}
		return v
	case how == equation && ordinary[lower]:
		return span{}
	case how == equation, !plain:
		return v
	case ordinary[lower], endsIn(lower, suffixes):
		return span{}
	}

	if after := strings.TrimLeft(text[v.to:], "\"'`*"); after != "" && strings.IndexByte(".,;:!?)\n", after[0]) < 0 {
		next, _ := plainWord(after, skipSpace(after, 0))
		if !conjunctions[strings.ToLower(next)] {
			return span{}
		}
	}
	return v
}

// tokenValue is a value if it looks made up.
func tokenValue(word string, v span, how joint, quoted bool, last string) span {
	scheme := last == "bearer" || last == "basic"
	switch {
	case !quoted && !scheme && ofSource(word):
		return span{}
	case !secretLike(word) && (!scheme || len(word) < 12):
		return span{}
	case how == equation, quoted, scheme:
		return v
	case digitsOnly(word):
		return span{} // token 128000
	case how >= towards, len(word) >= 8:
		return v
	default:
		return span{}
	}
}

// ofSource reports whether a word is a call or a place in a file, as in `token := readHeader(ctx)` and `token_store.go:12`. Its
// name has no digit: a secret that looks like this is hardly made.
func ofSource(word string) bool {
	n := strings.IndexFunc(word, func(r rune) bool { return r != '_' && r != '.' && !unicode.IsLetter(r) })
	if n < 0 {
		return false
	}
	name, rest := word[:n], word[n:]
	switch file, ending, _ := strings.Cut(name, "."); {
	case rest[0] == '(':
		return name != ""
	case rest[0] == ':' && file != "" && ending != "" && len(ending) <= 5:
		return strings.Trim(rest, ":-0123456789") == ""
	default:
		return false
	}
}

// codeValue is a value of digits, in one or two groups, or a short word with digits.
func codeValue(text string, v span, how joint, k kind) span {
	word := text[v.from:v.to]
	if k == longCode {
		if s := digitsValue(text, v.from, 4); s.to > 0 && how >= verb && digitsIn(text[s.from:s.to]) <= 8 {
			return s
		}
		return span{}
	}
	if s := digitsValue(text, v.from, 3); s.to > 0 && digitsIn(text[s.from:s.to]) <= 12 && how != towards {
		return s
	}
	if how >= verb && secretLike(word) {
		return v
	}
	return span{}
}

// digitsValue is a number with at least this number of digits, and with the letters and separators of one. Its first group has
// no word before it.
func digitsValue(text string, from, least int) span {
	digits, end := 0, 0
	gap := 0
	letters := 0
	for i, r := range text[from:] {
		switch {
		case digitOf(r) >= 0:
			digits++
			gap, letters = 0, 0
			end = from + i + utf8.RuneLen(r)
		case unspaced(r):
			gap = 3
		case unicode.IsLetter(r):
			if letters++; letters > 6 {
				gap = 3
			} else if end == from+i {
				end = from + i + utf8.RuneLen(r)
			}
		case r == ' ' || r == '-' || r == '.' || r == '/' || r == '\u00a0' || r == '#':
			gap++
		default:
			gap = 3
		}
		if gap > 2 || letters > 6 || gap > 0 && letters > 2 {
			break
		}
	}
	if digits < least {
		return span{}
	}
	return span{from, end}
}

func digitsOnly(word string) bool {
	return word != "" && strings.IndexFunc(word, func(r rune) bool { return digitOf(r) < 0 }) < 0
}

func digitsIn(text string) int {
	n := 0
	for _, r := range text {
		if digitOf(r) >= 0 {
			n++
		}
	}
	return n
}

// jointAfter finds how a label that ends at a place is joined to its value, and where that begins; -1 where no value
// can follow. A bracket begins the value, or is passed over.
func jointAfter(text string, at int, k kind, brackets bool) (how joint, from int) {
	const mostWords = 7 // between a label and its value
	inside := false     // of "for the guest wifi"
	first := true
	for range mostWords {
		next := skipSpace(text, at)
		if next >= len(text) {
			return apart, -1
		}
		r, size := utf8.DecodeRuneInString(text[next:])
		switch r {
		case ':', '=', '：', '＝', '→':
			end := next + size
			for end < len(text) && (text[end] == '=' || text[end] == '>' || text[end] == ':') {
				end++
			}
			return equation, skipGap(text, end)
		case '-', '–', '—':
			end := next + size
			if end < len(text) && text[end] == '>' {
				return equation, skipGap(text, end+1)
			}
			if next > at && end < len(text) && text[end] == ' ' {
				return verb, skipGap(text, end)
			}
			return apart, -1
		case '\n', '\r', ',', ';', '.', '!', '?':
			return apart, -1
		case '(', '[':
			if !brackets {
				return apart, next + size
			}
			if at = bracketEnd(text, next); at < 0 {
				return apart, -1
			}
			continue
		case 'は', 'が', '是', '为', '為', '는', '은', '이', '가': // particles that join a label to its value
			return verb, adverbial(text, skipGap(text, next+size))
		}

		word, end := plainWord(text, next)
		lower := strings.ToLower(word)
		if k == password && (first || verbs[lower]) {
			change := next
			if verbs[lower] {
				change = end
			}
			if to := changedTo(text, change); to > 0 {
				return towards, to
			}
		}
		switch {
		case verbs[lower] && (k == password || k == phrase || lower != "on"):
			return verb, adverbial(text, end)
		case first && directions[lower] && (k == password || k == pass) && made(text, end):
			return towards, skipSpace(text, end)
		case prepositions[lower]:
			inside = true
		case inside, first && (adverbs[lower] || lower == "number" || lower == "code"):
		case first && lower != "ending":
			return apart, next
		default:
			return apart, -1
		}
		if end == next {
			return apart, -1
		}
		at, first = end, false
	}
	return apart, -1
}

// bracketEnd is where a bracket ends that begins at a place, with its line; -1 if it does not.
func bracketEnd(text string, at int) int {
	const longest = 100
	closing := byte(')')
	if text[at] == '[' {
		closing = ']'
	}
	line, _, _ := strings.Cut(text[at:min(len(text), at+longest)], "\n")
	if n := strings.IndexByte(line, closing); n >= 0 {
		return at + n + 1
	}
	return -1
}

// changedTo is where a value begins after "changed to", 0 if that does not stand at a place.
func changedTo(text string, at int) int {
	word, end := plainWord(text, skipSpace(text, at))
	if !changes[strings.ToLower(word)] {
		return 0
	}
	word, end = plainWord(text, skipSpace(text, end))
	if !directions[strings.ToLower(word)] || !made(text, end) {
		return 0
	}
	return skipSpace(text, end)
}

// made reports whether the word at a position looks made up, or is quoted.
func made(text string, at int) bool {
	v, quoted := valueWord(text, skipSpace(text, at))
	return v.to > 0 && (quoted || secretLike(text[v.from:v.to]))
}

// adverbial skips words such as "now" before a value.
func adverbial(text string, at int) int {
	for range 2 {
		at = skipSpace(text, at)
		word, end := plainWord(text, at)
		if end == at || !adverbs[strings.ToLower(word)] {
			break
		}
		if after := skipSpace(text, end); after >= len(text) || strings.IndexByte(".,;!?", text[after]) >= 0 {
			break // it is the value
		} else if text[after] == ':' || text[after] == '=' {
			return skipGap(text, after+1)
		}
		at = end
	}
	at = skipSpace(text, at)
	if at < len(text) && (text[at] == ':' || text[at] == '=') {
		at = skipGap(text, at+1)
	}
	return at
}

// skipGap goes over spaces and one line's end: "Password:\nhunter2".
func skipGap(text string, at int) int {
	for at = skipSpace(text, at); strings.HasPrefix(text[at:], "**"); {
		at = skipSpace(text, at+len("**"))
	}
	if at < len(text) && (text[at] == '\n' || text[at] == '\r') {
		at = skipSpace(text, at+1)
		if at < len(text) && text[at] == '\n' {
			at = skipSpace(text, at+1)
		}
	}
	return at
}

func skipSpace(text string, at int) int {
	return at + len(text[at:]) - len(strings.TrimLeft(text[at:], " \t\u00a0\u3000"))
}

// longestListed is the length of a word, in bytes, from which no list has it. Longer ones are not looked up: text without spaces
// between words is one long word after each label in it.
const longestListed = 64

// plainWord is the word that begins at a place, and where it ends. Of a long one it is the beginning: it is read anew for each
// label before it or in it.
func plainWord(text string, at int) (word string, end int) {
	end = at
	for i, r := range text[at:] {
		if i > longestListed || !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && r != '\'' && r != '’' && r != '-' && r != '_' {
			break
		}
		end = at + i + utf8.RuneLen(r)
	}
	return text[at:end], end
}

// quotes by what closes them.
var quotes = map[rune]rune{'"': '"', '\'': '\'', '`': '`', '“': '”', '„': '“', '«': '»', '‹': '›', '「': '」', '『': '』', '‘': '’', '《': '》', '”': '”'}

// longestValue bounds a value, in bytes: each label in a text without spaces could have all of it as its value.
const longestValue = 256

// wordAt returns the value at a position: a quoted text without its quotes, or everything up to a space.
func wordAt(text string, at int) span {
	for at < len(text) && (text[at] == '*' && at+1 < len(text) && text[at+1] == '*') {
		at += 2
	}
	if at < 0 || at >= len(text) {
		return span{}
	}
	if strings.HasPrefix(text[at:], Mark) {
		return span{at, at + len(Mark)}
	}
	first, size := utf8.DecodeRuneInString(text[at:])
	if closing, ok := quotes[first]; ok {
		body := text[at+size : min(len(text), at+size+longestValue+utf8.UTFMax)]
		if n := strings.IndexRune(body, '\n'); n >= 0 {
			body = body[:n]
		}
		if n := strings.IndexRune(body, closing); n > 0 && n <= longestValue {
			return span{at + size, at + size + n}
		}
	}
	end := at
	spaced := !unspaced(first)
	for i, r := range text[at:] {
		if i > longestValue || endsValue(r) {
			break
		}
		if spaced && i > 0 && unspaced(r) {
			break // パスワードはhunter2です
		}
		end = at + i + utf8.RuneLen(r)
	}
	end = min(end, len(text))
	for end > at {
		r, size := utf8.DecodeLastRuneInString(text[at:end])
		if !strings.ContainsRune(".,;:!?)]}>'’*", r) {
			break
		}
		end -= size
	}
	if end == at {
		return span{}
	}
	return span{at, end}
}

// endsValue reports whether a value that is not quoted ends before a character.
func endsValue(r rune) bool {
	switch r {
	case '"', '`', '，', '。', '、', '！', '？', '；', '」', '』', '》', '“', '”':
		return true
	default:
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}
}

// sentenceEnd is where a sentence ends, or its line, or a text that is too long for one.
func sentenceEnd(text string, at int) int {
	const longest = 1000
	for i := at; i < min(len(text), at+longest); i++ {
		switch text[i] {
		case '\n', '"':
			return i
		case '.', '!', '?', ';':
			if i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\n' {
				return i
			}
		}
	}
	return min(len(text), at+longest)
}

// valueBefore is the value of a label that begins with a part, where it stands before it.
func valueBefore(text string, parts []part, at int, k kind) span {
	const mostOwners = 4
	if k == account || k == cardNo || k == phrase {
		return span{}
	}
	i := at - 1
	for range mostOwners {
		if i < 0 || !owners[parts[i].lower] {
			break
		}
		i--
	}
	if i < 1 || i == at-1 && k != password || !links[parts[i].lower] || !near(text[parts[i].to:parts[at].from]) {
		return span{}
	}
	used := i >= 2 && parts[i].lower != "for"
	to := len(strings.TrimRight(text[:parts[i].from], " \t\u00a0"))
	from, to := trimmed(text, wordBefore(text, to), to)
	word := text[from:to]
	switch {
	case k == code || k == longCode:
		if n := digitsIn(word); n >= 3 && n <= 8 && (n >= 4 || k == code) && len(word) <= 12 {
			if before := strings.TrimRight(text[:from], " "); n <= 4 && len(before) > 0 && asciiDigit(before[len(before)-1]) {
				from = len(strings.TrimRightFunc(before, func(r rune) bool { return digitOf(r) >= 0 })) // 482 913
			}
			return span{from, to}
		}
		return span{}
	case secretLike(word) && !digitsOnly(word), digitsOnly(word) && len(word) >= 4 && k == password:
		return span{from, to}
	case k == password && used && len(word) >= 4 && usedAs(text[:from]):
		return span{from, to}
	default:
		return span{}
	}
}

// wordBefore returns the beginning of the word that ends at a position.
func wordBefore(text string, at int) int {
	from := at
	for from > 0 && at-from < longestValue {
		r, size := utf8.DecodeLastRuneInString(text[:from])
		if unicode.IsSpace(r) {
			break
		}
		from -= size
	}
	return from
}

// usedAs reports whether a text ends with "use": the next word is a value in any form.
func usedAs(before string) bool {
	const lastWords = 20
	f := strings.Fields(before[max(0, len(before)-lastWords):])
	return len(f) > 0 && uses[strings.ToLower(f[len(f)-1])]
}

func near(gap string) bool { return len(gap) <= 40 && !strings.ContainsAny(gap, ".,;:!?\n") }

// trimmed is a span without quotes and punctuation at its ends.
func trimmed(text string, from, to int) (int, int) {
	w := text[from:to]
	l := len(w) - len(strings.TrimLeft(w, "\"'`*([{“„«「"))
	w = w[l:]
	w = strings.TrimRight(w, "\"'`*)]},;:”“»」")
	return from + l, from + l + len(w)
}
