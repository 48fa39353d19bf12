package main

import (
	"encoding/json"
	"hash/maphash"
	"regexp"
	"slices"
	"strings"
	"sync"

	"remora/test/scripted"
	"remora/wire"
)

// needs counts the strings and lines that answers repeat from the client's history. A model that repeats a path or a line must have
// read it.
type needs struct {
	strings repeats // distinctive strings
	old     repeats // those of them last mentioned oldItems or more items before
	lines   repeats // whole lines
}

// repeats counts repeated texts, and those of them that the prompts lacked.
type repeats struct{ all, cut int }

func (r *repeats) count(isCut bool) {
	if r.all++; isCut {
		r.cut++
	}
}

func (r *repeats) add(o repeats) { r.all, r.cut = r.all+o.all, r.cut+o.cut }

// share returns the share of those that were cut.
func (r repeats) share() float64 { return share(r.cut, r.all) }

const (
	leastString = 6  // minimum length of a distinctive string, in characters
	leastLine   = 24 // minimum length of a line, in characters
	oldItems    = 40
)

func (n *needs) add(o needs) {
	n.strings.add(o.strings)
	n.old.add(o.old)
	n.lines.add(o.lines)
}

// needsOf compares an answer with the texts of its client's history and with its prompt.
func needsOf(a *scripted.Answer, history []string, prompt string) needs {
	var n needs
	said := answerText(a)
	for _, s := range distinctive(said) {
		at := lastWith(history, s)
		if at < 0 {
			continue
		}
		isCut := !strings.Contains(prompt, s)
		n.strings.count(isCut)
		if len(history)-at >= oldItems {
			n.old.count(isCut)
		}
	}
	for _, l := range wholeLines(said) {
		if lastWith(history, l) >= 0 {
			n.lines.count(!strings.Contains(prompt, l))
		}
	}
	return n
}

// lastWith returns the index of the last text that contains s, -1 for none.
func lastWith(texts []string, s string) int {
	for i, text := range slices.Backward(texts) {
		if strings.Contains(text, s) {
			return i
		}
	}
	return -1
}

func answerText(a *scripted.Answer) string {
	texts := []string{a.Text}
	for _, c := range a.Calls {
		texts = append(texts, unescaped(c.Arguments))
	}
	return strings.Join(texts, "\n")
}

var stringLike = regexp.MustCompile(`[A-Za-z0-9_./@#:+-]{6,}`)

// distinctive returns the strings of a text that identify something, without duplicates: paths, identifiers, versions, numbers.
func distinctive(text string) []string {
	var all []string
	known := map[string]bool{}
	for _, s := range stringLike.FindAllString(text, -1) {
		s = strings.Trim(s, "./@#:+-")
		if len(s) >= leastString && !known[s] && !isPlain(s) {
			known[s] = true
			all = append(all, s)
		}
	}
	return all
}

// isPlain reports whether a string is a word, or several with hyphens: only capitals, or lower case after the first letter.
func isPlain(s string) bool {
	if strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == "" {
		return true
	}
	for word := range strings.SplitSeq(s, "-") {
		if word != "" && strings.Trim(word[1:], "abcdefghijklmnopqrstuvwxyz") != "" || strings.ContainsAny(word[:min(1, len(word))], "0123456789_") {
			return false
		}
	}
	return true
}

// wholeLines returns the lines of a text that are long enough to be recognised, without duplicates.
func wholeLines(text string) []string {
	var all []string
	known := map[string]bool{}
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); len(l) >= leastLine && !known[l] {
			known[l] = true
			all = append(all, l)
		}
	}
	return all
}

// unescaped returns a text as it reads: for JSON, its strings and numbers, one per line.
func unescaped(text string) string {
	if t := strings.TrimSpace(text); !strings.HasPrefix(t, "{") && !strings.HasPrefix(t, "[") {
		return text
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var all []string
	for {
		tok, err := dec.Token()
		if err != nil {
			break
		}
		switch tok := tok.(type) {
		case string:
			all = append(all, tok)
		case json.Number:
			all = append(all, tok.String())
		}
	}
	if len(all) == 0 || !json.Valid([]byte(text)) {
		return text
	}
	return strings.Join(all, "\n")
}

// texts caches the texts of items, by a hash of their bytes. It is safe for concurrent use.
type texts struct {
	seed  maphash.Seed
	known sync.Map // string by hash
}

func newTexts() *texts { return &texts{seed: maphash.MakeSeed()} }

// of returns the text of an item, with its calls; "" if it is no item.
func (t *texts) of(d wire.Dialect, raw []byte) string {
	key := maphash.Bytes(t.seed, raw)
	if text, ok := t.known.Load(key); ok {
		return text.(string) //nolint:forcetypeassert // it has no others
	}
	var all []string
	if it, err := wire.ParseItem(d, raw); err == nil {
		all = append(all, unescaped(it.Text()))
		for i := range it.Calls() {
			all = append(all, unescaped(it.Input(i)))
		}
	}
	text := strings.Join(all, "\n")
	t.known.Store(key, text)
	return text
}
