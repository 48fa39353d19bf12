package entity

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode"

	"remora/memory/layer"
	"remora/memory/redact"
	"remora/wire"
)

// Limits on the input.
const (
	maxText  = 256 << 10 // bytes of one item: its beginning and its end
	maxNames = 2 << 10   // that are weighed against the budget
	maxWhole = 16 << 10  // that are looked at for parts of others
)

// halfLife is at which age, in items, a name is worth half of what it was.
const halfLife = 150

// ledger makes the list of what was cut. It remembers what texts have been found to hold: a session's next cut leaves out
// all that this one did.
type ledger struct{ read *layer.Decoded[[]found] }

func newLedger() ledger { return ledger{layer.NewDecoded(read)} }

// mention holds the weight of a name that was cut.
type mention struct {
	count  int
	age    int  // in items, of the newest that has it
	single bool // one tool result has it and nothing else
	secret bool // it stood where a secret stands
}

// of returns the names of lost that shown lacks, the best first: often mentioned, lately, with the signs of a path or a
// version, and short, so that the budget holds as much as it can. None of them is a secret, reads as an order to the model, or is part of a better one.
func (l ledger) of(lost, shown []wire.Item) []string {
	known := make(map[string]mention)
	for i, it := range slices.Backward(lost) {
		age := len(shown) + len(lost) - i
		for text, given := range texts(it) {
			all, _ := l.read.Get([]byte(ends(text))) // reading cannot fail
			for _, f := range all {
				if !given && compound(f.name) {
					continue
				}
				if it.Kind == wire.ToolResult && measure(f.name) {
					continue // logs are full of them
				}
				m, seen := known[f.name]
				if !seen {
					m.age = age
				}
				m.count += f.count * weight(it)
				m.single = !seen && it.Kind == wire.ToolResult
				m.secret = m.secret || f.secret
				known[f.name] = m
			}
		}
	}
	for _, it := range shown {
		for text := range texts(it) {
			for name := range distinct(text) {
				for part := range parts(name) {
					delete(known, part)
				}
			}
		}
	}

	all := make([]ranked, 0, len(known))
	for name, m := range known {
		if !m.secret && !orders(name) && (!measure(name) || m.count >= leastMeasure) {
			all = append(all, ranked{name, m.score(name)})
		}
	}
	rank(all)
	whole := all[:0]
	within := make(map[string]bool)
	for _, r := range all[:min(len(all), maxWhole)] {
		if within[r.name] {
			continue
		}
		for part := range parts(r.name) {
			within[part] = true
		}
		r.score /= float64(len(r.name) + perName)
		whole = append(whole, r)
	}
	rank(whole)

	var best []string
	for _, r := range whole[:min(len(whole), maxNames)] {
		best = append(best, strings.Clone(r.name)) // not with the text that it stood in
	}
	return best
}

// ranked is a name and what it is worth.
type ranked struct {
	name  string
	score float64
}

// rank puts the best first.
func rank(all []ranked) {
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
	})
}

// perName is what a name costs beside its bytes, in bytes: it begins a token.
const perName = 4

// spoken weights mentions by users and models over those in tool results, most of which are never needed again.
const spoken = 4

// leastMeasure is how much must be said of a time, a duration or a size: one that somebody comes back to is a finding.
const leastMeasure = 2 * spoken

// weight is how often a mention in an item counts.
func weight(it wire.Item) int {
	if it.Kind == wire.ToolResult {
		return 1
	}
	return spoken
}

// score is what a name is worth by its mentions and its age. A path counts double, unless a single tool result has it: listings
// and searches print paths by the hundred.
func (m mention) score(name string) float64 {
	s := math.Log1p(float64(m.count)) / (1 + float64(m.age)/halfLife)
	if !m.single && strings.ContainsAny(name, "/.") {
		s *= 2
	}
	return s
}

// found is a name in a text.
type found struct {
	name   string
	count  int
	secret bool
}

// read finds the names of a text. One that the filter for secrets takes out somewhere in it is marked.
func read(raw []byte) ([]found, error) {
	text := string(raw)
	at := make(map[string]int)
	var all []found
	for name := range distinct(text) {
		i, again := at[name]
		if !again {
			i = len(all)
			at[name], all = i, append(all, found{name: name})
		}
		all[i].count++
	}
	clean := redact.Text(text)
	if clean == text {
		return all, nil
	}

	left := make(map[string]int)
	for name := range distinct(clean) {
		left[name]++
	}
	for i := range all {
		all[i].secret = left[all[i].name] < all[i].count
	}
	return all, nil
}

// texts yields what an item says: its text, and what its calls are given.
func texts(it wire.Item) iter.Seq2[string, bool] {
	return func(yield func(text string, given bool) bool) {
		if text := plain(it.Text()); text != "" && !yield(text, false) {
			return
		}
		for i := range it.Calls() {
			if text := plain(it.Input(i)); text != "" && !yield(text, true) {
				return
			}
		}
	}
}

// plain is a text as people read it. One that is JSON has its line ends and quotes as escapes, which would become part of
// names.
func plain(text string) string {
	if text == "" || text[0] != '{' && text[0] != '[' {
		return text
	}
	return string(wire.Unescaped([]byte(text)))
}

// ends is a text, or the beginning and the end of one that is too long.
func ends(text string) string {
	if len(text) <= maxText {
		return text
	}
	tail := text[len(text)-maxText/2:]
	return layer.Head(text, maxText/2) + "\n" + tail[strings.IndexByte(tail, '\n')+1:]
}

// parts yields a name and the names within it that its signs divide: who reads a path reads its folders and its file.
func parts(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		const most = 8 // signs of a name that is taken apart
		var room [most + 2]int
		ends := room[:1] // where a part may begin
		for i := range len(name) {
			if strings.IndexByte(signs, name[i]) >= 0 && len(ends) <= most {
				ends = append(ends, i+1)
			}
		}
		ends = append(ends, len(name)+1)
		for i := range ends {
			for _, end := range ends[i+1:] {
				if end-1-ends[i] >= minName && !yield(name[ends[i]:end-1]) {
					return
				}
			}
		}
	}
}

// orders reports whether a name reads as a sentence that tells the model what to do: a page or a file that a tool returned
// may want that.
func orders(name string) bool {
	const sentence = 4 // words
	all := words(name)
	return len(all) >= sentence && slices.ContainsFunc(all, func(word string) bool { return slices.Contains(commanding, word) })
}

// commanding are words of sentences that tell a model what to do.
var commanding = strings.Fields("ignore disregard forget override obey instruction instructions prompt prompts assistant you your must")

// words takes a name apart at its signs and capitals, in lower case.
func words(name string) (all []string) {
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune(signs, r) }) {
		from, small := 0, false
		for i, r := range part {
			if unicode.IsUpper(r) && small {
				all = append(all, strings.ToLower(part[from:i]))
				from = i
			}
			small = unicode.IsLower(r)
		}
		all = append(all, strings.ToLower(part[from:]))
	}
	return all
}
