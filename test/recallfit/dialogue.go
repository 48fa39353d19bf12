package main

import (
	"slices"

	"remora/memory/index"
	"remora/test/recall/corpus"
)

// dialogue is a long conversation over many sessions, with questions about it.
type dialogue struct {
	part      string // name in the report: its own, or the language of generated ones
	fold      int    // conversations of one fold are left out together
	generated bool
	turns     []index.Turn
	questions []question
}

// question is a question about some turns of a dialogue.
type question struct {
	text     string
	category corpus.Category
	evidence []int // turns
}

// folds is the number of parts of the conversations: that of the conversations in a LoCoMo development file.
const folds = 5

// everyTenth selects the questions about generated conversations: they have few wordings, so the others add nothing.
const everyTenth = 10

// dialogues returns the conversations of some files, and the generated ones.
func dialogues(paths []string) ([]dialogue, error) {
	var all []dialogue
	for _, p := range paths {
		read, err := corpus.ReadFile(p)
		if err != nil {
			return nil, err
		}
		for _, c := range read {
			all = append(all, newDialogue(c, len(all)%folds, 1))
		}
	}
	made, err := corpus.Generate(corpus.Seed)
	for i, c := range made {
		d := newDialogue(c, i%folds, everyTenth)
		d.generated, d.part = true, c.Language
		all = append(all, d)
	}
	return all, err
}

// newDialogue returns a conversation as the proxy indexes it, with every n-th of its questions.
func newDialogue(c *corpus.Conversation, fold, n int) dialogue {
	d := dialogue{part: c.Name, fold: fold}
	at := map[string]int{}
	for i := range c.Sessions {
		s := &c.Sessions[i]
		for j := range s.Turns {
			t := &s.Turns[j]
			role := index.RoleUser
			if t.Speaker == c.Speakers[1] {
				role = index.RoleAssistant
			}
			at[t.ID] = len(d.turns)
			d.turns = append(d.turns, index.Turn{ID: t.ID, Session: s.Name, Role: role, Speaker: t.Speaker, Time: s.At, Text: t.Said()})
		}
	}
	for i := 0; i < len(c.Questions); i += n {
		q := question{text: c.Questions[i].Text, category: c.Questions[i].Category}
		for _, id := range c.Questions[i].Evidence {
			if turn, ok := at[id]; ok && !slices.Contains(q.evidence, turn) {
				q.evidence = append(q.evidence, turn)
			}
		}
		if len(q.evidence) > 0 {
			d.questions = append(d.questions, q)
		}
	}
	return d
}
