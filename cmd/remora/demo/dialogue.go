package demo

import (
	"fmt"
	"strings"
)

// dialogue prints the highlights of the conversations, in at most 30 lines: four turns, what survived the kill, and the
// totals. rows prints every turn.
func (p *printer) dialogue(turns []turn, atCrash, atEnd []snapshot) {
	p.line("%s", p.in(bold, fmt.Sprintf("Remora: %d turns through a real proxy to a scripted model; these are four of them", len(turns))))

	p.scene("A long session asks for what was said at its beginning, and has been left out since", turns, atEnd, "When do we reorder Ulysses?")
	stored, _ := atCrash[0].head() // checkRestart judges it
	p.line("%s", p.in(bold, fmt.Sprintf("kill -9 in the middle of turn %d: all %d items so far were on disk, and the loop went on",
		atCrash[0].turns+1, len(stored))))
	p.scene("The next day, in another session of the same user", turns, atEnd, "Whose is shelf 9?")
	p.scene("A rule holds, whatever the model wants", turns, atEnd, "Order 500 copies of Dune.")
	p.scene("Another user's session knows nothing of it", turns, atEnd, "Do you know whose shelf 9 is?")

	said, sent := 0, 0
	for i := range turns {
		said, sent = said+turns[i].whole(), sent+turns[i].sent()
	}
	p.line("\n%s", p.in(green, fmt.Sprintf("In sum: about %d tokens sent in place of %d, %d %% saved; nothing lost; every answer checked.",
		sent, said, 100*(said-sent)/said)))
	p.line("What to try next:")
	p.line("  go run ./cmd/remora demo --table                            # every turn, as a table")
	p.line("  go run ./cmd/remora upstream                                # a scripted model for curl, and how to ask it")
	p.line("  go run ./cmd/remora                                         # in front of OpenAI, with your own OPENAI_API_KEY")
}

// scene prints the turn in which the user says text, until the model's last word.
func (p *printer) scene(title string, turns []turn, stored []snapshot, text string) {
	for i := range turns {
		t := &turns[i]
		if t.saw[len(t.saw)-1] != (entry{who: "user", text: text}) {
			continue
		}
		p.line("\n%s", p.in(bold, title))
		p.line("  you said       %s", text)
		p.line("  the model saw  %s", p.in(hue, t.view(of(t.talk, stored).blocks(t.id))))
		last := t.last()
		for at, e := range t.talk.line[t.said:last] {
			if copies, ok := ordered(e); ok && copies > maxCopies && e.hidden {
				p.line("  it called      %s", p.in(red, e.words()+": denied, and no client got it"))
				p.line("  it was told    %s", t.talk.line[t.said+at+1].text)
			}
		}
		saved := ""
		if n := t.whole() - t.sent(); n > 0 {
			saved = p.in(green, fmt.Sprintf("   (about %d tokens saved)", n))
		}
		p.line("  it answered    %s%s", t.talk.line[last].words(), saved)
		return
	}
}

// view describes the turn's view, and the block line that its answer is from.
func (t *turn) view(blocks []block) string {
	text := fmt.Sprintf("%d of %d items", len(t.saw), t.said)
	for _, b := range blocks {
		for line := range strings.SplitSeq(b.text, "\n") {
			if t.told != "" && strings.Contains(line, t.told) {
				return fmt.Sprintf("%s, and of %s: %s", text, b.layer, cut(strings.Trim(line, " -"), 50))
			}
		}
	}
	return text
}

// last is the place in the talk's line of what ends the model's answer to the user's message.
func (t *turn) last() int {
	at := t.said
	for i := t.said; i < len(t.talk.line) && t.talk.line[i].who != "user"; i++ {
		at = i
	}
	return at
}

// whole is about how many tokens the conversation has so far, sent what the model got of it and of layers.
func (t *turn) whole() int {
	n := 0
	for _, e := range t.talk.line[:t.said] {
		n += estimate(e.text)
	}
	return n
}

func (t *turn) sent() int {
	n := 0
	for _, e := range t.saw {
		n += estimate(e.text)
	}
	for _, b := range t.blocks {
		n += estimate(b)
	}
	return n
}

// estimate is about how many tokens a text has.
func estimate(text string) int { return (len(text) + 3) / 4 }
