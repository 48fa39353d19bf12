package memory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"remora/memory"
	"remora/memory/view"
)

// An agent without a memory of its own sends each run from its message on: the model sees what was said before, in the
// middle of a run too.
func TestRunsSeeWhatWasSaidBefore(t *testing.T) {
	begin := []exchanged{{"s:be u:1", "a:1", "s:be u:1"}, {"s:be u:2", "c:x", "s:be u:1 a:1 u:2"}}
	playEach(t, begin, []conversation{
		{"a run, and the next one", []exchanged{
			{"s:be u:2 c:x r:x", "c:y", "s:be u:1 a:1 u:2 c:x r:x"},
			{"s:be u:2 c:x r:x c:y r:y", "a:2", "s:be u:1 a:1 u:2 c:x r:x c:y r:y"},
			{"s:be u:3", "c:z", "s:be u:1 a:1 u:2 c:x r:x c:y r:y a:2 u:3"},
			{"s:be u:3 c:z r:z", "a:3", "s:be u:1 a:1 u:2 c:x r:x c:y r:y a:2 u:3 c:z r:z"},
		}, "u:1 a:1 u:2 c:x r:x c:y r:y a:2 u:3 c:z r:z a:3", 12},
		{"under instructions of its own, and none", []exchanged{
			{"s:other u:2 c:x r:x", "c:y", "s:other u:1 a:1 u:2 c:x r:x"},
			{"u:2 c:x r:x c:y r:y", "a:2", "s:other u:1 a:1 u:2 c:x r:x c:y r:y"},
		}, "u:1 a:1 u:2 c:x r:x c:y r:y a:2", 8},
		{"its last request again", []exchanged{
			{"s:be u:2 c:x r:x", "a:lost", "s:be u:1 a:1 u:2 c:x r:x"},
			{"s:be u:2 c:x r:x", "c:y", "s:be u:1 a:1 u:2 c:x r:x"},
			{"s:be u:2 c:x r:x c:y r:y", "a:2", "s:be u:1 a:1 u:2 c:x r:x c:y r:y"},
			{"s:be u:3", "a:3", "s:be u:1 a:1 u:2 c:x r:x c:y r:y a:2 u:3"},
		}, "u:1 a:1 u:2 c:x r:x c:y r:y a:2 u:3 a:3", 11},
		{"its first request again", []exchanged{
			{"s:be u:2", "c:y", "s:be u:1 a:1 u:2 " + "u:2"},
			{"s:be u:2 c:y r:y", "a:2", "s:be u:1 a:1 u:2 " + "u:2 c:y r:y"},
		}, "u:1 a:1 u:2 c:x u:2 c:y r:y a:2", 8},
		{"an earlier request again", []exchanged{
			{"s:be u:2 c:x r:x", "c:y", "s:be u:1 a:1 u:2 c:x r:x"},
			{"s:be u:2 c:x r:x c:y r:y", "a:2", "s:be u:1 a:1 u:2 c:x r:x c:y r:y"},
			{"s:be u:2 c:x r:x", "a:short", "s:be u:1 a:1 u:2 c:x r:x"},
			{"s:be u:3", "a:3", "s:be u:1 a:1 u:2 c:x r:x a:short u:3"},
		}, "u:1 a:1 u:2 c:x r:x a:short u:3 a:3", 11},
		{"an edited result", []exchanged{
			{"s:be u:2 c:x r:x", "a:2", "s:be u:1 a:1 u:2 c:x r:x"},
			{"s:be u:2 c:x r:x=1", "a:3", "s:be u:1 a:1 u:2 c:x r:x=1"},
		}, "u:1 a:1 u:2 c:x r:x=1 a:3", 8},
		{"two runs at once", []exchanged{
			{"s:be u:3", "c:z", "s:be u:1 a:1 u:2 u:3"},
			{"s:be u:2 c:x r:x", "c:y", "s:be u:1 a:1 u:2 c:x r:x"},
			{"s:be u:3 c:z r:z", "a:3", "s:be u:1 a:1 u:2 u:3 c:z r:z"},
			{"s:be u:2 c:x r:x c:y r:y", "a:2", "s:be u:1 a:1 u:2 c:x r:x c:y r:y"},
			{"s:be u:4", "a:4", "s:be u:1 a:1 u:2 c:x r:x c:y r:y a:2 u:4"},
		}, "u:1 a:1 u:2 c:x r:x c:y r:y a:2 u:4 a:4", 14},
		{"a title of the same words", []exchanged{
			{titles + " u:2", "a:ok", titles + " u:2"},
			{"s:be u:2 c:x r:x", "a:2", "s:be u:1 a:1 u:2 c:x r:x"},
		}, "u:1 a:1 u:2 c:x r:x a:2", 8},
		{"a beginning of its own of the same words", []exchanged{
			{"s:be u:2 a:x u:3", "a:3", "s:be u:2 a:x u:3"},
			{"s:be u:2 a:x u:3 a:3 u:4", "a:4", "s:be u:2 a:x u:3 a:3 u:4"},
		}, "u:2 a:x u:3 a:3 u:4 a:4", 10},
		{"and where the first of them was never answered", []exchanged{
			{"s:be u:3", "", "s:be u:1 a:1 u:2 u:3"},
			{"s:be u:3", "c:y", "s:be u:1 a:1 u:2 u:3"},
			{"s:be u:3 a:x u:4", "a:4", "s:be u:3 a:x u:4"},
			{"s:be u:3 a:x u:4 a:4 u:5", "a:5", "s:be u:3 a:x u:4 a:4 u:5"},
		}, "u:3 a:x u:4 a:4 u:5 a:5", 12},
	})
}

