// Package pipeline runs layers: it calls their hooks in slot order, each within its timeout, carries their states through a
// request, and divides the token budget among them.
//
// A [Pipeline] is the configured layers. Its caller reads the states that [Pipeline.Cells] names and passes them to
// [Pipeline.Begin], which returns the [Run] of one request. The hooks are called through the Run: Append, Recall, ReviewCall,
// RunTool, Store and so on. [Run.Changes] lists the states to write. Where another process has changed one meanwhile,
// [Run.Rebase] calls the hooks again with the fresh state.
//
// A hook that fails, panics, times out or returns an invalid result changes nothing: neither other layers nor the request are
// affected, and [Run.Report] names it. Only a failed init can fail the request, if the layer is configured so.
//
// The package does not access the store or HTTP, and does not choose the history to send; packages memory and view do.
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

	"remora/memory/layer"
	"remora/memory/lru"
	"remora/memory/view"
	"remora/secret"
	"remora/telemetry/seldom"
	"remora/wire"
)

// Layer is a layer with its configuration.
type Layer struct {
	ID   string // begins the names of its tools: 1 to 48 of a-z, A-Z, 0-9, _ and -
	Name string // a display name, "" for ID
	Kind string
	// Slot orders layers, from the smallest; equal slots stand in the order of configuration.
	Slot     int
	Scope    layer.Scope
	Budget   layer.Budget
	Timeouts layer.Timeouts
	// InitMayFail: the request goes on without the layer when its init fails. Otherwise the request fails.
	InitMayFail bool
	// Eventual serves what was recalled before, until the layer's state changes.
	Eventual bool
	// Placement and Fresh are as in layer.Defaults.
	Placement layer.Placement
	Fresh     bool
	// Impl implements hooks of package layer.
	Impl any
	// Model answers the layer's prompts, nil for none.
	Model ModelSource
}

// ModelSource returns a model that layers may ask, with the caller's credential, which it uses if it is configured without one.
type ModelSource func(c Credential) layer.Model

// Credential is the caller's.
type Credential = secret.Credential

// Options are shared by all layers. The zero value works: no limit, four bytes per token, no log.
type Options struct {
	// Policy is how a view is cut to size. A zero Policy limits nothing.
	Policy view.Policy
	// Count and CountItem price text and items for a model, in tokens.
	Count     func(model, text string) int
	CountItem func(model string, it wire.Item) int
	Log       *slog.Logger
	// Now measures how long hooks take.
	Now func() time.Time
	// AtomicOnly ignores Layer.Eventual: recall of every layer runs for every request.
	AtomicOnly bool
	// Observe is called after every hook, from several goroutines concurrently, with the hook's context. It may be nil.
	Observe func(ctx context.Context, e Event)
	// Previous is the pipeline that this one replaces: states of executions under way carry on. It may be nil.
	Previous *Pipeline
}

// Limits on memory that layers and callers can use.
const (
	maxState       = 1 << 20 // bytes of one state
	maxMessages    = 256     // messages of one layer's recall, and items that an append hook may add
	maxAdded       = 1 << 20 // bytes that an append hook may add
	maxStragglers  = 64      // calls of one layer that outlive their time; above it the layer is skipped
	maxGuidance    = 16 << 10
	maxResult      = 256 << 10 // bytes of a tool's result
	maxArguments   = 1 << 20   // bytes of a tool's arguments
	maxNotes       = 16        // notes of a layer per turn
	longestNote    = 128       // bytes of a note's name, and of its text
	maxSlot        = 1_000_000
	maxWireName    = 64 // characters, of every provider that we know
	keptExecutions = 16384
	keptRecalls    = 16384
	maxKept        = 64 << 20 // bytes of either

	// entrySize is the approximate overhead of an entry beside its state or text, in bytes.
	entrySize = 256
)

var idPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,48}$`)

// Pipeline is a set of layers, ready to serve many requests at once.
type Pipeline struct {
	o          Options
	layers     []*unit
	tools      []*tool
	byName     map[string]*tool                // layerid_function
	spellings  map[string]*tool                // by the spelling of both, and of the function alone; nil if several have it
	executions *lru.Cache[executionKey, *held] // shared with the pipelines before and after this one
	distillers *distillers                     // likewise
	complaints *seldom.Lines                   // shared with guard
	recalls    lru.Cache[recallKey, recalled]
	keptBytes  int // of executions, and of recalls
	guard      *Pipeline
}

// Empty reports whether there are no layers. Turns then need not compute what only layers ask for.
func (p *Pipeline) Empty() bool { return p == nil || len(p.layers) == 0 }

// Recalls reports whether any layer has a recall hook, and so may have something to tell the model.
func (p *Pipeline) Recalls() bool {
	return p != nil && slices.ContainsFunc(p.layers, func(u *unit) bool { return u.recall != nil })
}

// Returns reports whether any layer merges the state of a child session into its parent's.
func (p *Pipeline) Returns() bool {
	return p != nil && slices.ContainsFunc(p.layers, func(u *unit) bool { return u.giveBack != nil })
}

// Evicts reports whether any layer observes what views leave out.
func (p *Pipeline) Evicts() bool {
	return p != nil && slices.ContainsFunc(p.layers, func(u *unit) bool { return u.evicted != nil })
}

// New builds a pipeline. Without layers and limits it does nothing. The error joins one line per problem, each beginning with
// its key, as "layers[2].id: ".
func New(layers []Layer, o Options) (*Pipeline, error) {
	p := &Pipeline{o: o.withDefaults(), complaints: new(seldom.Lines), keptBytes: maxKept, byName: make(map[string]*tool), spellings: make(map[string]*tool)}
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
	p.executions, p.distillers = new(lru.Cache[executionKey, *held]), new(distillers)
	if o.Previous != nil {
		p.executions, p.distillers = o.Previous.executions, o.Previous.distillers
		p.o.Previous = nil // its layers and caches can go
	}
	p.guard = p.onlyGuards()
	return p, nil
}

func (o Options) withDefaults() Options {
	if o.Policy == (view.Policy{}) {
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
	return o
}

// Cells lists the states to be read before Begin. Those of scope Execution are never among them: the pipeline keeps
// them itself, in memory.
func (p *Pipeline) Cells(t *layer.Turn) []Cell {
	if p == nil || len(p.layers) == 0 {
		return nil
	}
	cells := make([]Cell, 0, len(p.layers))
	for _, u := range p.layers {
		if u.Scope != layer.Execution && u.keeps() && !u.stateless {
			cells = append(cells, u.cell(t))
		}
	}
	return cells
}

// Steady reports whether all states are written only with answers: no hook changes one later.
func (p *Pipeline) Steady() bool {
	return p == nil || !slices.ContainsFunc(p.layers, func(u *unit) bool { return !u.steady() })
}

// Begin starts a request: states are the stored states by Cells, and the init hooks run in slot order. cred is for
// layers' models. The error is an *InitError, of a layer that does not disable itself.
func (p *Pipeline) Begin(ctx context.Context, tenant string, t layer.Turn, states map[Cell]layer.State, cred Credential) (*Run, error) {
	if p == nil {
		return idle, nil
	}
	r := newRun(p, tenant, t)
	if len(p.layers) == 0 {
		return r, nil // it fits views to their budget, and has no layer to hand the turn to
	}
	r.turn.Count, r.turn.CountItem, r.turn.Ask = r.Count, r.CountItem, nil
	r.turn.Complete = func(result layer.Result) { r.completed.Store(&result) }
	r.layers = make([]*runningLayer, len(p.layers))
	for i, u := range p.layers {
		r.layers[i] = r.add(u, states, cred)
	}
	for _, m := range r.layers {
		if err := m.initState(ctx); err != nil && !m.InitMayFail {
			return nil, &InitError{m.ID, classOf(err), err}
		}
	}
	return r, nil
}

// collectTools names the tools of all layers, and compiles what their arguments must look like.
func (p *Pipeline) collectTools() error {
	var errs []error
	for _, u := range p.layers {
		for _, offered := range u.offered {
			at := fmt.Sprintf("layer %s: tools: %s", u.ID, offered.Name)
			t, err := newTool(u.ID, offered)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", at, err))
				continue
			}
			if other := p.byName[t.name]; other != nil {
				errs = append(errs, fmt.Errorf("%s: layer %s has a tool that is called %s too", at, other.layer, t.name))
				continue
			}
			p.tools = append(p.tools, t)
			p.byName[t.name] = t
			for _, name := range []string{spelling(t.name), spelling(offered.Name)} {
				if other, again := p.spellings[name]; again && other != t {
					p.spellings[name] = nil
				} else {
					p.spellings[name] = t
				}
			}
		}
	}
	return errors.Join(errs...)
}
