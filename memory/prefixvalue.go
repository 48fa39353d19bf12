package memory

import (
	"encoding/hex"
	"math"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"time"

	"remora/memory/layer"
	"remora/memory/session"
	"remora/memory/view"
	"remora/wire"
)

// prefixValue carries the session's pinned prefix through a turn.
type prefixValue struct {
	storedValue[view.Prefix]
	known   *layer.Decoded[view.Prefix] // what this process has read or written lately
	config  view.PromptCache
	request view.PrefixRequest // of the step that was made

	observed   bool // upstream has reported its cache usage
	frozenCost int  // of the blocks that frozen found, in tokens
}

func newPrefixValue(c view.PromptCache, known *layer.Decoded[view.Prefix]) *prefixValue {
	return &prefixValue{storedValue: storedValue[view.Prefix]{decode: known.Get}, known: known, config: c}
}

// change returns the encoded prefix to write, nil for none. Requests of a tool loop rarely change it, so that is checked before
// encoding.
func (e *prefixValue) change() []byte {
	if !e.set || reflect.DeepEqual(e.now, e.read) {
		return nil
	}
	b := e.storedValue.change()
	if b != nil {
		e.known.Put(e.stored, b, e.now)
	}
	return b
}

// frozen names the layers that need not be asked, since what they said at the beginning of the run is still shown.
func (e *prefixValue) frozen(a *assembly) []string {
	if e == nil || a.c.Opaque {
		return nil
	}
	// What was pinned for one resource is not for another that shares the session.
	turn := a.l.run.Turn()
	e.request.Lineage = turn.Dialect.String() + " " + turn.Model + " " + turn.Resource
	e.request.Run, e.request.Loop = a.l.runName(&a.c)
	ids, cost := e.now.Frozen(e.request.Lineage, e.request.Run)
	e.frozenCost = cost
	return ids
}

// runName returns an id of a request's run, which differs for a repeated message, and whether the request is not the first of
// the run.
func (r *layerRun) runName(c *session.Conversation) (name string, loop bool) {
	first := view.RunStart(c.Items)
	name = r.run.Turn().Execution + "@" + strconv.Itoa(visible(c, first))
	if r.call.Scope.Execution != "" && first < len(c.Items) {
		// A client's own name for the run may outlive an edit of the message; a derived one includes the message.
		content := c.Items[first].ContentHash()
		name += "@" + hex.EncodeToString(content[:])
	}
	return name, first < len(c.Items)-1
}

// plan decides the places of layers' blocks, for the best use of the provider's prompt cache.
func (e *prefixValue) plan(a *assembly) {
	l, c := a.l, &a.c
	r := &e.request
	r.Layers = l.run.Said()
	if e.now.Empty() && view.NothingToPin(r.Layers) {
		return
	}
	window := l.states.values.window
	r.CutMoved = a.entry.ReplacesHead() || window != nil && window.read.Units != a.v.Start.Units
	r.SystemPrompt, r.Idle = a.entry.SystemPrompt(), a.idle()
	if wire.Text(a.t.call.Request.Member("prompt_cache_retention")) == "24h" && r.Idle < 24*time.Hour {
		r.Idle = 0 // the client has the cache kept for a day
	}
	r.Count, r.Free = l.run.Count, math.MaxInt
	r.End = visible(c, len(c.Items))
	r.View = estimate(a.v.Items)
	if l.run.Limited() {
		r.Free = max(0, l.run.Room()-estimate(c.System)-estimate(c.Items[view.RunStart(c.Items):]))
	}
	e.step(a)
}

// step puts the layers' blocks in their places for the prompt cache.
func (e *prefixValue) step(a *assembly) {
	p, next := e.read.Step(e.config, e.request)
	e.replace(next)
	a.entry.View.PrefixReason(string(p.Reason))
	anchored := p.Anchored
	for _, b := range a.l.blocks {
		if b.Slot == summarySlot {
			anchored = append(anchored, b)
		}
	}
	a.l.blocks = slices.Concat(anchored, p.Updates, p.Live)
}

// keepUpdates begins a new prefix version if the view has no room for all updates: a model that misses one would rely on
// an outdated block. It reports whether it began one.
func (e *prefixValue) keepUpdates(a *assembly, dropped []view.Block) bool {
	for _, b := range dropped {
		if e != nil && b.Update {
			e.request.Free = 0
			e.step(a)
			return true
		}
	}
	return false
}

// observe passes the reported cache usage to the prefix: of several requests for one answer, only the first sent the view.
func (e *prefixValue) observe(r *wire.Reply) {
	if e == nil || !e.set || e.observed || len(r.Usage) == 0 {
		return
	}
	e.observed = true
	u := &r.Used
	e.replace(e.now.Answered(e.config, view.CacheUsage{Prompt: int(u.Input), Cached: int(u.Cached), Reported: u.CacheKnown}))
}

// placeInside converts places in the conversation to places in the view. No block separates a call and its result, or reasoning
// and the item that it led to.
func placeInside(a *assembly) {
	blocks := a.l.blocks
	if !slices.ContainsFunc(blocks, func(b view.Block) bool { return b.Inside }) {
		return
	}

	history := a.history()
	for i := range blocks {
		b := &blocks[i]
		if !b.Inside {
			continue
		}
		n := sort.Search(len(a.v.Kept), func(n int) bool { return visible(&a.c, a.v.Kept[n]) >= b.At })
		for n < len(history) && (history[n].Kind == wire.ToolResult || n > 0 && leadsOn(history[n-1])) {
			n++
		}
		b.At = n
	}
}

// leadsOn reports whether upstream wants the next item directly after this one.
func leadsOn(it wire.Item) bool { return it.Kind == wire.ToolCall || it.Kind == wire.Reasoning }

// visible returns the number of visible units of the conversation before an item.
func visible(c *session.Conversation, item int) int {
	n := max(0, c.Offset)
	for i, it := range c.Items[:min(item, len(c.Items))] {
		if !c.Hidden[i] {
			n += len(it.Parts)
		}
	}
	return n
}
