package reminder_test

import (
	"testing"

	"remora/memory/layer/layertest"
	"remora/memory/layers/reminder"
	"remora/wire"
	"remora/wire/dialects"
)

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l, err := reminder.New(reminder.Options{Reminders: []reminder.Reminder{{Text: "Keep answers short.", EveryUserTurns: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	said := []wire.Item{wire.NewMessage(dialects.Chat, wire.User, "Hi")}
	a, err := l.AppendItems(t.Context(), layertest.PageTurn(), nil, said)
	layertest.Page(t, layertest.PageRecall(t, l, err, a.State)...)
}
