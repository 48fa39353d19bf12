package turnqueue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/cache/spool"
	"remora/memory/turnqueue"
)

// disk is a queue that refuses records while it has a fault.
type disk struct {
	recs  []string
	aside []string
	fault error
	max   int64
}

func (d *disk) Append(rec []byte) error {
	if d.fault == nil {
		d.recs = append(d.recs, string(rec))
	}
	return d.fault
}

func (d *disk) Move(rec []byte) error { return d.Append(rec) }

func (d *disk) Drain(_ context.Context, f func([][]byte) (int, error)) error {
	for len(d.recs) > 0 {
		_, err := f([][]byte{[]byte(d.recs[0])})
		if err != nil && !errors.Is(err, cache.ErrUnreadable) {
			return err
		}
		if err != nil {
			d.aside = append(d.aside, d.recs[0])
		}
		d.recs = d.recs[1:]
	}
	return nil
}

func (d *disk) Adopt(f func(rec []byte)) (spool.Adopted, error) {
	for _, r := range d.recs {
		f([]byte(r))
	}
	return spool.Adopted{Records: len(d.recs)}, nil
}

func (d *disk) Max() int64 { return d.max }

func (d *disk) Len() (records int, bytes int64) {
	for _, r := range d.recs {
		bytes += int64(len(r))
	}
	return len(d.recs), bytes
}

var errNoRoom = errors.New("no space left on device")

// play makes a queue over a disk, which takes the words before "|" and no others.
func play(t *testing.T, words string) (*turnqueue.Queue, *disk, *bytes.Buffer) {
	t.Helper()
	d, log := &disk{}, &bytes.Buffer{}
	s := turnqueue.New(d, slog.New(slog.NewTextHandler(log, nil)), time.Now)
	for w := range strings.FieldsSeq(words) {
		if w == "|" {
			d.fault = errNoRoom
		} else if err := s.Append(t.Context(), turnqueue.Record{Name: w}, []byte(w)); err != nil {
			t.Fatal(err)
		}
	}
	return s, d, log
}

// hanging is a disk whose calls wait for an outcome.
type hanging struct {
	disk
	outcomes chan error
}

func (h *hanging) Append(rec []byte) error {
	if err := <-h.outcomes; err != nil {
		return err
	}
	return h.disk.Append(rec)
}

// TestADiskThatHangs: no record waits longer than its time, those after it wait in memory, and all come in their order, whatever the disk
// answers in the end.
func TestADiskThatHangs(t *testing.T) {
	for _, outcome := range []error{nil, errNoRoom} {
		var log bytes.Buffer
		d := &hanging{outcomes: make(chan error, 8)}
		now := time.Now()
		s := turnqueue.New(d, slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i, w := range []string{"1", "2", "3"} {
			if i > 0 {
				ctx = t.Context() // without a limit: these do not ask the disk
			}
			if i == 2 {
				if s.Fault() != nil || log.Len() > 0 {
					t.Errorf("a disk that may only be slow: %v, log: %s", s.Fault(), &log)
				}
				now = now.Add(5 * time.Second)
			}
			if err := s.Append(ctx, named([]byte(w)), []byte(w)); err != nil {
				t.Fatal(err)
			}
		}
		if n, size := s.Len(); n != 3 || size != 3 || s.Fault() == nil || !s.Holds(cache.Group{}) || strings.Count(log.String(), "does not answer") != 1 {
			t.Errorf("%d records of %d bytes, fault %v, log: %s", n, size, s.Fault(), &log)
		}
		if err := s.Drain(t.Context(), one(func([]byte) (turnqueue.Record, error) { panic("a later record") })); err == nil {
			t.Error("a drain passed the record that the disk has not taken yet")
		}

		d.outcomes <- outcome
		close(d.outcomes)
		s.Close(t.Context(), nil)
		var got []string
		err := s.Drain(t.Context(), one(func(rec []byte) (turnqueue.Record, error) {
			got = append(got, string(rec))
			return named(rec), nil
		}))
		if n := strings.Count(log.String(), "on disk or in the store"); n != 1 {
			t.Errorf("it is logged %d times that they are", n)
		}
		if n, size := s.Len(); err != nil || strings.Join(got, " ") != "1 2 3" || n != 0 || size != 0 || s.Fault() != nil {
			t.Errorf("after %v: drained %q, %v; %d records of %d bytes are left", outcome, got, err, n, size)
		}
	}
}

// named is the record with this name, of no group.
func named(data []byte) turnqueue.Record { return turnqueue.Record{Name: string(data)} }

// TestOrder: records come in the order in which they went in, wherever they are, and each once.
func TestOrder(t *testing.T) {
	errStop := errors.New("store is down")
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
			return s.Drain(context.Background(), one(func(rec []byte) (turnqueue.Record, error) {
				if string(rec) == "4" {
					return named(rec), errStop
				}
				return named(rec), nil
			}))
		}, errStop, nil, "4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, d, _ := play(t, "1 2 | 3 4")
			if err := c.do(s, d); !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			if diff := cmp.Diff(c.onDisk, append([]string(nil), d.recs...)); diff != "" {
				t.Errorf("on disk, want- have+:\n%s", diff)
			}
			records, size := s.Len()
			var got []string
			err := s.Drain(context.Background(), one(func(rec []byte) (turnqueue.Record, error) {
				got = append(got, string(rec))
				return named(rec), nil
			}))
			if line := strings.Join(got, " "); err != nil || line != c.drain {
				t.Errorf("drained %q, %v; want %q", line, err, c.drain)
			}
			if records != len(got) || size != int64(len(got)) {
				t.Errorf("%d records of %d bytes counted, want %d", records, size, len(got))
			}
			if n, size := s.Len(); n != 0 || size != 0 {
				t.Errorf("%d records of %d bytes are left", n, size)
			}
		})
	}
}

