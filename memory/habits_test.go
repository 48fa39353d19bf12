package memory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"remora/memory"
	"remora/wire"
	"remora/wire/dialects"
)

// customer is a client of either habit, and what it knows of its conversation.
type customer struct {
	l       *lab
	rt      *rapid.T
	d       wire.Dialect
	resends bool
	tools   string

	line   []string // the conversation as the client has it, or as the transcript has to have it
	open   string   // the call that waits for its result, empty for none
	sure   bool     // its habit shows in what it has sent so far
	turn   int
	moved  bool     // its latest request is of the conversation, and not of a line that stands alone yet
	broken bool     // the answer to it broke off
	latest []string // what it sent last
}

// word is a word that is said once.
func (c *customer) word(who string) string {
	c.turn++
	return fmt.Sprintf("%s:%d", who, c.turn)
}

// question is what a user asks once.
func (c *customer) question() string { return c.word("u") + "_is_a_question_that_is_not_asked_twice" }

// system returns the messages before the client's items: a date that changes, or an agent that took over, with its
// options.
func (c *customer) system(handOff bool) (options, system string) {
	switch {
	case handOff:
		return "tools=other model=small |", fmt.Sprintf("s:agent%d", c.turn)
	case rapid.Bool().Draw(c.rt, "dated"):
		return c.tools + "|", fmt.Sprintf("s:day%d", c.turn)
	}
	return c.tools + "|", "s:be"
}

// visible is a line without calls that have no result in it.
func visible(line []string) (out []string) {
	for _, word := range line {
		if id, ok := strings.CutPrefix(word, "c:"); !ok || slices.Contains(line, "r:"+id) {
			out = append(out, word)
		}
	}
	return out
}

// send plays a request of the conversation, and checks what upstream gets.
func (c *customer) send(what []string, handOff bool) {
	options, system := c.system(handOff)
	reply := c.word("a")
	if rapid.IntRange(0, 2).Draw(c.rt, "calls") == 0 {
		reply = c.word("c")
	}
	if c.broken = reply[0] == 'a' && rapid.IntRange(0, 3).Draw(c.rt, "breaks off") == 0; c.broken {
		options = "cut=" + rapid.SampledFrom([]string{"client", "upstream"}).Draw(c.rt, "cut") + " " + options
	}
	view, record := c.l.ask(c.d, fmt.Sprintf("%s %s %s -> %s", options, system, strings.Join(what, " "), reply))

	want := what
	if !c.resends {
		want = visible(append(slices.Clip(c.line), what...))
	}
	if got := strings.TrimPrefix(view, system+" "); got != strings.Join(want, " ") {
		c.rt.Fatalf("turn %d sent %v (%s):\n got %s\nwant %s", c.turn, what, placeOf(&record), got, strings.Join(want, " "))
	}
	seen := map[string]bool{}
	for word := range strings.FieldsSeq(view) {
		if seen[word] {
			c.rt.Fatalf("turn %d (%s): %s is sent twice: %s", c.turn, placeOf(&record), word, view)
		}
		seen[word] = true
	}

	c.latest, c.moved = what, !record.Alone && record.Side == ""
	if c.resends {
		c.line = nil
	}
	c.line = append(append(slices.Clip(c.line), what...), reply)
	if c.open = ""; strings.HasPrefix(reply, "c:") {
		c.open = strings.TrimPrefix(reply, "c:")
	}
}

// aside plays a helper's request, which changes nothing.
func (c *customer) aside() {
	before, _ := c.l.conversation(c.d)
	ask := c.word("u")
	if len(c.line) > 0 && rapid.Bool().Draw(c.rt, "same words") {
		ask = c.line[0]
	}
	view, record := c.l.ask(c.d, fmt.Sprintf("| %s %s -> %s", titles, ask, c.word("a")))
	if got := placeOf(&record); got != "SIDE helper_prompt" || view != titles+" "+ask {
		c.rt.Fatalf("a title is %s: %s", got, view)
	}
	if after, _ := c.l.conversation(c.d); after != before {
		c.rt.Fatalf("a title has moved the conversation from %s to %s", before, after)
	}
}

// apart plays a request of another agent, which gets nothing of the conversation and changes nothing.
func (c *customer) apart(spelled string) {
	before, _ := c.l.conversation(c.d)
	view, record := c.l.ask(c.d, spelled+" -> "+c.word("a"))
	if _, words, _ := strings.Cut(spelled, "| "); view != words || !record.Alone && record.Side == "" {
		c.rt.Fatalf("turn %d, %s (%s): %s", c.turn, spelled, placeOf(&record), view)
	}
	if after, _ := c.l.conversation(c.d); after != before {
		c.rt.Fatalf("%s has moved the conversation from %s to %s", spelled, before, after)
	}
}

