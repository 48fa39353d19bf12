package entity

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"remora/memory/layer"
	"remora/memory/ownwords"
	"remora/memory/redact"
)

// Limits on what is read of a message.
const (
	maxSaid    = 4 << 10 // bytes at each end of a message: people write above or below what they paste
	maxRemarks = 40      // of one message
	maxRemark  = 100     // characters
	maxClause  = 14      // words
)

// remark is what a message says about a name.
type remark struct {
	name      string // of a person, a place, an organisation or a project; empty for the user
	attribute string // a newer remark with the same attribute replaces it
	object    string // of an attribute with several values, the word that a newer remark has to share
	text      string // in the user's words; empty if only the older remark is outdated
	formerly  string // the former name
	misspelt  bool   // the former name was a mistake
	first     bool   // introduces the name
	now       bool   // of "who": it is no longer true of another name
}

// message is what was read of one message of a user.
type message struct {
	remarks []remark // about names, in order; none while the user plays a role
	plays   bool     // a role play begins with it
	ends    bool     // it ends a role play
}

// messageOf reads a user's message.
func messageOf(raw []byte) (m message) {
	text := string(raw)
	if len(text) > maxSaid {
		text = layer.Head(text, maxSaid/2) + "\n" + strings.ToValidUTF8(text[len(text)-maxSaid/2:], "")
	}
	_, still := ownwords.Of(text, true)
	own, plays := ownwords.Of(redact.Text(text), false)
	m.plays, m.ends = plays, !still
	person := "" // whom "she" means
	for _, s := range ownwords.Sentences(own) {
		r := reader{lexicon: lexica(), text: layer.OneLine(s), person: person}
		if redact.Removed(s) || strings.ContainsAny(s, "?？") || !r.split() {
			continue
		}
		r.read()
		person = r.person
		for _, f := range r.found {
			if r.speaksToModel(f.name) || len(m.remarks) >= maxRemarks {
				continue
			}
			if r.speaksToModel(f.text) {
				f.text, f.first = "", false
			}
			m.remarks = append(m.remarks, f)
		}
	}
	return m
}

// word is a word of a sentence.
type word struct {
	lower    string // with a plain apostrophe; contractions are expanded to is, am, are
	from, to int    // bytes of the sentence
	gap      string // between it and the word before, without spaces
	capital  bool
}

// reader finds the remarks of one sentence.
type reader struct {
	*lexicon
	text   string
	words  []word
	person string
	found  []remark
}

// split splits the sentence into words. It returns false for a supposition, or a line of a transcript: "Eve: I live in Lyon".
func (r *reader) split() bool {
	last := 0
	for from := 0; from < len(r.text); {
		c, size := utf8.DecodeRuneInString(r.text[from:])
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			from += size
			continue
		}
		to := from
		for to < len(r.text) {
			c, size := utf8.DecodeRuneInString(r.text[to:])
			if !unicode.IsLetter(c) && !unicode.IsDigit(c) && !unicode.IsMark(c) && !strings.ContainsRune("-'’_.@/", c) {
				break
			}
			to += size
		}
		to = from + len(strings.TrimRight(r.text[from:to], "-'’_.@/"))
		for from < to {
			cut := from + contraction(r.text[from:to])
			r.words = append(r.words, newWord(r.text, last, from, cut))
			last, from = cut, cut
		}
	}
	if len(r.words) < 2 || r.subordinators[r.words[0].lower] {
		return false
	}
	mentioned := false // a person was
	for i := range r.words {
		if i > 0 && strings.HasPrefix(r.words[i].gap, ":") {
			if i < 4 {
				return false
			}
			if mentioned { // what follows may be the person's words
				r.words = r.words[:i]
				break
			}
		}
		w := &r.words[i]
		mentioned = mentioned || r.persons[w.lower] || r.he[w.lower] || i > 0 && r.proper(w)
	}
	return true
}

func newWord(text string, last, from, to int) word {
	lower := strings.ReplaceAll(strings.ToLower(text[from:to]), "’", "'")
	switch lower {
	case "'s":
		lower = "is"
	case "'m":
		lower = "am"
	case "'re":
		lower = "are"
	case "'ve", "'d", "'ll":
		lower = "have"
	}
	first, _ := utf8.DecodeRuneInString(text[from:])
	return word{lower: lower, from: from, to: to, gap: strings.ReplaceAll(text[last:from], " ", ""), capital: unicode.IsUpper(first)}
}

