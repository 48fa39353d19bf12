// Package working implements the layer working_memory: a small JSON document, or a text, that the model writes by calling a
// tool and reads on every request.
package working

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"remora/memory/layer"
	"remora/memory/layer/schema"
)

// Bounds of the state, in bytes.
const (
	defaultMaxBytes = 64 << 10
	largestMaxBytes = 512 << 10
)

// updateCall is the name of a client's own tool for working memory, which also updates this one.
const updateCall = "updateWorkingMemory"

// Options are the layer's own keys.
type Options struct {
	// ReadOnly ignores the client's tool updateWorkingMemory. The layer's own tool is still offered and still writes.
	ReadOnly bool `mapstructure:"read_only"`
	// Schema is a JSON schema, as JSON text, that the whole state must satisfy after an update; see schema.Schema for the part
	// of the standard that is understood. Without one, anything goes.
	Schema string `mapstructure:"schema"`
	// Template is an example of what to keep, shown to the model with the tool.
	Template string `mapstructure:"template"`
	// MaxBytes bounds the state, 64 KiB by default; an update beyond it is refused.
	MaxBytes int `mapstructure:"max_bytes"`
	// Its scope determines the initial state of a child session.
	layer.Setup `mapstructure:"-"`
}

// Defaults returns the layer's slot, scope and budget.
func Defaults(Options) layer.Defaults {
	return layer.Defaults{ID: "working-memory", Slot: 100, Scope: layer.Thread, Budget: layer.Between(200, 1500)}
}

// Layer is the layer. It is safe for concurrent use.
type Layer struct {
	options Options
	schema  *schema.Schema // nil without one
	states  *layer.Decoded[document]
}

// document is a state in the model's form.
type document struct {
	text  string // "" for nothing
	brief string // the same without indentation, "" where that is no shorter
	valid bool   // it satisfies the schema
}

// New checks the options. Errors name their key.
func New(o Options) (*Layer, error) {
	var errs []error
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	if o.MaxBytes < 2 || o.MaxBytes > largestMaxBytes {
		errs = append(errs, fmt.Errorf("max_bytes: want 2 to %d", largestMaxBytes))
	}
	if len(o.Template) > defaultMaxBytes {
		errs = append(errs, fmt.Errorf("template: want at most %d bytes", defaultMaxBytes))
	}
	o.Scope = cmp.Or(o.Scope, layer.Thread)
	if o.Scope != layer.Thread && o.Scope != layer.Resource {
		errs = append(errs, errors.New("scope: want thread or resource"))
	}
	l := &Layer{options: o}
	l.states = layer.NewDecoded(l.document)
	if o.Schema != "" {
		s, err := schema.Parse([]byte(o.Schema))
		if err != nil {
			errs = append(errs, fmt.Errorf("schema: %w", err))
		}
		l.schema = s
	}
	return l, errors.Join(errs...)
}

// Inline reports that no hook waits (layer.Inline).
func (*Layer) Inline() bool { return true }

// Init keeps a stored working memory that satisfies the schema and discards anything else.
func (l *Layer) Init(_ context.Context, _ *layer.Turn, stored layer.State) (layer.State, error) {
	if d := l.states.Get(stored); d.text == "" || !d.valid {
		return nil, nil
	}
	return stored, nil
}

// document reads a state: a text as it is, an object as JSON with two spaces of indentation.
func (l *Layer) document(b []byte) document {
	s := layer.State(b)
	d := document{}
	if text, ok := asText(s); ok {
		d.text = text
	} else if object, ok := asObject(s); ok && len(object) > 0 {
		d.text = pretty(s)
		if len(s) < len(d.text) {
			d.brief = string(s)
		}
	}
	d.valid = d.text != "" && l.satisfied(s)
	return d
}

// satisfied reports whether a document satisfies the schema, if there is one.
func (l *Layer) satisfied(document []byte) bool {
	return l.schema == nil || l.schema.Validate(document) == nil
}

