// Package index finds the turns of conversations that answer a question, without a model: by shared words (BM25 over turns,
// windows of turns and sessions), and by other features of a conversation: the speaker, the time, the preceding question, and
// the kind of answer that a question wants. The features are in features.go, and their weights in weights.go, which `make
// recall-fit` writes.
//
// It keeps everything in memory and reads nothing; its callers bound the memory of all conversations.
package index

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Turn is one message, or a part of one.
type Turn struct {
	ID      string    // of its item, unique
	Session string    // its session
	Role    string    // RoleUser, RoleAssistant or empty
	Speaker string    // a name, or the role. A text may begin with it and a colon
	Time    time.Time // when it was said; the zero time is unknown
	Text    string
	Content [16]byte // a digest by which callers know the item again; the index does not use it
}

// Roles. "I" in a user's question means the user.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Index holds the turns of sessions that are searched together. It is safe for concurrent use.
type Index struct {
	mu sync.RWMutex

	items    []item
	sessions []session
	bySource map[string]int32 // sessions by their id
	speakers map[string]int32 // by their name in lower case
	named    map[uint32]int32 // the speaker whose name has this term; -1 for several

	vocabulary vocabulary
	postings   [][]posting  // by term
	sequence   []uint32     // the terms of all texts, one text after the other
	spans      []span       // the dates that texts name, likewise
	vectors    []turnVector // of the first turns; the others have none

	length, length3, length5 int64 // of all turns, and of all windows
	bytes                    int

	scan  scanner
	terms []uint32
}

// posting is a turn that has a term, and in the lower bits how often.
type posting uint32

const (
	countBits = 4
	maxCount  = 1<<countBits - 1
	maxItems  = 1<<(32-countBits) - 1
)

func (p posting) item() int32    { return int32(p >> countBits) }
func (p posting) count() float32 { return float32(p & maxCount) }

// item is a turn in the index.
type item struct {
	Turn
	session    int32
	speaker    int32
	prev, next int32 // in its session, -1 for none
	day        int32 // 0 for unknown
	length     int32 // terms, with those of speaker and date
	length3    int32 // of the window of it and its neighbours
	length5    int32 // and theirs
	sequence   int32 // where its terms begin
	words      int32 // how many they are
	span       int32 // where its dates begin
	dates      int32
	capitals   int8 // names, as far as capitals tell
	traits     trait
}

// trait is a property of a text beside its words.
type trait uint8

const (
	asks     trait = 1 << iota // a question
	onlyAsks                   // and nothing else
	timed                      // a time
	numbered                   // a number
	quoted                     // a text in quotation marks
	reasoned                   // a reason
)

type session struct {
	first, last int32
	length      int32
}

// New returns an empty index.
func New() *Index {
	return &Index{bySource: map[string]int32{}, speakers: map[string]int32{}, named: map[uint32]int32{}, vocabulary: newVocabulary()}
}

// Len is how many turns the index has.
func (ix *Index) Len() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return len(ix.items)
}

// Bytes estimates the memory of the index.
func (ix *Index) Bytes() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.bytes + ix.vocabulary.bytes
}

// What turns, terms and postings need in memory, in bytes, with what slices and maps waste.
const (
	itemBytes    = 260
	sessionBytes = 120
	termBytes    = 160
	gramBytes    = 5
	postingBytes = 6
	vectorBytes  = 32
)

// Add appends a turn to its session.
func (ix *Index) Add(t Turn) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if len(ix.items) == maxItems {
		return
	}
	at := small(len(ix.items))
	it := item{Turn: t, prev: -1, next: -1, day: dayOf(t.Time), sequence: small(len(ix.sequence)), span: small(len(ix.spans))}
	it.Text = strings.Clone(head(t.Text, maxText)) // keeps nothing alive that it was cut from
	it.session = ix.sessionOf(t.Session)
	it.speaker = ix.speakerOf(t.Speaker)
	ix.bytes += itemBytes + len(it.Text) + len(it.ID)

	ix.terms = ix.terms[:0]
	text := strings.TrimPrefix(it.Text, t.Speaker)
	if rest, ok := strings.CutPrefix(text, ": "); ok {
		text = rest
	} else {
		text = it.Text
	}
	ix.addWords(&it, text)
	it.words = small(len(ix.sequence)) - it.sequence
	ix.spans = dateReader{&ix.scan, it.day}.all(ix.spans)
	it.dates = small(len(ix.spans)) - it.span

	ix.addTerms(t.Speaker)
	if it.day != 0 {
		ix.addTerms(t.Time.Format("2 January 2006"))
	}
	it.length = small(len(ix.terms))
	ix.post(at)
	ix.place(at, &it)
	ix.items = append(ix.items, it)
}

