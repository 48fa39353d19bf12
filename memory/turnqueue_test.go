package memory_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/cache/spool"
	"remora/cache/stores"
	"remora/memory"
)

// faultyDisk is a spool whose disk may be full.
type faultyDisk struct {
	queue
	mu    sync.Mutex
	fault error
}

func (d *faultyDisk) set(fault error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

func (d *faultyDisk) Append(rec []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != nil {
		return d.fault
	}
	return d.queue.Append(rec)
}

var errNoRoom = errors.New("no space left on device")

// withFaultyDisk runs f in a bubble, with a store that is down and a spool.
func withFaultyDisk(t *testing.T, f func(l *lab, store *sluggish, disk *faultyDisk, lost *int, log *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store, log, disk, lost := &sluggish{Store: mem, down: true}, &journal{}, &faultyDisk{}, 0
		l := &lab{t: t, store: store}
		l.m = memory.New(store, disk, memory.Options{
			Log: slog.New(slog.NewTextHandler(log, nil)), Lost: func(n int) { lost += n },
		})
		f(l, store, disk, &lost, log)
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFullDiskLosesNoTurn: what the spool's disk has no room for stays in the process, in its order, until the store is
// back, whether or not the disk has room by then.
func TestFullDiskLosesNoTurn(t *testing.T) {
	for _, roomFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("room before the store is back: %t", roomFirst), func(t *testing.T) {
			withFaultyDisk(t, func(l *lab, store *sluggish, disk *faultyDisk, lost *int, log *journal) {
				l.lateTurn(named("s"), "u:1", "a:1")
				disk.set(errNoRoom)
				l.lateTurn(named("s"), "u:2", "a:2")
				l.lateTurn(named("s"), "u:3", "a:3")
				if n, bytes := l.m.Spooled(); n != 3 || bytes == 0 {
					l.t.Errorf("%d turns of %d bytes wait, want 3", n, bytes)
				}
				if got := l.m.SpoolTrouble(); got != errNoRoom.Error() {
					l.t.Errorf("the trouble is %q", got)
				}
				if roomFirst {
					disk.set(nil)
					time.Sleep(time.Minute)
					synctest.Wait()
					if n, _ := disk.Len(); n != 3 {
						l.t.Errorf("%d turns are on a disk that has room, want 3", n)
					}
				}
				l.lateTurn(named("s"), "u:4", "a:4")
				store.set(false, "")
				time.Sleep(time.Minute)
				synctest.Wait()
				l.wantView(l.turnOf(memory.Call{Scope: named("s")}, "u:5", "a:5"), "u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5")
				if got := l.m.SpoolTrouble(); got != "" {
					l.t.Errorf("the trouble is %q still", got)
				}
				if n := strings.Count(log.String(), "spool's disk does not take turns"); n != 1 || *lost != 0 {
					l.t.Errorf("%d lines about the disk, %d turns lost:\n%s", n, *lost, log)
				}
			})
		})
	}
}

// hungDisk is a spool whose disk does not answer while it hangs: neither writes, nor what the worker asks of it.
type hungDisk struct {
	queue
	hangs chan struct{} // closed when it answers again; nil for a disk that answers
}

func (d *hungDisk) answer() {
	if d.hangs != nil {
		<-d.hangs
	}
}

func (d *hungDisk) Append(rec []byte) error {
	d.answer()
	return d.queue.Append(rec)
}

func (d *hungDisk) Adopt(f func(rec []byte)) (spool.Adopted, error) {
	d.answer()
	return d.queue.Adopt(f)
}

// TestCloseLeavesHungDiskBehind: a process ends in its time although the spool's disk hangs, and says how many turns it leaves.
func TestCloseLeavesHungDiskBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		disk, log, lost := &hungDisk{}, &journal{}, 0
		l := &lab{t: t, store: mem}
		l.m = memory.New(&sluggish{Store: mem, down: true}, disk, memory.Options{
			Log: slog.New(slog.NewTextHandler(log, nil)), Lost: func(n int) { lost += n },
		})
		synctest.Wait()
		disk.hangs = make(chan struct{})
		l.lateTurn(named("s"), "u:1", "a:1")
		l.lateTurn(named("s"), "u:2", "a:2")
		time.Sleep(time.Minute)

		begun := time.Now()
		l.m.Close()
		if took := time.Since(begun); took > 10*time.Second || lost != 2 || !strings.Contains(log.String(), `turns=2 error="the disk does not answer"`) {
			t.Errorf("closed after %s, %d turns counted as lost, log:\n%s", took, lost, log)
		}
		close(disk.hangs)
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLostTurnIsToldOnce: its input was refused before its end.
func TestLostTurnIsToldOnce(t *testing.T) {
	withFaultyDisk(t, func(l *lab, _ *sluggish, disk *faultyDisk, lost *int, log *journal) {
		disk.set(spool.ErrFull)
		turn := l.begin(memory.Call{Scope: scope}, "u:1")
		turn.Forwarded()
		time.Sleep(time.Second)
		turn.Commit(answer(t, "a:1"))
		if n := strings.Count(log.String(), "turn lost"); n != 1 || *lost != 1 {
			t.Errorf("%d lines, %d turns counted:\n%s", n, *lost, log)
		}
	})
}

// TestReserveTellsWhatItLoses: turns beyond its limit, beyond the operator's limit, and left when a process ends.
func TestReserveTellsWhatItLoses(t *testing.T) {
	large := strings.Repeat("x", 40<<20)
	for _, c := range []struct {
		name  string
		fault error
		words []string
		lost  int
	}{
		{"no room when the process ends", errNoRoom, []string{"u:1", "u:2"}, 2},
		{"more than is kept", errNoRoom, []string{"u:" + large, "u:2"}, 2},
		{"the bound of the configuration", spool.ErrFull, []string{"u:1"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			withFaultyDisk(t, func(l *lab, _ *sluggish, disk *faultyDisk, lost *int, log *journal) {
				disk.set(c.fault)
				for _, w := range c.words {
					l.lateTurn(named("s"), w, "a:1")
				}
				l.m.Close()
				if *lost != c.lost || strings.Contains(log.String(), large[:100]) {
					l.t.Errorf("%d turns counted as lost, want %d:\n%s", *lost, c.lost, log)
				}
			})
		})
	}
}
