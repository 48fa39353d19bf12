package turnqueue_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/cache/spool"
	"remora/memory/turnqueue"
)

// disk is a spool that refuses records while it has a fault.
type disk struct {
	recs  []string // "" for one that was removed; a Ref is its index
	left  int      // how many of the first ones dead processes have left
	aside []string
	fault error
}

func (d *disk) Append(rec []byte) (spool.Ref, error) {
	if d.fault != nil {
		return 0, d.fault
	}
	d.recs = append(d.recs, string(rec))
	return spool.Ref(len(d.recs) - 1), nil
}

func (d *disk) Read(ref spool.Ref) ([]byte, error) { return []byte(d.recs[ref]), nil }
func (d *disk) Remove(ref spool.Ref)               { d.recs[ref] = "" }

func (d *disk) Quarantine(ref spool.Ref, _ error) error {
	d.aside = append(d.aside, d.recs[ref])
	d.Remove(ref)
	return nil
}

func (d *disk) Adopt(f func(ref spool.Ref, rec []byte) error) (spool.Adopted, error) {
	for i, r := range d.recs[:d.left] {
		if err := f(spool.Ref(i), []byte(r)); err != nil {
			_ = d.Quarantine(spool.Ref(i), err)
		}
	}
	return spool.Adopted{Records: d.left}, nil
}

func (d *disk) present() []string {
	return slices.DeleteFunc(slices.Clone(d.recs), func(r string) bool { return r == "" })
}

func (d *disk) Len() (records int, bytes int64) {
	for _, r := range d.present() {
		records, bytes = records+1, bytes+int64(len(r))
	}
	return records, bytes
}

var errNoRoom = errors.New("no space left on device")

// play makes a queue over a disk, which takes the words before "|" and no others.
func play(t *testing.T, words string) (*turnqueue.Queue, *disk, *bytes.Buffer) {
	t.Helper()
	d, log := &disk{}, &bytes.Buffer{}
	s := turnqueue.New(d, slog.New(slog.NewTextHandler(log, nil)))
	for w := range strings.FieldsSeq(words) {
		if w == "|" {
			d.fault = errNoRoom
		} else if err := s.Append(t.Context(), turnqueue.Record{Name: w}, []byte(w)); err != nil {
			t.Fatal(err)
		}
	}
	return s, d, log
}

// drain reads and removes the records of a group, up to most.
func drain(t *testing.T, s *turnqueue.Queue, g cache.Group, most int) (got []string) {
	t.Helper()
	for e := s.First(g); e != nil && len(got) < most; e = s.First(g) {
		data, err := s.Read(e)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(data))
		s.Remove(e)
	}
	return got
}

const all = 1000

// hanging is a disk whose calls wait for an outcome.
type hanging struct {
	disk
	outcomes chan error
}

func (h *hanging) Append(rec []byte) (spool.Ref, error) {
	if err := <-h.outcomes; err != nil {
		return 0, err
	}
	return h.disk.Append(rec)
}

// TestADiskThatHangs: no record waits longer than its time, those after it wait in memory, and all come in their order, whatever the disk
// answers in the end.
func TestADiskThatHangs(t *testing.T) {
	for _, outcome := range []error{nil, errNoRoom} {
		var log bytes.Buffer
		d := &hanging{outcomes: make(chan error, 8)}
		s := turnqueue.New(d, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i, w := range []string{"1", "2", "3"} {
			if i > 0 {
				ctx = t.Context() // without a limit: these do not ask the disk
			}
			if err := s.Append(ctx, turnqueue.Record{Name: w}, []byte(w)); err != nil {
				t.Fatal(err)
			}
		}
		if n, size := s.Len(); n != 3 || size != 3 || s.Fault() == nil || !s.Holds(cache.Group{}) || strings.Count(log.String(), "does not answer") != 1 {
			t.Errorf("%d records of %d bytes, fault %v, log: %s", n, size, s.Fault(), &log)
		}
		if e := s.First(cache.Group{}); e != nil {
			t.Error("a record passes the one that the disk has not taken yet")
		}

		d.outcomes <- outcome
		close(d.outcomes)
		s.Close(nil)
		got := drain(t, s, cache.Group{}, all)
		if n, size := s.Len(); strings.Join(got, " ") != "1 2 3" || n != 0 || size != 0 || s.Fault() != nil {
			t.Errorf("after %v: drained %q; %d records of %d bytes are left", outcome, got, n, size)
		}
	}
}

// TestOrder: records come in the order in which they went in, wherever they are, and each once.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(s *turnqueue.Queue, d *disk) error
		err    error
		onDisk []string
		drain  string
	}{
		{"from both", func(*turnqueue.Queue, *disk) error { return nil }, nil, []string{"1", "2"}, "1 2 3 4"},
		{"a disk that still has no room", func(s *turnqueue.Queue, _ *disk) error { return s.Settle() }, errNoRoom, []string{"1", "2"}, "1 2 3 4"},
		{"a disk that has room again", func(s *turnqueue.Queue, d *disk) error {
			d.fault = nil
			return s.Settle()
		}, nil, []string{"1", "2", "3", "4"}, "1 2 3 4"},
		{"a record behind those that are held, whatever room there is", func(s *turnqueue.Queue, d *disk) error {
			d.fault = nil
			return s.Append(t.Context(), turnqueue.Record{Name: "5"}, []byte("5"))
		}, nil, []string{"1", "2"}, "1 2 3 4 5"},
		{"a drain that is broken off", func(s *turnqueue.Queue, _ *disk) error {
			drain(t, s, cache.Group{}, 3)
			return nil
		}, nil, []string{}, "4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, d, _ := play(t, "1 2 | 3 4")
			if err := c.do(s, d); !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			if diff := cmp.Diff(c.onDisk, d.present()); diff != "" {
				t.Errorf("on disk, want- have+:\n%s", diff)
			}
			records, size := s.Len()
			got := drain(t, s, cache.Group{}, all)
			if line := strings.Join(got, " "); line != c.drain {
				t.Errorf("drained %q; want %q", line, c.drain)
			}
			if records != len(got) || size != int64(len(got)) {
				t.Errorf("%d records of %d bytes counted, want %d", records, size, len(got))
			}
			if n, size := s.Len(); n != 0 || size != 0 || s.Holds(cache.Group{}) {
				t.Errorf("%d records of %d bytes are left", n, size)
			}
		})
	}
}

