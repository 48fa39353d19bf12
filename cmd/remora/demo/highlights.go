package demo

import "fmt"

// highlights prints the page of a demo without --table, in at most 30 lines: four turns of all conversations, what survived the
// kill, and the totals.
type highlights struct {
	*printer
	turns          []turn
	atCrash, atEnd []snapshot
}

func (p highlights) print() {
	turns := p.turns
	p.colored(bold, "Remora: %d turns through a real proxy to a scripted model; these are four of them", len(turns))

	p.scene("A long session asks for what was said at its beginning, and has been left out since", "When do we reorder Ulysses?")
	stored, _ := p.atCrash[0].head() // checkRestart reports the error
	p.colored(bold, "kill -9 in the middle of turn %d: all %d items so far were on disk, and the loop went on",
		p.atCrash[0].turns+1, len(stored))
	p.scene("The next day, in another session of the same user", "Whose is shelf 9?")
	p.scene("A rule holds, whatever the model wants", "Order 500 copies of Dune.")
	p.scene("Another user's session knows nothing of it", "Do you know whose shelf 9 is?")

	said, sent := 0, 0
	for i := range turns {
		said, sent = said+turns[i].whole(), sent+turns[i].sent()
	}
	p.line("")
	p.colored(green, "In sum: about %d tokens sent in place of %d, %d %% saved; nothing lost; every answer checked.",
		sent, said, 100*(said-sent)/said)
	p.line("What to try next:")
	p.line("  go run ./cmd/remora demo --table                            # every turn, as a table")
	p.line("  go run ./cmd/remora upstream                                # a scripted model for curl, and how to ask it")
	p.line("  go run ./cmd/remora                                         # in front of OpenAI, with your own OPENAI_API_KEY")
}

// scene prints the turn in which the user says text, until the model's last word.
func (p highlights) scene(title, text string) {
	for i := range p.turns {
		t := &p.turns[i]
		if t.saw[len(t.saw)-1] != (entry{who: "user", text: text}) {
			continue
		}
		p.heading("%s", title)
		p.line("  you said       %s", text)
		p.line("  the model saw  %s", p.styled(cyan, t.view(snapshotOf(t.talk, p.atEnd).blocks(t.id))))
		last := t.last()
		for at, e := range t.talk.line[t.said:last] {
			if copies, ok := ordered(e); ok && copies > maxCopies && e.hidden {
				p.line("  it called      %s", p.styled(red, e.words()+": denied, and no client got it"))
				p.line("  it was told    %s", t.talk.line[t.said+at+1].text)
			}
		}
		saved := ""
		if n := t.whole() - t.sent(); n > 0 {
			saved = p.styled(green, fmt.Sprintf("   (about %d tokens saved)", n))
		}
		p.line("  it answered    %s%s", t.talk.line[last].words(), saved)
		return
	}
}
