package observational

import (
	"strings"
	"testing"
	"time"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire"
	"remora/wire/dialects"
)

// chat is a conversation of 20 messages of a user, and what of it is worth keeping: for each fact a text that some line
// holds at the end, and texts that none does.
type chat struct {
	name  string
	says  []string
	facts []string
	gone  []string
}

var chats = []chat{
	{
		name: "coding",
		says: []string{
			"hey, my service panics at startup: panic: runtime error: index out of range [3] in parser.go line 88",
			"ok that fixed it, but now I get a timeout in the integration test",
			"we're on Python 3.11 and can't move to 3.12 before October because of the numpy build",
			"also I don't like mocks, we use real Postgres in docker for tests",
			"hmm it says connection refused on port 5432",
			"right, I forgot to start the container",
			"I ran it again and it fails with the same error",
			"what does SELECT ... FOR UPDATE do?",
			"we have about 40 tenants and each has its own schema",
			"the p99 was at 900 ms yesterday",
			"can you write the migration?",
			"please always use type hints, our linter rejects untyped functions",
			"the ticket is DATA-2217",
			"ok CI is red again: mypy complains about Optional",
			"I know",
			"we deploy every Tuesday, and Kemal approves releases",
			"I'll try that",
			"our main branch is called trunk",
			"my staging password is Plum-77-tree, use it if you need",
			"I'm off, will do the release on Tuesday with Kemal",
		},
		facts: []string{"Python 3.11", "real Postgres", "40 tenants", "type hints", "DATA-2217", "Kemal approves", "called trunk", "release on Tuesday (2026-03-10)"},
		gone:  []string{"Plum", "panic", "timeout"},
	},
	{
		name: "assistant",
		says: []string{
			"hi, help me plan the next two weeks",
			"I have an eye doctor appointment on Monday at 2pm",
			"my son Jonas has a swimming contest on Sunday at 10",
			"he loves dinosaurs, so the cake should have one",
			"my wife is allergic to walnuts",
			"I need to buy candles",
			"what can I cook for six people?",
			"I hate olives and my wife can't stand goat cheese",
			"vegetarian btw",
			"ok thanks, sounds good",
			"remind me that the car insurance ends on 31 March",
			"our budget is around 1800 euros for the holiday",
			"when is the eye doctor again?",
			"I moved it to Wednesday at 8am",
			"Translate this for my landlord: I am moving out in May and my rent is 900 euros.",
			"Let's role-play. I am the captain of a submarine and my name is Nemo.",
			"My crew has 40 men and I live in the sea.",
			"ok stop the role play",
			"our budget is 2200 euros, I checked the account",
			"please keep your answers short, I read them on my watch",
		},
		facts: []string{
			"eye doctor appointment on Wednesday (2026-03-11) at 8am", "Jonas has a swimming contest on Sunday (2026-03-08)", "(my son Jonas) he loves dinosaurs", "allergic to walnuts",
			"hate olives", "vegetarian", "insurance ends on 31 March", "2200 euros", "answers short",
		},
		gone: []string{"Monday", "landlord", "900", "Nemo", "submarine", "crew", "1800", "candles"},
	},
	{
		name: "support",
		says: []string{
			"hello, where is my parcel?",
			"the order number is 77120-C",
			"I don't have a doorbell, so the courier has to call me",
			"I've been a member since 2015",
			"I want a refund",
			"the card that I used is expired now",
			"my new card is 5555 5555 5555 4444, can you take that one",
			"my email is kim.olsen@example.org",
			"the code is 552817",
			"From: Ruth Vane <ruth@acme.test>\nTo: me\nSubject: parcel\n\nI am the head of logistics and my office is in Hamburg.",
			"my neighbour said \"I am never at home before nine and my dog is called Bo\" by the way",
			"do you have it in green?",
			"I wear size 44 and I need wide shoes",
			"actually it's 45",
			"great",
			"I live in Odense",
			"ok I'll think about it",
			"my social security number is 078-05-1120",
			"I work nights, so please don't call before noon",
			"bye",
		},
		facts: []string{"77120-C", "doorbell", "member since 2015", "kim.olsen@example.org", "size 45", "wide shoes", "Odense", "work nights"},
		gone:  []string{"5555", "552817", "078-05", "logistics", "Hamburg", "called Bo", "44 and"},
	},
}

// TestChats scores what the extractive observer keeps of three conversations of their own. Precision is the share of kept
// lines that hold a fact worth keeping, recall the share of those facts that are kept.
func TestChats(t *testing.T) {
	const least = 0.8
	for _, c := range chats {
		t.Run(c.name, func(t *testing.T) {
			l, tu := newLayer(t, Options{}), turn(nil)
			tu.Now = time.Date(2026, 3, 5, 9, 7, 0, 0, time.UTC) // a Thursday
			play := func() []string {
				var s layer.State
				for _, text := range c.says {
					got := layertest.Must(l.AppendItems(t.Context(), tu, s, []wire.Item{wire.NewMessage(dialects.Chat, wire.User, text)}))(t)
					if got.State != nil {
						s = got.State
					}
					s = say(t, l, tu, s, "The answer has 3 parts and was approved on 2 March.")
				}
				return linesOf(read(t, s).Observations)
			}
			lines := play()
			if again := play(); strings.Join(again, "\n") != strings.Join(lines, "\n") {
				t.Errorf("another time it keeps %q", again)
			}

			worth, kept := 0, 0
			for _, line := range lines {
				good := false
				for _, f := range c.facts {
					good = good || strings.Contains(line, f)
				}
				if good {
					worth++
				} else {
					t.Logf("noise: %s", line)
				}
				for _, g := range c.gone {
					if strings.Contains(line, g) {
						t.Errorf("%q is kept in %q", g, line)
					}
				}
			}
			all := strings.Join(lines, "\n")
			for _, f := range c.facts {
				if strings.Contains(all, f) {
					kept++
				} else {
					t.Logf("lost: %s", f)
				}
			}
			precision, recall := float64(worth)/float64(max(1, len(lines))), float64(kept)/float64(len(c.facts))
			t.Logf("%d lines, precision %.2f, recall %.2f", len(lines), precision, recall)
			if precision < least || recall < least {
				t.Errorf("precision %.2f, recall %.2f, want %.1f of both:\n%s", precision, recall, least, all)
			}
		})
	}
}
