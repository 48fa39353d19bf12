package demo

import (
	"fmt"

	"remora/memory"
)

// check is one thing that the demo promises, and whether it held.
type check struct {
	name string
	text string // what is so, in a sentence
	err  error  // what is not
}

// minTurns is how long the conversation has to be for the demo to show anything.
const minTurns = 60

// checks judges the whole conversation.
func (s *stage) checks() []check {
	return []check{
		checkLength(s.player.turns),
		checkWindow(s.player.turns),
		checkViews(s.player.turns, s.player.said),
		checkFaults(s.player.model.Faults()),
		checkRestart(s.atCrash, s.atEnd, s.player),
		checkStored("transcript", s.atEnd, s.player, "after turn %d all %d items are on disk, in order, as the client said and heard them"),
	}
}

func checkLength(turns []turn) check {
	calls, parallel, streamed := 0, 0, 0
	for _, t := range turns {
		calls += t.calls
		if t.calls > 1 {
			parallel++
		}
		if t.streamed {
			streamed++
		}
	}
	c := check{name: "turns", text: fmt.Sprintf("%d, with %d tool calls, %d times several at once; %d answers streamed",
		len(turns), calls, parallel, streamed)}
	if len(turns) < minTurns || parallel == 0 || streamed == 0 {
		c.err = fmt.Errorf("want %d or more, with parallel calls and streams, have %s", minTurns, c.text)
	}
	return c
}

func checkWindow(turns []turn) check {
	fired, most, of := 0, 0, 0
	for _, t := range turns {
		if t.report.windowed > 0 {
			fired++
		}
		most, of = max(most, len(t.saw)), max(of, t.said)
	}
	c := check{name: "window", text: fmt.Sprintf("fired on %d turns; the model never got more than %d of up to %d items", fired, most, of)}
	if fired == 0 || most == of {
		c.err = fmt.Errorf("it fired on %d turns; the model got up to %d of %d items", fired, most, of)
	}
	return c
}

// checkViews compares what the model got with what was said, and both with X-Memory.
func checkViews(turns []turn, said []entry) check {
	c := check{name: "views", text: "the instructions, then what was said, in order, the newest last; X-Memory told it right"}
	for i, t := range turns {
		sent, ok := placesIn(said[:t.said], t.saw)
		switch {
		case t.lead != 1:
			c.err = fmt.Errorf("turn %d: the model got the instructions %d times", i+1, t.lead)
		case !ok:
			c.err = fmt.Errorf("turn %d: the model got something that was not said, or in another order", i+1)
		case !all(sent[t.said-t.fresh:]):
			c.err = fmt.Errorf("turn %d: the model did not get what is new", i+1)
		case !t.reportedRight():
			c.err = fmt.Errorf("turn %d: X-Memory says %d windowed, %d orphans; the model did not get %d",
				i+1, t.report.windowed, t.report.orphans, t.left())
		default:
			continue
		}
		return c
	}
	return c
}

// reportedRight compares X-Memory with what the model got.
func (t *turn) reportedRight() bool { return t.report.windowed+t.report.orphans == t.left() }

func all(sent []bool) bool {
	for _, s := range sent {
		if !s {
			return false
		}
	}
	return true
}

// checkFaults relies on the upstream, which refuses a history where the real APIs do.
func checkFaults(faults []string) check {
	c := check{name: "orphans", text: "0: the upstream, as strict as the real API, refused nothing"}
	if len(faults) > 0 {
		c.err = fmt.Errorf("the upstream refused %d histories, first %s", len(faults), faults[0])
	}
	return c
}

// checkRestart wants that what was on disk when the proxy had been killed was complete, and is still there.
func checkRestart(before, after snapshot, p *player) check {
	c := checkStored("restart", before, p, "killed with SIGKILL after turn %d: all %d items so far were on disk, and still are")
	kept := make(map[string]bool)
	for _, l := range after.lines {
		if l.Item != nil {
			kept[l.Item.Turn+" "+l.Item.Chain] = true
		}
	}
	for _, l := range before.lines {
		if c.err == nil && l.Item != nil && !kept[l.Item.Turn+" "+l.Item.Chain] {
			c.err = fmt.Errorf("item %d was on disk before the restart, and is not any more", l.Item.Seq)
		}
	}
	return c
}

// checkStored compares what is stored with the client's own list, entry by entry. text is filled with the number of
// turns and of items.
func checkStored(name string, s snapshot, p *player, text string) check {
	c := check{name: name}
	if s.turns == 0 {
		c.err = fmt.Errorf("it did not take place")
		return c
	}
	want := p.said[:p.turns[s.turns-1].heard]
	stored, err := s.head()
	c.text, c.err = fmt.Sprintf(text, s.turns, len(stored)), err
	for i := 0; c.err == nil && i < max(len(want), len(stored)); i++ {
		switch {
		case i >= len(stored):
			c.err = fmt.Errorf("%d of %d are missing at the end, first %s", len(want)-i, len(want), want[i])
		case i >= len(want):
			c.err = fmt.Errorf("%d more are stored than were said, first %s", len(stored)-i, stored[i])
		case stored[i] != want[i]:
			c.err = fmt.Errorf("number %d is %s, but what was said is %s", i+1, stored[i], want[i])
		}
	}
	return c
}

// head returns what is stored of the conversation, in its order. A conversation that nobody edited has no other
// branch: an item that is not on its line is an error.
func (s snapshot) head() ([]entry, error) {
	var entries []entry
	for _, l := range s.lines {
		if l.Item == nil {
			continue
		}
		if !l.Item.OnHead || l.Item.Partial {
			return nil, fmt.Errorf("item %d is not a whole part of the conversation's line", l.Item.Seq)
		}
		es, err := entriesOf(rawItem(l.Item))
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", l.Item.Seq, err)
		}
		entries = append(entries, es...)
	}
	return entries, nil
}

// storedBy counts the entries that were stored with a turn.
func (s snapshot) storedBy(turnID string) int {
	n := 0
	for _, l := range s.lines {
		if l.Item != nil && l.Item.Turn == turnID {
			es, _ := entriesOf(rawItem(l.Item)) // what can't be read is checkStored's business
			n += len(es)
		}
	}
	return n
}

func rawItem(l *memory.ItemLine) []byte {
	if l.Raw != nil {
		return l.Raw
	}
	return l.JSON
}
