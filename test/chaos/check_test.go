package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/proxy"
)

// archive reads the store. If the store is a file, the proxy must be stopped.
type archive struct {
	t      *testing.T
	memory *memory.Memory
}

// openArchive opens the store with url of a proxy in dir.
func openArchive(t *testing.T, dir, url string) *archive {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "bolt:"); ok && !filepath.IsAbs(path) {
		url = "bolt:" + filepath.Join(dir, path)
	}
	store, err := stores.Open(url, cache.Options{DialTimeout: callLimit, OpTimeout: callLimit})
	if err != nil {
		t.Fatal(err)
	}
	a := &archive{t: t, memory: memory.New(store, nil, memory.Options{ReadWait: callLimit})}
	t.Cleanup(func() {
		a.memory.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// item is a stored message, on any line of its session.
type item struct {
	Seq, Parent uint64
	Chain, Turn string
	JSON        message
}

func (i item) String() string { return fmt.Sprintf("%d behind %d by turn %s", i.Seq, i.Parent, i.Turn) }

// stored is a stored session.
type stored struct {
	items map[uint64]item
	at    map[message][]uint64 // the places of each message, over all lines
	head  uint64
}

func (a *archive) session(session, key string) stored {
	a.t.Helper()
	s := stored{items: map[uint64]item{}, at: map[message][]uint64{}}
	scope := memory.Scope{Tenant: new(proxy.SessionOptions).Tenant([]byte(key)), Session: session}
	out, in := io.Pipe()
	go func() { in.CloseWithError(a.memory.Export(a.t.Context(), scope, in)) }()
	for dec := json.NewDecoder(out); ; {
		var line struct {
			Session *struct{ Head uint64 }
			Item    *item
		}
		if err := dec.Decode(&line); errors.Is(err, io.EOF) {
			return s
		} else if err != nil {
			a.t.Fatalf("transcript of %s: %v", session, err)
		}
		if line.Session != nil {
			s.head = line.Session.Head
		}
		if line.Item != nil {
			s.items[line.Item.Seq] = *line.Item
			s.at[line.Item.JSON] = append(s.at[line.Item.JSON], line.Item.Seq)
		}
	}
}

// twice returns the number of items that are stored under two numbers.
func (s stored) twice() int {
	chains := map[string]bool{}
	for _, it := range s.items {
		chains[it.Chain] = true
	}
	return len(s.items) - len(chains)
}

// places returns the items with these numbers.
func (s stored) places(seqs []uint64) (at []item) {
	for _, seq := range seqs {
		at = append(at, s.items[seq])
	}
	return at
}

// texts returns the user's texts, on all lines.
func (s stored) texts() (all []string) {
	for _, seq := range slices.Sorted(maps.Keys(s.items)) {
		if it := s.items[seq]; it.JSON.Role == "user" {
			all = append(all, it.JSON.Content)
		}
	}
	return all
}

// line returns the position of each item on the line that ends with seq. Earlier items have lower positions.
func (s stored) line(end uint64) map[uint64]int {
	depth := map[uint64]int{}
	for seq := end; seq != 0 && len(depth) < len(s.items); seq = s.items[seq].Parent {
		depth[seq] = -len(depth)
	}
	return depth
}

// wrongs counts the errors in complete turns.
type wrongs struct {
	lost       int // not stored, or without its answer
	doubled    int // stored more than once, over all lines
	disordered int // after a later turn, or not on its line
	missed     int // views that lacked a turn, with an answer that was not degraded
	repeated   int // views with a turn twice
	jumbled    int // views with turns in the wrong order
	gone       int // turns on the session's line that are not in its client's last view

	cases []string        // descriptions
	told  map[string]bool // clients and the kinds of their cases
}

// add counts a wrong turn. For the first one of its kind it records the client's calls around it.
func (w *wrongs) add(count *int, c *talker, text, what string) {
	*count++
	kind := c.name + " " + what[:12]
	if w.told[kind] {
		return
	}
	if w.told == nil {
		w.told = map[string]bool{}
	}
	w.told[kind] = true
	var b strings.Builder
	fmt.Fprintf(&b, "client %s, session %q: turn %s %s\n", c.name, c.session, text, what)
	at := slices.IndexFunc(c.calls, func(e exchange) bool { return e.asked == text && e.err == nil })
	for i := max(at-2, 0); i < min(at+4, len(c.calls)); i++ {
		fmt.Fprintf(&b, "\t%s\n", c.calls[i])
	}
	w.cases = append(w.cases, b.String())
}

// judge fails the test for turns that are lost, duplicate, or gone for good from views, and if more turns than allowed are in the
// wrong order or missing in views. It prints some cases.
func (w *wrongs) judge(t *testing.T, allowed int) {
	t.Helper()
	for _, text := range w.cases[:min(len(w.cases), 12)] {
		t.Log(text)
	}
	if w.lost+w.doubled+w.repeated+w.gone > 0 {
		t.Errorf("%d turns are lost and %d doubled, %d are not in the last views, and %d views have one twice", w.lost, w.doubled, w.gone, w.repeated)
	}
	// A turn in the wrong order is so in every later view.
	if w.disordered+w.missed > allowed || allowed == 0 && w.jumbled > 0 {
		t.Errorf("%d turns are out of order, %d views miss turns and %d have them out of order", w.disordered, w.missed, w.jumbled)
	}
}

// check compares the clients' turns with the stored ones: every turn must be stored once, in order. The turns of a client that
// shares its session and resends its own history are a branch; all others are on the head line.
func (a *archive) check(clients []*talker) (w wrongs) {
	a.t.Helper()
	sharers := map[string]int{}
	read := map[string]stored{}
	for _, c := range clients {
		sharers[c.session+"\x00"+c.key]++
	}
	for _, c := range clients {
		if len(c.said) == 0 {
			continue // it was stopped before its first answer
		}
		id := c.session + "\x00" + c.key
		s, ok := read[id]
		if !ok {
			s = a.session(c.session, c.key)
			read[id] = s
			if n := s.twice(); n > 0 {
				w.doubled += n
				w.cases = append(w.cases, fmt.Sprintf("session %q: %d items are stored under two numbers", c.session, n))
			}
		}
		end := s.head
		if last := s.at[message{"user", c.said[len(c.said)-1]}]; !c.onlyNew && sharers[id] > 1 && len(last) > 0 {
			end = last[0]
		}
		line := s.line(end)
		w.compare(c, s, line)
		if sharers[id] == 1 {
			w.last(c, s, line)
		}
	}
	return w
}

// last compares the last view of a client that has settled with the session's line: whatever was missed before, its turns are there
// in the end.
func (w *wrongs) last(c *talker, s stored, line map[uint64]int) {
	if !c.settled {
		return
	}
	e := c.calls[len(c.calls)-1]
	seen := strings.Fields(e.seen)
	for _, text := range c.said {
		at := s.at[message{"user", text}]
		if len(at) != 1 {
			continue // lost or doubled
		}
		if _, onLine := line[at[0]]; onLine && !slices.Contains(seen, text) {
			w.add(&w.gone, c, text, fmt.Sprintf("is stored, but is not in the last view: %s, of %d calls", e, len(c.calls)))
		}
	}
}

// compare compares a client's turns with the line that should contain them.
func (w *wrongs) compare(c *talker, s stored, line map[uint64]int) {
	last := math.MinInt
	for _, text := range c.said {
		asked, answered := s.at[message{"user", text}], s.at[message{"assistant", answerTo(text)}]
		if len(asked) != 1 || len(answered) != 1 {
			count := &w.doubled
			if len(asked) == 0 || len(answered) == 0 {
				count = &w.lost
			}
			w.add(count, c, text, fmt.Sprintf("is stored with its question at %s and its answer at %s", s.places(asked), s.places(answered)))
			continue
		}
		at, onLine := line[asked[0]]
		switch {
		case !onLine:
			w.add(&w.disordered, c, text, "stands beside the line of the session")
		case at < last:
			w.add(&w.disordered, c, text, "stands before one that had ended when it began")
		default:
			last = at
		}
	}
}

// views counts the wrong views of a client.
func (w *wrongs) views(c *talker) {
	for _, e := range c.calls {
		if e.missed {
			w.add(&w.missed, c, e.asked, "misses turns in its view")
		}
		if e.twice {
			w.add(&w.repeated, c, e.asked, "has a turn twice in its view")
		}
		if e.jumbled {
			w.add(&w.jumbled, c, e.asked, "has turns out of order in its view")
		}
	}
}

// TestCheckFinds runs the checks on sessions with one error each.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	// A session is written as its items, each after its parent: "b1" is the answer to "a1".
	for name, c := range map[string]struct {
		items                     []string
		head                      uint64
		lost, doubled, disordered int
	}{
		"nothing":                   {items: []string{"1<0 a1", "2<1 b1", "3<2 a2", "4<3 b2"}, head: 4},
		"no question":               {items: []string{"1<0 a1", "2<1 b1"}, head: 2, lost: 1},
		"no answer":                 {items: []string{"1<0 a1", "2<1 b1", "3<2 a2"}, head: 3, lost: 1},
		"question twice":            {items: []string{"1<0 a1", "2<1 b1", "3<2 a2", "4<1 a2", "5<3 b2"}, head: 5, doubled: 1},
		"answer twice, on a side":   {items: []string{"1<0 a1", "2<1 b1", "3<2 a2", "4<3 b2", "5<1 b2"}, head: 4, doubled: 1},
		"later one first":           {items: []string{"1<0 a2", "2<1 b2", "3<2 a1", "4<3 b1"}, head: 4, disordered: 1},
		"stored later, stands well": {items: []string{"1<4 a2", "2<1 b2", "3<0 a1", "4<3 b1"}, head: 2},
		"beside the line":           {items: []string{"1<0 a1", "2<1 b1", "3<0 a2", "4<3 b2"}, head: 4, disordered: 1},
	} {
		s := stored{items: map[uint64]item{}, at: map[message][]uint64{}, head: c.head}
		for _, text := range c.items {
			var it item
			if _, err := fmt.Sscanf(text, "%d<%d %s", &it.Seq, &it.Parent, &it.JSON.Content); err != nil {
				t.Fatal(err)
			}
			turn := it.JSON.Content[1:]
			it.Chain, it.JSON = text, message{"user", turn}
			if strings.Contains(text, "b") {
				it.JSON = message{"assistant", answerTo(turn)}
			}
			s.items[it.Seq] = it
			s.at[it.JSON] = append(s.at[it.JSON], it.Seq)
		}
		var w wrongs
		w.compare(&talker{name: "c", said: []string{"1", "2"}}, s, s.line(s.head))
		if w.lost != c.lost || w.doubled != c.doubled || w.disordered != c.disordered {
			t.Errorf("%s: %d lost, %d doubled, %d out of order; want %d, %d, %d", name, w.lost, w.doubled, w.disordered, c.lost, c.doubled, c.disordered)
		}
	}

	for name, c := range map[string]struct {
		onlyNew                bool
		memory, seen           string
		missed, twice, jumbled bool
	}{
		"nothing":           {onlyNew: true, memory: "ok;items=5", seen: "1 2 3"},
		"missed":            {onlyNew: true, memory: "ok;items=5", seen: "1 3", missed: true},
		"missed, marked":    {onlyNew: true, memory: "degraded;items=5", seen: "1 3"},
		"missed, bypassed":  {onlyNew: true, memory: "bypass", seen: "3", missed: true},
		"missed of its own": {memory: "degraded;items=5", seen: "1 3", missed: true},
		"out of order":      {onlyNew: true, memory: "ok;items=5", seen: "2 1 3", jumbled: true},
		"twice":             {onlyNew: true, memory: "ok;items=5", seen: "1 2 1 3", twice: true},
	} {
		e := exchange{memory: c.memory, seen: c.seen}
		(&talker{onlyNew: c.onlyNew, said: []string{"1", "2"}}).look(&e)
		if e.missed != c.missed || e.twice != c.twice || e.jumbled != c.jumbled {
			t.Errorf("view with %s: missed %t, twice %t, jumbled %t; want %t, %t, %t", name, e.missed, e.twice, e.jumbled, c.missed, c.twice, c.jumbled)
		}
	}

	s := stored{at: map[message][]uint64{{"user", "1"}: {1}, {"user", "2"}: {2}, {"user", "3"}: {3}}}
	for seen, want := range map[string]int{"1 2": 0, "2": 1, "3": 2} {
		var w wrongs
		w.last(&talker{settled: true, said: []string{"1", "2", "3"}, calls: []exchange{{memory: "ok", seen: seen}}}, s, map[uint64]int{1: 0, 2: 1})
		if w.gone != want { // the third one stands beside the line
			t.Errorf("last view with %s: %d turns are gone, want %d", seen, w.gone, want)
		}
	}
}
