package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/session"
)

// states carries the states of layers through one turn. They are read with the session and written with the answer, in
// the same round trips; states shared by several sessions have groups of their own.
type states struct {
	store  cache.Store
	run    *pipeline.Run // idle until the layers have begun
	begun  bool          // they have
	groups []stateGroup  // that of the session is the first
	sent   []*stateGroup // those of the batches that puts has returned, in their order
	steady bool          // hooks change them before the answer alone
	ttl    time.Duration // of all groups, as of the session; 0 is for ever
	parent []pipeline.Cell
	found  map[pipeline.Cell]layer.State // as read
	// pending was read after hooks had run; they run again on it.
	pending map[pipeline.Cell]layer.State
	tried   map[pipeline.Cell]layer.State // as puts has returned them last: each group is written by itself
	values  sessionValues                 // of the session
}

// stateGroup is a group of the store that holds states.
type stateGroup struct {
	cache.Group
	cells   []pipeline.Cell
	version uint64
	known   bool // version is
	foreign bool // read, and never written by this turn: the parent session's, or the own one where it does not exist
}

// Names of groups that hold states of several sessions. Those of sessions are the transcript's.
const (
	resourcePrefix = "u:"
	globalGroup    = "g:"
	// statePrefix and a layer's id name a state within its group.
	statePrefix = "l"
)

// begin says that the layers have begun, on the states that were found.
func (st *states) begin(run *pipeline.Run) { st.run, st.begun = run, true }

func (st *states) known() map[pipeline.Cell]layer.State {
	if st == nil {
		return nil
	}
	return st.found
}

// sessionValues returns the session values for its next views.
func (st *states) sessionValues() *sessionValues {
	if st == nil {
		return &sessionValues{}
	}
	return &st.values
}

// forget leaves the session values for the next views unchanged: the conversation's window and pinned prefix do not apply to a
// request that stands alone.
func (st *states) forget() {
	if st != nil {
		st.values = sessionValues{}
	}
}

func stateName(c pipeline.Cell) string { return statePrefix + c.Layer }

// newStates returns the states that a turn reads, nil without layers. parent names the session whose states a new
// session begins with, "" for none.
func newStates(t *turnInfo, s Scope, lt *layer.Turn, parent string) *states {
	cells := t.shape.Layers.Cells(lt)
	k := newSessionValues(t.shape, t.m.prefixes)
	if len(cells) == 0 && k.empty() {
		return nil
	}
	st := &states{steady: t.shape.Layers.Steady(), store: t.m.store, run: pipeline.Idle(), ttl: t.m.o.SessionTTL, found: make(map[pipeline.Cell]layer.State, len(cells)), values: k}
	st.groups = append(st.groups, stateGroup{Group: s.Group()})
	for _, c := range cells {
		st.add(groupOf(s, c), c)
	}
	if parent != "" {
		above := *lt
		above.Thread = parent
		from := Scope{Tenant: s.Tenant, Session: parent}
		for _, c := range t.shape.Layers.Cells(&above) {
			if c.Scope == layer.Thread {
				st.parent = append(st.parent, c)
				st.add(from.Group(), c)
			}
		}
	}
	for i := range st.groups {
		st.groups[i].foreign = parent != "" && st.groups[i].Group == Scope{Tenant: s.Tenant, Session: parent}.Group()
	}
	return st
}

// groupOf returns the group that stores the state of a cell.
func groupOf(s Scope, c pipeline.Cell) cache.Group {
	switch c.Scope {
	case layer.Resource:
		return cache.Group{Owner: s.Tenant, Name: resourcePrefix + c.Key}
	case layer.Global:
		return cache.Group{Owner: s.Tenant, Name: globalGroup}
	default:
		return s.Group()
	}
}

func (st *states) add(g cache.Group, c pipeline.Cell) {
	for i := range st.groups {
		if st.groups[i].Group == g {
			st.groups[i].cells = append(st.groups[i].cells, c)
			return
		}
	}
	st.groups = append(st.groups, stateGroup{Group: g, cells: []pipeline.Cell{c}})
}

