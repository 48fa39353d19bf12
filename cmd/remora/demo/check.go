package demo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"remora/memory"
	"remora/wire"
)

// check is one promise of the demo, and its result.
type check struct {
	name string
	text string // the result, in a sentence
	err  error  // nil if the promise was kept
}

// minTurns is the minimum length of the conversation.
const minTurns = 60

// checks returns the results of all checks.
func (s *stage) checks() []check {
	turns, talks := s.player.turns, s.player.talks
	return []check{
		checkLength(turns),
		checkWindow(turns),
		checkViews(turns),
		checkFaults(s.player.model.Faults()),
		checkNotes(turns),
		checkRecall(turns),
		checkDenied(talks),
		checkBlocks(turns, s.atEnd),
		checkRestart(s.atCrash, s.atEnd),
		checkAllStored(s.atEnd),
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

// checkViews compares what the model got with the conversation, and both with X-Memory.
func checkViews(turns []turn) check {
	c := check{name: "views", text: "the instructions, then what was said, in order, the newest last; X-Memory told it right"}
	for i, t := range turns {
		sent, ok := placesIn(t.talk.line[:t.said], t.saw)
		switch {
		case t.prompts != 1:
			c.err = fmt.Errorf("turn %d: the model got the instructions %d times", i+1, t.prompts)
		case !ok:
			c.err = fmt.Errorf("turn %d: the model got something that was not said, or in another order", i+1)
		case slices.Contains(sent[t.said-t.fresh:], false):
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

// checkFaults reports the histories that the upstream refused. It refuses those that the real APIs refuse.
func checkFaults(faults []string) check {
	c := check{name: "orphans", text: "0: the upstream, as strict as the real API, refused nothing"}
	if len(faults) > 0 {
		c.err = fmt.Errorf("the upstream refused %d histories, first %s", len(faults), faults[0])
	}
	return c
}

// checkRestart checks that everything was on disk when the proxy was killed, and still is.
func checkRestart(before, after []snapshot) check {
	c := check{name: "restart"}
	if len(before) == 0 || len(after) == 0 {
		c.err = errors.New("it did not take place")
		return c
	}
	c.err = before[0].compare()
	c.text = fmt.Sprintf("killed with SIGKILL after turn %d: all %d items so far were on disk, and still are", before[0].turns, before[0].said)
	kept := make(map[string]bool)
	for _, l := range after[0].lines {
		if l.Item != nil {
			kept[l.Item.Turn+" "+l.Item.Chain] = true
		}
	}
	for _, l := range before[0].lines {
		if c.err == nil && l.Item != nil && !kept[l.Item.Turn+" "+l.Item.Chain] {
			c.err = fmt.Errorf("item %d was on disk before the restart, and is not any more", l.Item.Seq)
		}
	}
	return c
}

// checkAllStored compares the stored items of each session with its dialogue.
func checkAllStored(all []snapshot) check {
	c := check{name: "transcript"}
	items := make([]string, len(all))
	for i, s := range all {
		items[i] = fmt.Sprint(s.said)
		if err := s.compare(); err != nil && c.err == nil {
			c.err = fmt.Errorf("session %q: %w", s.talk.session, err)
		}
	}
	c.text = fmt.Sprintf("%d sessions with %s items are on disk, in order, as they were said and heard", len(all), strings.Join(items, ", "))
	return c
}

// compare compares the stored items with the dialogue, entry by entry.
func (s snapshot) compare() error {
	want := s.talk.line[:s.said]
	stored, err := s.head()
	for i := 0; err == nil && i < max(len(want), len(stored)); i++ {
		switch {
		case i >= len(stored):
			err = fmt.Errorf("%d of %d are missing at the end, first %s", len(want)-i, len(want), want[i])
		case i >= len(want):
			err = fmt.Errorf("%d more are stored than were said, first %s", len(stored)-i, stored[i])
		case stored[i] != want[i]:
			err = fmt.Errorf("number %d is %s, but what was said is %s", i+1, stored[i], want[i])
		}
	}
	return err
}

// head returns the stored entries of the conversation, in order. An item that is not part of the conversation's line is an error:
// a conversation without edits has no other branch.
func (s snapshot) head() ([]entry, error) {
	var entries []entry
	for _, l := range s.lines {
		if l.Item == nil {
			continue
		}
		if !l.Item.OnHead && !l.Item.Hidden || l.Item.Partial {
			return nil, fmt.Errorf("item %d is not a whole part of the conversation's line", l.Item.Seq)
		}
		es, err := storedEntries(l.Item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", l.Item.Seq, err)
		}
		entries = append(entries, es...)
	}
	return entries, nil
}

// storedBy returns the entries that were stored with a turn.
func (s snapshot) storedBy(turnID string) []entry {
	var all []entry
	for _, l := range s.lines {
		if l.Item != nil && l.Item.Turn == turnID {
			es, _ := storedEntries(l.Item) // compare reports unreadable items
			all = append(all, es...)
		}
	}
	return all
}

// storedEntries returns the entries of one stored item.
func storedEntries(l *memory.ExportedItem) ([]entry, error) {
	it, err := l.Item()
	if err != nil {
		return nil, err
	}
	es := entriesOf([]wire.Item{it})
	for i := range es {
		es[i].hidden = l.Hidden
	}
	return es, nil
}
