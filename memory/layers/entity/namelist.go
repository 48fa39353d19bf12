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
	maxNames = 2 << 10   // names that compete for the budget
	maxWhole = 16 << 10  // names that are checked for being part of a better one
)

// halfLife is the age in items at which a name's score is halved.
const halfLife = 150

// nameList finds the names in cut items. It caches the names of each text, since the next cut of a session contains all items
// of this one.
type nameList struct{ read *layer.Decoded[[]found] }

func newNameList() nameList { return nameList{layer.NewDecoded(read)} }

// mention counts the mentions of a name that was cut.
type mention struct {
	count  int
	age    int  // of the newest mention, in items
	single bool // only one tool result has it
	secret bool // the filter for secrets matched it
}

// of returns the names in lost that are not in shown, best first: frequent, recent, path-like and short ones, so that the
// budget holds many. Secrets, names that instruct the model, and parts of better names are left out.
func (l nameList) of(lost, shown []wire.Item) []string {
	known := make(map[string]mention)
	for i, it := range slices.Backward(lost) {
		age := len(shown) + len(lost) - i
		for text, given := range texts(it) {
			for _, f := range l.read.Get([]byte(ends(text))) {
				if !given && compound(f.name) {
					continue
				}
				if it.Kind == wire.ToolResult && measure(f.name) {
					continue // logs are full of times and sizes
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
		if !m.secret && !orders(name) && (!measure(name) || m.count >= minMeasureCount) {
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
		r.score /= float64(len(r.name) + nameOverhead)
		whole = append(whole, r)
	}
	return best(whole, maxNames)
}

// ranked is a name, or a line, and its score.
type ranked struct {
	name  string
	score float64
}

// best ranks names and returns the first of them.
func best(all []ranked, most int) []string {
	rank(all)
	var names []string
	for _, r := range all[:min(len(all), most)] {
		names = append(names, strings.Clone(r.name)) // do not keep the whole text alive
	}
	return names
}

// rank sorts by score, best first.
func rank(all []ranked) {
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
	})
}

// nameOverhead is added to a name's length in bytes, for the token that it begins.
const nameOverhead = 4

// spoken is the weight of a mention by a user or the model. One in a tool result weighs 1: most are never needed again.
const spoken = 4

// minMeasureCount is the minimum count of a time, a duration or a size: two mentions by users or the model.
const minMeasureCount = 2 * spoken

// weight returns the weight of a mention in an item.
func weight(it wire.Item) int {
	if it.Kind == wire.ToolResult {
		return 1
	}
	return spoken
}

// score rates a name by its mentions and its age. A path counts double, unless only one tool result has it: listings and
// searches print paths by the hundred.
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

// read finds the names in a text, and marks those that the filter for secrets matches anywhere in it.
func read(raw []byte) []found {
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
	if len(all) == 0 {
		return nil // there is nothing that could be a secret
	}
	clean := redact.Text(text)
	if clean == text {
		return all
	}

	left := make(map[string]int)
	for name := range distinct(clean) {
		left[name]++
	}
	for i := range all {
		all[i].secret = left[all[i].name] < all[i].count
	}
	return all
}

// texts yields the text of an item and the arguments of its calls; the second value is true for arguments.
func texts(it wire.Item) iter.Seq2[string, bool] {
	return func(yield func(text string, given bool) bool) {
		if text := wire.PlainText(it.Said()); text != "" && !yield(text, false) {
			return
		}
		for i := range it.Calls() {
			if text := wire.PlainText(it.Input(i)); text != "" && !yield(text, true) {
				return
			}
		}
	}
}

// ends returns the text, or the beginning and the end of a long one.
func ends(text string) string {
	if len(text) <= maxText {
		return text
	}
	tail := text[len(text)-maxText/2:]
	return layer.Head(text, maxText/2) + "\n" + tail[strings.IndexByte(tail, '\n')+1:]
}

// parts yields a name and the names that its signs separate: a path that is in view shows its folders and its file.
func parts(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		const most = 8 // signs in a name that is split
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

// orders reports whether a name reads as a sentence that instructs the model: it may come from a page or a file that a tool
// returned.
func orders(name string) bool {
	const sentence = 4 // words
	all := words(name)
	return len(all) >= sentence && slices.ContainsFunc(all, func(word string) bool { return slices.Contains(commanding, word) })
}

// commanding lists words of sentences that instruct a model.
var commanding = strings.Fields("ignore disregard forget override obey instruction instructions prompt prompts assistant you your must")

// words splits a name at its signs and capitals, in lower case.
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