// TestBound: records beyond the operator's limit, after Close, or beyond the memory's limit are not kept.
func TestBound(t *testing.T) {
	for _, fault := range []error{spool.ErrFull, cache.ErrClosed} {
		d := &disk{fault: fault}
		s := turnqueue.New(d, slog.New(slog.DiscardHandler), time.Now)
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

// TestShare: an owner's records leave some room on disk to those of others, whether that is used or not.
func TestShare(t *testing.T) {
	const a, b, c = "a", "b", "c"
	for _, tc := range []struct {
		name           string
		before, fills  string // owners: of records of an earlier process, and those that append until they get no more
		then, refused  string // owners that append one record each
		records, drain int    // how many have been taken when the last one was refused, and how many are drained then
	}{
		{"one alone", "", a, "aba", "aa", 950, 0},
		{"two", "", a + b, "abc", "ab", 997, 0},
		{"of an earlier process", strings.Repeat(a, 600), b + a, "c", "", 980, 0},
		{"after a drain", "", a, "aab", "", 950, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const size = 10
			record := func(owner string, n int) (turnqueue.Record, []byte) {
				data := fmt.Appendf(nil, "%-*s", size, fmt.Sprint(owner, n))
				return turnqueue.Record{Group: cache.Group{Owner: owner}, Name: string(data)}, data
			}
			d := &disk{max: 1000 * size}
			known := func(data []byte) (turnqueue.Record, bool) {
				return turnqueue.Record{Group: cache.Group{Owner: string(data[:1])}, Name: string(data)}, true
			}
			for i, owner := range tc.before {
				_, data := record(string(owner), i)
				d.recs = append(d.recs, string(data))
			}
			q := turnqueue.New(d, slog.New(slog.DiscardHandler), time.Now)
			if _, err := q.Adopt(known); err != nil {
				t.Fatal(err)
			}
			n := 1000
			append1 := func(owner rune) error {
				n++
				r, data := record(string(owner), n)
				return q.Append(t.Context(), r, data)
			}
			for _, owner := range tc.fills {
				err := append1(owner)
				for ; err == nil; err = append1(owner) {
				}
				if !errors.Is(err, turnqueue.ErrShare) {
					t.Fatal(err)
				}
			}
			if records, _ := q.Len(); records != tc.records {
				t.Errorf("%d records were taken, want %d", records, tc.records)
			}
			left := tc.drain
			_ = q.Drain(t.Context(), one(func(data []byte) (turnqueue.Record, error) {
				r, _ := known(data)
				if left--; left < 0 {
					return r, errNoRoom
				}
				return r, nil
			}))
			refused := ""
			for _, owner := range tc.then {
				if append1(owner) != nil {
					refused += string(owner)
				}
			}
			if refused != tc.refused {
				t.Errorf("refused: %q, want %q", refused, tc.refused)
			}
		})
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
		s.Close(t.Context(), func(n int) { lost += n })
		if lost != c.lost || strings.Count(log.String(), "turns lost") != min(lost, 1) {
			t.Errorf("%q, mended %t: %d turns counted as lost, want %d:\n%s", c.words, c.mended, lost, c.lost, log)
		}
	}
	(*turnqueue.Queue)(nil).Close(t.Context(), nil) // there is no spool
}

// TestUnreadableIsKept: what cannot be read is set aside on disk, and until that takes it holds up nothing else.
func TestUnreadableIsKept(t *testing.T) {
	s, d, _ := play(t, "bad1 2 | bad3 4")
	var got []string
	read := func(rec []byte) (turnqueue.Record, error) {
		if bytes.HasPrefix(rec, []byte("bad")) {
			return turnqueue.Record{}, cache.ErrUnreadable
		}
		got = append(got, string(rec))
		return named(rec), nil
	}
	if err := s.Drain(t.Context(), one(read)); err == nil {
		t.Error("a drain that leaves a record behind says that it is done")
	}
	d.fault = nil
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	if err := s.Drain(t.Context(), one(read)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"2", "4"}, got); diff != "" {
		t.Errorf("read, want- have+:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"bad1", "bad3"}, d.aside); diff != "" {
		t.Errorf("set aside, want- have+:\n%s", diff)
	}
}

// TestWaiting: any record counts for its group until it was handed over or quarantined.
func TestWaiting(t *testing.T) {
	a, b := cache.Group{Name: "a"}, cache.Group{Name: "b"}
	for _, c := range []struct {
		name   string
		before string // of an earlier process
		script string // of each record: + is written, - stops the drain, r is of a group but refused, k is of no known group, m goes after
		a, b   bool
	}{
		{"all written", "", "+++", false, false},
		{"stopped at once", "", "-", true, true},
		{"stopped at the second of a", "", "+-", true, true},
		{"stopped behind those of a", "", "++-", false, true},
		{"stopped behind those of a, which were refused", "", "rr-", false, true},
		{"stopped behind one of b from an earlier process", "b", "+++-", false, true},
		{"stopped at one of another group from an earlier process", "c", "-", true, true},
		{"all written, earlier ones too", "b b", "+++++", false, false},
		{"all refused, some of no known group", "b b", "kkrrr", false, false},
		{"those of a behind the one of b, and stopped there", "", "mm+-", true, false},
		{"one of a behind the others", "", "m+++", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &disk{recs: strings.Fields(c.before)}
			s := turnqueue.New(d, slog.New(slog.DiscardHandler), time.Now)
			of := func(rec []byte) turnqueue.Record { return turnqueue.Record{Group: cache.Group{Name: string(rec)}} }
			if _, err := s.Adopt(func(rec []byte) (turnqueue.Record, bool) { return of(rec), true }); err != nil {
				t.Fatal(err)
			}
			for name := range strings.FieldsSeq(c.before) {
				if !s.Holds(cache.Group{Name: name}) {
					t.Errorf("%s does not wait, of an earlier process", name)
				}
			}
			for _, g := range []cache.Group{a, a, b} {
				if err := s.Append(t.Context(), turnqueue.Record{Group: g}, []byte(g.Name)); err != nil {
					t.Fatal(err)
				}
			}
			at := 0
			err := s.Drain(t.Context(), one(func(rec []byte) (turnqueue.Record, error) {
				do := c.script[at]
				at++
				switch do {
				case '-':
					return of(rec), errNoRoom
				case 'r':
					return of(rec), cache.ErrUnreadable
				case 'k':
					return turnqueue.Record{}, cache.ErrUnreadable
				case 'm':
					return of(rec), s.Move(of(rec), bytes.Clone(rec))
				}
				return of(rec), nil
			}))
			if stops := strings.Contains(c.script, "-"); errors.Is(err, errNoRoom) != stops || at != len(c.script) {
				t.Errorf("after %d records: %v", at, err)
			}
			if s.Holds(a) != c.a || s.Holds(b) != c.b || s.Holds(cache.Group{Name: "other"}) {
				t.Errorf("a %v, b %v, others %v", s.Holds(a), s.Holds(b), s.Holds(cache.Group{Name: "other"}))
			}
		})
	}
}

