package session

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
)

// TestParkedItemsHaveTheirLaterKeys: an item of a turn that is not in the log yet has the key that it will have there. Otherwise layers
// hear of its eviction twice.
func TestParkedItemsHaveTheirLaterKeys(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryServer, "u:1", "a:1")
	keys := func(e *Entry) []wire.Hash {
		t.Helper()
		c, err := e.History.Conversation(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		l.want("conversation", hear(c.Items), "u:1 a:1 u:2 c:x,y r:x r:y a:2 u:3")
		list, err := e.History.ItemKeys(t.Context(), c.Items)
		if err != nil {
			t.Fatal(err)
		}
		return list[:len(list)-1] // the request's own item is never left out
	}
	e := l.enter(HistoryServer, "u:3")
	e.History.ShowParked([]Parked{{Turn: "a", Items: sayAll(t, "u:2 c:x,y")}, {Turn: "b", Items: sayAll(t, "r:x r:y a:2")}})
	before := keys(e)
	l.sees(HistoryServer, "u:2", "c:x,y")
	l.sees(HistoryServer, "r:x r:y", "a:2")
	if diff := cmp.Diff(keys(l.enter(HistoryServer, "u:3")), before); diff != "" {
		t.Errorf("-in the log +parked:\n%s", diff)
	}
}

// TestParkedItemsAreRecordedByTheirContent: in the log, another turn may stand before theirs.
func TestParkedItemsAreRecordedByTheirContent(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryServer, "u:1", "a:1")
	l.sees(HistoryServer, "u:2", "a:2")
	e := l.enter(HistoryServer, "u:5")
	e.History.ShowParked([]Parked{{Turn: "a", Items: sayAll(t, "u:3 a:3")}, {Turn: "b", Items: sayAll(t, "u:4 a:4")}})
	l.want("view", l.view(e), "u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5")
	var lengths []int
	for _, span := range e.View.Save().Items {
		lengths = append(lengths, span.N, len(span.Is)/8)
	}
	if want := []int{4, 0, 0, 5}; !slices.Equal(lengths, want) {
		t.Errorf("items by their place and by their content: %v, want %v", lengths, want)
	}
}

// TestStoredTurnIsNotParked: a turn that another process has written from its record is stored, and waits for nothing.
func TestStoredTurnIsNotParked(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryServer, "u:1", "a:1")
	e := l.enter(HistoryServer, "u:2")
	l.n--
	l.commit(l.enter(HistoryServer, "u:2"), "a:2") // the same turn
	e.Order.owner, e.Order.Waits = 1, true
	a := &Answer{HTTPStatus: 200, Reply: wire.Reply{Choices: [][]wire.Item{sayAll(t, "a:2")}, Complete: true}}
	if parked, _, err := e.Park(t.Context(), a, []byte("{}")); parked || err != nil {
		t.Fatalf("parked: %v, %v", parked, err)
	}
	if err := commit(e, a); err != nil {
		t.Fatal(err)
	}
	l.want("view", l.view(l.enter(HistoryServer, "u:3")), "u:1 a:1 u:2 a:2 u:3")
}
