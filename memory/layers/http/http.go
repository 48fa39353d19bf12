// Package http implements the layer http: a layer that runs as a server of its own, in any language. Each hook named in
// its configuration is one JSON POST to one URL. docs/custom-layer.md describes the messages; they have a version, and
// every member of an answer is optional.
//
// The server is stateless: it gets its state with every call and returns the new one, so it can be restarted and
// replicated without a store. It never sees a credential. A server that hangs, fails, or answers nonsense or gigabytes
// fails only that hook, with an error that never quotes the answer.
package http

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"remora/memory/layer"
	"remora/wire"
)

// Layer is a layer behind a URL. It has a method for every hook; Has selects the configured ones.
type Layer struct {
	o      Options
	tools  []layer.Tool
	client *client
}

// New checks the options. Its error joins one line per problem, each beginning with its key, as "hooks[1]: ...". Close
// ends the connections of the layer.
func New(o Options) (*Layer, error) {
	o.Tag = cmp.Or(o.Tag, defaultTag)
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default clock of a layer that takes one
	}

	tools, err := o.check()
	if err != nil {
		return nil, err
	}

	l := &Layer{o: o, tools: tools, client: newClient(o)}
	for i := range l.tools {
		l.tools[i].Run = l.runner(l.tools[i].Name)
	}
	return l, nil
}

// Close closes the connections that are not in use. Those in use end with their hooks.
func (l *Layer) Close() error {
	l.client.CloseIdleConnections()
	return nil
}

// Has reports whether a hook is called.
func (l *Layer) Has(hook string) bool {
	if hook == layer.HookTools {
		return len(l.tools) > 0
	}
	return slices.Contains(l.o.Hooks, hook)
}

// Async reports whether reviews of responses do not decide.
func (l *Layer) Async() bool { return l.o.Async }

// Slow reports whether storing waits for a network.
func (l *Layer) Slow() bool { return true }

// Tools are the functions that the server offers.
func (l *Layer) Tools() []layer.Tool { return slices.Clone(l.tools) }

// Init asks for the initial state. Without a state in the answer it is the stored one.
func (l *Layer) Init(ctx context.Context, t *layer.Turn, stored layer.State) (layer.State, error) {
	return l.update(ctx, newRequest(layer.HookInit, t, stored), stored)
}

// update asks and returns the state after the answer.
func (l *Layer) update(ctx context.Context, r *request, s layer.State) (layer.State, error) {
	a, err := l.client.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.next(s), nil
}

// Recall asks for messages for the model. It takes messages until one exceeds the budget.
func (l *Layer) Recall(ctx context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	if budget <= 0 {
		return layer.Recalled{}, nil
	}
	r := newRequest(layer.HookRecall, t, s)
	r.Budget = tokens(budget)
	a, err := l.client.ask(ctx, r)
	if err != nil {
		return layer.Recalled{}, err
	}
	out := layer.Recalled{State: a.changed(s)}
	for _, m := range a.Messages {
		if m == "" {
			continue
		}
		if l.o.Tag != noTag {
			m = layer.Block(l.o.Tag, m)
		}
		if !layer.Fits(t.Count, m, budget) {
			out.NoRoom = len(out.Messages) == 0
			break
		}
		out.Messages = append(out.Messages, m)
		budget -= t.Count(m)
	}
	return out, nil
}

// Store posts a whole answer.
func (l *Layer) Store(ctx context.Context, t *layer.Turn, s layer.State, resp *layer.Response) (layer.State, error) {
	r := newRequest(layer.HookStore, t, s)
	r.Response = newResponse(resp)
	return l.update(ctx, r, s)
}

// ProjectHistory asks which items of the history are sent.
func (l *Layer) ProjectHistory(
	ctx context.Context, t *layer.Turn, s layer.State, history []wire.Item,
) ([]wire.Item, error) {
	r := newRequest(layer.HookProjectHistory, t, s)
	r.Items = rawItems(history)
	a, err := l.client.ask(ctx, r)
	if err != nil || a.Keep == nil {
		return history, err
	}
	kept, last := make([]wire.Item, 0, min(len(*a.Keep), len(history))), -1
	for _, i := range *a.Keep {
		if i <= last || i >= len(history) {
			return nil, safe("%w: keep: want positions in the list of items, rising", ErrAnswer)
		}
		kept, last = append(kept, history[i]), i
	}
	return kept, nil
}