// contraction returns the length of a word before a contraction's apostrophe, or its whole length.
func contraction(w string) int {
	at := strings.IndexAny(w, "'’")
	if at < 0 {
		return len(w)
	}
	_, size := utf8.DecodeRuneInString(w[at:])
	switch strings.ToLower(w[at+size:]) {
	case "s", "m", "re", "ve", "d", "ll":
		if at > 0 {
			return at
		}
	}
	if at > 0 && at <= 2 && slices.Contains([]string{"j", "s", "l", "d", "n", "m", "c", "qu"}, strings.ToLower(w[:at])) {
		return at + size
	}
	return len(w)
}

// read looks for a remark at each word.
func (r *reader) read() {
	if r.renamed() || r.corrected() {
		return
	}
	for i := 0; i < len(r.words); {
		next := i
		switch w := r.words[i]; {
		case r.possessives[w.lower] || r.determiners[w.lower]:
			next = r.relation(i)
		case r.me[w.lower]:
			if next = r.self(i, i+1); next == i && i > 0 && r.joined(i) {
				next = max(i, r.self(i-1, i-1)) // "jetzt wohne ich in Lyon"
			}
		case r.alone[w.lower]:
			next = r.self(i, i)
		case r.he[w.lower] && r.person != "" && (i == 0 || w.gap != "" || r.conjunctions[r.words[i-1].lower]):
			next = r.said(r.person, i+1, r.introducing)
		}
		if n := r.name(i); next == i && n > 0 {
			name := r.span(i, i+n)
			if next = i + n; i == 0 || !r.prepositions[r.words[i-1].lower] || next < len(r.words) && r.words[next].gap != "" {
				next = r.said(name, next, r.introducing)
			}
		}
		i = max(i+1, next)
	}
}

// span returns the text of the words in [from, to).
func (r *reader) span(from, to int) string { return r.text[r.words[from].from:r.words[to-1].to] }

// quoted is text, said in the words that begin at from and end before to. If a negation stands before them in their clause, it
// is the clause from its beginning: it may deny them.
func (r *reader) quoted(text string, from, to int) string {
	begin := from
	for r.joined(begin) && begin > 0 && !r.conjunctions[r.words[begin-1].lower] {
		begin--
	}
	if r.denied(begin, from) {
		return r.span(begin, to)
	}
	return text
}

// denied reports whether a negation is among the words in [from, to).
func (r *reader) denied(from, to int) bool {
	return slices.ContainsFunc(r.words[from:to], func(w word) bool { return r.negations[w.lower] })
}

// newly reports whether one of the words in [from, to) says that something has changed.
func (r *reader) newly(from, to int) bool {
	return slices.ContainsFunc(r.words[from:to], func(w word) bool { return r.changes[w.lower] })
}

// phraseOf is span without the capital at the beginning of a sentence.
func (r *reader) phraseOf(from, to int) string {
	first := &r.words[from]
	return first.lower + r.text[first.to:r.words[to-1].to]
}

// predicate is span with the verb expanded: "is allergic" for "'s allergic".
func (r *reader) predicate(from, to int, attribute string) string {
	first := &r.words[from]
	switch rest := r.text[first.to:r.words[to-1].to]; {
	case first.lower != "is" || unicode.IsLetter(rune(r.text[first.from])):
		return r.span(from, to)
	case attribute == "birth": // of "'s birthday"
		return strings.TrimSpace(rest)
	default:
		return first.lower + rest
	}
}

// joined reports whether there is a word at i, separated from the one before only by space.
func (r *reader) joined(i int) bool { return i < len(r.words) && r.words[i].gap == "" }

func (r *reader) add(f remark) {
	r.found = append(r.found, f)
	if f.name != "" {
		r.person = f.name
	}
}

// phrase finds the longest phrase that begins at i, and where it ends. Words of the other sets do not count within it: "lives
// now in".
func (r *reader) phrase(of map[string]string, i int, without ...map[string]bool) (attribute string, end int) {
	const most = 5 // words
	key, end := "", i
	for k := i; k < min(i+most, len(r.words)) && (k == i || r.joined(k)); k++ {
		if k > i && r.in(k, without) {
			continue
		}
		key += r.words[k].lower
		if found := of[key]; found != "" {
			attribute, end = found, k+1
		}
		key += " "
	}
	return attribute, end
}