func (g *stateGroup) names() []string {
	const keptToo = 5 // values of the session that are read beside its states
	names := make([]string, 0, len(g.cells)+keptToo)
	for _, c := range g.cells {
		names = append(names, stateName(c))
	}
	return names
}

// want returns the queries to read with the session; none for nil.
func (st *states) want() (w session.Want) {
	if st == nil {
		return w
	}
	w.Steady = len(st.groups) == 1 && st.steady
	w.Names = st.values.names(st.groups[0].names())
	for i := range st.groups[1:] {
		g := &st.groups[i+1]
		w.Others = append(w.Others, cache.Query{Group: g.Group, Names: g.names()})
	}
	return w
}

// load sets the states that were read. If hooks have run already, puts runs them again: they may be running now, since the
// input of a turn is written while its answer comes.
func (st *states) load(extra session.Extra) {
	fresh := st.found
	if st.begun {
		fresh = make(map[pipeline.Cell]layer.State)
	}
	st.groups[0].take(extra.Values, fresh)
	st.groups[0].known = true // at a version that only the transcript knows
	st.values.load(extra.Values[len(st.groups[0].cells):])
	for i, r := range extra.Others {
		g := &st.groups[i+1]
		g.version, g.known = r.Version, true
		g.take(r.Values, fresh)
	}
	if st.begun {
		st.pending = withoutOwn(fresh, st.tried)
	}
}

// withoutOwn leaves out of the read states those that are this turn's own writes: hooks would make their changes twice.
func withoutOwn(fresh, tried map[pipeline.Cell]layer.State) map[pipeline.Cell]layer.State {
	maps.DeleteFunc(fresh, func(c pipeline.Cell, s layer.State) bool {
		next, ok := tried[c]
		return ok && bytes.Equal(next, s)
	})
	return fresh
}

func (g *stateGroup) take(values [][]byte, into map[pipeline.Cell]layer.State) {
	for i, c := range g.cells {
		into[c] = values[i]
	}
}

// rebase runs hooks again, with their own timeouts: a hook that is cancelled because the store was slow would lose its change.
func (st *states) rebase(ctx context.Context, fresh map[pipeline.Cell]layer.State) {
	maps.Copy(st.found, fresh)
	st.run.Rebase(context.WithoutCancel(ctx), fresh)
}

// puts returns the values to write with the answer.
func (st *states) puts(ctx context.Context) (p session.Puts) {
	if len(st.pending) > 0 {
		st.rebase(ctx, st.pending)
	}
	st.pending, st.sent, st.tried = nil, nil, st.changedStates()
	for _, w := range st.changes() {
		if w.group == &st.groups[0] {
			p.Values = w.puts
			continue
		}
		st.sent, p.Others = append(st.sent, w.group), append(p.Others, st.batch(w))
	}
	p.Values = append(p.Values, st.values.changes()...)
	return p
}

// changedStates returns the states that hooks have changed and that are not known to be stored.
func (st *states) changedStates() map[pipeline.Cell]layer.State {
	all := make(map[pipeline.Cell]layer.State)
	for _, ch := range st.run.Changes() {
		all[ch.Cell] = ch.State
	}
	return all
}

// groupWrite are the values that are written to one group.
type groupWrite struct {
	group *stateGroup
	puts  []cache.Put
}

// changes returns the values to write, for each group that has any.
func (st *states) changes() (list []groupWrite) {
	changed := st.run.Changes()
	if len(changed) == 0 {
		return nil
	}
	for i := range st.groups {
		w := groupWrite{group: &st.groups[i]}
		for _, ch := range changed {
			if !w.group.foreign && slices.Contains(w.group.cells, ch.Cell) {
				w.puts = append(w.puts, cache.Put{Name: stateName(ch.Cell), Data: ch.State})
			}
		}
		if len(w.puts) > 0 {
			list = append(list, w)
		}
	}
	return list
}

