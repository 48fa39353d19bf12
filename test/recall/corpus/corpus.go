// Package corpus holds the conversations with which recall is fitted and measured: a generated corpus in three languages,
// deterministic for a seed, and a reader of LoCoMo's file format. Start at [Generate] and [Read].
package corpus

import (
	"strings"
	"time"
)

// Conversation is a dialogue of two people over months, with questions about it.
type Conversation struct {
	Name     string
	Language string    // "en", "de", "zh"; "" if unknown
	Speakers [2]string // first the one who began most sessions
	Sessions []Session // by time
	// Questions have at least one evidence turn each.
	Questions []Question
}

// Session is one sitting.
type Session struct {
	Name  string    // unique in its conversation
	At    time.Time // in UTC
	Turns []Turn
}

// Turn is one message of a speaker.
type Turn struct {
	ID      string // unique in its conversation; evidence refers to it
	Speaker string
	Text    string
	Caption string // description of its picture; "" without a picture
}

// Said returns the turn as the text of a message: the speaker, the text, and the caption.
func (t *Turn) Said() string {
	if t.Caption == "" {
		return t.Speaker + ": " + t.Text
	}
	return t.Speaker + ": " + strings.TrimSpace(t.Text+" [picture: "+t.Caption+"]")
}

// Question is a question about a whole conversation.
type Question struct {
	Text     string
	Category Category
	Answer   string
	Evidence []string // ids of the turns that answer it; for an adversarial one, of those that it confuses
}

// Category is a kind of question in LoCoMo.
type Category string

// The categories, in the order of reports.
const (
	SingleHop   Category = "single-hop" // one turn has the answer
	MultiHop    Category = "multi-hop"  // the answer needs several turns, often of several sessions
	Temporal    Category = "temporal"   // asks for or about a time
	Open        Category = "open"       // the turns only hint at the answer
	Adversarial Category = "adversarial"
)

// Categories returns all categories, in the order of reports.
func Categories() []Category {
	return []Category{SingleHop, MultiHop, Temporal, Open, Adversarial}
}

// Turns returns the number of turns.
func (c *Conversation) Turns() int {
	n := 0
	for i := range c.Sessions {
		n += len(c.Sessions[i].Turns)
	}
	return n
}
