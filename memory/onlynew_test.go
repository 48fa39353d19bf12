package memory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory"
	"remora/memory/view"
)

// The conversation of a client that sends only new items stays on the head line after any request.
func TestResultsOfOnlyWhatIsNew(t *testing.T) {
	begin := []exchanged{{"s:be u:1", "c:x,y", "s:be u:1"}, {"r:x r:y", "a:2", "s:be u:1 c:x,y r:x r:y"}}
	playEach(t, begin, []conversation{
		{"a result sent again is a resend, and its answer a branch", []exchanged{
			{"r:x r:y", "a:again", "s:be u:1 c:x,y r:x r:y"},
			{"u:3", "a:3", "s:be u:1 c:x,y r:x r:y a:again u:3"},
		}, "u:1 c:x,y r:x r:y a:again u:3 a:3", 8},
		{"and again, with the same answer", []exchanged{
			{"r:x r:y", "a:2", "s:be u:1 c:x,y r:x r:y"},
			{"r:x r:y", "a:again", "s:be u:1 c:x,y r:x r:y"},
			{"r:x r:y", "a:2", "s:be u:1 c:x,y r:x r:y"},
			{"u:3", "a:3", "s:be u:1 c:x,y r:x r:y a:2 u:3"},
		}, "u:1 c:x,y r:x r:y a:2 u:3 a:3", 8},
		{"the clock in the instructions has moved on", []exchanged{
			{"s:later r:x r:y", "a:again", "s:later u:1 c:x,y r:x r:y"},
		}, "u:1 c:x,y r:x r:y a:again", 6},
		{"with a user's word behind it", []exchanged{
			{"u:3", "c:z", "s:be u:1 c:x,y r:x r:y a:2 u:3"},
			{"r:z u:quick", "a:4", "s:be u:1 c:x,y r:x r:y a:2 u:3 c:z r:z u:quick"},
			{"r:z u:quick", "a:5", "s:be u:1 c:x,y r:x r:y a:2 u:3 c:z r:z u:quick"},
		}, "u:1 c:x,y r:x r:y a:2 u:3 c:z r:z u:quick a:5", 11},
		{"another answer with another call", []exchanged{
			{"r:x r:y", "c:z", "s:be u:1 c:x,y r:x r:y"},
			{"r:z", "a:3", "s:be u:1 c:x,y r:x r:y c:z r:z"},
			{"r:z", "a:4", "s:be u:1 c:x,y r:x r:y c:z r:z"},
		}, "u:1 c:x,y r:x r:y c:z r:z a:4", 9},
		{"a corrected result goes behind the head, and in the view in the place of the first", []exchanged{
			{"r:x=1", "a:3", "s:be u:1 c:x,y r:x=1 r:y a:2"},
			{"u:4", "a:4", "s:be u:1 c:x,y r:x=1 r:y a:2 a:3 u:4"},
		}, "u:1 c:x,y r:x r:y a:2 r:x=1 a:3 u:4 a:4", 9},
		{"the last of the results again", []exchanged{
			{"r:y", "a:again", "s:be u:1 c:x,y r:x r:y"},
			{"r:x", "a:3", "s:be u:1 c:x,y r:x r:y a:again"},
		}, "u:1 c:x,y r:x r:y a:again r:x a:3", 8},
		{"a result of a call that nobody made goes behind the head", []exchanged{
			{"r:unknown", "a:3", "s:be u:1 c:x,y r:x r:y a:2"},
			{"r:unknown", "a:4", "s:be u:1 c:x,y r:x r:y a:2"},
			{"u:5", "a:5", "s:be u:1 c:x,y r:x r:y a:2 a:4 u:5"},
		}, "u:1 c:x,y r:x r:y a:2 r:unknown a:4 u:5 a:5", 10},
		{"and so does a corrected one that an older branch waits for", []exchanged{
			{"u:3", "c:z", "s:be u:1 c:x,y r:x r:y a:2 u:3"},
			{"r:unknown", "a:3", "s:be u:1 c:x,y r:x r:y a:2 u:3"},
			{"r:unknown", "a:4", "s:be u:1 c:x,y r:x r:y a:2 u:3"},
			{"r:z", "a:5", "s:be u:1 c:x,y r:x r:y a:2 u:3 a:4 c:z r:z"},
			{"r:z=2", "a:6", "s:be u:1 c:x,y r:x r:y a:2 u:3 c:z r:z=2 a:4 a:5"},
		}, "u:1 c:x,y r:x r:y a:2 u:3 c:z r:unknown a:4 r:z a:5 r:z=2 a:6", 14},
		{"a result that was answered long ago goes behind the head", []exchanged{
			{"u:3", "a:3", "s:be u:1 c:x,y r:x r:y a:2 u:3"},
			{"r:x r:y", "a:4", "s:be u:1 c:x,y r:x r:y a:2 u:3 a:3"},
		}, "u:1 c:x,y r:x r:y a:2 u:3 a:3 r:x r:y a:4", 10},
		{"ids that come back are new calls", []exchanged{
			{"u:3", "c:x,y", "s:be u:1 c:x,y r:x r:y a:2 u:3"},
			{"r:x r:y", "a:4", "s:be u:1 c:x,y r:x r:y a:2 u:3 c:x,y r:x r:y"},
		}, "u:1 c:x,y r:x r:y a:2 u:3 c:x,y r:x r:y a:4", 10},
		{"instructions behind what the user says are new", []exchanged{
			{"u:3 d:short", "a:3", "s:be u:1 c:x,y r:x r:y a:2 u:3 d:short"},
			{"s:be u:4 s:long u:5", "a:4", "s:be u:1 c:x,y r:x r:y a:2 u:3 d:short a:3 u:4 s:long u:5"},
		}, "u:1 c:x,y r:x r:y a:2 u:3 d:short a:3 u:4 s:long u:5 a:4", 12},
		{"functions without ids", []exchanged{
			{"u:3", "fc:f", "s:be u:1 c:x,y r:x r:y a:2 u:3"},
			{"fr:f", "fc:f", "s:be u:1 c:x,y r:x r:y a:2 u:3 fc:f fr:f"},
			{"fr:f", "a:4", "s:be u:1 c:x,y r:x r:y a:2 u:3 fc:f fr:f fc:f fr:f"},
			{"fr:f", "a:5", "s:be u:1 c:x,y r:x r:y a:2 u:3 fc:f fr:f fc:f fr:f"},
		}, "u:1 c:x,y r:x r:y a:2 u:3 fc:f fr:f fc:f fr:f a:5", 12},
		{"an assistant's word is a beginning of its own", []exchanged{
			{"s:be u:0 a:0 u:3", "a:3", "s:be u:0 a:0 u:3"},
			{"s:be u:4", "a:4", "s:be u:1 c:x,y r:x r:y a:2 u:4"},
		}, "u:1 c:x,y r:x r:y a:2 u:4 a:4", 11},
		{"and the conversation when its client goes on with it", []exchanged{
			{"s:be u:0 a:0 u:3", "a:3", "s:be u:0 a:0 u:3"},
			{"s:be u:0 a:0 u:3 a:3 u:4", "a:4", "s:be u:0 a:0 u:3 a:3 u:4"},
		}, "u:0 a:0 u:3 a:3 u:4 a:4", 11},
	})
}