// TestBound: records beyond the operator's limit, after Close, or beyond the memory's limit are not kept.
func TestBound(t *testing.T) {
	for _, fault := range []error{spool.ErrFull, cache.ErrClosed} {
		d := &disk{fault: fault}
		s := turnqueue.New(d, slog.New(slog.DiscardHandler))
		if err := s.Append(t.Context(), turnqueue.Record{}, []byte("1")); !errors.Is(err, fault) {
			t.Errorf("got %v, want %v", err, fault)
		}
		if n, _ := s.Len(); n != 0 || s.Holds(cache.Group{}) {
			t.Errorf("%d records are kept after %v, or counted: %t", n, fault, s.Holds(cache.Group{}))
		}
	}
	s, _, _ := play(t, "|")
	half := make([]byte, 32<<20)
	for i, want := range []error{nil, nil, turnqueue.ErrFull} {
		if err := s.Append(t.Context(), turnqueue.Record{}, half); !errors.Is(err, want) {
			t.Errorf("append %d: got %v, want %v", i, err, want)
		}
	}
}

// TestClose: what no disk takes in the end is counted and told of, once.
func TestClose(t *testing.T) {
	for _, c := range []struct {
		words  string
		mended bool
		lost   int
	}{{"1", false, 0}, {"1 | 2 3", false, 2}, {"1 | 2 3", true, 0}} {
		s, d, log := play(t, c.words)
		if c.mended {
			d.fault = nil
		}
		lost := 0
		s.Close(func(n int) { lost += n })
		if lost != c.lost || strings.Count(log.String(), "turns lost") != min(lost, 1) {
			t.Errorf("%q, mended %t: %d turns counted as lost, want %d:\n%s", c.words, c.mended, lost, c.lost, log)
		}
	}
	(*turnqueue.Queue)(nil).Close(nil) // there is no spool
}

// TestQuarantineOfWhatIsInMemory: it waits for the disk.
func TestQuarantineOfWhatIsInMemory(t *testing.T) {
	s, d, _ := play(t, "1 | bad 3")
	drain(t, s, cache.Group{}, 1)
	e := s.First(cache.Group{})
	if err := s.Quarantine(e, cache.ErrUnreadable); !errors.Is(err, errNoRoom) || s.First(cache.Group{}) != e {
		t.Fatalf("without room on the disk: %v", err)
	}
	d.fault = nil
	if err := s.Quarantine(e, cache.ErrUnreadable); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bad"}, d.aside); diff != "" {
		t.Errorf("set aside, want- have+:\n%s", diff)
	}
	if got := drain(t, s, cache.Group{}, all); len(got) != 1 || got[0] != "3" {
		t.Errorf("drained %q", got)
	}
}

// TestWaiting: any record counts for its group until it is removed or quarantined, those of ended processes too, which come before the
// ones that began later.
func TestWaiting(t *testing.T) {
	a, b, c := cache.Group{Name: "a"}, cache.Group{Name: "b"}, cache.Group{Name: "c"}
	record := func(word string) turnqueue.Record { // such as a2, which began at 2
		return turnqueue.Record{Group: cache.Group{Name: word[:1]}, Name: word, Began: uint64(word[1])}
	}
	d := &disk{recs: []string{"b2", "?", "c1", "a1"}, left: 4}
	s := turnqueue.New(d, slog.New(slog.DiscardHandler))
	for _, word := range []string{"b4", "a3", "b3"} {
		if err := s.Append(t.Context(), record(word), []byte(word)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Adopt(func(rec []byte) (turnqueue.Record, error) {
		if string(rec) == "?" {
			return turnqueue.Record{}, errors.New("no turn")
		}
		return record(string(rec)), nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"?"}, d.aside); diff != "" {
		t.Errorf("set aside, want- have+:\n%s", diff)
	}
	if got := s.Groups(); len(got) != 3 || got[2] != b {
		t.Errorf("groups %v", got)
	}
	if !s.Has(a, "a3") || s.Has(a, "b2") {
		t.Error("the names of a's records are wrong")
	}
	for g, want := range map[cache.Group]string{a: "a1 a3", b: "b2 b4 b3", c: "c1"} {
		if !s.Holds(g) {
			t.Errorf("nothing of %s waits", g.Name)
		}
		if got := strings.Join(drain(t, s, g, all), " "); got != want || s.Holds(g) {
			t.Errorf("drained %q, want %q; others wait: %t", got, want, s.Holds(g))
		}
	}
	if n, _ := s.Len(); n > 0 || len(s.Groups()) > 0 {
		t.Errorf("%d are left", n)
	}
}
