package webhook

import (
	"context"
	"encoding/json"
	"errors"

	"remora/memory/layer"
	"remora/wire"
)

// Init asks for the state to begin with. Without a state in the answer it is the stored one.
func (l *Layer) Init(ctx context.Context, t *layer.Turn, stored layer.State) (layer.State, error) {
	return l.update(ctx, newRequest(layer.HookInit, t, stored), stored)
}

// update asks and returns the state after the answer.
func (l *Layer) update(ctx context.Context, r *request, s layer.State) (layer.State, error) {
	a, err := l.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.next(s), nil
}

// Recall asks what the model should be told. Of the messages it takes those that fit the budget, up to the first that
// does not.
func (l *Layer) Recall(ctx context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	if budget <= 0 {
		return layer.Recalled{}, nil
	}
	r := newRequest(layer.HookRecall, t, s)
	r.Budget = tokens(budget)
	a, err := l.ask(ctx, r)
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
		if !layer.Fits(t.Count, m, budget-out.Tokens) {
			break
		}
		out.Messages = append(out.Messages, m)
		out.Tokens += t.Count(m)
	}
	return out, nil
}

// Store tells of a whole answer.
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
	a, err := l.ask(ctx, r)
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

// AppendItems asks what the model should see in the place of new items.
func (l *Layer) AppendItems(
	ctx context.Context, t *layer.Turn, s layer.State, items []wire.Item,
) (layer.Appended, error) {
	r := newRequest(layer.HookAppendItems, t, s)
	r.Items = rawItems(items)
	a, err := l.ask(ctx, r)
	if err != nil {
		return layer.Appended{}, err
	}
	again, err := rerender(a.Rerender)
	if err != nil {
		return layer.Appended{}, err
	}
	out := layer.Appended{Items: items, State: a.changed(s), Rerender: again}
	if a.Items != nil {
		if out.Items, err = pick(t.Dialect, items, *a.Items); err != nil {
			return layer.Appended{}, err
		}
	}
	return out, nil
}

// pick makes the items that the server asks for of those that it was sent.
func pick(d wire.Dialect, items []wire.Item, want []entry) ([]wire.Item, error) {
	const maxNew = 64
	out := make([]wire.Item, 0, len(items))
	used := make([]bool, len(items))
	for made := 0; len(want) > 0; want = want[1:] {
		e := want[0]
		if e.Keep != nil {
			if e.Role != "" || e.Text != "" {
				return nil, safe("%w: items: want either keep or role and text", ErrAnswer)
			}
			if i := *e.Keep; i < 0 || i >= len(items) || used[i] {
				return nil, safe("%w: items: keep: want a position in the list of items, each at most once", ErrAnswer)
			}
			used[*e.Keep] = true
			out = append(out, items[*e.Keep])
			continue
		}
		role, ok := roleOf(e.Role)
		if made++; !ok || made > maxNew {
			return nil, safe("%w: items: want keep, or role (user, assistant, developer, system) and text, at most %d new ones",
				ErrAnswer, maxNew)
		}
		out = append(out, layer.NewText(d, role, e.Text))
	}
	return out, nil
}

func roleOf(name string) (wire.Role, bool) {
	switch name {
	case "user":
		return wire.User, true
	case "assistant":
		return wire.Assistant, true
	case "developer":
		return wire.Developer, true
	case "system":
		return wire.System, true
	default:
		return wire.RoleNone, false
	}
}

func rerender(name string) (layer.Rerender, error) {
	switch name {
	case "", "none":
		return layer.RerenderNone, nil
	case "self":
		return layer.RerenderSelf, nil
	case "slot_after":
		return layer.RerenderSlotAfter, nil
	case "all":
		return layer.RerenderAll, nil
	default:
		return 0, safe("%w: rerender: want none, self, slot_after or all", ErrAnswer)
	}
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

// ReviewResponse asks for a decision on a whole response. Of an asynchronous layer only the state counts.
func (l *Layer) ReviewResponse(
	ctx context.Context, t *layer.Turn, s layer.State, resp *layer.Response,
) (layer.Verdict, error) {
	r := newRequest(layer.HookReviewResponse, t, s)
	r.Response = newResponse(resp)
	v, err := l.verdict(ctx, r, s)
	if l.o.Async {
		v.Action, v.Guidance = layer.Allow, ""
	}
	return v, err
}

func (l *Layer) verdict(ctx context.Context, r *request, s layer.State) (layer.Verdict, error) {
	a, err := l.ask(ctx, r)
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

// Spawn asks what the state of a child session begins with.
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

// Complete tells of the end of an execution.
func (l *Layer) Complete(ctx context.Context, t *layer.Turn, s layer.State, o layer.Outcome) (layer.State, error) {
	r := newRequest(layer.HookComplete, t, s)
	r.Outcome = newOutcome(o)
	return l.update(ctx, r, s)
}

func newOutcome(o layer.Outcome) *outcome {
	return &outcome{Success: o.Success, Execution: o.Execution, Thread: o.Thread}
}

// Dispose tells that a session is deleted.
func (l *Layer) Dispose(ctx context.Context, t *layer.Turn, s layer.State) error {
	_, err := l.ask(ctx, newRequest(layer.HookDispose, t, s))
	return err
}

// runner returns what runs a tool.
func (l *Layer) runner(
	name string,
) func(ctx context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
	return func(ctx context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
		if !json.Valid(arguments) {
			return "", s, errors.New("arguments: want JSON")
		}
		r := newRequest(layer.HookTools, t, s)
		r.Tool = &toolCall{Name: name, Arguments: arguments}
		a, err := l.ask(ctx, r)
		if err != nil {
			return "", s, err
		}
		if a.Result == nil {
			return "", s, safe("%w: result: want text", ErrAnswer)
		}
		return *a.Result, a.next(s), nil
	}
}
