package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// printer writes the demo's page. It is at most 100 columns wide.
type printer struct {
	out   io.Writer
	color bool
}

// ANSI styles.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

// in is text in a style, where styles are allowed.
func (p *printer) in(style, text string) string {
	if !p.color || style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (p *printer) line(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, format+"\n", args...) // a reader who has left misses nothing that matters
}

// columns is the head of the table, and row a line of it.
const (
	columns = "turn  client    items  sent  windowed  orphans  the model saw: first to last                  stored"
	row     = "%4d  %-8s  %5d  %4d  %8d  %7d  %s to %s  %6d"
)

func (p *printer) opening(proxy, upstream string) {
	p.line("%s", p.in(bold, "Remora: one conversation through the real proxy, without network or key"))
	p.line(`
  client  ->  proxy %s  ->  scripted upstream %s

  An item is a text, a tool call or a result. The proxy stores every item; the model gets the newest %d
  (a setting, 80 by default), and the user's message as well when a tool loop grows longer than that.

  client    what it sent: all items, or only new ones; ~ marks a streamed answer
  windowed  left out for their age, in steps of %d, so that the beginning of the prompt stays cached
  orphans   results left out because their call was: an API refuses the one without the other`, proxy, upstream, maxItems, evictBatch)
}

// rows prints the turns from number first on, with what the snapshot has of them.
func (p *printer) rows(from *player, s snapshot, first int) {
	stored := 0
	for i, t := range from.turns[:s.turns] {
		stored += s.storedBy(t.id)
		if i < first {
			continue
		}
		if t.title != "" {
			p.line("\n%s\n%s", p.in(bold, t.title), p.in(dim, columns))
		}
		client := t.client
		if t.streamed {
			client += " ~"
		}
		newest := t.saw[len(t.saw)-1]
		p.line(row, i+1, client, t.said, len(t.saw), t.left()-t.report.orphans, t.report.orphans,
			cell(t.saw[0], 20), cell(newest, 20), stored)
		if t.show {
			p.view(i+1, from.said[:t.said], t.saw)
		}
	}
}

// edge is how many lines at each end of a long run are printed.
const edge = 2

// view prints a whole conversation and marks what of it the model saw.
func (p *printer) view(number int, said, saw []entry) {
	sent, ok := placesIn(said, saw)
	if !ok {
		return // checkViews says so
	}
	p.line("\n      %s", p.in(bold, fmt.Sprintf("Turn %d in full: > is what the model saw, - is stored but was left out", number)))
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
	p.line("")
}

// run prints consecutive entries, of a long run only its ends.
func (p *printer) run(mark, style string, entries []entry) {
	for i := 0; i < len(entries); i++ {
		text := fmt.Sprintf("      %s %-9s  %s", mark, entries[i].who, cut(entries[i].words(), 70))
		if hidden := len(entries) - 2*edge; i == edge && hidden > 1 {
			text = fmt.Sprintf("      %s %-9s  %d more", mark, "...", hidden)
			i += hidden - 1
		}
		p.line("%s", p.in(style, text))
	}
}

func (p *printer) restarted(s snapshot, proxy string) {
	stored, _ := s.head() // checkStored judges it
	p.line("\n%s\n", p.in(bold, fmt.Sprintf("      kill -9 in the middle of the loop: %d items are on disk. A new proxy goes on at %s", len(stored), proxy)))
	p.line("%s", p.in(dim, columns))
}

// verdicts prints the summary and tells whether every check held.
func (p *printer) verdicts(checks []check) bool {
	passed := true
	p.line("\n%s", p.in(bold, "Checked"))
	for _, c := range checks {
		if c.err != nil {
			passed = false
			p.line("  %s  %-10s  %v", p.in(red, "FAILED"), c.name, c.err)
			continue
		}
		p.line("  %s  %-10s  %s", p.in(green, "ok    "), c.name, c.text)
	}
	return passed
}

// farewell tells how to do the same with a real API.
func (p *printer) farewell() {
	p.line("\n%s", p.in(bold, "With a real API"))
	p.line("%s", `  go run ./cmd/proxy     # in another terminal; your key only passes through

  ask() { curl -s http://127.0.0.1:8080/v1/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" \
    -H "Content-Type: application/json" -H "X-Session-Id: first" \
    -d '{"model":"gpt-5-mini","messages":[{"role":"user","content":"'"$1"'"}]}'; }
  ask "My name is Ada."
  ask "What is my name?"   # only this is sent; the proxy puts what was said before it

  An SDK needs the base URL http://127.0.0.1:8080/v1 and the header X-Session-Id, nothing else.`)
}

// words is what an entry says, a call as name(values).
func (e entry) words() string {
	name, arguments, ok := strings.Cut(e.text, "{")
	if e.who != "call" || !ok {
		return e.text
	}
	var values []string
	dec := json.NewDecoder(strings.NewReader("{" + arguments))
	for i := 0; ; i++ { // the brace, then names and values in turn
		token, err := dec.Token()
		if _, brace := token.(json.Delim); err != nil || brace && i > 0 {
			return name + "(" + strings.Join(values, ", ") + ")"
		}
		if i > 0 && i%2 == 0 {
			values = append(values, fmt.Sprint(token))
		}
	}
}

// String is an entry in one line, for messages.
func (e entry) String() string { return fmt.Sprintf("%s %q", e.who, cut(e.words(), 60)) }

// cell is an entry in exactly width columns.
func cell(e entry, width int) string {
	text := cut(e.who+" "+e.words(), width)
	return text + strings.Repeat(" ", width-utf8.RuneCountInString(text))
}

// cut shortens text to width columns and one line.
func cut(text string, width int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= width {
		return string(runes)
	}
	return string(runes[:width-1]) + "…"
}
