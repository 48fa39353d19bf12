package taskstate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"remora/memory/layer"
)

const (
	// maxGiven limits the children whose returns are known; the oldest are forgotten.
	maxGiven = 64
	// maxMembers is how many members of their data are known, for all of them.
	maxMembers = 4096
	// printSize is the length of a fingerprint of a name or of a member, in bytes.
	printSize = 8
)

// given records the data that a child has returned: a child may return several times, but each entry only once.
type given struct {
	Child   string `json:"child"`             // fingerprint of its session, in hex
	Marked  int    `json:"marked"`            // as in state
	Members []byte `json:"members,omitempty"` // fingerprints of the members of its data
}

func fingerprint(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write([]byte(p))
		_, _ = h.Write([]byte{0})
	}
	return string(h.Sum(nil)[:printSize])
}

// asSet splits fingerprints.
func asSet(prints []byte) map[string]bool {
	all := make(map[string]bool, len(prints)/printSize)
	for m := range slices.Chunk(prints, printSize) {
		all[string(m)] = true
	}
	return all
}

// saneCounts reports whether the counts of a state fit each other, and the records of children are within limits.
func saneCounts(st *state) bool {
	members := 0
	for _, g := range st.Given {
		if len(g.Child) != 2*printSize || g.Marked < 0 || len(g.Members)%printSize != 0 {
			return false
		}
		members += len(g.Members) / printSize
	}
	if len(st.Spawned)%printSize != 0 || len(st.Spawned) > (maxKeys+1)*printSize {
		return false
	}
	return len(st.Given) <= maxGiven && members <= maxMembers && st.Marked >= 0 && st.Marked <= maxMarked &&
		st.Base >= 0 && st.Base <= max(st.Marked, len(st.Checkpoints))
}

// maxMarked is an upper bound of the checkpoints of a session.
const maxMarked = 1 << 50

// Spawn gives a child a copy of its parent's state, without the outcome: the child's task begins.
func (*Layer) Spawn(_ context.Context, _ *layer.Turn, parent layer.State) (layer.State, error) {
	if len(parent) == 0 {
		return nil, nil
	}
	st := read(parent)
	st.Base, st.Spawned, st.Given = st.Marked, nil, nil
	delete(st.Data, outcomeKey)
	for _, key := range slices.Sorted(maps.Keys(st.Data)) {
		st.Spawned = append(st.Spawned, fingerprint(key, string(st.Data[key]))...)
	}
	return st.encode()
}

// Return adds a child's results: its new files, its own newest checkpoints, and its data. Data that it returned before, or was
// spawned with, is not added again. Data beyond the limits is left out.
func (l *Layer) Return(_ context.Context, _ *layer.Turn, parent, child layer.State, o layer.Outcome) (layer.State, error) {
	st, from := read(parent), read(child)
	for _, f := range from.Files {
		if all := append(slices.Clip(st.Files), f); !slices.Contains(st.Files, f) && saneFiles(all) {
			st.Files = all
		}
	}
	before := st.takeGiven(hex.EncodeToString([]byte(fingerprint(o.Thread))))
	if before.Marked <= from.Base || before.Marked > from.Marked {
		before = given{Child: before.Child} // the child is new, maybe in place of one that was deleted
	}
	fresh := from.Marked - max(from.Base, before.Marked)
	marks := slices.Clone(layer.Last(from.Checkpoints, fresh))
	if n := len(marks); n > 0 && o.Result.Ends() {
		marks[n-1].Outcome = string(o.Result)
	}
	st.mark(marks...)
	now := given{Child: before.Child, Marked: from.Marked}
	if l.byExecution {
		st.keepGiven(now)
		return st.withExecution(o.Execution, from.Data)
	}
	known := asSet(before.Members)
	if before.Marked == 0 && len(before.Members) == 0 {
		known = asSet(from.Spawned) // later on they are among what it gave, unless it has changed them
	}
	delete(from.Data, outcomeKey) // the parent's task goes on
	for _, key := range slices.Sorted(maps.Keys(from.Data)) {
		member := fingerprint(key, string(from.Data[key]))
		if known[member] || st.put(key, from.Data[key]) == nil {
			now.Members = append(now.Members, member...)
		}
	}
	st.keepGiven(now)
	return st.encode()
}

// withExecution keeps the data of a child under the id of its execution.
func (st state) withExecution(id string, data map[string]json.RawMessage) (layer.State, error) {
	if len(data) > 0 {
		raw, err := json.Marshal(data)
		if err != nil {
			return nil, errors.New("the child's data cannot be encoded")
		}
		_ = st.put(id, raw)
	}
	return st.encode()
}

// takeGiven removes and returns the record of a child.
func (st *state) takeGiven(child string) given {
	i := slices.IndexFunc(st.Given, func(g given) bool { return g.Child == child })
	if i < 0 {
		return given{Child: child}
	}
	g := st.Given[i]
	st.Given = slices.Delete(st.Given, i, i+1)
	return g
}

// keepGiven adds the record of a child, and drops the oldest ones over the limits.
func (st *state) keepGiven(now given) {
	st.Given = append(st.Given, now)
	st.Given = layer.Tail(layer.Last(st.Given, maxGiven), maxMembers, func(g given) int { return len(g.Members) / printSize })
}
