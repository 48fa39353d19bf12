package session

import (
	"testing"

	"remora/wire/dialects"
)

// The latest habits are remembered: each client's own, and those of a dialect for unknown clients.
func TestHabits(t *testing.T) {
	var known habits
	if got := known.of(dialects.Chat, 1); got != noEvidence {
		t.Errorf("of no clients %d", got)
	}
	for client := range uint64(3 * maxHabits) {
		e := onlyNew
		if client%2 == 0 {
			e = resends
		}
		known = known.learn(dialects.Chat, client, e)
		known = known.learn(dialects.Chat, client, noEvidence)
	}
	if len(known) != maxHabits {
		t.Errorf("%d habits", len(known))
	}
	const last = 3*maxHabits - 1
	for client, want := range map[uint64]evidence{last: onlyNew, last - 1: resends, 77: onlyNew, 0: onlyNew} {
		if got := known.of(dialects.Chat, client); got != want {
			t.Errorf("of client %d: %d, want %d", client, got, want)
		}
	}
	if got := known.of(dialects.Responses, last); got != noEvidence {
		t.Errorf("of another dialect: %d", got)
	}
	known = known.learn(dialects.Chat, last, resends)
	if got := known.of(dialects.Chat, last); got != resends || len(known) != maxHabits {
		t.Errorf("of a client that does otherwise now: %d", got)
	}
}
