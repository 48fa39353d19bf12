package transcript

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"remora/cache"
	"remora/memory/memo"
	"remora/wire"
)

// Beside is what is read and written together with an entry, in the same round trips: values of the session and of
// other groups that the transcript itself knows nothing about. What it writes to the session is there exactly if the
// turn is.
type Beside interface {
	// Queries says what to read: names of values of the session's group, and queries of other groups.
	Queries() (names []string, others []cache.Query)
	// Loaded gets what was read, in the order of Queries; a value that is not stored is nil. It is called again
	// where the session had to be read again because another turn was faster.
	Loaded(ctx context.Context, values [][]byte, others []cache.Result)
	// Writes says what to write with the answer. Empty data means that the value is taken away.
	Writes() (values []cache.Put, others []cache.Batch)
	// Wrote is called when the session's part is written. version is the session's now, others what became of the
	// other batches of Writes.
	Wrote(version uint64, others []cache.Outcome)
}

// besides are the queries of b behind those of the session, whose names it extends.
func besides(b Beside, session cache.Query) []cache.Query {
	if b == nil {
		return []cache.Query{session}
	}
	names, others := b.Queries()
	session.Names = append(session.Names, names...)
	return append([]cache.Query{session}, others...)
}

// write is the commit of a draft, with what b writes unless the answer is still to come.
func (d *draft) write(ctx context.Context, b Beside) (cache.Outcome, []cache.Outcome) {
	batches := d.batches()
	own := len(batches)
	if b != nil && !d.open {
		values, others := b.Writes()
		for _, v := range values {
			if len(v.Data) == 0 {
				batches[0].Deletes = append(batches[0].Deletes, v.Name)
			} else {
				batches[0].Puts = append(batches[0].Puts, v)
			}
		}
		batches = append(batches, others...)
	}
	out := d.e.log.store.Commit(ctx, batches)
	return out[0], out[own:]
}

// sheet is the memory of what a commit writes. Stores copy it.
type sheet struct {
	puts []cache.Put
	data []byte // of the puts, one behind the other; where it had to grow, earlier ones are in memory of their own
}

var sheets sync.Pool // of *sheet

// maxSheet is the size in bytes of the largest sheet that is kept for the next commit.
const maxSheet = 64 << 10

func newSheet() *sheet {
	if s, ok := sheets.Get().(*sheet); ok {
		return s
	}
	return &sheet{puts: make([]cache.Put, 0, 16), data: make([]byte, 0, 4096)}
}

// release gives the sheet back when the draft is written.
func (d *draft) release() {
	s := d.sheet
	d.sheet = nil
	if cap(s.data) > maxSheet || cap(s.puts) > maxSheet/64 {
		return
	}
	clear(s.puts)
	s.puts, s.data = s.puts[:0], s.data[:0]
	sheets.Put(s)
}

// makeRoom prepares the draft for an input of so many new items, and for an answer of one.
func (d *draft) makeRoom(items []wire.Item) {
	const puts = 3 // of an item: itself, its place, and where its text was said last
	n := 0
	for i := range items {
		n += min(len(items[i].Raw), compressAbove) + itemBytes + placeBytes
	}
	d.data, d.puts = slices.Grow(d.data, n), slices.Grow(d.puts, puts*len(items))
	d.names.Grow(namesSize * max(1, len(items)))
}

// namesSize is what the names of a turn with one new item and one answer take, in bytes.
const namesSize = 96

// name makes the name of a value. Names of a draft share memory.
func (d *draft) name(prefix string, rest []byte) string {
	from := d.names.Len()
	d.names.WriteString(prefix)
	d.names.Write(rest)
	return d.names.String()[from:]
}

func chainName(h wire.Hash) string { return chainPrefix + string(h[:]) }

func textName(h wire.Hash) string { return textPrefix + string(h[:]) }

// value is what was appended to data from a place on.
func (d *draft) value(from int) []byte { return d.data[from:len(d.data):len(d.data)] }

// tellings are what each layer told the model last, in a conversation that upstream keeps: upstream still has it, and it
// need not be said again. They go with a response, since a client may go on from any.
type tellings []telling

type telling struct{ layer, texts wire.Hash }