// AppendItems asks for replacements of new items.
func (l *Layer) AppendItems(
	ctx context.Context, t *layer.Turn, s layer.State, items []wire.Item,
) (layer.Appended, error) {
	r := newRequest(layer.HookAppendItems, t, s)
	r.Items = rawItems(items)
	a, err := l.client.ask(ctx, r)
	if err != nil {
		return layer.Appended{}, err
	}
	out := layer.Appended{Items: items, State: a.changed(s), Rerender: a.Rerender}
	if a.Items != nil {
		if out.Items, err = pick(t.Dialect, items, *a.Items); err != nil {
			return layer.Appended{}, err
		}
	}
	return out, nil
}

// ReviewToolCall asks for a decision on a tool call.
func (l *Layer) ReviewToolCall(
	ctx context.Context, t *layer.Turn, s layer.State, c layer.ToolCall,
) (layer.Verdict, error) {
	r := newRequest(layer.HookReviewToolCall, t, s)
	asked := newCall(c)
	r.Call = &asked
	return l.verdict(ctx, r, s)
}

// ReviewResponse asks for a decision on a whole response.
func (l *Layer) ReviewResponse(
	ctx context.Context, t *layer.Turn, s layer.State, resp *layer.Response,
) (layer.Verdict, error) {
	r := newRequest(layer.HookReviewResponse, t, s)
	r.Response = newResponse(resp)
	return l.verdict(ctx, r, s)
}

func (l *Layer) verdict(ctx context.Context, r *request, s layer.State) (layer.Verdict, error) {
	a, err := l.client.ask(ctx, r)
	if err != nil {
		return layer.Verdict{}, err
	}
	v := layer.Verdict{Guidance: a.Guidance, State: a.changed(s)}
	switch a.Action {
	case "", "allow":
		v.Guidance = ""
	case "guide":
		v.Action = layer.Guide
	case "deny":
		v.Action = layer.Deny
	default:
		return layer.Verdict{}, safe("%w: action: want allow, guide or deny", ErrAnswer)
	}
	return v, nil
}

// Spawn asks for the initial state of a child session.
func (l *Layer) Spawn(ctx context.Context, t *layer.Turn, parent layer.State) (layer.State, error) {
	return l.update(ctx, newRequest(layer.HookSpawn, t, parent), nil)
}

// Return asks for the parent's state after a child session.
func (l *Layer) Return(
	ctx context.Context, t *layer.Turn, parent, child layer.State, o layer.Outcome,
) (layer.State, error) {
	r := newRequest(layer.HookReturn, t, parent)
	r.Child, r.Outcome = opaque(child), newOutcome(o)
	return l.update(ctx, r, parent)
}

// Complete posts the end of a run, or of the work of a session.
func (l *Layer) Complete(ctx context.Context, t *layer.Turn, s layer.State, o layer.Outcome) (layer.State, error) {
	r := newRequest(layer.HookComplete, t, s)
	r.Outcome = newOutcome(o)
	return l.update(ctx, r, s)
}

func newOutcome(o layer.Outcome) *outcome {
	return &outcome{Result: o.Result, Execution: o.Execution, Thread: o.Thread}
}

// Dispose posts that a session is deleted.
func (l *Layer) Dispose(ctx context.Context, t *layer.Turn, s layer.State) error {
	_, err := l.client.ask(ctx, newRequest(layer.HookDispose, t, s))
	return err
}

// runner returns the function that runs a tool.
func (l *Layer) runner(
	name string,
) func(ctx context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
	return func(ctx context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
		if !json.Valid(arguments) {
			return "", s, errors.New("arguments: want JSON")
		}
		r := newRequest(layer.HookTools, t, s)
		r.Tool = &toolCall{Name: name, Arguments: arguments}
		a, err := l.client.ask(ctx, r)
		if err != nil {
			return "", s, err
		}
		if a.Result == nil {
			return "", s, safe("%w: result: want text", ErrAnswer)
		}
		return *a.Result, a.next(s), nil
	}
}
