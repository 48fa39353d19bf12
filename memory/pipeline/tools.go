package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	"remora/memory/layer"
	"remora/memory/layer/schema"
	"remora/wire"
	"remora/wire/dialects"
)

// tool is a layer's function for the model.
type tool struct {
	name   string                  // layerid_function, 1 to 64 of a-z, A-Z, 0-9, _ and -
	layer  string                  // id
	forms  map[wire.Dialect][]byte // its definition in each dialect
	schema *schema.Schema          // of its arguments
	run    func(ctx context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error)
}

func newTool(id string, offered layer.Tool) (*tool, error) {
	t := &tool{
		name: layer.ToolName(id, offered.Name), layer: id, forms: make(map[wire.Dialect][]byte), run: offered.Run,
	}
	parameters := offered.Parameters
	if len(parameters) == 0 {
		parameters = []byte(`{"type":"object","properties":{}}`)
	}
	for _, d := range dialects.All() {
		t.forms[d] = slices.Clip(wire.FunctionTool(d, t.name, offered.Description, parameters))
	}
	var errs []error
	if offered.Name == "" || len(t.name) > maxWireName {
		errs = append(errs, fmt.Errorf("name: want 1 to %d characters with the layer's id", maxWireName))
	}
	if offered.Run == nil {
		errs = append(errs, errors.New("run: a tool needs a function"))
	}
	var err error
	if t.schema, err = schema.ParseObject(parameters); err != nil {
		errs = append(errs, fmt.Errorf("parameters: %w", err))
	}
	return t, errors.Join(errs...)
}

// toolbox is the tools that the layers of a request offer the model.
type toolbox struct {
	*layerSet

	once      sync.Once // for spellings: each layer's tool is compared with all of the client's
	spellings []string
}

// spelled returns the spellings of the client's tools, in order.
func (r *toolbox) spelled() []string {
	r.once.Do(func() {
		for _, name := range r.turn.Tools {
			r.spellings = append(r.spellings, spelling(name))
		}
	})
	return r.spellings
}

// Definitions returns the tools for the model in a dialect, in slot order, without those that the client offers under
// the same name. They are shared and must not be changed.
func (r *toolbox) Definitions(d wire.Dialect) [][]byte {
	var out [][]byte
	for _, t := range r.p.tools {
		if _, m := r.find(t.name); m != nil {
			out = append(out, t.forms[d])
		}
	}
	return out
}

// find returns the tool with a name in any form, and its layer; nil if the name is the client's, or the layer is off.
func (r *toolbox) find(name string) (*tool, *runningLayer) {
	if len(r.p.tools) == 0 {
		return nil, nil
	}
	spelled := spelling(name)
	t := cmp.Or(r.p.byName[name], r.p.spellings[spelled])
	if t == nil || slices.Contains(r.turn.Tools, t.name) || slices.Contains(r.spelled(), spelled) {
		return nil, nil
	}
	for _, m := range r.layers {
		if m.ID == t.layer && !m.off {
			return t, m
		}
	}
	return nil, nil
}

// spelling returns what the names that models make of one name have in common: they write functions.a_b for a-b, change the case,
// and leave white space, invisible characters or marks of their chat template around or after it.
func spelling(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(layer.WithoutHidden(name)), "<|")
	name = strings.TrimFunc(name, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) })
	return strings.Map(func(c rune) rune {
		if c == '-' || c == '/' || c == '.' {
			return '_'
		}
		return c
	}, strings.TrimPrefix(name, "functions."))
}

// Meant returns the names of the client's tools that a name spells in another way: like Remora, clients may take it for one of them.
func (r *toolbox) Meant(name string) []string {
	if slices.Contains(r.turn.Tools, name) {
		return nil
	}
	var meant []string
	spelled := spelling(name)
	for i, other := range r.spelled() {
		if other == spelled {
			meant = append(meant, r.turn.Tools[i])
		}
	}
	return meant
}

// Owns reports whether a call of this name is for RunTool: layerid_function in any spelling, or the function alone if it is no other
// layer's.
func (r *toolbox) Owns(name string) bool {
	_, m := r.find(name)
	return m != nil
}

// Named returns a call of a tool with this name. A layer's tool gets the name that it is offered under: a rule for that name
// must see every call of it, in either form.
func (r *toolbox) Named(c layer.ToolCall, name string) layer.ToolCall {
	c.Name, c.OfLayer = name, false
	if t, _ := r.find(name); t != nil {
		c.Name, c.OfLayer = t.name, true
	}
	return c
}

// RunTool answers a call of a layer's tool. The answer is for the model, and so are errors: an unknown name, arguments that
// violate the tool's schema, the tool's own error. After an error the state is unchanged.
func (r *toolbox) RunTool(ctx context.Context, c layer.ToolCall) string {
	t, m := r.find(c.Name)
	if t == nil {
		return "Error: unknown tool '" + c.Name + "'"
	}
	arguments := []byte(c.Arguments)
	if strings.TrimSpace(c.Arguments) == "" {
		arguments = []byte("{}") // models may write an empty text for no arguments
	}
	if len(arguments) > maxArguments {
		return fmt.Sprintf("Error: invalid arguments: more than %d bytes", maxArguments)
	}
	if err := t.schema.Validate(arguments); err != nil {
		return "Error: invalid arguments: " + err.Error()
	}
	result, err := update(ctx, m, layer.HookTools, func(ctx context.Context, s layer.State) (string, layer.State, error) {
		result, next, err := t.run(ctx, m.turn, s, slices.Clone(arguments))
		if err == nil && len(result) > maxResult {
			err = refused("want a result of at most %d bytes", maxResult)
		}
		return result, next, err
	})
	if err != nil {
		return "Error: " + explain(err)
	}
	return result
}

// explain returns a tool's failure for the model, which may see more than the log.
func explain(err error) string {
	const longest = 4 << 10
	switch classOf(err) {
	case ClassError:
		return layer.Head(errors.Unwrap(err).Error(), longest) // what the tool said: see call
	case ClassTimeout:
		return "the tool took too long"
	case ClassBusy:
		return "the tool is busy, try again later"
	case ClassRefused:
		return "the tool's answer cannot be used: " + layer.SafeText(err)
	default:
		return "the tool failed"
	}
}
