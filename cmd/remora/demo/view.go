package demo

import (
	"fmt"
	"math"
	"strings"
)

// view prints the blocks of a turn, then the whole conversation with marks for the entries that the model got.
func (p *printer) view(number int, t *turn, blocks []block) {
	said := t.talk.line[:t.said]
	sent, ok := placesIn(said, t.saw)
	if !ok {
		return // checkViews reports it
	}
	p.line("\n      %s", p.styled(bold, fmt.Sprintf(
		"Turn %d in full: + a layer told the model, > it saw, - is stored but was left out, = it answered", number)))
	for _, b := range blocks {
		p.block(b, t.act.fact)
	}
	if len(blocks) == 0 {
		p.colored(cyan, "      + nothing")
	}
	for first := 0; first < len(said); {
		end := first
		for end < len(said) && sent[end] == sent[first] {
			end++
		}
		if sent[first] {
			p.run(">", "", said[first:end])
		} else {
			p.run("-", dim, said[first:end])
		}
		first = end
	}
	p.run("=", "", t.talk.line[t.said:t.heard])
}

// transcripts prints the stored entries of each session, if the printer is full.
func (p *printer) transcripts(all []snapshot) {
	if !p.full {
		return
	}
	for _, s := range all {
		stored, err := s.head()
		p.heading("Stored of session %q: %d items; * stay between the model and the proxy", s.talk.session, len(stored))
		if err != nil {
			p.line("  %s", p.styled(red, err.Error()))
		}
		for i, e := range stored {
			mark, style := " ", ""
			if e.hidden {
				mark, style = "*", cyan
			}
			p.colored(style, "%4d  %s %-9s  %s", i+1, mark, e.who, cut(e.words(), math.MaxInt))
		}
	}
}

// slots lists the blocks as slot:tokens.
func slots(blocks []block) string {
	if len(blocks) == 0 {
		return "-"
	}
	all := make([]string, len(blocks))
	for i, b := range blocks {
		all[i] = fmt.Sprintf("%d:%d", b.slot, b.tokens)
	}
	return strings.Join(all, " ")
}

// edge is the number of lines printed at each end of a long run.
const edge = 2

// run prints consecutive entries: of a long run the ends and the hidden entries.
func (p *printer) run(mark, style string, entries []entry) {
	shown := shorten(len(entries), p.ends(edge), func(i int) bool { return entries[i].hidden })
	for _, i := range shown {
		if i < 0 {
			p.colored(style, "      %-2s%-9s  %d more", mark, "...", -i)
			continue
		}
		e, its, in := entries[i], mark, style
		if e.hidden {
			its, in = mark+"*", cyan
		}
		p.colored(in, "      %-2s%-9s  %s", its, e.who, cut(e.words(), 76))
	}
}

// blockEdge is the number of lines printed at each end of a long block.
const blockEdge = 3

// block prints a block: of a long text the ends and the lines with needed.
func (p *printer) block(b block, needed string) {
	p.colored(cyan, "      + block      %s, slot %d, %d tokens", b.layer, b.slot, b.tokens)
	lines := strings.Split(b.text, "\n")
	for _, i := range shorten(len(lines), p.ends(blockEdge), func(i int) bool { return needed != "" && strings.Contains(lines[i], needed) }) {
		text := fmt.Sprintf("... %d more lines", -i)
		if i >= 0 {
			indent := len(lines[i]) - len(strings.TrimLeft(lines[i], " "))
			text = strings.Repeat(" ", min(indent, 20)) + cut(lines[i], 70)
		}
		p.colored(cyan, "%s", strings.Repeat(" ", 19)+text)
	}
}

// ends returns edge, or no limit if the printer is full.
func (p *printer) ends(edge int) int {
	if p.full {
		return math.MaxInt
	}
	return edge
}

// shorten returns the indexes of the lines to print out of n: the ends and the wanted ones. -k stands for k lines left out; a
// single line is never left out.
func shorten(n, edge int, wanted func(i int) bool) []int {
	var list []int
	for i := range n {
		last := len(list) - 1
		switch {
		case i < edge || i >= n-edge || wanted(i):
			if last >= 0 && list[last] == -1 {
				list[last] = i - 1
			}
			list = append(list, i)
		case list[last] < 0:
			list[last]--
		default:
			list = append(list, -1)
		}
	}
	return list
}
