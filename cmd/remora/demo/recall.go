package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// block is a layer's stored block in one turn.
type block struct {
	layer        string
	slot, tokens int
	text         string
}

// blocks returns the blocks of a turn, in the order of the view. It leaves out unreadable ones, which checkBlocks reports as
// missing.
func (s snapshot) blocks(turnID string) []block {
	var all []block
	texts := make(map[string]string)
	for _, l := range s.lines {
		if l.Block != nil {
			texts[l.Block.Hash] = string(l.Block.Text)
		}
		var record struct {
			ID     string `json:"id"`
			Blocks []struct {
				Layer  string `json:"layer"`
				Slot   int    `json:"slot"`
				Tokens int    `json:"tokens"`
				Hash   string `json:"hash"`
			} `json:"blocks"`
		}
		if l.Turn == nil || json.Unmarshal(l.Turn, &record) != nil || record.ID != turnID {
			continue
		}
		for _, b := range record.Blocks {
			if text, ok := texts[b.Hash]; ok { // its line comes before the first turn that used it
				all = append(all, block{b.Layer, b.Slot, b.Tokens, text})
			}
		}
	}
	return all
}

// snapshotOf returns the snapshot of a talk.
func snapshotOf(tk *talk, all []snapshot) snapshot {
	for _, s := range all {
		if s.talk == tk {
			return s
		}
	}
	return snapshot{}
}

// checkBlocks compares the blocks in the views with the stored ones and with X-Memory.
func checkBlocks(turns []turn, stored []snapshot) check {
	c := check{name: "blocks"}
	n, most := 0, 0
	for i, t := range turns {
		tokens, slot := 0, 0
		var texts []string
		for _, b := range snapshotOf(t.talk, stored).blocks(t.id) {
			if b.slot < slot || b.tokens <= 0 {
				c.err = fmt.Errorf("turn %d: the block of %s has slot %d and %d tokens", i+1, b.layer, b.slot, b.tokens)
			}
			tokens, slot, texts = tokens+b.tokens, b.slot, append(texts, b.text)
		}
		switch {
		case c.err != nil:
		case !slices.Equal(texts, t.blocks):
			c.err = fmt.Errorf("turn %d: the model got %d blocks, other than the %d that are stored", i+1, len(t.blocks), len(texts))
		case tokens != t.report.recalled:
			c.err = fmt.Errorf("turn %d: X-Memory says %d tokens, the stored blocks have %d", i+1, t.report.recalled, tokens)
		}
		n, most = n+len(texts), max(most, tokens)
	}
	c.text = fmt.Sprintf("the model got %d, at most %d tokens a turn; each is stored with slot and tokens", n, most)
	if c.err == nil && n == 0 {
		c.err = errors.New("the model got none")
	}
	return c
}

// checkNotes checks that the proxy answered the model's note without the client, and showed it to the model from then on.
func checkNotes(turns []turn) check {
	c := check{name: "notes"}
	noted, shown, beyond := 0, 0, 0
	for i, t := range turns {
		called := slices.IndexFunc(t.talk.line[:t.heard], isNote)
		switch {
		case !slices.Contains(t.tools, noteTool):
			c.err = fmt.Errorf("turn %d: the model was not offered %s", i+1, noteTool)
		case called < 0:
			continue
		case !t.talk.line[called].hidden:
			c.err = fmt.Errorf("turn %d: the client got the call of %s", i+1, noteTool)
		case noted == 0:
			noted = i + 1
			continue
		case !holds(t.blocks, noteWord):
			c.err = fmt.Errorf("turn %d: the model was not shown what it had noted", i+1)
		case !slices.ContainsFunc(t.saw, isNote):
			beyond++
		}
		if c.err != nil {
			return c
		}
		shown++
	}
	c.text = fmt.Sprintf("made in turn %d by a call that no client got; told %d times since, %d without the call",
		noted, shown, beyond)
	if noted == 0 || beyond == 0 {
		c.err = fmt.Errorf("of a note in turn %d, %d views told that did not hold the call any more", noted, beyond)
	}
	return c
}

// isNote reports whether e is the model's call of the working memory's tool.
func isNote(e entry) bool { return e.who == "call" && e.text == noteTool+noteFact }

// holds reports whether one of the texts contains a word.
func holds(texts []string, word string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, word) })
}

// checkRecall checks that the model knows the facts of sessions of the same resource, and no others.
func checkRecall(turns []turn) check {
	c := check{name: "recall"}
	told, untold := 0, 0
	for i, t := range turns {
		fact, want, knows := t.act.fact, t.act.say, t.talk.resource == shop
		switch {
		case fact == "":
			continue
		case !knows:
			want, untold = unknown, i+1
		case fact == shelfOwner:
			told = i + 1
		}
		if got := t.talk.line[t.heard-1]; got.text != want {
			c.err = fmt.Errorf("turn %d: the model said %s", i+1, got)
			return c
		}
		if holds(t.blocks, fact) != knows {
			c.err = fmt.Errorf("turn %d: %q in the blocks is not %t", i+1, fact, knows)
			return c
		}
	}
	c.text = fmt.Sprintf("turn %d knew what another session had been told; turn %d, of another resource, did not", told, untold)
	if told == 0 || untold == 0 {
		c.err = errors.New("nobody asked")
	}
	return c
}

// checkDenied checks that no client got an order that the rule forbids, and that the model got the reason.
func checkDenied(talks []*talk) check {
	c := check{name: "denied"}
	denied := 0
	for _, tk := range talks {
		for i, e := range tk.line {
			copies, ok := ordered(e)
			switch {
			case !ok || copies <= maxCopies:
			case !e.hidden:
				c.err = fmt.Errorf("session %q: a client got %s", tk.session, e)
				return c
			case i+1 == len(tk.line) || tk.line[i+1] != (entry{"result", e.id, refusal, true}):
				c.err = fmt.Errorf("session %q: the model was not told why %s is refused", tk.session, e)
				return c
			default:
				denied++
			}
		}
	}
	c.text = fmt.Sprintf("%d call that no client got; the model got the rule's text as its result", denied)
	if denied == 0 {
		c.err = errors.New("no call was")
	}
	return c
}

// ordered returns the number of copies that a call orders, false for other entries.
func ordered(e entry) (int, bool) {
	arguments, ok := strings.CutPrefix(e.text, "order{")
	var in struct {
		Copies int `json:"copies"`
	}
	ok = ok && e.who == "call" && json.Unmarshal([]byte("{"+arguments), &in) == nil
	return in.Copies, ok
}
