package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"remora/test/recall/corpus"
)

// report writes the table of a configuration.
func (m *measurement) report(b *strings.Builder) {
	figuresOf := m.judge()
	how := "imported"
	if m.layers.spoken {
		how = "sent through the proxy"
	}
	fmt.Fprintf(b, "\n## %s\n\nConversations were %s.\n\n", m.layers.name, how)
	b.WriteString("| of | questions |")
	for _, n := range tokenSteps {
		fmt.Fprintf(b, " in %d |", n)
	}
	for _, n := range itemSteps {
		fmt.Fprintf(b, " R@%d |", n)
	}
	b.WriteString(" session Hit@1 | NDCG@5 | tokens told | nothing told |\n|---|---|" + strings.Repeat("---|", len(tokenSteps)+len(itemSteps)+4) + "\n")
	var groups []string
	for _, c := range corpus.Categories() {
		groups = append(groups, string(c))
	}
	for _, c := range m.conversations {
		if !slices.Contains(groups, c.Language) && c.Language != "" {
			groups = append(groups, c.Language)
		}
	}
	for _, group := range append(groups, "") {
		if f := figuresOf[group]; f != nil {
			m.row(b, cmp.Or(group, "all"), f)
		}
	}
	b.WriteString("\n")
	m.times(b)
}

func (m *measurement) row(b *strings.Builder, name string, f *figures) {
	n := float64(f.questions)
	fmt.Fprintf(b, "| %s | %d |", name, f.questions)
	for _, tokens := range tokenSteps {
		fmt.Fprintf(b, " %.3f |", f.covered[tokens]/n)
	}
	for _, items := range itemSteps {
		m.ranked(b, f.recall[items]/n)
	}
	m.ranked(b, f.firstHit/n)
	m.ranked(b, f.sessionDC/n)
	fmt.Fprintf(b, " %.0f | %.1f %% |\n", f.tokens/n, 100*float64(f.empty)/n)
}

// ranked writes a figure that is only known if items vary.
func (m *measurement) ranked(b *strings.Builder, value float64) {
	if len(m.byItems) == 0 {
		b.WriteString(" - |")
		return
	}
	fmt.Fprintf(b, " %.3f |", value)
}

// times prints the time of a question with the usual budget. It varies between machines and runs.
func (m *measurement) times(b *strings.Builder) {
	times := slices.Sorted(slices.Values(m.byTokens[usual].times))
	if len(times) > 0 {
		fmt.Fprintf(b, "A question, with an upstream that refuses at once: p50 %s, p99 %s.\n", short(times[len(times)/2]), short(times[len(times)*99/100]))
	}
}

func short(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