// conversation is the line of the head.
func (l *lab) conversation(d wire.Dialect) (string, error) {
	var items []wire.Item
	err := l.m.Walk(l.t.Context(), scope, func(line memory.ExportLine) error {
		if line.Item == nil || !line.Item.OnHead {
			return nil
		}
		it, err := wire.ParseItem(d, line.Item.Bytes())
		items = append(items, it)
		return err
	})
	return toldIn(l.t, d, items), err
}

func (c *customer) step() {
	op := rapid.IntRange(0, 11).Draw(c.rt, "op")
	switch {
	case op == 0 && (len(c.line) > 0 || c.turn == 0): // two titles and nothing else would be somebody who sells titles
		c.aside()
	case op == 5 && c.open != "" && c.moved: // an agent that is a tool, asked in words of its own
		c.apart(rapid.SampledFrom([]string{"tools=search |", "tools=search model=small |"}).Draw(c.rt, "agent") + " s:research " + c.question())
	case op == 6 && c.moved && strings.HasPrefix(c.line[len(c.line)-1], "a:"): // a guard of answers
		c.apart("format=json_schema | s:judge u:" + strings.TrimPrefix(c.line[len(c.line)-1], "a:"))
	case op == 7 && c.resends && c.tools != "": // a classifier before a turn
		if ask := "| s:intent " + c.question(); c.sure {
			c.apart(ask)
		} else {
			c.l.ask(c.d, ask) // it may be taken for a client that sends only what is new
			c.resend(op)
		}
	case c.resends:
		c.resend(op)
	default:
		c.sendNew(op)
	}
}

// resend is a step of a client that sends its history again.
func (c *customer) resend(op int) {
	next := slices.Clone(c.line)
	switch {
	case op == 1 && len(c.latest) > 0: // a retry
		next = c.latest
	case op == 2 && c.sure: // compaction
		next = []string{c.question()}
	case op == 3 && c.sure && len(next) > 2: // an edit, of the first message too
		var users []int
		for i, word := range next {
			if strings.HasPrefix(word, "u:") {
				users = append(users, i)
			}
		}
		next = append(next[:rapid.SampledFrom(users).Draw(c.rt, "edit")], c.question())
	case c.open != "":
		next = append(next, "r:"+c.open)
	default:
		next = append(next, c.question())
	}
	c.send(next, op == 4)
	c.sure = c.sure || slices.ContainsFunc(next, func(w string) bool { return strings.HasPrefix(w, "a:") })
	got, err := c.l.conversation(c.d)
	if err != nil {
		c.rt.Fatal(err)
	}
	if want := strings.Join(c.line, " "); c.moved && !strings.HasSuffix(got, want[strings.LastIndex(want, "u:"):]) {
		c.rt.Fatalf("turn %d sent %v: the conversation is %s", c.turn, next, got)
	}
}

// sendNew is a step of a client that sends only new items.
func (c *customer) sendNew(op int) {
	next := []string{c.question()}
	switch {
	case (op == 1 || op == 8) && c.broken: // a retry of a question or of results whose answer broke off
		c.line, next = c.line[:len(c.line)-1-len(c.latest)], c.latest
	case op == 1 && c.open == "" && len(c.latest) > 0 && strings.HasPrefix(c.latest[0], "r:"): // a retry of results
		c.line, next = c.line[:len(c.line)-1-len(c.latest)], c.latest
	case c.open != "" && (op != 2 || !c.sure): // else it has forgotten its call
		next = []string{"r:" + c.open}
	}
	known := c.sure
	c.send(next, op == 4 && known)
	c.sure = len(c.line) > 2
	if got, err := c.l.conversation(c.d); err != nil || got != strings.Join(c.line, " ") {
		c.rt.Fatalf("turn %d sent %v:\n the conversation is %s, %v\nwant %s", c.turn, next, got, err, strings.Join(c.line, " "))
	}
}

// Clients of both habits mix requests of all kinds with their conversation, on two replicas: one that resends its
// history gets nothing that it did not send, one that sends only new items gets its whole history, nothing is sent or
// stored twice, also after an answer that broke off, and no request of a helper, a guard or another agent moves the conversation.
func TestHabitsAreKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab(t, memory.Options{})
		here, there := l.m, memory.New(l.store, nil, patient(memory.Options{}))
		defer func() {
			l.m = here
			there.Close()
		}()
		c := &customer{
			l: l, rt: rt, resends: rapid.Bool().Draw(rt, "resends"),
			d:     rapid.SampledFrom([]wire.Dialect{dialects.Chat, dialects.Responses}).Draw(rt, "dialect"),
			tools: rapid.SampledFrom([]string{"", "tools=f,g"}).Draw(rt, "tools"),
		}
		for range rapid.IntRange(2, 14).Draw(rt, "turns") {
			if l.m = here; rapid.Bool().Draw(rt, "there") {
				l.m = there
			}
			c.step()
		}
	})
}
