// Package observe is the layer observational_memory: what was said is gathered in a buffer and now and then distilled
// into short observations, which later requests of the same scope are told (SEMANTICS 1.4).
//
// Three observers distil. "extractive" needs no model: it keeps the sentences that state a fact, a preference, a
// decision, a name, a number or a date. "model" asks one. "count" only says how much was said.
package observe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"remora/memory/budget"
	"remora/memory/layer"
	"remora/wire"
)

// Observers, as the key observer names them.
const (
	Extractive = "extractive"
	ByModel    = "model"
	Count      = "count"
)

// Inputs, as the key inputs names them (D4).
const (
	All           = "all"
	AssistantOnly = "assistant"
)

// Bounds of what is kept, whatever is said.
const (
	defaultThreshold    = 2000     // tokens
	defaultObservations = 50       // observations
	defaultBuffer       = 32 << 10 // bytes
	limitObservations   = 1000     // the most that may be configured
	limitBuffer         = 64 << 10 // likewise; JSON may need six times as much
	limitThreshold      = math.MaxInt32
	maxObserved         = 64 << 10 // bytes of all observations together
	maxLine             = 500      // characters of one observation, whoever made it
)

// Options configures the layer.
type Options struct {
	// Observer is extractive, model or count; model where the layer has one, else extractive.
	Observer string `mapstructure:"observer"`
	// Inputs is all (assistant, user, tool output) or assistant; default all.
	Inputs string `mapstructure:"inputs"`
	// BufferThreshold is how many tokens of text are gathered before they are distilled; default 2000. It applies to the
	// observers model and count: the extractive one costs next to nothing and distils at every answer, so that a fact
	// that was told once is known to the next session.
	BufferThreshold int `mapstructure:"buffer_threshold"`
	// MaxObservations is how many are kept, the newest; default 50, at most 1000.
	MaxObservations int `mapstructure:"max_observations"`
	// MaxBuffer is how many bytes of text wait to be distilled, the newest; default 32768, at most 65536.
	MaxBuffer int `mapstructure:"max_buffer"`
	// HasModel tells that the layer is configured with a model. It is no key of its own.
	HasModel bool `mapstructure:"-"`
}

// Defaults are the layer's place and limits (SEMANTICS 1.1).
func Defaults() layer.Defaults {
	return layer.Defaults{
		ID: "observational-memory", Slot: 200, Scope: layer.Resource, Budget: budget.Between(500, 2500),
		Timeouts: layer.Timeouts{Store: time.Minute},
	}
}

// Layer is the layer. It is safe for concurrent use.
type Layer struct {
	o       Options
	states  *layer.Decoded[state]
	observe func(ctx context.Context, t *layer.Turn, s state) ([]string, error)
}