// verb finds a verb of one of the attributes at i, and where it ends: with its prepositions or, in German, at the end of the
// clause. object is where its object begins.
func (r *reader) verb(of map[string]string, i int) (attribute string, object, end int) {
	if attribute, at := r.phrase(of, i, r.adverbs, r.negations, r.me); attribute != "" {
		return attribute, r.skip(at, r.prepositions, r.articles), r.clause(at - 1)
	}
	if i < len(r.words) && r.auxiliaries[r.words[i].lower] {
		for k := i + 1; k < i+maxClause && r.joined(k); k++ {
			if attribute = r.participles[r.words[k].lower]; attribute != "" {
				if object = r.skip(i+1, r.me, r.adverbs, r.negations, r.prepositions, r.articles); object < k {
					return attribute, object, k + 1
				}
				break
			}
		}
	}
	return "", i, i
}

// skip passes words of sets.
func (r *reader) skip(i int, sets ...map[string]bool) int {
	for r.joined(i) && r.in(i, sets) {
		i++
	}
	return i
}

// in reports whether a word is in one of the sets.
func (r *reader) in(i int, sets []map[string]bool) bool {
	return slices.ContainsFunc(sets, func(s map[string]bool) bool { return s[r.words[i].lower] })
}

// clause returns the end of the clause at i.
func (r *reader) clause(i int) int {
	end := i + 1
	for end < min(i+maxClause, len(r.words)) && !strings.ContainsAny(r.words[end].gap, ",;:()!.–—-") && !r.conjunctions[r.words[end].lower] && !r.relatives[r.words[end].lower] {
		end++
	}
	return min(end, len(r.words))
}

// kind reports whether a word is a kind of thing that has a name, and whether it is a person or an animal.
func (r *reader) kind(i int) (found, person bool) {
	w := r.words[i].lower
	return r.persons[w] || r.things[w], r.persons[w]
}

// name returns the number of words of the name at i, 0 if there is none.
func (r *reader) name(i int) int {
	const most = 4 // words
	n, open := 0, true
	for n < most && i+n < len(r.words) {
		w := &r.words[i+n]
		switch {
		case n > 0 && w.gap != "" && (!open || w.gap != "."):
			return n
		case r.titles[w.lower] && w.capital && n == 0:
			n++
			continue
		case r.proper(w):
			n++
		case n > 0 && r.particles[w.lower]:
			next := r.skip(i+n, r.particles)
			if !r.joined(next) || !r.proper(&r.words[next]) {
				return n
			}
			n = next - i + 1
		case n == 1 && open && r.titles[r.words[i].lower]:
			return 0
		default:
			return n
		}
		open = false
	}
	if n == 1 && r.titles[r.words[i].lower] {
		return 0
	}
	return n
}

// proper reports whether a word can be part of a name: it begins with a capital for no other reason, and is not an identifier.
func (r *reader) proper(w *word) bool {
	const longest, shout = 24, 6 // characters
	text := r.text[w.from:w.to]
	n, small := utf8.RuneCountInString(text), false
	if !w.capital || n < 2 || n > longest || r.noNames[w.lower] || r.orders[w.lower] || r.titles[w.lower] || r.renames[w.lower] {
		return false
	}
	before := rune(0)
	for i, c := range text {
		switch {
		case strings.ContainsRune("-'’", c):
		case !unicode.IsLetter(c) && !unicode.IsMark(c):
			return false
		case unicode.IsUpper(c) && unicode.IsLower(before) && !slices.Contains([]string{"Mc", "Mac", "De", "Di", "La", "Le", "Fitz"}, text[:i]):
			return false
		}
		small = small || unicode.IsLower(c) || unicode.In(c, unicode.Lo)
		before = c
	}
	return small || n < shout
}

// function reports whether a word is a function word, which is not part of a name.
func (r *reader) function(w string) bool {
	return r.prepositions[w] || r.determiners[w] || r.possessives[w] || r.copulas[w] || r.conjunctions[w] || r.relatives[w] || r.negations[w] || r.me[w]
}

