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

// Limits of the block who and what.
const (
	maxWho     = 60  // names
	maxFacts   = 6   // of one name, besides who it is; the newest
	maxNamed   = 60  // bytes of a name
	maxWhoLine = 400 // characters
)

// theUser begins a line about the user.
const theUser = "The user"

// who lists what users said about people, places and things in messages that were cut. It caches what each message says.
type who struct{ read *layer.Decoded[message] }

func newWho() who { return who{layer.NewDecoded(messageOf)} }

// known is what was said about a name.
type known struct {
	name     string
	formerly string
	facts    []fact
	first    bool // a remark introduced the name
	age      int  // in items, of the newest remark
	count    int
}

// fact is the newest remark about one attribute.
type fact struct {
	key, text string
	shown     bool // it is in view
}

// of returns a line for each name that users said something about in lost, without what shown repeats or corrects. Names that
// are mentioned often and recently come first.
func (w who) of(lost, shown []wire.Item) []string {
	var all []*known
	playing := false // a role: another person speaks
	for i, it := range slices.Concat(lost, shown) {
		if it.Role != wire.User {
			continue
		}
		m := w.read.Get([]byte(it.Text()))
		if playing {
			playing = !m.ends
			continue
		}
		playing = m.plays
		speaker := layer.SpeakerOf(it)
		for _, f := range m.remarks {
			if len(f.name) > maxNamed {
				continue
			}
			if f.name == "" { // what they say about themselves
				f.name = speaker
			}
			var k *known
			if all, k = note(all, f); k != nil {
				if f.now {
					for _, other := range all {
						other.facts = slices.DeleteFunc(other.facts, func(o fact) bool { return o.key == "who" && o.text == f.text })
					}
				}
				k.take(f, i >= len(lost))
				k.age, k.count = len(lost)+len(shown)-i, k.count+1
			}
		}
	}

	var lines []ranked
	for _, k := range all {
		if line := k.line(); line != "" && k.first {
			lines = append(lines, ranked{line, math.Log1p(float64(k.count)) / (1 + float64(k.age)/halfLife)})
		}
	}
	return best(lines, maxWho)
}

// note finds the name that a remark is about, or adds it. It returns nil for a correction of an unknown name.
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
		if k != nil { // both names are known
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

// find returns what is known about a name, or about the only one that is a prefix or an extension of it.
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

// longer reports whether a is b followed by more words, such as a full name.
func longer(a, b string) bool { return b != "" && strings.HasPrefix(a, b+" ") }

// take replaces the fact of the same attribute.
func (k *known) take(f remark, shown bool) {
	k.first = k.first || f.first
	key := f.attribute
	if f.object != "" { // of several values, the one with the same object
		key += " " + f.object
	}
	k.facts = slices.DeleteFunc(k.facts, func(o fact) bool { return o.key == key })
	if f.text != "" {
		k.facts = append(k.facts, fact{key, f.text, shown})
	}
}

// line returns what was said about a name and is not in view; "" if there is nothing.
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
	all = slices.Concat(is, layer.Last(all, maxFacts))
	if len(all) == 0 {
		return ""
	}
	name := cmp.Or(k.name, theUser)
	if k.formerly != "" {
		name += " (formerly " + k.formerly + ")"
	}
	return layer.Line(name+": "+strings.Join(all, "; "), maxWhoLine)
}

// plausible reports whether the layer can have written a stored line.
func plausible(line string) bool {
	return strings.Contains(line, ": ") && utf8.RuneCountInString(line) <= maxWhoLine && layer.OneLine(line) == line
}