// New returns the layer. The error joins one line per key that is wrong.
func New(o Options) (*Layer, error) {
	if o.Observer == "" {
		o.Observer = Extractive
		if o.HasModel {
			o.Observer = ByModel
		}
	}
	if o.Inputs == "" {
		o.Inputs = All
	}
	l := &Layer{states: layer.NewDecoded(decode)}
	errs := []error{
		layer.Bounded("buffer_threshold", &o.BufferThreshold, defaultThreshold, limitThreshold),
		layer.Bounded("max_observations", &o.MaxObservations, defaultObservations, limitObservations),
		layer.Bounded("max_buffer", &o.MaxBuffer, defaultBuffer, limitBuffer),
	}
	if o.Inputs != All && o.Inputs != AssistantOnly {
		errs = append(errs, errors.New("inputs: want all or assistant"))
	}
	switch o.Observer {
	case Extractive:
		l.observe = extractive
	case Count:
		l.observe = count
	case ByModel:
		l.observe = l.askModel
		if !o.HasModel {
			errs = append(errs, errors.New("observer: model needs the key model, or want extractive or count"))
		}
	default:
		errs = append(errs, errors.New("observer: want extractive, model or count"))
	}
	l.o = o
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

// Has tells that input items are looked at only with inputs: all (layer.Selective).
func (l *Layer) Has(hook string) bool {
	return hook != layer.HookAppendItems || l.o.Inputs == All
}

// Prompt tells that only the model that distils is waited for (layer.Prompt).
func (l *Layer) Prompt() bool { return !l.o.HasModel }

// Init takes the state that was kept, or none where that cannot be read.
func (l *Layer) Init(_ context.Context, _ *layer.Turn, stored layer.State) (layer.State, error) {
	if _, err := l.states.Get(stored); err != nil {
		return nil, nil //nolint:nilerr // what cannot be read is started anew, as SEMANTICS 1.4 says of a missing key
	}
	return stored, nil
}

// AppendItems gathers what the user and tools said (case 42). It distils nothing: a model would delay the request.
func (l *Layer) AppendItems(_ context.Context, t *layer.Turn, s layer.State, items []wire.Item) (layer.Appended, error) {
	if l.o.Inputs != All {
		return layer.Appended{Items: items}, nil
	}
	st, err := l.states.Get(s)
	if err != nil {
		return layer.Appended{}, err
	}
	if !l.gather(t, &st, items) {
		return layer.Appended{Items: items}, nil
	}
	return layer.Appended{Items: items, State: l.written(s, st)}, nil
}

// Store gathers what the assistant said and distils the buffer when it is full enough (cases 27, 28, 31).
func (l *Layer) Store(ctx context.Context, t *layer.Turn, s layer.State, r *layer.Response) (layer.State, error) {
	st, err := l.states.Get(s)
	if err != nil {
		return nil, err
	}
	said := slices.DeleteFunc(slices.Clone(r.Items), func(it wire.Item) bool {
		return it.Kind != wire.Message || it.Role != wire.Assistant
	})
	changed := l.gather(t, &st, said)
	if !l.due(st) {
		if !changed {
			return s, nil
		}
		return l.written(s, st), nil
	}
	distilled, err := l.observe(ctx, t, st)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	st.add(distilled, l.o.MaxObservations)
	return l.written(s, st), nil
}

// written is the state that takes the place of was.
func (l *Layer) written(was layer.State, st state) layer.State {
	next := st.encode()
	l.states.Put(was, next, st.shared())
	return next
}

// due tells that the buffer is to be distilled now.
func (l *Layer) due(st state) bool {
	if l.o.Observer == Extractive {
		return len(st.Buffer) > 0
	}
	return st.BufferTokens >= l.o.BufferThreshold
}

// gather puts the texts of items into the buffer and tells whether there were any. What systems and developers say is
// no observation.
func (l *Layer) gather(t *layer.Turn, st *state, items []wire.Item) bool {
	found := false
	for _, it := range items {
		by := speaker(it)
		if by == "" {
			continue
		}
		if text := layer.Head(it.Text(), l.o.MaxBuffer); text != "" {
			st.gather(entry{By: by, Text: text}, t.Count(text), l.o.MaxBuffer)
			found = true
		}
	}
	return found
}

// speaker is who says an item, "" for those that are not listened to.
func speaker(it wire.Item) string {
	switch {
	case it.Kind == wire.ToolResult:
		return byTool
	case it.Kind == wire.Message && it.Role == wire.User:
		return byUser
	case it.Kind == wire.Message && it.Role == wire.Assistant:
		return byAssistant
	default:
		return ""
	}
}

// Recall tells the observations, the oldest left out until the rest fits (cases 29, 30, 40; D5).
func (l *Layer) Recall(_ context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	st, err := l.states.Get(s)
	if err != nil || len(st.Observations) == 0 {
		return layer.Recalled{}, err
	}
	var text string
	var cost int
	fits := func(from int) bool {
		rendered := render(st.Observations[from:])
		n := t.Count(rendered)
		if n > budget {
			return false
		}
		text, cost = rendered, n
		return true
	}
	// Fewer observations never cost more, so that the cut can be searched for by halves. The last one that fitted is the
	// first one that fits.
	if !fits(0) {
		sort.Search(len(st.Observations)-1, func(i int) bool { return fits(i + 1) })
	}
	if text == "" {
		return layer.Recalled{}, nil
	}
	return layer.Recalled{Messages: []string{text}, Tokens: cost}, nil
}

func render(observations []string) string {
	return layer.Block("observations", "- "+strings.Join(observations, "\n- "))
}

// Spawn gives a child its own copy.
func (*Layer) Spawn(_ context.Context, _ *layer.Turn, parent layer.State) (layer.State, error) {
	return slices.Clone(parent), nil
}

// count is the observer of the sources: it says how many texts there were.
func count(_ context.Context, _ *layer.Turn, s state) ([]string, error) {
	return []string{fmt.Sprintf("Processed %d items", len(s.Buffer)+s.Lost)}, nil
}