// An SDK lost its connection and asks again, while the first request is still with upstream, or its input is durable.
func TestResultsSentAgainAtOnce(t *testing.T) {
	for stored := range 3 {
		l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
		l.turn("u:1", "c:x")
		one := l.begin(memory.Call{}, "r:x")
		if stored > 0 {
			l.forward(one, 3)
		}
		two := l.begin(memory.Call{}, "r:x")
		if stored > 1 {
			l.forward(two, 3)
		}
		one.Commit(answer(t, "a:one"))
		two.Commit(answer(t, "a:two"))
		if line, _ := l.transcript(scope); line != "u:1 c:x r:x a:two" {
			t.Errorf("%d inputs stored: %s", stored, line)
		}
		l.wantView(l.turn("u:2", "a:2"), "u:1 c:x r:x a:two u:2")
		l.wantTurns(4)
	}
}

// A client asks again as soon as its stream breaks off, and the proxy knows of the break a little later. The question is doubled only
// if both are written meanwhile.
func TestQuestionAskedAgainAtOnce(t *testing.T) {
	const ask = "u:How_do_I_bake_bread?"
	for stored, want := range []string{"a:whole", "a:whole", "a:half " + ask + " a:whole"} {
		l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
		l.turn("u:1", "a:1")
		one := l.begin(memory.Call{}, ask)
		if stored > 0 {
			l.forward(one, 3)
		}
		two := l.begin(memory.Call{}, ask)
		if stored > 1 {
			l.forward(two, 4)
		}
		half := answer(t, "a:half")
		half.Reply.Complete, half.Aborted = false, memory.AbortedByClient
		one.Commit(half)
		two.Commit(answer(t, "a:whole"))
		l.wantView(told(t, two.View), "u:1 a:1 "+ask)
		l.wantView(l.turn("u:3", "a:3"), "u:1 a:1 "+ask+" "+want+" u:3")
		l.wantTurns(4)
	}
}

