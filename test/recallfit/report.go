package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// budgets are the sizes of a recall, in tokens.
var budgets = []int{500, 1000, 2000, 4000}

// figures are results for questions; each is a mean.
type figures struct {
	questions               int
	at5, at10, at20, at50   float64
	covered                 [4]float64
	sessionFirst, turnFirst float64
}

func (f *figures) add(o figures) {
	f.questions += o.questions
	f.at5 += o.at5
	f.at10 += o.at10
	f.at20 += o.at20
	f.at50 += o.at50
	f.sessionFirst += o.sessionFirst
	f.turnFirst += o.turnFirst
	for i := range f.covered {
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
		for k, sum := range map[int]*float64{5: &f.at5, 10: &f.at10, 20: &f.at20, 50: &f.at50} {
			if rank < k {
				*sum += hit
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
	fmt.Fprintf(&b, "%-16s %5s  %5s %5s %5s %5s  %5s %5s %5s %5s  %5s %5s\n", title, "n", "R@5", "R@10", "R@20", "R@50", "500", "1000", "2000", "4000", "sHit1", "hit1")
	t.rows["all"] = &t.all
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(t.rows)), func(name string) bool { return name == "all" })
	for _, name := range append(names, "all") {
		f := t.rows[name]
		n := float64(f.questions)
		fmt.Fprintf(&b, "%-16s %5d  %.3f %.3f %.3f %.3f  %.3f %.3f %.3f %.3f  %.3f %.3f\n", name, f.questions,
			f.at5/n, f.at10/n, f.at20/n, f.at50/n, f.covered[0]/n, f.covered[1]/n, f.covered[2]/n, f.covered[3]/n, f.sessionFirst/n, f.turnFirst/n)
	}
	_, err := fmt.Fprintln(t.w, b.String())
	return err
}
