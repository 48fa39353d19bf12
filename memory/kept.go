package memory

import (
	"bytes"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/summary"
	"remora/memory/view"
)

// Names of what a session keeps for its next views, beside its items and the states of its layers.
const (
	summaryName = "s" // a summary.State
	cutName     = "c" // a view.WindowStart
	prefixName  = "e" // a view.Prefix
	toldName    = "w" // a layer.Told
)

// kept holds the session values for its next views, on their way through a turn. A value that no configured feature
// needs is nil.
type kept struct {
	summary *keptSummary
	cut     *keptCut
	prefix  *keptPrefix
	told    *keptValue[layer.Told]
}

// keptValue is one value that is kept.
type keptValue[T interface{ Encode() []byte }] struct {
	decode func([]byte) T
	stored []byte // as read
	read   T      // the same
	now    T
	set    bool
}

func (v *keptValue[T]) load(b []byte) {
	v.stored, v.read = b, v.decode(b)
	if !v.set { // else the turn has made its own of what it read before
		v.now = v.read
	}
}

// replace sets the value to write with the answer.
func (v *keptValue[T]) replace(next T) { v.now, v.set = next, true }

// change returns the encoded value to write, nil for none.
func (v *keptValue[T]) change() []byte {
	if !v.set {
		return nil
	}
	if b := v.now.Encode(); !bytes.Equal(b, v.stored) {
		return b
	}
	return nil
}

// keptCut is where the session's window begins. Most sessions have no cut, and most requests move none.
type keptCut struct{ keptValue[view.WindowStart] }

// moved reports whether a view begins elsewhere than the session's latest one.
func (c *keptCut) moved(v *view.View) bool { return c != nil && c.read.Units != v.Start.Units }

// change returns the encoded cut to write, nil for none.
func (c *keptCut) change() []byte {
	if c.now == c.read {
		return nil
	}
	return c.keptValue.change()
}

// sessionValue is a value that is kept.
type sessionValue interface {
	load(b []byte)
	change() []byte
}

// keep returns the session values of a shape. known caches the prefixes of this process.
func (s *Shape) keep(known *prefixes) kept {
	var k kept
	if s.Summarize {
		k.summary = &keptSummary{}
	}
	if s.PromptCache != nil && s.Layers.Recalls() {
		k.prefix = newKeptPrefix(*s.PromptCache, known)
	}
	if s.Window.Stateful() || s.Window != nil && k.prefix != nil {
		k.cut = &keptCut{keptValue[view.WindowStart]{decode: view.DecodeWindowStart}}
	}
	if s.Layers.Evicts() {
		k.told = &keptValue[layer.Told]{decode: layer.DecodeTold}
	}
	return k
}

// each calls f with every value that is kept, in a fixed order.
func (k *kept) each(f func(name string, v sessionValue)) {
	if k.summary != nil {
		f(summaryName, k.summary)
	}
	if k.cut != nil {
		f(cutName, k.cut)
	}
	if k.prefix != nil {
		f(prefixName, k.prefix)
	}
	if k.told != nil {
		f(toldName, k.told)
	}
}

func (k *kept) empty() bool { return *k == kept{} }

func (k *kept) names() (names []string) {
	k.each(func(name string, _ sessionValue) { names = append(names, name) })
	return names
}

// take reads the values, in the order of names.
func (k *kept) take(values [][]byte) {
	k.each(func(_ string, v sessionValue) {
		v.load(values[0])
		values = values[1:]
	})
}

func (k *kept) changes() (puts []cache.Put) {
	k.each(func(name string, v sessionValue) {
		if b := v.change(); b != nil {
			puts = append(puts, cache.Put{Name: name, Data: b})
		}
	})
	return puts
}

// spooled returns the values to spool with a turn, by name. told, the record of evictions that layers have seen, is
// separate: see toldWith.
func (k *kept) spooled() (values map[string][]byte, told []byte) {
	for _, p := range k.changes() {
		switch {
		case p.Name == toldName:
			told = p.Data
		case values == nil:
			values = map[string][]byte{p.Name: p.Data}
		default:
			values[p.Name] = p.Data
		}
	}
	return values, told
}

// keptSummary is the summary of a session on its way through a turn.
type keptSummary struct {
	state summary.State
	next  []byte // to be written with the answer, nil for nothing
}

func (s *keptSummary) load(b []byte) { s.state = summary.Decode(b) }

func (s *keptSummary) change() []byte { return s.next }