// small is a length as the index stores it.
func small(n int) int32 {
	return int32(n) //nolint:gosec // there are at most maxItems turns, and texts are bounded
}

// Without returns an index that lacks the turns of some sessions, in the order in which they were added.
func (ix *Index) Without(gone func(session string) bool) *Index {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.only(func(i int) bool { return !gone(ix.items[i].Session) })
}

// Newest returns an index of about so many bytes, with the newest turns in the order in which they were added, and at least
// the newest one. The turns of an item, which share its ID, stay or go together.
func (ix *Index) Newest(bytes int) *Index {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	byTime, weights, all := make([]int, len(ix.items)), make([]int, len(ix.items)), 0
	for i := range ix.items {
		it := &ix.items[i]
		byTime[i], weights[i] = i, itemBytes+len(it.Text)+postingBytes*int(it.length)
		if i < len(ix.vectors) {
			weights[i] += len(ix.vectors[i].Vector)
		}
		all += weights[i]
	}
	slices.SortStableFunc(byTime, func(a, b int) int { return ix.items[a].Time.Compare(ix.items[b].Time) })

	// What all turns share, such as the vocabulary, counts in proportion.
	room := int(float64(bytes) / float64(ix.bytes+ix.vocabulary.bytes) * float64(all))
	sameItem := func(a, b int) bool {
		return ix.items[a].Session == ix.items[b].Session && ix.items[a].ID == ix.items[b].ID
	}
	gone := make([]bool, len(ix.items))
	for n, i := range byTime {
		enough := all <= room && (n == 0 || !sameItem(i, byTime[n-1]))
		if enough || sameItem(i, byTime[len(byTime)-1]) {
			break
		}
		gone[i] = true
		all -= weights[i]
	}
	return ix.only(func(i int) bool { return !gone[i] })
}

// only returns an index with the turns that stay.
func (ix *Index) only(stays func(i int) bool) *Index {
	rest := New()
	for i := range ix.items {
		if stays(i) {
			rest.Add(ix.items[i].Turn)
			if i < len(ix.vectors) {
				rest.setVector(len(rest.items)-1, ix.vectors[i].Vector)
			}
		}
	}
	return rest
}

// sessionOf returns the number of a session, a new one for a new session.
func (ix *Index) sessionOf(id string) int32 {
	n, ok := ix.bySource[id]
	if !ok {
		n = small(len(ix.sessions))
		ix.sessions = append(ix.sessions, session{first: -1, last: -1})
		ix.bySource[strings.Clone(id)] = n
		ix.bytes += sessionBytes + len(id)
	}
	return n
}

// speakerOf returns the number of a speaker, and learns the terms of a new one's name.
func (ix *Index) speakerOf(name string) int32 {
	lower := strings.ToLower(name)
	n, ok := ix.speakers[lower]
	if ok {
		return n
	}
	n = small(len(ix.speakers))
	ix.speakers[lower] = n
	ix.bytes += sessionBytes + len(lower)
	if lower == RoleUser || lower == RoleAssistant {
		return n // words like any other
	}
	ix.scan.scan(name)
	for i := range ix.scan.tokens {
		term, of := ix.term(ix.scan.stem(&ix.scan.tokens[i])), n
		if _, taken := ix.named[term]; taken {
			of = -1
		}
		ix.named[term] = of
	}
	return n
}

// term returns the number of a stem, and gives a new one its postings.
func (ix *Index) term(stem []byte) uint32 {
	n := ix.vocabulary.number(stem)
	if int(n) == len(ix.postings) {
		ix.postings = append(ix.postings, nil)
	}
	return n
}

