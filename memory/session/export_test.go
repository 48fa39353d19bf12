package session

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/turnrecord"
)

// Turns that stored no item stay in the chain that leads to them where one is written again by an entry that does not
// know what was written of it before, which is in the middle of the chain or its end.
func TestChainOfTurnsWithoutAnItem(t *testing.T) {
	l := newLab(t)
	ids := func() (ids []string) {
		err := l.log.Walk(context.Background(), scope, func(line Line) error {
			var r turnrecord.Record
			if line.Turn == nil {
				return nil
			}
			err := json.Unmarshal(line.Turn, &r)
			ids = append(ids, r.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	l.sees(HistoryClient, "u:1", "a:1")
	for _, answer := range []string{"", "a:1", "", "a:1"} {
		l.sees(HistoryClient, "u:1", answer)
	}
	if diff := cmp.Diff([]string{"turn01", "turn02", "turn03", "turn04", "turn05"}, ids()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, id := range []string{"turn04", "turn02"} {
		e, err := l.log.Resumed(id, time.Unix(9, 0), l.call(HistoryClient, "u:1"), turnrecord.View{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.commit(e, "a:1")
	}
	if diff := cmp.Diff([]string{"turn01", "turn03", "turn04", "turn05", "turn02"}, ids()); diff != "" {
		t.Errorf("after two were written again (-want +got)\n%s", diff)
	}
}

// TestExportWithoutItems: a session may consist of turns alone that wait for an earlier one in another process.
func TestExportWithoutItems(t *testing.T) {
	l := newLab(t)
	e := l.enter(HistoryServer, "u:1")
	e.Order.owner = 1
	e.Order.Waits = true
	if parked, err := e.Park(context.Background(), nil, []byte("{}")); !parked || err != nil {
		t.Fatal(parked, err)
	}
	var lines []Line
	if err := l.log.Walk(context.Background(), scope, func(line Line) error { lines = append(lines, line); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || lines[0].Session.Items != 0 {
		t.Fatalf("exported are %+v", lines)
	}
}
