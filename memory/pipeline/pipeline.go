// Package pipeline runs layers: it calls their hooks in order of slot, each within its time, keeps what one does wrong
// from the others and from the request, carries their states through a request, and shares the token budget among them.
//
// It is pure of store and HTTP. Whoever drives it reads the states that [Pipeline.Cells] names, hands them to
// [Pipeline.Begin], calls the hooks of a request on the [Run] that this returns, and writes what [Run.Changes] lists. A
// write that meets another replica's is repaired by [Run.Rebase], which runs the hooks again on the fresh state.
//
// A hook that fails, panics, takes too long or returns what it must not leaves everything as it was before the call.
// Only a failed init may fail the request, if the layer was configured so.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"time"

	"remora/memory/budget"
	"remora/memory/layer"
	"remora/wire"
)

// InitPolicy says what a failed init does.
type InitPolicy uint8

// Values of Layer.OnInitError.
const (
	Throw   InitPolicy = iota // the request fails
	Disable                   // the request goes on without the layer
)

// Layer is a layer and what its configuration says of it.
type Layer struct {
	ID   string // begins the names of its tools: 1 to 48 of a-z, A-Z, 0-9, _ and -
	Kind string
	// Slot orders layers, from the smallest; equal slots stand in the order of configuration.
	Slot        int
	Scope       layer.Scope
	Budget      budget.Budget
	Timeouts    layer.Timeouts
	OnInitError InitPolicy
	// Eventual serves what was recalled before, until the layer's state changes.
	Eventual bool
	// Live puts what is recalled behind the history. Placed tells that the operator has chosen so, or not so; else it may
	// change with how often the layer says something new.
	Live, Placed bool
	// Fresh is as in layer.Defaults.
	Fresh bool
	// Impl implements hooks of package layer.
	Impl any
	// Model answers the layer's prompts, nil for none.
	Model ModelSource
}

// ModelSource is a model that layers may ask, before it is known on whose behalf.
type ModelSource interface {
	// Bind returns the model with the caller's credential, which it uses where it was configured with none.
	Bind(c Credential) layer.Model
}

// Credential is the header by which the caller proves itself to a provider, and which one that is: no other is shown
// it. It is never printed.
type Credential struct{ Header, Value, Provider string }

// String hides the credential.
func (Credential) String() string { return "[credential]" }

// GoString hides the credential.
func (Credential) GoString() string { return "[credential]" }

// LogValue hides the credential.
func (Credential) LogValue() slog.Value { return slog.StringValue("[credential]") }

// Options are what all layers share. The zero value works: no limit, counts of four bytes a token, no log.
type Options struct {
	// Policy is how a view is cut to size. A zero Policy limits nothing.
	Policy budget.Policy
	// Count and CountItem price text and items for a model, in tokens.
	Count     func(model, text string) int
	CountItem func(model string, it wire.Item) int
	Log       *slog.Logger
	// Now measures how long hooks take.
	Now func() time.Time
	// AtomicOnly ignores Layer.Eventual (forceAtomicRecall of SEMANTICS 1.13).
	AtomicOnly bool
	// Observe is told of every hook that was called, from several goroutines at once, with the context that it was called
	// in. It may be nil.
	Observe func(ctx context.Context, e Event)
	// Previous is the pipeline that this one replaces: states of executions under way carry on. It may be nil.
	Previous *Pipeline
}

// Limits of what layers and callers may make us keep.
const (
	maxState       = 1 << 20 // bytes of one state
	maxRecall      = 1 << 20 // bytes of one layer's recall
	maxMessages    = 256     // messages of one layer's recall, and items that an append hook may add
	maxAdded       = 1 << 20 // bytes that an append hook may add
	maxStragglers  = 64      // calls of one layer that outlive their time; above it the layer is skipped
	maxGuidance    = 16 << 10
	maxResult      = 256 << 10 // bytes of a tool's result
	maxArguments   = 1 << 20   // bytes of a tool's arguments
	maxNotes       = 16        // figures that a layer may tell of a turn
	longestNote    = 128       // bytes of a figure's name, and of its text
	maxSlot        = 1_000_000
	maxWireName    = 64 // characters, of every provider that we know
	keptExecutions = 16384
	keptRecalls    = 16384
	keptBytes      = 64 << 20 // of either
)

var idPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,48}$`)

// Pipeline is a set of layers, ready to serve many requests at once.
type Pipeline struct {
	o          Options
	free       float64 // tokens of a view
	layers     []*unit
	tools      []*tool
	byName     map[string]*tool // by both forms of its name
	executions *lru[executionKey, *held]
	recalls    *lru[recallKey, recalled]
	idle       *Run // what Begin returns where there is nothing to do
	guard      *Pipeline
}

// Empty tells that there are no layers: turns need not know what only layers ask for.
func (p *Pipeline) Empty() bool { return p == nil || len(p.layers) == 0 }

// Recalls tells whether any layer has something to tell the model.
func (p *Pipeline) Recalls() bool {
	return p != nil && slices.ContainsFunc(p.layers, func(u *unit) bool { return u.recall != nil })
}

// Evicts tells whether any layer wants to know what views leave out.
func (p *Pipeline) Evicts() bool {
	return p != nil && slices.ContainsFunc(p.layers, func(u *unit) bool { return u.evicted != nil })
}

// New builds a pipeline. Without layers it does nothing, at no cost. The error joins one line for each thing that is
// wrong, each beginning with its key, as "layers[2].id: ".
func New(layers []Layer, o Options) (*Pipeline, error) {
	o, free := o.withDefaults()
	p := &Pipeline{o: o, free: free, byName: make(map[string]*tool)}
	var errs []error
	seen := make(map[string]int)
	for i, l := range layers {
		at := fmt.Sprintf("layers[%d]", i)
		u, err := newUnit(at, l)
		errs = append(errs, err)
		if first, again := seen[l.ID]; again {
			errs = append(errs, fmt.Errorf("%s.id: layers[%d] has this id already", at, first))
			continue
		}
		seen[l.ID] = i
		p.layers = append(p.layers, u)
	}
	slices.SortStableFunc(p.layers, func(a, b *unit) int { return a.Slot - b.Slot })
	errs = append(errs, p.collectTools())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p.executions = newLRU[executionKey, *held](keptExecutions, keptBytes)
	p.recalls = newLRU[recallKey, recalled](keptRecalls, keptBytes)
	if o.Previous != nil {
		p.executions = o.Previous.executions
		p.o.Previous = nil // its layers and caches can go
	}
	if len(p.layers) == 0 && math.IsInf(free, 1) && o.Policy.Window == 0 {
		p.idle = &Run{p: p}
	}
	p.guard = p.onlyGuards()
	return p, nil
}

func (o Options) withDefaults() (Options, float64) {
	if o.Policy == (budget.Policy{}) {
		o.Policy.Budget = math.Inf(1)
	}
	if o.Count == nil {
		o.Count = func(_, text string) int { return (len(text) + 3) / 4 }
	}
	if o.CountItem == nil {
		count := o.Count
		o.CountItem = func(model string, it wire.Item) int { return count(model, string(it.Raw)) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = func() time.Time { return time.Time{} }
	}
	return o, max(0, o.Policy.Budget-o.Policy.Reserve)
}

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
	evicted    layer.EvictionObserver
	spawn      layer.Spawner
	giveBack   layer.Returner
	complete   layer.Completer
	dispose    layer.Disposer
	offered    []layer.Tool
	async      bool // reviewAll never denies or guides
	slow       bool // store and evicted are called after the client was served
	prompt     bool // its hooks wait for nobody
	stragglers stragglers
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
	u.evicted = hookOf[layer.EvictionObserver](u.Impl, layer.HookEvicted)
	u.spawn = hookOf[layer.Spawner](u.Impl, layer.HookSpawn)
	u.giveBack = hookOf[layer.Returner](u.Impl, layer.HookReturn)
	u.complete = hookOf[layer.Completer](u.Impl, layer.HookComplete)
	u.dispose = hookOf[layer.Disposer](u.Impl, layer.HookDispose)
	if p := hookOf[layer.ToolProvider](u.Impl, layer.HookTools); p != nil {
		u.offered = p.Tools()
	}
	a, ok := u.Impl.(layer.Async)
	u.async = ok && a.Async()
	pr, ok := u.Impl.(layer.Prompt)
	u.prompt = u.Model == nil && ok && pr.Prompt()
	s, ok := u.Impl.(layer.Slow)
	u.slow = u.Model != nil || ok && s.Slow()
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

// keeps tells whether any hook could make a state that outlives the request.
func (u *unit) keeps() bool {
	return u.recall != nil || u.appender != nil || u.reviewCall != nil || u.reviewAll != nil || u.store != nil ||
		u.evicted != nil || u.spawn != nil || u.giveBack != nil || u.complete != nil || len(u.offered) > 0
}

func (u *unit) hasHook() bool {
	return u.keeps() || u.init != nil || u.project != nil || u.dispose != nil
}