// Such agents, two at a time and on two replicas: each sees the conversation before its run, and the run, and the
// conversation goes on with the one answered last.
func TestAnyRunsKeepTheConversation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab(t, memory.Options{})
		here, there := l.m, memory.New(l.store, nil, patient(memory.Options{}))
		defer func() {
			l.m = here
			there.Close()
		}()
		line := []string{"u:hi", "a:hi"} // the conversation
		l.turn("u:hi", "a:hi")
		var runs []*agentRun
		for turn := range rapid.IntRange(1, 14).Draw(rt, "turns") {
			if l.m = here; rapid.Bool().Draw(rt, "there") {
				l.m = there
			}
			n := rapid.IntRange(0, min(2, len(runs))).Draw(rt, "run")
			if n == 0 {
				runs = append(runs, &agentRun{before: line, said: []string{fmt.Sprintf("u:%d", turn)}})
				n = 1
			}
			r := runs[len(runs)-n]
			if r.reply != "" && rapid.IntRange(0, 3).Draw(rt, "again") > 0 {
				call, ok := strings.CutPrefix(r.reply, "c:")
				if !ok {
					continue // it is over
				}
				r.said = append(r.said, r.reply, "r:"+call)
			} else if r.reply != "" && len(r.said) == 1 {
				continue // the same message twice is two turns
			}
			r.reply = rapid.SampledFrom([]string{"a:%d", "c:%d", "c:%d"}).Draw(rt, "reply")
			r.reply = fmt.Sprintf(r.reply, turn)
			view := l.turn(strings.Join(r.said, " "), r.reply)
			if want := strings.Join(append(answered(r.before), r.said...), " "); view != want {
				rt.Fatalf("turn %d sent %v, view\n got %s\nwant %s", turn, r.said, view, want)
			}
			line = slices.Concat(r.before, r.said, []string{r.reply})
			if got, _ := l.transcript(scope); got != strings.Join(line, " ") {
				rt.Fatalf("turn %d sent %v:\n got %s\nwant %s", turn, r.said, got, strings.Join(line, " "))
			}
		}
	})
}

// agentRun is the conversation before an agent's run, the items that it sends, and its latest answer.
type agentRun struct {
	before, said []string
	reply        string
}

// answered is a conversation without the calls of runs that are not at their end.
func answered(line []string) (out []string) {
	for i, word := range line {
		if !strings.HasPrefix(word, "c:") || i+1 < len(line) && line[i+1] == "r:"+word[len("c:"):] {
			out = append(out, word)
		}
	}
	return out
}

// The view of a run equals the view for a client that resends everything: the window is cut in the same places, so that
// a provider's prompt cache holds, and the counts of left out items are equal.
func TestRunsAreWindowedLikeWholeHistories(t *testing.T) {
	for _, inFlight := range []string{view.InFlightKeep, view.InFlightWindow} {
		o := memory.Options{Shape: memory.Shape{Window: &view.Window{MaxItems: 6, EvictBatch: 3, InFlight: inFlight}}}
		whole, runs := newLab(t, o), newLab(t, o)
		var history []string
		for n := range 12 {
			run := len(history)
			history = append(history, fmt.Sprintf("u:%d", n))
			for step := range n % 5 {
				call := fmt.Sprintf("%d-%d", n, step)
				sameTurn(t, whole, runs, history, run, "c:"+call)
				history = append(history, "c:"+call, "r:"+call)
			}
			reply := fmt.Sprintf("a:%d", n)
			sameTurn(t, whole, runs, history, run, reply)
			history = append(history, reply)
		}
		runs.wantTranscript(strings.Join(history, " "), len(history))
	}
}

