package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// ranks and budgets are the sizes of a recall, in turns and in tokens.
var (
	ranks   = [...]int{5, 10, 20, 50}
	budgets = [...]int{500, 1000, 2000, 4000}
)

// figures are results for questions; each is a sum.
type figures struct {
	questions               int
	found                   [len(ranks)]float64   // shares of the evidence among the first turns
	covered                 [len(budgets)]float64 // shares of the evidence within the tokens
	sessionFirst, turnFirst float64
}

func (f *figures) add(o figures) {
	f.questions += o.questions
	f.sessionFirst += o.sessionFirst
	f.turnFirst += o.turnFirst
	for i := range ranks {
		f.found[i] += o.found[i]
	}
	for i := range budgets {
		f.covered[i] += o.covered[i]
	}
}

// Tokens of a line besides its text: its number and speaker, and once per session the date and the session's number. The text
// has a quarter of its characters in tokens.
const (
	lineTokens    = 6
	sessionTokens = 9
)

// judge returns the figures of a ranking by scores for a question.
func judge(d *dialogue, q *question, scores []float32, sessions []int) figures {
	f := figures{questions: 1}
	if scores == nil {
		return f
	}
	order := ranking(scores)
	share := 1 / float64(len(q.evidence))
	spent, dated := [4]int{}, [4]map[int]bool{{}, {}, {}, {}}
	for rank, at := range order {
		hit := 0.0
		if slices.Contains(q.evidence, at) {
			hit = share
		}
		for i, k := range ranks {
			if rank < k {
				f.found[i] += hit
			}
		}
		t := &d.turns[at]
		cost := (utf8.RuneCountInString(t.Text)+3)/4 + lineTokens
		for i, budget := range budgets {
			c := cost
			if !dated[i][sessions[at]] {
				c += sessionTokens
			}
			if spent[i]+c <= budget {
				spent[i] += c
				dated[i][sessions[at]] = true
				f.covered[i] += hit
			}
		}
	}
	if slices.Contains(q.evidence, order[0]) {
		f.turnFirst = 1
	}
	if slices.ContainsFunc(q.evidence, func(e int) bool { return sessions[e] == sessions[order[0]] }) {
		f.sessionFirst = 1
	}
	return f
}

// table holds figures by name.
type table struct {
	w    io.Writer
	rows map[string]*figures
	all  figures
}

func (t *table) add(name string, f figures) {
	if t.rows[name] == nil {
		t.rows[name] = &figures{}
	}
	t.rows[name].add(f)
}

// print prints the rows sorted by name, then the sum.
func (t *table) print(title string) error {
	if t.all.questions == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %5s", title, "n")
	for _, k := range ranks {
		fmt.Fprintf(&b, " %5s", fmt.Sprintf("R@%d", k))
	}
	for _, budget := range budgets {
		fmt.Fprintf(&b, " %5d", budget)
	}
	b.WriteString(" sHit1  hit1\n")
	names := slices.Sorted(maps.Keys(t.rows))
	t.rows["all"] = &t.all
	for _, name := range append(names, "all") {
		f := t.rows[name]
		fmt.Fprintf(&b, "%-16s %5d", name, f.questions)
		for _, sum := range slices.Concat(f.found[:], f.covered[:], []float64{f.sessionFirst, f.turnFirst}) {
			fmt.Fprintf(&b, " %.3f", sum/float64(f.questions))
		}
		b.WriteByte('\n')
	}
	_, err := fmt.Fprintln(t.w, b.String())
	return err
}