// addWords takes the terms and the traits of a turn's text.
func (ix *Index) addWords(it *item, text string) {
	s := &ix.scan
	s.scan(text)
	for i := range s.tokens {
		t := &s.tokens[i]
		if t.number >= 0 || t.date.kind == countWord && t.date.value > 1 {
			it.traits |= numbered
		}
		if t.stop {
			if w := s.text(t); string(w) == "because" || string(w) == "so" {
				it.traits |= reasoned
			}
			continue
		}
		term := ix.term(s.stem(t))
		ix.terms = append(ix.terms, term)
		ix.sequence = append(ix.sequence, term)
		if _, speaker := ix.named[term]; t.capital && !speaker && it.capitals < 9 {
			it.capitals++
		}
	}
	ix.bytes += 4 * len(ix.terms)
	if s.asks > 0 {
		it.traits |= asks
		if s.tells == 0 {
			it.traits |= onlyAsks
		}
	}
	if s.quotes > 0 {
		it.traits |= quoted
	}
	if (dateReader{scanner: s}).timed() {
		it.traits |= timed
	}
}

// addTerms adds the terms of a text besides the turn's own, such as its speaker's name.
func (ix *Index) addTerms(text string) {
	ix.scan.scan(text)
	for i := range ix.scan.tokens {
		ix.terms = append(ix.terms, ix.term(ix.scan.stem(&ix.scan.tokens[i])))
	}
}

// post adds a turn to the postings of its terms.
func (ix *Index) post(at int32) {
	for _, term := range ix.terms {
		list := ix.postings[term]
		if n := len(list); n > 0 && list[n-1].item() == at {
			if list[n-1]&maxCount < maxCount {
				list[n-1]++
			}
			continue
		}
		ix.postings[term] = append(list, posting(at)<<countBits|1) //nolint:gosec // at most maxItems
		ix.bytes += postingBytes
	}
}

// place appends a turn to its session, and adds it to the windows of the turns before it.
func (ix *Index) place(at int32, it *item) {
	s := &ix.sessions[it.session]
	it.prev = s.last
	if s.first < 0 {
		s.first = at
	}
	s.last = at
	s.length += it.length

	it.length3, it.length5 = it.length, it.length
	if it.prev >= 0 {
		p := &ix.items[it.prev]
		p.next = at
		p.length3 += it.length
		p.length5 += it.length
		it.length3 += p.length
		it.length5 += p.length
		ix.length3 += int64(it.length)
		ix.length5 += int64(it.length)
		if p.prev >= 0 {
			pp := &ix.items[p.prev]
			pp.length5 += it.length
			it.length5 += pp.length
			ix.length5 += int64(it.length)
		}
	}
	ix.length += int64(it.length)
	ix.length3 += int64(it.length3)
	ix.length5 += int64(it.length5)
}

// Unembedded is an item of a conversation that has no vectors yet: its turns, one after the other.
type Unembedded struct {
	Session string
	Content [16]byte
	First   int // the number of the first turn
	Texts   []string
}

// Unembedded returns items without vectors among the newest turns, at most limit, the newest first. With a session, it returns
// only that session's.
func (ix *Index) Unembedded(session string, newest, limit int) []Unembedded {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	var all []Unembedded
	for at := len(ix.items) - 1; at >= max(0, len(ix.items)-newest) && len(all) < limit; at-- {
		it := &ix.items[at]
		if at < len(ix.vectors) && ix.vectors[at].Vector != nil || session != "" && it.Session != session {
			continue
		}
		first := at
		for first > 0 && ix.items[first-1].session == it.session && ix.items[first-1].ID == it.ID {
			first--
		}
		u := Unembedded{Session: it.Session, Content: it.Content, First: first}
		for _, part := range ix.items[first : at+1] {
			u.Texts = append(u.Texts, part.Text)
		}
		all = append(all, u)
		at = first
	}
	return all
}

// SetVectors gives consecutive turns their vectors.
func (ix *Index) SetVectors(first int, vectors []Vector) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for i, v := range vectors {
		ix.setVector(first+i, v)
	}
}

func (ix *Index) setVector(at int, v Vector) {
	if at >= len(ix.items) || v == nil {
		return
	}
	for len(ix.vectors) <= at {
		ix.vectors = append(ix.vectors, turnVector{})
	}
	ix.bytes += len(v) - len(ix.vectors[at].Vector) + vectorBytes
	ix.vectors[at] = turnVector{v, v.inverse()}
}
