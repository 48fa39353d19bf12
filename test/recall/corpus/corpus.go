// Package corpus holds the conversations that recall is fitted and measured on: a generated corpus in three languages, the
// same for the same seed, and a reader of LoCoMo's file format. Start at [Generate] and [Read].
package corpus

import (
	"strings"
	"time"
)

// Conversation is a dialogue of two people over months, with questions about it.
type Conversation struct {
	Name     string
	Language string    // "en", "de", "zh"; "" if it is not known
	Speakers [2]string // the one who began most, and the other
	Sessions []Session // by time
	// Questions have at least one evidence turn each.
	Questions []Question
}

// Session is one sitting.
type Session struct {
	Name  string    // unique in its conversation
	At    time.Time // of its first turn, in UTC
	Turns []Turn
}

// Turn is one message of a speaker.
type Turn struct {
	ID      string // unique in its conversation, as evidence names it
	Speaker string
	Text    string
	Caption string // what a picture shows that came with it; "" without a picture
	At      time.Time
}

// Said returns the turn as it stands in a message: the speaker, the text, and what the picture shows.
func (t *Turn) Said() string {
	if t.Caption == "" {
		return t.Speaker + ": " + t.Text
	}
	return t.Speaker + ": " + strings.TrimSpace(t.Text+" [picture: "+t.Caption+"]")
}

// Question is asked when all has been said.
type Question struct {
	Text     string
	Category Category
	Answer   string
	Evidence []string // ids of the turns that answer it; of an adversarial one, those that it mixes up
}

// Category is a kind of question, as LoCoMo tells them apart.
type Category string

// The categories, in the order of reports.
const (
	SingleHop   Category = "single-hop" // one turn has the answer
	MultiHop    Category = "multi-hop"  // several turns, often of several sessions, have it together
	Temporal    Category = "temporal"   // it asks when, or about a time
	Open        Category = "open"       // the turns only hint at it
	Adversarial Category = "adversarial"
)

// Categories returns all categories, in the order of reports.
func Categories() []Category {
	return []Category{SingleHop, MultiHop, Temporal, Open, Adversarial}
}

// Turns returns how many turns the conversation has.
func (c *Conversation) Turns() int {
	n := 0
	for i := range c.Sessions {
		n += len(c.Sessions[i].Turns)
	}
	return n
}