// The answer was complete, but the client has not seen it: its input is there, however long the second answer takes.
func TestResultsSentAgainLater(t *testing.T) {
	l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
	l.turn("u:1", "c:x")
	l.turn("r:x", "a:one")
	again := l.begin(memory.Call{}, "r:x")
	again.Forwarded()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if _, err := l.m.TurnRecord(t.Context(), scope, again.ID); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the input was not written")
		}
	}
	again.Commit(answer(t, "a:two"))
	l.wantTranscript("u:1 c:x r:x a:two", 5)
}

// Two requests with the same result, of which the later one is answered first, share the stored result. It stays in its
// place when the earlier request has to move after later turns.
func TestSharedResultStays(t *testing.T) {
	l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
	l.turn("u:1", "c:x")
	one := l.begin(memory.Call{}, "r:x")
	l.forward(one, 3)
	l.wantView(l.turn("r:x", "a:two"), "u:1 c:x r:x")
	l.wantTranscript("u:1 c:x r:x a:two", 4)
	l.turn("u:2", "a:2")
	one.Commit(answer(t, "a:one"))
	l.wantTranscript("u:1 c:x r:x a:two u:2 a:2 r:x a:one", 8)
	l.wantTurns(4)
}

// A different result at the same time is no repetition: it goes after the head.
func TestAnotherResultAtOnce(t *testing.T) {
	for stored := range 3 {
		l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
		l.turn("u:1", "c:x")
		one := l.begin(memory.Call{}, "r:x")
		if stored > 0 {
			l.forward(one, 3)
		}
		two := l.begin(memory.Call{}, "r:x=1")
		if stored > 1 {
			l.forward(two, 4)
		}
		one.Commit(answer(t, "a:one"))
		two.Commit(answer(t, "a:two"))
		l.wantTranscript("u:1 c:x r:x a:one r:x=1 a:two", 6)
	}
}