// one passes records to f one after the other.
func one(f func(rec []byte) (turnqueue.Record, error)) func(recs [][]byte) ([]turnqueue.Record, error) {
	return func(recs [][]byte) ([]turnqueue.Record, error) {
		r, err := f(recs[0])
		if err != nil && !errors.Is(err, cache.ErrUnreadable) {
			return nil, err
		}
		return []turnqueue.Record{r}, err
	}
}

// BenchmarkOneGroup puts the turns of one session into the queue, as a long outage does, and drains it.
func BenchmarkOneGroup(b *testing.B) {
	const turns = 20_000
	names := make([]string, turns)
	for i := range names {
		names[i] = fmt.Sprintf("01JDTURN%018d", i)
	}
	for where, fault := range map[string]error{"on disk": nil, "in memory": errNoRoom} {
		b.Run(where, func(b *testing.B) {
			for b.Loop() {
				s := turnqueue.New(&disk{fault: fault}, slog.New(slog.DiscardHandler), time.Now)
				for _, name := range names {
					if err := s.Append(b.Context(), turnqueue.Record{Name: name}, []byte(name)); err != nil {
						b.Fatal(err)
					}
				}
				if err := s.Drain(b.Context(), one(func(rec []byte) (turnqueue.Record, error) { return named(rec), nil })); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
