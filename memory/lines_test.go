package memory_test

import (
	"bytes"
	"strings"
	"testing"

	"remora/cache"
	"remora/memory"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// A line becomes the conversation when a request goes on from it: at once where nothing else waits, else when the user
// speaks, or when an agent with the same instructions or tools has gone on for some turns.
func TestLinesBecomeTheConversation(t *testing.T) {
	t.Parallel()
	const waiting = "tools=ls,task | s:agent u:1 -> c:x"
	for _, c := range []struct {
		name  string
		turns []string
		line  string
	}{
		{"a summary is not, before its client goes on", append(agentSaid(), "tools=ls,edit | s:agent u:sum -> c:y"), "u:1 c:x r:x a:1 u:2 a:2"},
		{"and then it is", append(agentSaid(), "tools=ls,edit | s:agent u:sum -> c:y", "tools=ls,edit | s:agent u:sum c:y r:y -> a:3"), "u:sum c:y r:y a:3"},
		{"what goes on unchanged is not", append(agentSaid(), "tools=ls,edit | s:agent u:sum -> a:3", "tools=ls,edit | s:agent u:sum -> a:4"), "u:1 c:x r:x a:1 u:2 a:2"},
		{"a sub-agent is not while its parent waits", []string{
			waiting, "tools=ls | s:explore u:look -> c:a", "tools=ls | s:explore u:look c:a r:a -> c:b", "tools=ls | s:explore u:look c:a r:a c:b r:b -> c:d",
			"tools=ls | s:explore u:look c:a r:a c:b r:b c:d r:d -> c:e", "tools=ls | s:explore u:look c:a r:a c:b r:b c:d r:d c:e r:e -> a:found",
		}, "u:1 c:x"},
		{"and the parent goes on", []string{
			waiting, "tools=ls | s:explore u:look -> c:a", "tools=ls | s:explore u:look c:a r:a -> a:found", "tools=ls,task | s:agent u:1 c:x r:x -> a:1",
		}, "u:1 c:x r:x a:1"},
		{"the same agent is after some turns", []string{
			waiting, "tools=ls,task | s:agent u:1 c:x r:x -> c:y",
			"tools=ls,task | s:agent u:sum -> c:a", "tools=ls,task | s:agent u:sum c:a r:a -> c:b", "tools=ls,task | s:agent u:sum c:a r:a c:b r:b -> c:d",
			"tools=ls,task | s:agent u:sum c:a r:a c:b r:b c:d r:d -> a:done",
		}, "u:sum c:a r:a c:b r:b c:d r:d a:done"},
		{"not before that", []string{
			waiting, "tools=ls,task | s:agent u:1 c:x r:x -> c:y",
			"tools=ls,task | s:agent u:sum -> c:a", "tools=ls,task | s:agent u:sum c:a r:a -> c:b", "tools=ls,task | s:agent u:sum c:a r:a c:b r:b -> c:d",
		}, "u:1 c:x r:x c:y"},
		{"several at once are not while their parent waits", []string{
			waiting, "tools=ls,task | s:agent u:1 c:x r:x -> c:m,n,o",
			"tools=ls,task | s:agent u:m -> c:a", "tools=ls,task | s:agent u:n -> c:b", "tools=ls,task | s:agent u:o -> c:d",
			"tools=ls,task | s:agent u:m c:a r:a -> c:e", "tools=ls,task | s:agent u:n c:b r:b -> c:f", "tools=ls,task | s:agent u:o c:d r:d -> a:o",
		}, "u:1 c:x r:x c:m,n,o"},
		{"the user's word is enough", []string{
			waiting, "tools=ls | s:explore u:look -> a:here", "tools=ls | s:explore u:look a:here u:more -> a:there",
		}, "u:look a:here u:more a:there"},
		{"a title is by the user's word alone", append(newSaid(), "| "+titles+" u:2 -> a:Two", "| "+titles+" u:2 a:Two u:shorter -> a:2"), "u:2 a:Two u:shorter a:2"},
		{"a result goes to the line that waits for it", []string{
			"tools=f | s:be u:1 -> a:1", "| s:be u:0 a:9 u:z -> c:q", "tools=f | s:be u:2 -> a:2", "tools=f | s:be r:q -> a:3",
		}, "u:0 a:9 u:z c:q r:q a:3"},
		{"the first of several beginnings again", []string{"| u:1 -> a:1", "| u:1 a:1 u:2 -> a:2", "| u:new -> a:3", "| u:new a:3 u:4 -> a:4", "| u:1 a:1 u:5 -> a:5"}, "u:1 a:1 u:5 a:5"},
	} {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			t.Run(c.name+" "+d.String(), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, memory.Options{})
				for _, turn := range c.turns {
					l.ask(d, turn)
				}
				if got, err := l.conversation(d); err != nil || got != c.line {
					t.Errorf("the conversation is %s, %v, want %s", got, err, c.line)
				}
			})
		}
	}
}

