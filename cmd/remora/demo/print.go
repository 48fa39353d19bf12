package demo

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// printer writes the demo's page. It is at most 110 columns wide.
type printer struct {
	out   io.Writer
	color bool
	full  bool // leave nothing out
}

// ANSI styles.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36" // for what only the model and the proxy see
)

// styled returns text in an ANSI style, unchanged without colours.
func (p *printer) styled(style, text string) string {
	if !p.color || style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// colored prints a line in a style.
func (p *printer) colored(style, format string, args ...any) {
	p.line("%s", p.styled(style, fmt.Sprintf(format, args...)))
}

// heading prints a bold line after an empty one.
func (p *printer) heading(format string, args ...any) {
	p.line("")
	p.colored(bold, format, args...)
}

func (p *printer) line(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, format+"\n", args...) // the output may be closed, as by head
}

func (p *printer) opening(proxy, upstream string) {
	p.colored(bold, "Remora: a few conversations through the real proxy, without network or key")
	p.line(`
  client  ->  proxy %s  ->  scripted upstream %s

  An item is a text, a tool call or a result. The proxy stores every item; layers decide what the model gets.
  These run here. A window is there by default, of 64,000 tokens, beside semantic_recall and entity_memory:

  history_window        the newest %d items, and the user's message of a tool loop that is longer than that
  working_memory        what the model itself wants to keep: it calls a tool that the proxy answers; slot 100
  observational_memory  what was stated in any session of the resource (X-Resource-Id); slot 200
  steering              denies calls by a rule: %s

  client    what it sent: all items, or only new ones; ~ marks a streamed answer
  items     of the conversation; those below marked * stay between the model and the proxy
  left out  for their age, in steps of %d, so that the beginning of the prompt stays cached;
            behind the +, results whose call was left out: an API refuses the one without the other
  recalled  blocks that layers put into the view, as slot:tokens: those before the conversation, which stay
            the same for a while and so are cached, then what has changed, behind the user's message`, proxy, upstream, maxItems, rule, evictBatch)
}

// columns is the header of the table, row the format of its lines.
const (
	columns = "turn  client    items  sent  left out  recalled        of the items sent: first to last      stored"
	row     = "%4d  %-8s  %5d  %4d  %8s  %-14s  %s to %s  %6d"
)

// rows prints the turns from index first on, with their stored entries.
func (p *printer) rows(turns []turn, stored []snapshot, first int) {
	items := make(map[*talk]int)
	for i, t := range turns {
		s := snapshotOf(t.talk, stored)
		kept := s.storedBy(t.id)
		items[t.talk] += len(kept)
		if i < first {
			continue
		}
		switch {
		case t.title != "":
			p.line("\n%s\n%s", p.styled(bold, t.title), p.styled(dim, columns))
		case i > first && turns[i-1].show:
			p.line("")
		}

		client := t.client
		if t.streamed {
			client += " ~"
		}
		left := fmt.Sprint(t.left() - t.report.orphans)
		if t.report.orphans > 0 {
			left += fmt.Sprintf("+%d", t.report.orphans)
		}

		blocks := s.blocks(t.id)
		newest := t.saw[len(t.saw)-1]
		p.line(row, i+1, client, t.said, len(t.saw), left, slots(blocks), cell(t.saw[0], 16), cell(newest, 16), items[t.talk])

		for _, e := range kept {
			if e.hidden {
				p.colored(cyan, "      * %-9s  %s", e.who, cut(e.words(), 78))
			}
		}
		if t.show {
			p.view(i+1, &t, blocks)
		}
	}
}

func (p *printer) restarted(s snapshot, proxy string) {
	stored, _ := s.head() // checkRestart reports the error
	p.line("\n%s\n", p.styled(bold, fmt.Sprintf("      kill -9 in the middle of the loop: %d items are on disk. A new proxy goes on at %s", len(stored), proxy)))
	p.colored(dim, "%s", columns)
}

// verdicts prints the results of the checks.
func (p *printer) verdicts(checks []check) {
	p.heading("Checked")
	for _, c := range checks {
		if c.err != nil {
			p.line("  %s  %-10s  %v", p.styled(red, "FAILED"), c.name, c.err)
			continue
		}
		p.line("  %s  %-10s  %s", p.styled(green, "ok    "), c.name, c.text)
	}
}

// nextSteps prints how to see more, and how to use a real API.
func (p *printer) nextSteps() {
	if !p.full {
		p.heading("Every item of the transcripts")
		p.line("  go run ./cmd/remora demo --full")
	}
	p.heading("With a real API")
	p.line("%s", `  go run ./cmd/remora     # in another terminal; your key only passes through

  ask() { curl -s http://127.0.0.1:8080/v1/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" \
    -H "Content-Type: application/json" -H "X-Session-Id: $1" -H "X-Resource-Id: ada" \
    -d '{"model":"gpt-5-mini","messages":[{"role":"user","content":"'"$2"'"}]}'; }
  ask first "My name is Ada."
  ask first "What is my name?"    # only this is sent; the proxy puts what was said before it
  ask second "What is my name?"   # another session of the same resource: observational_memory knows

  An SDK needs the base URL http://127.0.0.1:8080/v1 and the header X-Session-Id; X-Resource-Id is what
  several sessions share, such as a user.`)
}

// cell returns an entry in exactly width columns.
func cell(e entry, width int) string {
	text := cut(e.who+" "+e.words(), width)
	return text + strings.Repeat(" ", width-utf8.RuneCountInString(text))
}

// cut shortens text to one line of at most width columns.
func cut(text string, width int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= width {
		return string(runes)
	}
	return string(runes[:width-1]) + "…"
}
