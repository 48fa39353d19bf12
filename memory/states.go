package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/session"
)

// states carries the states of layers through one turn. They are read with the session and written with the answer, in
// the same round trips; states shared by several sessions have groups of their own. If another process has changed a state
// meanwhile, it is read again, and the hooks that changed it run again: see catchUp.
type states struct {
	store  cache.Store
	ttl    time.Duration // of all groups, as of the session; 0 is for ever
	groups []stateGroup  // that of the session is the first
	steady bool          // hooks change them before the answer alone
	spawns bool          // those of the parent session are read, too
	values sessionValues // of the session

	run *pipeline.Run // idle until the layers have begun
	// changed holds what a commit has read again because another turn changed the session. catchUpSession loads it: layers may still
	// be running when it is read, as the input of a turn is written while its answer arrives.
	changed *session.Extra
	read    map[pipeline.Cell]layer.State // the states that the layers do not have yet
	tried   []pipeline.Change             // that puts has returned, until their fate is known
	sent    []*stateGroup                 // those of the batches that puts has returned, in their order
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

func stateName(c pipeline.Cell) string { return statePrefix + c.Layer }

// noStates are those of layers that only judge.
func noStates() *states { return &states{run: pipeline.Idle()} }

// newStates returns the states that a turn reads. parent names the session whose states a new session begins with, "" for none.
func newStates(t *turnInfo, s Scope, lt *layer.Turn, parent string) *states {
	st := &states{
		store: t.m.store, ttl: t.m.o.SessionTTL, groups: []stateGroup{{Group: s.Group()}}, steady: t.shape.Layers.Steady(),
		values: newSessionValues(t.shape, t.m.prefixes), run: pipeline.Idle(),
	}
	for _, c := range t.shape.Layers.Cells(lt) {
		g := st.group(groupOf(s, c))
		g.cells = append(g.cells, c)
	}
	if parent == "" {
		return st
	}

	above := *lt
	above.Thread = parent
	for _, c := range t.shape.Layers.Cells(&above) {
		if c.Scope == layer.Thread {
			g := st.group(Scope{Tenant: s.Tenant, Session: parent}.Group())
			g.cells, g.foreign, st.spawns = append(g.cells, c), true, true
		}
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

// group returns the stateGroup of a group of the store, a new one if there is none.
func (st *states) group(g cache.Group) *stateGroup {
	at := slices.IndexFunc(st.groups, func(known stateGroup) bool { return known.Group == g })
	if at < 0 {
		at = len(st.groups)
		st.groups = append(st.groups, stateGroup{Group: g})
	}
	return &st.groups[at]
}

// forget leaves the session values for the next views unchanged: the conversation's window and pinned prefix do not apply to a
// request that stands alone.
func (st *states) forget() { st.values = sessionValues{} }

func (g *stateGroup) query() cache.Query {
	q := cache.Query{Group: g.Group, Names: make([]string, len(g.cells))}
	for i, c := range g.cells {
		q.Names[i] = stateName(c)
	}
	return q
}

// want returns the queries to read with the session.
func (st *states) want() session.Want {
	w := session.Want{Names: st.values.names(st.groups[0].query().Names), Steady: len(st.groups) == 1 && st.steady}
	for i := range st.groups[1:] {
		w.Others = append(w.Others, st.groups[i+1].query())
	}
	return w
}

// load takes the states that were read with the session.
func (st *states) load(extra session.Extra) {
	own := len(st.groups[0].cells)
	st.take(&st.groups[0], 0, extra.Values[:own]) // at a version that only the transcript knows
	st.values.load(extra.Values[own:])
	for i, r := range extra.Others {
		st.take(&st.groups[i+1], r.Version, r.Values)
	}
}

// take takes the states of a group as they were read at a version.
func (st *states) take(g *stateGroup, version uint64, values [][]byte) {
	g.version, g.known = version, true
	if st.read == nil && len(g.cells) > 0 {
		st.read = make(map[pipeline.Cell]layer.State)
	}
	for i, c := range g.cells {
		st.read[c] = values[i]
	}
}

// begin sets the run of the layers, which have begun with the states that were read.
func (st *states) begin(run *pipeline.Run) { st.run, st.read = run, nil }

// catchUp runs the hooks again whose states others have changed, with their own timeouts: a hook that is cancelled because the store
// was slow would lose its change. What this turn itself has written is no change of others: hooks would make theirs twice.
func (st *states) catchUp(ctx context.Context) {
	for _, ch := range st.tried {
		if s, ok := st.read[ch.Cell]; ok && bytes.Equal(s, ch.State) {
			delete(st.read, ch.Cell)
		}
	}
	if len(st.read) > 0 {
		st.run.Rebase(context.WithoutCancel(ctx), st.read)
	}
	st.read = nil
}

// sessionChanged reports whether the session was read again since the layers' hooks ran.
func (st *states) sessionChanged() bool { return st.changed != nil }

// catchUpSession runs the hooks again whose states others have changed since the session was read.
func (st *states) catchUpSession(ctx context.Context) {
	st.load(*st.changed)
	st.changed = nil
	st.catchUp(ctx)
}

// puts returns the values to write with the answer. Call catchUpSession before if sessionChanged.
func (st *states) puts() (p session.Puts) {
	st.tried = st.run.Changes()
	p.Values = append(st.groups[0].puts(st.tried), st.values.changes()...)
	p.Others, st.sent = st.batches(st.groups[1:], st.tried)
	return p
}

// puts returns those of the changed states that are in the group; one without data is to be deleted.
func (g *stateGroup) puts(changes []pipeline.Change) (puts []cache.Put) {
	for _, ch := range changes {
		if !g.foreign && slices.Contains(g.cells, ch.Cell) {
			puts = append(puts, cache.Put{Name: stateName(ch.Cell), Data: ch.State})
		}
	}
	return puts
}

// batches returns the writes of changed states, and the groups that they are for.
func (st *states) batches(groups []stateGroup, changes []pipeline.Change) (batches []cache.Batch, of []*stateGroup) {
	for i := range groups {
		g := &groups[i]
		puts := g.puts(changes)
		if len(puts) == 0 {
			continue
		}
		b := cache.Batch{Group: g.Group, Expect: g.version, TTL: st.ttl}
		for _, p := range puts {
			if len(p.Data) == 0 {
				b.Deletes = append(b.Deletes, p.Name)
			} else {
				b.Puts = append(b.Puts, p)
			}
		}
		batches, of = append(batches, b), append(of, g)
	}
	return batches, of
}

// wrote records what was written with the answer.
func (st *states) wrote(done session.Done) {
	if done.Version == 0 { // by an earlier try, whose reply was lost
		st.doubt()
		return
	}
	st.groups[0].version, st.groups[0].known = done.Version, true
	st.written(st.sent, done.Others)
}

// written records what became of the writes to some groups. Those that failed, as where another process was first, have to be
// read again: see flush.
func (st *states) written(groups []*stateGroup, outcomes []cache.Outcome) {
	var lost, unknown []pipeline.Cell
	for i, out := range outcomes {
		g := groups[i]
		g.version, g.known = out.Version, out.Err == nil
		if !g.known {
			lost = append(lost, g.cells...)
		}
		if !g.known && !errors.Is(out.Err, cache.ErrConflict) {
			unknown = append(unknown, g.cells...)
		}
	}
	st.tried = slices.DeleteFunc(st.tried, func(ch pipeline.Change) bool { return !slices.Contains(unknown, ch.Cell) })
	st.run.Written(lost...)
}

// isStale reports whether the stored states may be newer than these: the group is read before it is written.
func (g *stateGroup) isStale() bool { return !g.known && !g.foreign && len(g.cells) > 0 }

// conflicted reports whether another process changed a state at the same time. flush then applies the changes anew.
func (st *states) conflicted() bool {
	return slices.ContainsFunc(st.groups, func(g stateGroup) bool { return g.isStale() })
}

// doubt makes flush read all groups first, since a commit whose outcome is unknown may have written them.
func (st *states) doubt() {
	for i := range st.groups {
		st.groups[i].known = false
	}
}

// flush writes the remaining states: those that changed after the answer was committed, or that another replica changed
// at the same time.
func (st *states) flush(ctx context.Context) error {
	for {
		if err := st.refresh(ctx); err != nil {
			return err
		}
		st.catchUp(ctx)
		st.tried = st.run.Changes()
		batches, groups := st.batches(st.groups, st.tried)
		if len(batches) == 0 {
			return nil
		}
		outcomes := st.store.Commit(ctx, batches)
		st.written(groups, outcomes)
		for _, out := range outcomes {
			if out.Err != nil && !errors.Is(out.Err, cache.ErrConflict) {
				return fmt.Errorf("write states: %w", out.Err)
			}
		}
	}
}

// refresh reads the groups that are stale.
func (st *states) refresh(ctx context.Context) error {
	var queries []cache.Query
	var groups []*stateGroup
	for i := range st.groups {
		if g := &st.groups[i]; g.isStale() {
			queries, groups = append(queries, g.query()), append(groups, g)
		}
	}
	if len(queries) == 0 {
		return nil
	}
	results, err := st.store.Read(ctx, queries)
	if err != nil {
		return fmt.Errorf("read states: %w", err)
	}
	for i, r := range results {
		g := groups[i]
		st.take(g, r.Version, r.Values)
		g.foreign = g == &st.groups[0] && r.Version == 0 // only a turn begins a session: one that was deleted stays so
	}
	return nil
}