// Recall returns the block working_memory. Over budget it drops the indentation first, then the oldest notes: the rest
// is whole and valid JSON. A text loses its end.
func (l *Layer) Recall(_ context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	const tag = "working_memory"
	d := l.states.Get(s)
	if d.text == "" {
		return layer.Recalled{}, nil
	}
	body := d.text
	fits := func(body string) bool { return layer.Fits(t.Count, layer.Block(tag, body), budget) }
	if !fits(body) {
		if d.brief != "" {
			body = d.brief
		}
		if jsontext.Value(s).Kind() == '{' && !fits(body) {
			newest, ok := reduced(jsontext.Value(s), func(v jsontext.Value) bool { return fits(string(v)) })
			if !ok {
				return layer.Recalled{NoRoom: true}, nil
			}
			body = string(newest)
		}
	}
	return layer.OneBlock(layer.BlockWithin(t.Count, tag, body, budget)), nil
}

// Store applies the first call of updateWorkingMemory whose arguments are a JSON object. A refused update is an error
// and leaves the state unchanged.
func (l *Layer) Store(_ context.Context, _ *layer.Turn, s layer.State, r *layer.Response) (layer.State, error) {
	if l.options.ReadOnly {
		return s, nil
	}
	for _, c := range r.Calls {
		if c.Name != updateCall {
			continue
		}
		if next, err := l.update(s, []byte(c.Arguments)); !errors.Is(err, errNoObject) {
			return next, err
		}
	}
	return s, nil
}

// update returns the state after an update, or the unchanged state and an error.
func (l *Layer) update(s layer.State, arguments []byte) (layer.State, error) {
	// Escapes make JSON up to six times as long as its text; anything longer cannot fit.
	if len(arguments) > 6*l.options.MaxBytes {
		return s, l.tooLarge()
	}
	change, err := parseUpdate(arguments)
	if err != nil {
		return s, err
	}
	paths, change, err := deletions(change)
	if err != nil {
		return s, err
	}
	next := merge(without(s, paths), change)
	if l.schema != nil {
		if err := l.schema.Validate(next); err != nil {
			return s, fmt.Errorf("the working memory would break its schema: %w", err)
		}
	}
	// If the bound was lowered, a state that is too large may still shrink.
	if len(next) > l.options.MaxBytes && len(next) >= len(s) {
		return s, l.tooLarge()
	}
	return slices.Clip(next), nil
}

func (l *Layer) tooLarge() error {
	return fmt.Errorf("the working memory would have more than %d bytes; keep less in it", l.options.MaxBytes)
}

// Spawn gives a child session a copy of the parent's state if the layer's scope is a resource, and nothing otherwise.
func (l *Layer) Spawn(_ context.Context, _ *layer.Turn, parent layer.State) (layer.State, error) {
	if l.options.Scope != layer.Resource {
		return nil, nil
	}
	return slices.Clone(parent), nil
}

// Tools is the function update.
func (l *Layer) Tools() []layer.Tool {
	var about strings.Builder
	about.WriteString("Update your working memory, which you are shown in <working_memory> on every request. " +
		"The argument is a JSON object that is merged into it: nested objects are merged, " +
		"lists and other values are replaced, null stays as null. Send only what changes. " +
		"To remove notes, name them in the member _delete: a list of keys, or of paths as lists of keys, as in " +
		`{"_delete":["city",["tasks","done"]]}. They are removed before the rest is merged.`)
	if l.options.Template != "" {
		about.WriteString(" Keep it in this form:\n" + l.options.Template)
	}
	if l.schema != nil {
		about.WriteString(" The merged memory must satisfy this JSON schema:\n" + l.options.Schema)
	}
	return []layer.Tool{{
		Name:        "update",
		Description: about.String(),
		Parameters:  []byte(`{"type":"object","additionalProperties":true}`),
		Run: func(_ context.Context, _ *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
			next, err := l.update(s, arguments)
			if err != nil {
				return "", s, err
			}
			return "Working memory updated.", next, nil
		},
	}}
}