// relation reads "my sister Ada", "our service is called Kestrel". It returns the end of the remark, i if there is none.
func (r *reader) relation(i int) int {
	if own, at := r.phrase(r.selfNaming, i, r.adverbs); own != "" {
		return r.selfNamed(i, at)
	}
	const most = 5 // words
	own, german := r.possessives[r.words[i].lower], r.german[r.words[i].lower]
	last, person := -1, false
	for k := i + 1; k < min(i+most, len(r.words)) && r.joined(k); k++ {
		if found, isPerson := r.kind(k); found {
			last, person = k, isPerson
			continue
		}
		w := &r.words[k]
		if last >= 0 && r.text[w.from] != '\'' && !strings.HasPrefix(r.text[w.from:], "’") || last < 0 && (r.function(w.lower) || w.capital && !german) {
			break
		}
	}
	if last < 0 {
		return i
	}
	kind, k := r.phraseOf(i, last+1), last+1
	named := func(at, n int) int {
		name := r.span(at, at+n)
		r.add(remark{name: name, attribute: "who", text: r.quoted(kind, i, at+n), first: true, now: r.newly(last+1, at)})
		next := r.said(name, at+n, r.introducing)
		if !person {
			r.person = ""
		}
		return next
	}

	if called, at := r.phrase(r.naming, k, r.adverbs); called != "" && r.joined(k) {
		if at = r.skip(at, r.adverbs); r.joined(at) {
			if n := r.name(at); n > 0 {
				return named(at, n)
			}
		}
		return i
	}
	if !own || k == len(r.words) {
		return i
	}
	if r.joined(k) && r.copulas[r.words[k].lower] && !german {
		at := r.skip(k+1, r.adverbs)
		if n := r.name(at); n > 0 && r.joined(at) && r.closed(at+n) {
			return named(at, n)
		}
	}
	if n := r.name(k); n > 0 && (!german || person && !r.dependent(i)) {
		switch {
		case r.words[k].gap == "" && (person || r.closed(k+n)), r.words[k].gap == "," && (k+n == len(r.words) || r.words[k+n].gap != ""):
			return named(k, n)
		}
		return i
	}
	if person && r.joined(k) {
		return r.said(kind, k, r.ownIntroducing)
	}
	return i
}

// dependent reports whether the clause before i has its verb at the end, as in German: the word before the verb need not be a
// name.
func (r *reader) dependent(i int) bool {
	for ; i >= 0; i-- {
		if r.subordinators[r.words[i].lower] {
			return true
		}
		if r.words[i].gap != "" {
			break
		}
	}
	return false
}

// closed reports whether a name that ends before i is not part of a longer word group, as in "our team Slack channel".
func (r *reader) closed(i int) bool {
	if !r.joined(i) {
		return true
	}
	w := r.words[i].lower
	verb, _, _ := r.verb(r.of, i)
	return verb != "" || r.noNames[w] || r.prepositions[w] || r.adverbs[w] || r.conjunctions[w] || r.copulas[w] || r.relatives[w]
}

// said reads what is said about a name, from the verb at i on: "lives in Lyon and works at a bank". It returns the end.
func (r *reader) said(name string, i int, introducing map[string]bool) int {
	for i < len(r.words) {
		k := i
		switch r.words[k].gap {
		case "":
			if r.conjunctions[r.words[k].lower] {
				k++
			}
		case ",", "(":
			if next := r.apposition(name, k); next > k {
				i = next
				continue
			}
			switch verb, _, _ := r.verb(r.of, k); {
			case r.conjunctions[r.words[k].lower]:
				k++
			case verb == "" && !r.relatives[r.words[k].lower] && !r.copulas[r.words[k].lower]:
				return i
			}
		default:
			return i
		}
		if k < len(r.words) && r.relatives[r.words[k].lower] {
			k++
		}

		from := k
		k = r.skip(k, r.adverbs, r.negations)
		if attribute, object, end := r.verb(r.of, k); attribute != "" {
			if object >= end && !r.withoutObject[attribute] {
				return i
			}
			r.attribute(remark{name: name, attribute: attribute, first: introducing[attribute]}, from, object, end)
			i = end
			continue
		}
		next := r.is(name, k, i)
		if next == k {
			return i
		}
		i = next
	}
	return i
}

// attribute adds a remark that is said by the words in [from, end), the object being from object on. What has several values goes
// on over an enumeration.
func (r *reader) attribute(f remark, from, object, end int) {
	if r.several[f.attribute] {
		f.object = r.words[min(object, end-1)].lower
		end = r.enumerated(end)
	}
	f.text = r.quoted(r.predicate(from, end, f.attribute), from, end)
	r.add(f)
}

