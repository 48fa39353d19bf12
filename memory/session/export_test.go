package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/memory/turnrecord"
)

// Turns that stored no item stay in the chain that leads to them where one is written again by an entry that does not
// know what was written of it before, which is in the middle of the chain or its end.
func TestChainOfTurnsWithoutAnItem(t *testing.T) {
	l := newLab(t)
	ids := func() (ids []string) {
		err := l.log.Walk(context.Background(), scope, func(line ExportLine) error {
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
	if parked, _, err := e.Park(context.Background(), nil, []byte("{}")); !parked || err != nil {
		t.Fatal(parked, err)
	}
	var lines []ExportLine
	if err := l.log.Walk(context.Background(), scope, func(line ExportLine) error { lines = append(lines, line); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || lines[0].Session.Items != 0 {
		t.Fatalf("exported are %+v", lines)
	}
}

// between is a store in which something happens after a number of reads.
type between struct {
	cache.Store
	reads int
	do    func()
}

func (s *between) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	r, err := s.Store.Read(ctx, q)
	if s.reads--; s.reads == 0 {
		s.do()
	}
	return r, err
}

// TestExportOfASessionInUse: what turns write or remove during an export leaves it whole.
func TestExportOfASessionInUse(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(l *lab) (turn *Entry)
		answer  string
	}{
		"an open turn is answered": {func(l *lab) *Entry {
			e := l.enter(HistoryServer, "u:2")
			l.view(e)
			l.commit(e, "")
			return e
		}, "a:2"},
		"an open turn moves": {func(l *lab) *Entry {
			e := l.enter(HistoryServer, "u:2")
			l.view(e)
			l.commit(e, "")
			l.sees(HistoryServer, "u:3", "a:3")
			return e
		}, "a:2"},
		"a turn begins": {func(l *lab) *Entry {
			e := l.enter(HistoryServer, "u:2")
			l.view(e)
			return e
		}, "a:2"},
	} {
		for reads := range 5 {
			t.Run(fmt.Sprintf("%s after %d reads", name, reads+1), func(t *testing.T) {
				l := newLab(t)
				l.sees(HistoryServer, "u:1", "a:1")
				e := c.prepare(l)
				store := &between{Store: l.Store, reads: reads + 1, do: func() { l.commit(e, c.answer) }}
				var b bytes.Buffer
				if err := New(store, 0).Export(t.Context(), scope, &b); err != nil {
					t.Fatal(err)
				}
				if err := newLab(t).log.Import(t.Context(), scope, &b); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestImportOfASharedBeginning: the conversation begins with a message that a title request has quoted first.
func TestImportOfASharedBeginning(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryAuto, "s:Generate_a_short_title_for_this_conversation u:1", "a:Title")
	l.sees(HistoryAuto, "s:be u:1", "a:1")
	to := newLab(t)
	if err := to.log.Import(t.Context(), scope, strings.NewReader(l.export(scope))); err != nil {
		t.Fatal(err)
	}
	name := chainName(l.enter(HistoryClient, "u:1").in.ends[0].Chain)
	want, err := decode[linePosition](l.values(name)[0], "place")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode[linePosition](to.values(name)[0], "place"); err != nil || got != want {
		t.Errorf("its place is %+v, %v, want %+v", got, err, want)
	}
}

// refusing is a store that refuses writes of some owners.
type refusing struct {
	cache.Store
	owner string
}

func (s *refusing) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	if s.owner != "" && strings.HasPrefix(batches[0].Group.Owner, s.owner) {
		return cache.AllFailed(len(batches), errGone)
	}
	return s.Store.Commit(ctx, batches)
}

// TestImportThatCannotBeListed can be repeated.
func TestImportThatCannotBeListed(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryAuto, "u:1", "a:1")
	to := newLab(t)
	store := &refusing{Store: to.Store, owner: sessionsOwner}
	log := New(store, 0)
	for _, want := range []error{errGone, nil, ErrSessionExists} {
		if err := log.Import(t.Context(), scope, strings.NewReader(l.export(scope))); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		store.owner = ""
	}
}