// maxTellings bounds the layers of tellings.
const maxTellings = 256

// Told tells that these texts are what the layer told the model last, in the conversation that the request goes on with.
// Where it names no response of which that is known, all that the latest views held counts as told.
func (e *Entry) Told(layer string, texts []string) bool {
	if e.state.told != nil {
		return slices.Contains(e.state.told, telling{blockHash(layer), textsHash(texts)})
	}
	return !slices.ContainsFunc(texts, func(text string) bool { return !slices.Contains(e.state.head.Blocks, blockHash(text)) })
}

// textsHash tells lists of texts apart.
func textsHash(texts []string) wire.Hash {
	var all []byte
	for _, text := range texts {
		sum := blockHash(text)
		all = append(all, sum[:]...)
	}
	return blockHash(string(all))
}

// tellings are those by the turn's own response; false where no layer of the session has ever told anything.
func (e *Entry) tellings() (tellings, bool) {
	all := tellings{}
	if e.in.stateful || e.in.unresolved() {
		all = slices.Clone(e.state.told)
	}
	byLayer := make(map[string][]string)
	var order []string
	for _, b := range e.blocks {
		if byLayer[b.Layer] == nil {
			order = append(order, b.Layer)
		}
		byLayer[b.Layer] = append(byLayer[b.Layer], b.Text)
	}
	for _, id := range order {
		name := blockHash(id)
		all = slices.DeleteFunc(all, func(t telling) bool { return t.layer == name })
		all = append(all, telling{name, textsHash(byLayer[id])})
	}
	return all[max(0, len(all)-maxTellings):], len(all) > 0 || len(e.state.head.Blocks) > 0
}

func (t tellings) encode() []byte {
	b := []byte{recordVersion}
	for _, one := range t {
		b = append(append(b, one.layer[:]...), one.texts[:]...)
	}
	return b
}

func decodeTellings(b []byte) (tellings, error) {
	const size = 2 * len(wire.Hash{})
	if len(b) == 0 || b[0] != recordVersion || len(b[1:])%size != 0 || len(b[1:]) > maxTellings*size {
		return nil, ErrCorrupt
	}
	t := tellings{}
	for one := range slices.Chunk(b[1:], size) {
		t = append(t, telling{wire.Hash(one[:size/2]), wire.Hash(one[size/2:])})
	}
	return t, nil
}

// recent remembers what this process wrote last of some sessions, so that a client's next turn needs no read: most
// clients resend what was said, and most balancers send a session to the same replica. It is a guess, and one that does
// no harm. A request that goes on from here with nothing but what users and tools say belongs here, unless another turn
// of the session runs at the same time or broke off elsewhere; its view is made of its own items all the same, and its
// commit, which expects the version that was written here, meets a conflict and reads. Sessions in which anything is
// hidden from the client, or that layers keep states of, are always read.
type recent struct {
	seed   maphash.Seed
	shards [16]memo.Map[recentKey, written]
}

type recentKey struct{ tenant, session string }

// written is a session as a commit left it. Nobody changes the head: a draft makes its own.
type written struct {
	version uint64
	head    *head
}

const (
	// maxRecent is how many sessions a half of a shard holds: some 10 MB in all, when full of long ones.
	maxRecent = 128
	// maxRecentCalls is how many open calls a session may have to be remembered.
	maxRecentCalls = 32
)

func (r *recent) shard(s Scope) *memo.Map[recentKey, written] {
	return &r.shards[maphash.String(r.seed, s.Session)%uint64(len(r.shards))]
}

func (r *recent) find(s Scope) (state, bool) {
	w, ok := r.shard(s).Find(recentKey{s.Tenant, s.Session})
	if !ok {
		return state{}, false
	}
	return state{version: w.version, head: *w.head}, true
}

func (r *recent) put(s Scope, version uint64, h *head) {
	if len(h.Open) > maxRecentCalls {
		r.drop(s)
		return
	}
	r.shard(s).Put(recentKey{s.Tenant, s.Session}, written{version, h}, maxRecent)
}

func (r *recent) drop(s Scope) { r.shard(s).Drop(recentKey{s.Tenant, s.Session}) }