// Another run is answered while a run's request is with upstream, before or after its input is durable: neither is lost, and
// each goes on as it began.
func TestRunsThatCommitAtOnce(t *testing.T) {
	for _, stored := range []bool{false, true} {
		l := newLab(t, memory.Options{OpenDelay: time.Nanosecond})
		l.turn("u:1", "a:1")
		l.turn("u:2", "c:x")
		one := l.begin(memory.Call{}, "u:2 c:x r:x")
		if stored {
			l.forward(one, 5)
		}
		l.turn("u:3", "c:z")
		one.Commit(answer(t, "c:y"))
		l.wantTranscript("u:1 a:1 u:2 c:x r:x c:y", 8)
		l.wantView(l.turn("u:3 c:z r:z", "a:3"), "u:1 a:1 u:2 u:3 c:z r:z")
		l.wantView(l.turn("u:2 c:x r:x c:y r:y", "a:2"), "u:1 a:1 u:2 c:x r:x c:y r:y")
		l.wantTranscript("u:1 a:1 u:2 c:x r:x c:y r:y a:2", 12)
	}
}

// A run that is cut goes on from what its client has of it.
func TestRunsThatAreCut(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("u:1", "a:1")
	l.turn("u:2", "c:x")
	cut := l.begin(memory.Call{}, "u:2 c:x r:x")
	half := answer(t, "a:hal")
	half.Reply.Complete, half.Aborted = false, memory.AbortedByClient
	cut.Commit(half)
	lost := l.begin(memory.Call{}, "u:2 c:x r:x")
	l.wantView(told(t, lost.View), "u:1 a:1 u:2 c:x r:x")
	lost.Commit(memory.Answer{HTTPStatus: 500})
	l.wantView(l.turn("u:2 c:x r:x", "a:half"), "u:1 a:1 u:2 c:x r:x")
	l.wantView(l.turn("u:3", "a:3"), "u:1 a:1 u:2 c:x r:x a:half u:3")
	l.wantTranscript("u:1 a:1 u:2 c:x r:x a:half u:3 a:3", 9)
}

// Whose history is its own has nothing put before it.
func TestRunsOfClientsHistory(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("u:1", "a:1")
	l.turn("u:2", "c:x")
	l.wantView(l.turnOf(memory.Call{History: memory.HistoryClient}, "u:2 c:x r:x", "a:2"), "u:2 c:x r:x")
}

// In Responses, whether the client sends reasoning again or not.
func TestRunsOfResponses(t *testing.T) {
	echo := `{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"}`
	before, question := userHi+","+done1, `{"role":"user","content":"f?"}`
	for _, sent := range []string{reason1 + "," + call1, reason1 + "," + echo, echo} {
		l := newLab(t, memory.Options{})
		l.respond("["+userHi+"]", "", "["+done1+"]")
		l.respond("["+question+"]", "", "["+reason1+","+call1+"]")
		run := question + "," + sent + "," + result1
		_, got := l.respond("["+run+"]", "", "["+done1+"]")
		if want := `{"model":"m","input":[` + before + "," + run + "]}"; got != want {
			t.Errorf("forwarded\n%s\nwant\n%s", got, want)
		}
		if line, all := l.stored(); all != 7 || len(line) != 7 {
			t.Errorf("%d items stored, %d of them the conversation, want 7", all, len(line))
		}
		run = question + "," + sent + "," + result1 + `,{"type":"item_reference","id":"msg_unknown"}`
		if _, got = l.respond("["+run+"]", "", "["+done1+"]"); got != `{"model":"m","input":[`+run+"]}" {
			t.Errorf("with what only upstream can tell, forwarded\n%s", got)
		}
	}
}

// The session is gone while an agent runs.
func TestRunsOfDeletedSessions(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.turn("u:1", "a:1")
	l.turn("u:2", "c:x")
	if err := l.store.Delete(t.Context(), scope.Group()); err != nil {
		t.Fatal(err)
	}
	l.wantView(l.turn("u:2 c:x r:x", "a:2"), "u:2 c:x r:x")
	l.wantTranscript("u:2 c:x r:x a:2", 4)
}