// A view that begins within a tool loop is given the message that the loop belongs to, also where the history is the
// stored one.
func TestWindowedLoopsOfOnlyWhatIsNew(t *testing.T) {
	o := memory.Options{Shape: memory.Shape{Window: &view.Window{MaxItems: 6, EvictBatch: 3, InFlight: view.InFlightKeep}}}
	whole, part := newLab(t, o), newLab(t, o)
	var history []string
	for n := range 8 {
		said := []string{fmt.Sprintf("u:%d", n)}
		for step := range n % 5 {
			sameTurn(t, whole, part, append(history, said...), len(history), fmt.Sprintf("c:%d-%d", n, step))
			history = append(append(history, said...), fmt.Sprintf("c:%d-%d", n, step))
			said = []string{fmt.Sprintf("r:%d-%d", n, step)}
		}
		sameTurn(t, whole, part, append(history, said...), len(history), fmt.Sprintf("a:%d", n))
		history = append(append(history, said...), fmt.Sprintf("a:%d", n))
	}
}

// sameTurn sends a history to one lab, and what it has from an item on to the other, which sees the same.
func sameTurn(t *testing.T, whole, part *lab, history []string, from int, reply string) {
	t.Helper()
	one, two := whole.begin(memory.Call{}, strings.Join(history, " ")), part.begin(memory.Call{}, strings.Join(history[from:], " "))
	one.Commit(answer(t, reply))
	two.Commit(answer(t, reply))
	one.Summary.Saved, two.Summary.Saved = 0, 0 // counts what is at hand
	part.wantView(told(t, two.View), told(t, one.View))
	if diff := cmp.Diff(one.Summary, two.Summary); diff != "" {
		t.Errorf("summary of %v (-whole +part):\n%s", history[from:], diff)
	}
	if one, two := whole.execution(scope, one.ID), part.execution(scope, two.ID); one == "" || one != two {
		t.Errorf("execution of %v: %q, want %q", history[from:], two, one)
	}
}

// A client that sends only new items asks, answers, corrects and retries: everything is on the head line, once, in
// order, except regenerated answers. Each view can be shown again, also where late results were moved to their calls.
func TestAnyClientOfOnlyWhatIsNewKeepsItsConversation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab(t, memory.Options{})
		here, there := l.m, memory.New(l.store, nil, patient(memory.Options{}))
		defer func() {
			l.m = here
			there.Close()
		}()
		var line, last []string // the conversation, and the client's latest part of it
		for turn := range rapid.IntRange(2, 12).Draw(rt, "turns") {
			if l.m = here; rapid.Bool().Draw(rt, "there") {
				l.m = there
			}
			sent := []string{fmt.Sprintf("u:%d", turn)}
			switch op := rapid.IntRange(0, 5).Draw(rt, "op"); {
			case turn == 0: // a session begins with a question
			case op < 3 && strings.HasPrefix(line[len(line)-1], "c:"):
				sent = strings.Fields("r:" + strings.ReplaceAll(line[len(line)-1][len("c:"):], ",", " r:"))
			case op == 1 && strings.HasPrefix(last[0], "r:"): // again
				sent, line = last, line[:len(line)-1-len(last)]
			case op == 3:
				sent = []string{fmt.Sprintf("r:%d=%d", rapid.IntRange(0, turn).Draw(rt, "call"), turn)} // corrected, or unknown
			}
			reply := fmt.Sprintf("a:%d", rapid.IntRange(0, turn).Draw(rt, "reply"))
			if rapid.Bool().Draw(rt, "calls") {
				reply = fmt.Sprintf("c:%d,and%d", turn, turn)
			}
			begun := l.begin(memory.Call{}, strings.Join(sent, " "))
			begun.Commit(answer(t, reply))
			if got, want := l.shown(begun.ID), told(t, begun.View); got != want {
				rt.Fatalf("turn %d sent %v: its view is shown as\n%s\nand was\n%s", turn, sent, got, want)
			}
			line, last = append(append(slices.Clip(line), sent...), reply), sent
			got, _ := l.transcript(scope)
			if want := strings.Join(line, " "); got != want {
				rt.Fatalf("turn %d sent %v:\n got %s\nwant %s", turn, sent, got, want)
			}
			if n := len(l.records()); n != turn+1 {
				rt.Fatalf("turn %d sent %v: %d turns are exported", turn, sent, n)
			}
		}
	})
}