// batch writes states; empty data takes one away.
func (st *states) batch(w groupWrite) cache.Batch {
	b := cache.Batch{Group: w.group.Group, Expect: w.group.version, TTL: st.ttl}
	for _, p := range w.puts {
		if len(p.Data) == 0 {
			b.Deletes = append(b.Deletes, p.Name)
		} else {
			b.Puts = append(b.Puts, p)
		}
	}
	return b
}

// wrote notes what was written with the answer. flush reads the states that another process
// wrote first, and makes the changes again.
func (st *states) wrote(ctx context.Context, done session.Done) {
	st.groups[0].version, st.groups[0].known = done.Version, true
	for i, out := range done.Others {
		st.sent[i].version, st.sent[i].known = out.Version, out.Err == nil
	}
	st.written(context.WithoutCancel(ctx))
}

// written reports the stored states to the layers, after dropping the groups that are no longer read.
func (st *states) written(ctx context.Context) {
	if st.conflicted() {
		lost := make(map[pipeline.Cell]layer.State)
		for i := range st.groups {
			if g := &st.groups[i]; !g.known && !g.foreign {
				for _, c := range g.cells {
					lost[c] = st.found[c]
				}
			}
		}
		st.run.Rebase(ctx, lost) // keeps the hooks that changed them in mind
	}
	st.run.Written()
}

// conflicted reports whether another process changed a state at the same time. flush then applies the changes anew.
func (st *states) conflicted() bool {
	return st != nil && slices.ContainsFunc(st.groups, func(g stateGroup) bool { return !g.known && !g.foreign && len(g.cells) > 0 })
}

// flush writes the remaining states: those that changed after the answer was committed, or that another replica changed
// at the same time.
func (st *states) flush(ctx context.Context) error {
	for {
		if err := st.refresh(ctx); err != nil {
			return err
		}
		writes := st.changes()
		if len(writes) == 0 {
			return nil
		}
		batches := make([]cache.Batch, len(writes))
		for i, w := range writes {
			batches[i] = st.batch(w)
		}
		for i, out := range st.store.Commit(ctx, batches) {
			if out.Err != nil && !errors.Is(out.Err, cache.ErrConflict) {
				return fmt.Errorf("write states: %w", out.Err)
			}
			writes[i].group.version, writes[i].group.known = out.Version, out.Err == nil
		}
		st.written(ctx)
	}
}

// reread reads all groups after a failed commit, which may have written the states. Hooks make the unwritten ones again, for
// flush to write.
func (st *states) reread(ctx context.Context) error {
	st.pending = nil
	tried := st.changedStates()
	for i := range st.groups {
		st.groups[i].known = false
	}
	fresh, err := st.readUnknown(ctx)
	if err != nil {
		return err
	}
	st.rebase(ctx, withoutOwn(fresh, tried))
	st.run.Written()
	return nil
}

// refresh reads the groups whose version is unknown, and runs the hooks again that changed them.
func (st *states) refresh(ctx context.Context) error {
	fresh, err := st.readUnknown(ctx)
	if err == nil && fresh != nil {
		st.rebase(ctx, fresh)
	}
	return err
}

// readUnknown reads the groups whose version is unknown; nil if there are none.
func (st *states) readUnknown(ctx context.Context) (map[pipeline.Cell]layer.State, error) {
	var queries []cache.Query
	var groups []*stateGroup
	for i := range st.groups {
		if g := &st.groups[i]; !g.known && !g.foreign && len(g.cells) > 0 {
			queries = append(queries, cache.Query{Group: g.Group, Names: g.names()})
			groups = append(groups, g)
		}
	}
	if len(queries) == 0 {
		return nil, nil
	}
	results, err := st.store.Read(ctx, queries)
	if err != nil {
		return nil, fmt.Errorf("read states: %w", err)
	}
	fresh := make(map[pipeline.Cell]layer.State)
	for i, r := range results {
		g := groups[i]
		g.version, g.known = r.Version, true
		g.foreign = g == &st.groups[0] && r.Version == 0 // only a turn begins a session: one that was deleted stays so
		g.take(r.Values, fresh)
	}
	return fresh, nil
}
