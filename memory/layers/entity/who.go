package entity

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"remora/memory/layer"
	"remora/wire"
)

// Limits on what is told of names.
const (
	maxWho     = 60  // names
	maxFacts   = 6   // of one name beside who it is, the newest
	maxNamed   = 60  // bytes of a name
	maxWhoLine = 400 // characters
)

// theUser is how a line about the user begins.
const theUser = "The user"

// who makes the list of what users said of people, places and things in messages that were cut. It remembers what each says.
type who struct{ read *layer.Decoded[[]remark] }

func newWho() who { return who{layer.NewDecoded(remarks)} }

// known is what was said of a name.
type known struct {
	name     string
	formerly string
	facts    []fact
	first    bool // somebody said who or what has the name
	age      int  // in items, of the newest remark
	count    int
}

// fact is the newest remark about one attribute.
type fact struct {
	key, text string
	shown     bool // it is in view
}

// of returns a line for each name that users said something of in lost which shown neither repeats nor corrects, the best
// first: often spoken of, and lately.
func (w who) of(lost, shown []wire.Item) []string {
	var all []*known
	for i, it := range slices.Concat(lost, shown) {
		if it.Kind != wire.Message || it.Role != wire.User {
			continue
		}
		found, _ := w.read.Get([]byte(it.Text())) // reading cannot fail
		for _, f := range found {
			if len(f.name) > maxNamed {
				continue
			}
			var k *known
			if all, k = note(all, f); k != nil {
				k.take(f, i >= len(lost))
				k.age, k.count = len(lost)+len(shown)-i, k.count+1
			}
		}
	}

	type ranked struct {
		line  string
		score float64
	}
	var lines []ranked
	for _, k := range all {
		if line := k.line(); line != "" && k.first {
			lines = append(lines, ranked{line, math.Log1p(float64(k.count)) / (1 + float64(k.age)/halfLife)})
		}
	}
	slices.SortFunc(lines, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.line, b.line))
	})
	var best []string
	for _, l := range lines[:min(len(lines), maxWho)] {
		best = append(best, strings.Clone(l.line))
	}
	return best
}

// note finds whom a remark is about, or begins to note what is said of a name. It returns nil for a correction of a name that
// nobody has.
func note(all []*known, f remark) ([]*known, *known) {
	k := find(all, f.name)
	if f.formerly != "" {
		before := find(all, f.formerly)
		if before == nil || before == k {
			return all, nil
		}
		if before.name, before.formerly = f.name, before.name; f.misspelt {
			before.formerly = ""
		}
		if k != nil { // both were spoken of
			before.facts = append(before.facts, k.facts...)
			all = slices.DeleteFunc(all, func(o *known) bool { return o == k })
		}
		return all, before
	}
	if k == nil && f.attribute == "who" { // "my sister" has a name now
		if k = find(all, f.text); k != nil {
			k.name = f.name
		}
	}
	if k == nil {
		k = &known{name: f.name}
		all = append(all, k)
	}
	if longer(f.name, k.name) {
		k.name = f.name
	}
	return all, k
}

// find returns what is known of a name, or of the only one that begins with it or that it begins with.
func find(all []*known, name string) *known {
	var near *known
	for _, k := range all {
		switch {
		case strings.EqualFold(k.name, name):
			return k
		case !longer(k.name, name) && !longer(name, k.name):
		case near != nil:
			return nil
		default:
			near = k
		}
	}
	return near
}

// longer reports whether a is b and more words, as a full name is.
func longer(a, b string) bool { return b != "" && strings.HasPrefix(a, b+" ") }

// take notes a fact in the place of what was said of the same attribute.
func (k *known) take(f remark, shown bool) {
	k.first = k.first || f.first
	if f.text == "" {
		return
	}
	key := f.attribute
	if lexica().several[key] { // of several, the one with the same object
		key += " " + strings.ToLower(f.text[strings.LastIndexByte(f.text, ' ')+1:])
	}
	next := fact{key, f.text, shown}
	if i := slices.IndexFunc(k.facts, func(o fact) bool { return o.key == key }); i >= 0 {
		k.facts[i] = next
	} else {
		k.facts = append(k.facts, next)
	}
}

// line tells what was said of a name and is not in view, "" for nothing.
func (k *known) line() string {
	var is, all []string
	for _, f := range k.facts {
		switch text := layer.Line(f.text, maxRemark); {
		case f.shown:
		case f.key == "who":
			is = append(is, text)
		case !slices.Contains(all, text):
			all = append(all, text)
		}
	}
	all = slices.Concat(is, all[max(0, len(all)-maxFacts):])
	if len(all) == 0 {
		return ""
	}
	name := cmp.Or(k.name, theUser)
	if k.formerly != "" {
		name += " (formerly " + k.formerly + ")"
	}
	return layer.Line(name+": "+strings.Join(all, "; "), maxWhoLine)
}

// plausible reports whether a stored line is one that the layer can have written.
func plausible(line string) bool {
	return strings.Contains(line, ": ") && utf8.RuneCountInString(line) <= maxWhoLine && layer.OneLine(line) == line
}