// What stands alone has layers as usual and leaves alone where the conversation's window begins and what stands at its
// beginning; a side request has no layers.
func TestLayersOfLines(t *testing.T) {
	t.Parallel()
	config := view.DefaultPromptCache()
	o := memory.Options{Shape: memory.Shape{
		Layers: layersOf(t, at(1, &witness{name: "w"})), PromptCache: &config,
		Window: &view.Window{MaxItems: 4, EvictBatch: 2, InFlight: view.InFlightWindow},
	}}
	l := newLab(t, o)
	written := map[string]int{} // values, by name
	l.m = memory.New(&tapped{Store: l.store, onBatch: func(b cache.Batch) error {
		for _, put := range b.Puts {
			written[put.Name]++
		}
		return nil
	}}, nil, patient(o))
	defer l.m.Close()
	for _, turn := range []string{"| u:1 -> a:1", "| u:1 a:1 u:2 -> a:2", "| u:1 a:1 u:2 a:2 u:3 -> a:3"} {
		l.ask(dialects.Chat, turn)
	}
	if written["c"] == 0 || written["e"] == 0 {
		t.Fatalf("the conversation has written %v", written)
	}

	cut, pinned := written["c"], written["e"]
	got, record := l.ask(dialects.Chat, "| u:sum -> a:4")
	if place := placeOf(&record); place != "ALONE history_replaced" || got != "s:block of w u:sum" {
		t.Errorf("%s: %s", place, got)
	}
	got, record = l.ask(dialects.Chat, "| "+titles+" u:5 -> a:5")
	if place := placeOf(&record); place != "SIDE helper_prompt" || got != titles+" u:5" {
		t.Errorf("%s: %s", place, got)
	}
	if written["c"] != cut || written["e"] != pinned {
		t.Errorf("other lines have written the conversation's window or beginning: %v", written)
	}

	_, record = l.ask(dialects.Chat, "| u:sum a:4 u:6 -> a:6")
	if place := placeOf(&record); place != "LINE known_history" || record.View.PrefixReason != string(view.CutMoved) {
		t.Errorf("%s, the prefix begins anew because %q", place, record.View.PrefixReason)
	}
}

// A turn that stands alone does so, too, where the store has to be waited for.
func TestLinesInAnOutage(t *testing.T) {
	l, store := newOutage(t)
	for _, turn := range chatSaid() {
		l.ask(dialects.Chat, turn)
	}
	alone := l.begin(memory.Call{}, "u:sum")
	store.set(true)
	alone.Commit(answer(t, "a:3"))
	store.over()
	title := l.begin(memory.Call{}, titles+" u:1")
	l.wantTranscript("u:1 a:1 u:2 a:2", 6)
	store.set(true)
	title.Commit(answer(t, "a:One"))
	store.over()
	l.turn("u:sum a:3 u:4", "a:4")
	l.wantTranscript("u:sum a:3 u:4 a:4", 9)
	for _, record := range l.records() {
		if record.ID == alone.ID && !record.Alone || record.ID == title.ID && record.Side == "" {
			t.Errorf("%+v", record)
		}
	}
}

// Where a request stands does not change because another one was faster.
func TestLinesInConflicts(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	for _, turn := range chatSaid() {
		l.ask(dialects.Chat, turn)
	}
	alone, title, next := l.begin(memory.Call{}, "u:sum"), l.begin(memory.Call{}, titles+" u:1"), l.begin(memory.Call{}, "u:1 a:1 u:2 a:2 u:3")
	next.Commit(answer(t, "a:3"))
	title.Commit(answer(t, "a:One"))
	alone.Commit(answer(t, "a:4"))
	l.wantTranscript("u:1 a:1 u:2 a:2 u:3 a:3", 9)
	l.wantView(l.turn("u:sum a:4 u:5", "a:5"), "u:sum a:4 u:5")
	l.wantTranscript("u:sum a:4 u:5 a:5", 11)
}

// An export and an import keep which line is the conversation.
func TestLinesAreExported(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	for _, turn := range append(chatSaid(), "| u:sum -> a:3", "| "+titles+" u:1 -> a:One") {
		l.ask(dialects.Chat, turn)
	}
	var b bytes.Buffer
	if err := l.m.Export(t.Context(), scope, &b); err != nil {
		t.Fatal(err)
	}
	other := newLab(t, memory.Options{})
	if err := other.m.Import(t.Context(), scope, strings.NewReader(b.String())); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ asks, place string }{
		{"| " + titles + " u:1", "SIDE helper_prompt"},
		{"| u:other", "ALONE history_replaced"},
		{"| u:sum", "ALONE known_history"},
		{"| u:1 a:1 u:2 a:2 u:4", "LINE known_history"},
		{"| u:sum a:3 u:5", "LINE known_history"},
	} {
		if _, record := other.ask(dialects.Chat, c.asks); placeOf(&record) != c.place {
			t.Errorf("%s is %s, want %s", c.asks, placeOf(&record), c.place)
		}
	}
}

// TestTurnOfAnEarlierConversation: another line has become the conversation before a turn is answered, and a question of its own
// conversation has no answer yet. The turn goes after the last answer of that.
func TestTurnOfAnEarlierConversation(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		open, turn := a.open("u:2"), a.open("u:3")
		b.turnOf(memory.Call{History: memory.HistoryClient}, "u:other", "a:other")
		turn.Commit(answer(t, "a:3"))
		open.Commit(answer(t, "a:2"))
		b.turnOf(memory.Call{History: memory.HistoryClient}, "u:1 a:1 u:3 a:3 u:2 a:2 u:4", "a:4")
		b.wantTranscript("u:1 a:1 u:3 a:3 u:2 a:2 u:4 a:4", 10)
	})
}
