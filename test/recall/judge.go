package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"remora/test/recall/corpus"
	"remora/test/scripted/script"
)

// charactersPerToken defines the tokens of budgets: without a tokenizer, so that figures of different models are comparable.
const charactersPerToken = 4

// leastQuote is the minimum length of a line that quotes a part of a turn, in characters.
const leastQuote = 24

// longestName is the maximum length of a speaker's name at the beginning of a line, in bytes.
const longestName = 40

// measurement holds the results of one configuration's passes.
type measurement struct {
	layers        layers
	conversations []*corpus.Conversation
	byTokens      map[int]*pass // a pass that serves several is made once, and its texts are shortened
	byItems       map[int]*pass // empty if items do not vary
}

// figures are sums over questions, of shares from 0 to 1.
type figures struct {
	questions           int
	covered             map[int]float64 // by tokens: the share of the evidence turns recalled within them
	recall              map[int]float64 // by items: the share of the evidence turns among the first items
	firstHit, sessionDC float64         // the first session has evidence; NDCG of the first five
	tokens              float64         // recalled with a budget of 1,000
	empty               int             // questions for which nothing was recalled then
}

// judge returns the figures by category and by language, and those of all questions under "".
func (m *measurement) judge() map[string]*figures {
	all := map[string]*figures{}
	for i, c := range m.conversations {
		said := newTranscript(c)
		for n, q := range c.Questions {
			for _, group := range slices.Compact([]string{string(q.Category), c.Language, ""}) {
				if all[group] == nil {
					all[group] = &figures{covered: map[int]float64{}, recall: map[int]float64{}}
				}
				m.add(all[group], said, i, n)
			}
		}
	}
	return all
}

// usual is the budget of the last columns of the table, in tokens.
const usual = 1000

func (m *measurement) add(f *figures, said *transcript, conversation, question int) {
	evidence := m.conversations[conversation].Questions[question].Evidence
	f.questions++
	for _, tokens := range tokenSteps {
		text := script.FirstRunes(m.byTokens[tokens].told[conversation][question], tokens*charactersPerToken)
		f.covered[tokens] += share(said.find(text), evidence)
		if tokens == usual {
			f.tokens += float64(utf8.RuneCountInString(text)) / charactersPerToken
			if text == "" {
				f.empty++
			}
		}
	}
	if len(m.byItems) == 0 {
		return
	}

	var sessions []string // in the order of the ranking
	for _, items := range itemSteps {
		found := said.find(m.byItems[items].told[conversation][question])
		f.recall[items] += share(found, evidence)
		sessions = append(sessions, said.newSessions(found, sessions)...)
	}
	wanted := map[string]bool{}
	for _, id := range evidence {
		wanted[said.session[id]] = true
	}
	if len(sessions) > 0 && wanted[sessions[0]] {
		f.firstHit++
	}
	f.sessionDC += gain(sessions, wanted)
}

// gain returns the normalised discounted cumulative gain of the first five sessions.
func gain(sessions []string, wanted map[string]bool) float64 {
	const first = 5
	got, best := 0.0, 0.0
	for i := range first {
		worth := 1 / math.Log2(float64(i)+2)
		if i < len(wanted) {
			best += worth
		}
		if i < len(sessions) && wanted[sessions[i]] {
			got += worth
		}
	}
	return got / best
}

func share(found map[string]bool, evidence []string) float64 {
	n := 0
	for _, id := range evidence {
		if found[id] {
			n++
		}
	}
	return float64(n) / float64(len(evidence))
}

// transcript finds turns of a conversation in recalled texts.
type transcript struct {
	turns   []turn
	session map[string]string // by turn
	at      map[string]time.Time
}

type turn struct {
	id, text string
	number   int // in its session, from 1: the number of the imported item
	day      string
}

func newTranscript(c *corpus.Conversation) *transcript {
	t := &transcript{session: map[string]string{}, at: map[string]time.Time{}}
	for i := range c.Sessions {
		s := &c.Sessions[i]
		t.at[s.Name] = s.At
		for n := range s.Turns {
			said := &s.Turns[n]
			t.session[said.ID] = s.Name
			t.turns = append(t.turns, turn{
				id: said.ID, number: n + 1, day: s.At.Format(time.DateOnly),
				text: flat(cmp.Or(said.Text, said.Caption)),
			})
		}
	}
	return t
}

// flat returns a text in one line, with single spaces.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// lineHead matches the beginning of a line: its date, and a name that ends with the item's number.
var lineHead = regexp.MustCompile(`^\W*\[(\d{4}-\d{2}-\d{2})(?:[ ,]+\S*?(\d+))?\]`)

// lineFrame matches a line. Its group is the quotation, without list marks, speaker and quotation marks.
var lineFrame = regexp.MustCompile(`^\W*(?:\[[^\]]*\]\W*)?(?:(?:user|assistant|a model said|the model said): *)?["“]?(.*?)["”]?$`)

// find returns the turns that a text contains. A line contains a turn if it has its words or a part of them and, if the line
// has an item's number, the number of the turn.
func (t *transcript) find(text string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		line = flat(line)
		head, quote := lineHead.FindStringSubmatch(line), lineFrame.FindStringSubmatch(line)[1]
		if speaker, said, ok := strings.Cut(quote, ": "); ok && len(speaker) <= longestName {
			quote = said
		}
		part := utf8.RuneCountInString(quote) >= leastQuote
		for i := range t.turns {
			said := &t.turns[i]
			if said.text == "" || head != nil && (head[1] != said.day || head[2] != "" && head[2] != strconv.Itoa(said.number)) {
				continue
			}
			if strings.Contains(line, said.text) || part && strings.Contains(said.text, quote) {
				found[said.id] = true
			}
		}
	}
	return found
}

// newSessions returns the sessions of turns that are not in before: those with most turns first, then the newest.
func (t *transcript) newSessions(found map[string]bool, before []string) []string {
	turns := map[string]int{}
	for id := range found {
		if s := t.session[id]; !slices.Contains(before, s) {
			turns[s]++
		}
	}
	return slices.SortedFunc(maps.Keys(turns), func(a, b string) int {
		return cmp.Or(turns[b]-turns[a], t.at[b].Compare(t.at[a]), strings.Compare(a, b))
	})
}

// describe describes the questions.
func describe(b *strings.Builder, all []*corpus.Conversation) {
	sessions, turns, characters, questions := 0, 0, 0, 0
	for _, c := range all {
		sessions, turns, questions = sessions+len(c.Sessions), turns+c.Turns(), questions+len(c.Questions)
		for i := range c.Sessions {
			for n := range c.Sessions[i].Turns {
				characters += utf8.RuneCountInString(c.Sessions[i].Turns[n].Said())
			}
		}
	}
	fmt.Fprintf(b, "%d conversations, %d sessions, %d turns, %d tokens (characters / %d), %d questions.\n", len(all), sessions, turns,
		characters/charactersPerToken, charactersPerToken, questions)
}
