package pipeline

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"remora/memory/layer"
)

// unit is a layer with the hooks that it has.
type unit struct {
	Layer
	init       layer.Initializer
	recall     layer.Recaller
	project    layer.HistoryProjector
	appender   layer.ItemAppender
	reviewCall layer.ToolCallReviewer
	reviewAll  layer.ResponseReviewer
	store      layer.Storer
	distil     layer.Distiller
	evicted    layer.EvictionObserver
	spawn      layer.Spawner
	giveBack   layer.Returner
	complete   layer.Completer
	dispose    layer.Disposer
	forget     layer.Forgetter
	offered    []layer.Tool
	async      bool          // reviewAll decides nothing
	slow       bool          // store and evicted are called after the client is served
	inline     bool          // its hooks only compute: see layer.Inline
	ofView     bool          // recall depends on the view
	quieter    layer.Quieter // nil for none
	stateless  bool          // nothing is read or written for it
	stragglers atomic.Int32  // abandoned calls that have not returned
}

// newUnit finds the hooks of a layer, once.
func newUnit(at string, l Layer) (*unit, error) {
	u := &unit{Layer: l}
	var errs []error
	if !idPattern.MatchString(l.ID) {
		errs = append(errs, fmt.Errorf("%s.id: want 1 to 48 of a-z, A-Z, 0-9, _ and -", at))
	}
	if l.Slot < 0 || l.Slot > maxSlot {
		errs = append(errs, fmt.Errorf("%s.slot: want 0 to %d, have %d", at, maxSlot, l.Slot))
	}
	if l.Scope < layer.Execution || l.Scope > layer.Global {
		errs = append(errs, fmt.Errorf("%s.scope: want execution, thread, resource or global", at))
	}
	if u.find(); !u.hasHook() {
		errs = append(errs, fmt.Errorf("%s: a layer needs a hook, and kind %q has none", at, l.Kind))
	}
	return u, errors.Join(errs...)
}

func (u *unit) find() {
	u.init = hookOf[layer.Initializer](u.Impl, layer.HookInit)
	u.recall = hookOf[layer.Recaller](u.Impl, layer.HookRecall)
	u.project = hookOf[layer.HistoryProjector](u.Impl, layer.HookProjectHistory)
	u.appender = hookOf[layer.ItemAppender](u.Impl, layer.HookAppendItems)
	u.reviewCall = hookOf[layer.ToolCallReviewer](u.Impl, layer.HookReviewToolCall)
	u.reviewAll = hookOf[layer.ResponseReviewer](u.Impl, layer.HookReviewResponse)
	u.store = hookOf[layer.Storer](u.Impl, layer.HookStore)
	if u.Model != nil {
		u.distil = hookOf[layer.Distiller](u.Impl, layer.HookStore)
	}
	u.evicted = hookOf[layer.EvictionObserver](u.Impl, layer.HookEvicted)
	u.spawn = hookOf[layer.Spawner](u.Impl, layer.HookSpawn)
	u.giveBack = hookOf[layer.Returner](u.Impl, layer.HookReturn)
	u.complete = hookOf[layer.Completer](u.Impl, layer.HookComplete)
	u.dispose = hookOf[layer.Disposer](u.Impl, layer.HookDispose)
	u.forget = hookOf[layer.Forgetter](u.Impl, layer.HookForget)
	if p := hookOf[layer.ToolProvider](u.Impl, layer.HookTools); p != nil {
		u.offered = p.Tools()
	}
	a, ok := u.Impl.(layer.Async)
	u.async = ok && a.Async()
	in, ok := u.Impl.(layer.Inline)
	u.inline = u.Model == nil && ok && in.Inline()
	v, ok := u.Impl.(layer.OfView)
	u.ofView = ok && v.OfView()
	u.quieter, _ = u.Impl.(layer.Quieter)
	st, ok := u.Impl.(layer.Stateless)
	u.stateless = ok && st.Stateless()
	s, ok := u.Impl.(layer.Slow)
	u.slow = u.Model != nil && u.distil == nil || ok && s.Slow()
}

// hookOf returns impl as the interface of a hook, nil if it has none or wants none.
func hookOf[H any](impl any, name string) H {
	h, ok := impl.(H)
	if s, selects := impl.(layer.Selective); ok && selects && !s.Has(name) {
		var none H
		return none
	}
	return h
}

// keeps reports whether any hook can make a state that outlives the request.
func (u *unit) keeps() bool { return u.recall != nil || u.changes() }

// changes reports whether a hook other than Recall, which runs before the answer, can change a state of the layer.
func (u *unit) changes() bool {
	return u.appender != nil || u.reviewCall != nil || u.reviewAll != nil || u.store != nil ||
		u.evicted != nil || u.spawn != nil || u.giveBack != nil || u.complete != nil || len(u.offered) > 0
}

// steady reports whether only Recall could change a state of the layer.
func (u *unit) steady() bool { return u.stateless || u.init == nil && !u.changes() }

func (u *unit) hasHook() bool {
	return u.keeps() || u.init != nil || u.project != nil || u.dispose != nil
}

// cell returns the cell of the layer's state for a turn.
func (u *unit) cell(t *layer.Turn) Cell {
	switch u.Scope {
	case layer.Execution:
		return Cell{u.ID, layer.Execution, t.Execution}
	case layer.Global:
		return Cell{u.ID, layer.Global, globalKey}
	case layer.Resource:
		if t.Resource != "" {
			return Cell{u.ID, layer.Resource, t.Resource}
		}
	default:
	}
	return Cell{u.ID, layer.Thread, t.Thread}
}

// Standard times of hooks; see docs/semantics.md#hooks.
const (
	timeShort  = 5 * time.Second  // recall, on_item_append, project_history, before_tool_call, dispose
	timeMiddle = 10 * time.Second // init, after_model_call, on_spawn, on_return
	timeLong   = 30 * time.Second // store, on_evict, on_complete, tools
)

// timeout returns how long a hook of the layer may take, 0 for no limit.
func (u *unit) timeout(hook string) time.Duration {
	own, standard := u.times(hook)
	if own == 0 {
		return standard
	}
	return max(0, own)
}

func (u *unit) times(hook string) (own, standard time.Duration) {
	t := &u.Timeouts
	switch hook {
	case layer.HookInit:
		return t.Init, timeMiddle
	case layer.HookRecall:
		return t.Recall, timeShort
	case layer.HookStore:
		return t.Store, timeLong
	case layer.HookAppendItems:
		return t.AppendItems, timeShort
	case layer.HookProjectHistory:
		return t.ProjectHistory, timeShort
	case layer.HookReviewToolCall:
		return t.ReviewToolCall, timeShort
	case layer.HookReviewResponse:
		return t.ReviewResponse, timeMiddle
	case layer.HookEvicted:
		return t.Evicted, timeLong
	case layer.HookSpawn:
		return t.Spawn, timeMiddle
	case layer.HookReturn:
		return t.Return, timeMiddle
	case layer.HookComplete:
		return t.Complete, timeLong
	case layer.HookDispose:
		return t.Dispose, timeShort
	default:
		return 0, timeLong
	}
}
