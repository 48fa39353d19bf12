package memory

import (
	"bytes"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/summary"
	"remora/memory/view"
)

// Names of session values in the store.
const (
	summaryName     = "s" // a summary.State
	windowStartName = "c" // a view.WindowStart
	prefixName      = "e" // a view.Prefix
	seenName        = "w" // a seenEvictions
	parentName      = "n" // a parent
)

// sessionValues are the values of a session for its next views, besides its items and layer states: they are read with the
// session and written with an answer. A value that no configured feature needs is nil.
type sessionValues struct {
	summary *storedValue[summary.State]
	window  *storedValue[view.WindowStart] // where the latest view begins
	prefix  *prefixValue
	seen    *storedValue[seenEvictions]
	parent  *storedValue[parent]
}

// parent is the session that the first request of a session has named as its parent, for the end of its work.
type parent string

func (p parent) Encode() []byte { return []byte(p) }

// storedValue is one of them, on its way through a turn.
type storedValue[T interface{ Encode() []byte }] struct {
	decode func([]byte) T
	stored []byte // as read
	read   T      // the same
	now    T
	set    bool
}

func (v *storedValue[T]) load(b []byte) {
	v.stored, v.read = b, v.decode(b)
	if !v.set { // else the turn has made its own of what it read before
		v.now = v.read
	}
}

// replace sets the value to write with the answer.
func (v *storedValue[T]) replace(next T) { v.now, v.set = next, true }

// change returns the encoded value to write, nil for none.
func (v *storedValue[T]) change() []byte {
	if !v.set {
		return nil
	}
	if b := v.now.Encode(); !bytes.Equal(b, v.stored) {
		return b
	}
	return nil
}

// sessionValue is any of them.
type sessionValue interface {
	load(b []byte)
	change() []byte
}

// newSessionValues returns the session values of a shape. known caches the prefixes of this process.
func newSessionValues(s *Shape, known *layer.Decoded[view.Prefix]) (v sessionValues) {
	if s.Summarize {
		v.summary = &storedValue[summary.State]{decode: summary.Decode}
	}
	if s.PromptCache != nil && s.Layers.Recalls() {
		v.prefix = newPrefixValue(*s.PromptCache, known)
	}
	if s.Window.Stateful() || v.prefix != nil && s.Window != nil {
		v.window = &storedValue[view.WindowStart]{decode: view.DecodeWindowStart}
	}
	if s.Layers.Evicts() {
		v.seen = &storedValue[seenEvictions]{decode: decodeSeenEvictions}
	}
	if s.Layers.Returns() {
		v.parent = &storedValue[parent]{decode: func(b []byte) parent { return parent(b) }}
	}
	return v
}

// each yields the values that are not nil, always in the same order.
func (v *sessionValues) each(yield func(name string, one sessionValue) bool) {
	_ = (v.summary == nil || yield(summaryName, v.summary)) &&
		(v.prefix == nil || yield(prefixName, v.prefix)) &&
		(v.window == nil || yield(windowStartName, v.window)) &&
		(v.seen == nil || yield(seenName, v.seen)) &&
		(v.parent == nil || yield(parentName, v.parent))
}

// names returns names with those of the values after them.
func (v *sessionValues) names(names []string) []string {
	for name := range v.each {
		names = append(names, name)
	}
	return names
}

// load reads the values, in the order of names.
func (v *sessionValues) load(values [][]byte) {
	i := 0
	for _, one := range v.each {
		one.load(values[i])
		i++
	}
}

func (v *sessionValues) changes() (puts []cache.Put) {
	for name, one := range v.each {
		if b := one.change(); b != nil {
			puts = append(puts, cache.Put{Name: name, Data: b})
		}
	}
	return puts
}

// spooled returns the values to spool with a turn, by name. seen, the evictions that layers have seen, is separate: see
// spooledSeen.
func (v *sessionValues) spooled() (values map[string][]byte, seen []byte) {
	for _, p := range v.changes() {
		switch {
		case p.Name == seenName:
			seen = p.Data
		case values == nil:
			values = map[string][]byte{p.Name: p.Data}
		default:
			values[p.Name] = p.Data
		}
	}
	return values, seen
}