// enumerated returns the end of an enumeration whose first part ends at end: "tea", "coffee and beer". Its other parts have neither
// a verb nor a person that something else is said about.
func (r *reader) enumerated(end int) int {
	const most = 4 // words of a part
	for end < len(r.words) {
		from, gap := end, r.words[end].gap
		if r.enumerating[r.words[end].lower] {
			from++
		} else if gap == "" {
			return end
		}
		to := from
		for to < min(from+most+1, len(r.words)) && (to == end || r.joined(to)) && !r.conjunctions[r.words[to].lower] {
			if r.states(to) {
				return end
			}
			to++
		}
		if gap != "" && gap != "," || to == from || to > from+most {
			return end
		}
		end = to
	}
	return end
}

// states reports whether a word belongs to a statement of its own: it is a pronoun, a verb or the like.
func (r *reader) states(i int) bool {
	w := r.words[i].lower
	verb, _, _ := r.verb(r.of, i)
	mine, _, _ := r.verb(r.ofMe, i)
	return verb != "" || mine != "" || r.me[w] || r.possessives[w] || r.copulas[w] || r.negations[w] || r.relatives[w] || r.subordinators[w] ||
		r.noNames[w] && !r.determiners[w] && !r.prepositions[w]
}

// apposition reads "Ada, my sister," and "Ada (a friend)".
func (r *reader) apposition(name string, i int) int {
	if f, end := r.what(i); end > i && (end == len(r.words) || r.words[end].gap != "") {
		f.name = name
		r.add(f)
		return end
	}
	return i
}

// is reads "is my sister", "is now called Falcon".
func (r *reader) is(name string, i, begin int) int {
	if i > begin && !r.joined(i) || i >= len(r.words) {
		return i
	}
	if called, at := r.phrase(r.naming, i, r.adverbs); called != "" {
		to := r.skip(at, r.adverbs)
		if now := to > at || slices.ContainsFunc(r.words[i:at], func(w word) bool { return r.adverbs[w.lower] }); !now {
			return i
		}
		n := r.name(to)
		if n == 0 || !r.joined(to) {
			return i
		}
		r.add(remark{name: r.span(to, to+n), formerly: name})
		return to + n
	}

	if !r.copulas[r.words[i].lower] {
		return i
	}
	k := r.skip(i+1, r.adverbs, r.negations)
	f, end := r.what(k)
	if end == k {
		return i
	}
	f.name, f.now = name, r.newly(i, k)
	if r.denied(max(0, i-1), k) {
		f.text, f.first, f.now = "not "+f.text, false, false
	}
	r.add(f)
	return end
}

// what reads "my sister", "a service for invoices". end is i if it is neither.
func (r *reader) what(i int) (f remark, end int) {
	if i+1 >= len(r.words) || !r.joined(i+1) {
		return f, i
	}
	own := r.possessives[r.words[i].lower]
	if !own && !r.articles[r.words[i].lower] {
		return f, i
	}
	end = r.clause(i)
	head := i
	for head+1 < end && !r.prepositions[r.words[head+1].lower] && !r.noNames[r.words[head+1].lower] {
		head++
	}
	if head == i {
		return f, i
	}
	last, _ := r.kind(head)
	front := false
	if r.romance[r.words[i].lower] { // adjectives follow
		front, _ = r.kind(i + 1)
	}
	switch {
	case !own:
		return remark{attribute: "is", text: r.phraseOf(i, end), first: last || front}, end
	case last || front:
		return remark{attribute: "who", text: r.phraseOf(i, end), first: true}, end
	default:
		return f, i
	}
}

// self reads what users say about themselves: the pronoun is at i, the verb at k.
func (r *reader) self(i, k int) int {
	if own, at := r.phrase(r.selfNaming, i, r.adverbs); own != "" {
		return r.selfNamed(i, at)
	}
	next := i
	for from := i; k < len(r.words) && (k == i || r.joined(k)); from, k = k, r.skip(k, r.me) {
		k = r.skip(k, r.adverbs, r.negations)
		attribute, object, end := r.verb(r.ofMe, k)
		if attribute == "" {
			if next == i && r.joined(k) && r.selves[r.words[k].lower] {
				return r.selfNamed(i, k+1)
			}
			return next
		}
		switch {
		case r.withoutObject[attribute]:
		case object >= end, attribute != "job" && attribute != "allergy" && !r.names(object, end):
			return next
		}
		r.attribute(remark{attribute: attribute, first: true}, from, object, end)
		if next = end; end == len(r.words) || !r.conjunctions[r.words[end].lower] {
			return next
		}
		k = end + 1
	}
	return next
}

// names reports whether the words contain a name.
func (r *reader) names(from, to int) bool {
	for i := from; i < to; i++ {
		if r.proper(&r.words[i]) {
			return true
		}
	}
	return false
}

// selfNamed reads the user's name after words such as "my name is", which begin at i.
func (r *reader) selfNamed(i, at int) int {
	n := 0
	if r.joined(at) {
		n = r.name(at)
	}
	if n == 0 || r.joined(at+n) && !r.conjunctions[r.words[at+n].lower] && !r.prepositions[r.words[at+n].lower] {
		return i
	}
	r.add(remark{attribute: "name", text: r.quoted(r.span(i, at+n), i, at+n), first: true})
	return at + n
}

// renamed reads "we renamed Kestrel to Falcon", "Kestrel was renamed Falcon", "Kestrel wurde in Falcon umbenannt".
func (r *reader) renamed() bool {
	verb := slices.IndexFunc(r.words, func(w word) bool { return r.renames[w.lower] })
	if verb < 0 {
		return false
	}
	for i := verb; i >= 0 && (i == verb || r.words[i+1].gap == ""); i-- {
		if r.negations[r.words[i].lower] {
			return false
		}
	}
	names := r.allNames()
	behind := slices.IndexFunc(names, func(n nameAt) bool { return n.from > verb })
	if behind < 0 {
		behind = len(names)
	}
	before, names := names[:behind], names[behind:]

	if n := len(before); n >= 2 && before[n-1].to == verb {
		old, name := before[n-2], before[n-1]
		if in := name.from - 1; r.germanNewNames[r.words[in].lower] && (old.to == in || r.between(old.to, in, r.passives)) {
			return r.rename(old, name)
		}
	}
	if len(names) == 0 {
		return false
	}
	if w := r.words[names[0].from-1].lower; !r.newNames[w] && !r.agents[w] && len(names) > 1 && r.between(names[0].to, names[1].from, r.newNames) {
		return r.rename(names[0], names[1])
	}
	if len(before) == 0 {
		return false
	}
	old := before[len(before)-1]
	if !r.between(old.to, verb, r.passives) {
		return false
	}
	for _, n := range names {
		if n.from == verb+1 || r.newNames[r.words[n.from-1].lower] {
			return r.rename(old, n)
		}
	}
	return false
}

func (r *reader) rename(old, name nameAt) bool {
	r.add(remark{name: r.span(name.from, name.to), formerly: r.span(old.from, old.to)})
	return true
}

// between reports whether only words of a set, at least one of them, and adverbs are between two words, without punctuation.
func (r *reader) between(from, to int, set map[string]bool) bool {
	found := false
	for i := from; i < to; i++ {
		w := r.words[i].lower
		found = found || set[w]
		if !r.joined(i) || !set[w] && !r.adverbs[w] && w != "a" { // "a été"
			return false
		}
	}
	return found && r.joined(to)
}

// corrected reads "her name is Eda, not Ada".
func (r *reader) corrected() bool {
	if !slices.ContainsFunc(r.words, func(w word) bool { return r.corrections[w.lower] }) {
		return false
	}
	names := r.allNames()
	if len(names) != 2 {
		return false
	}
	right, wrong := names[0], names[1]
	if right.to == wrong.from || r.words[right.to].gap != "," || !r.negations[r.words[wrong.from-1].lower] || wrong.from-right.to > 2 {
		return false
	}
	r.add(remark{name: r.span(right.from, right.to), formerly: r.span(wrong.from, wrong.to), misspelt: true})
	return true
}

// nameAt is a name's words.
type nameAt struct{ from, to int }

// allNames finds the names of the sentence.
func (r *reader) allNames() (all []nameAt) {
	for i := 0; i < len(r.words); {
		n := r.name(i)
		if n > 0 {
			all = append(all, nameAt{i, i + n})
		}
		i += max(n, 1)
	}
	return all
}

// speaksToModel reports whether a text has words of one that instructs the model.
func (r *reader) speaksToModel(text string) bool {
	for w := range strings.FieldsFuncSeq(strings.ToLower(text), func(c rune) bool { return !unicode.IsLetter(c) }) {
		if r.orders[w] {
			return true
		}
	}
	return false
}
