// Package steering implements the layer steering: rules of the operator that allow, deny or guide tool calls and responses of
// the model. A rule is an expression in CEL, the Common Expression Language, a question to a model, or both.
package steering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"remora/memory/layer"
)

// Bounds.
const (
	defaultRetries = 1
	limitRetries   = 5
	maxRules       = 200
	maxAsked       = 16   // asynchronous model checks of one turn
	maxQueue       = 20   // pending verdicts
	maxGuidance    = 1000 // characters of a model's guidance
)

// Options configures the layer.
type Options struct {
	// Rules are evaluated in order.
	Rules []Rule `mapstructure:"rules"`
	// MaxRetries is how often the model is asked again after an unreadable verdict; default 1, at most 5. Then the verdict is
	// allow.
	MaxRetries *int `mapstructure:"max_retries"`
	// Model checks need a model.
	layer.Setup `mapstructure:"-"`
}

// Defaults returns the layer's slot, scope and budget. Asynchronous rules need the scope thread: their verdicts are shown in
// the session's next turn, which may be another execution.
func Defaults(o Options) layer.Defaults {
	scope := layer.Execution
	for _, r := range o.Rules {
		if r.ModelCheck != nil && r.ModelCheck.Mode == modeAsync {
			scope = layer.Thread
		}
	}
	return layer.Defaults{
		ID: "steering", Slot: 90, Scope: scope, Budget: layer.AtMost(500), Placement: layer.AutoLive, Fresh: true,
	}
}

// Layer is the layer. It is safe for concurrent use.
type Layer struct {
	rules   []*rule
	retries int
}

// New returns the layer. The error joins one line per wrong rule or key; a rule's line names its index and id.
func New(o Options) (*Layer, error) {
	l := &Layer{retries: defaultRetries}
	if o.MaxRetries != nil {
		l.retries = *o.MaxRetries
	}
	errs := []error{layer.UpTo("max_retries", l.retries, limitRetries)}
	if len(o.Rules) == 0 || len(o.Rules) > maxRules {
		errs = append(errs, fmt.Errorf("rules: want 1 to %d", maxRules))
	}
	ids := map[string]bool{}
	for i, r := range o.Rules[:min(len(o.Rules), maxRules)] {
		at := fmt.Sprintf("rules[%d]", i)
		if idPattern.MatchString(r.ID) {
			at += " (" + r.ID + ")"
		}
		compiled, err := compile(at, r)
		errs = append(errs, err)
		if r.ModelCheck != nil && !o.HasModel {
			errs = append(errs, fmt.Errorf("%s.model_check: needs the key model of the layer (MISSING_CALL_MODEL)", at))
		}
		if ids[r.ID] {
			errs = append(errs, fmt.Errorf("%s.id: want one of its own", at))
		}
		ids[r.ID] = true
		l.rules = append(l.rules, compiled)
	}
	return l, errors.Join(errs...)
}

// Has selects the hooks that the rules need (layer.Selective): answers and tool calls are only held back if a rule may stop
// them.
func (l *Layer) Has(hook string) bool {
	switch hook {
	case layer.HookReviewToolCall:
		return slices.ContainsFunc(l.rules, func(r *rule) bool { return r.stops(beforeToolCall) })
	case layer.HookReviewResponse:
		return slices.ContainsFunc(l.rules, func(r *rule) bool { return r.stops(afterModelCall) })
	case layer.HookStore, layer.HookRecall:
		return slices.ContainsFunc(l.rules, func(r *rule) bool { return r.mode == modeAsync })
	default:
		return true
	}
}

// ReviewToolCall judges a call by the rules that apply to before_tool_call.
func (l *Layer) ReviewToolCall(ctx context.Context, t *layer.Turn, _ layer.State, c layer.ToolCall) (layer.Verdict, error) {
	return l.review(ctx, t, callSubject(t, c))
}

// ReviewResponse judges a response by the rules that apply to after_model_call.
func (l *Layer) ReviewResponse(ctx context.Context, t *layer.Turn, _ layer.State, r *layer.Response) (layer.Verdict, error) {
	return l.review(ctx, t, responseSubject(t, r))
}

// review returns the verdict of all rules. The first denial ends the review; otherwise guide precedes
// allow, and all guidance is joined. A failed model check decides nothing, and is an error if no other rule decided.
func (l *Layer) review(ctx context.Context, t *layer.Turn, sub subject) (layer.Verdict, error) {
	var all layer.Verdict
	var errs []error
	for _, r := range l.rules {
		if !r.phases[sub.phase] {
			continue
		}
		d, err := l.judge(ctx, t, r, sub)
		if err != nil {
			errs = append(errs, fmt.Errorf("rule %s: %w", r.id, err))
		}
		if all = all.With(d); all.Action == layer.Deny {
			break
		}
	}
	if err := errors.Join(errs...); err != nil && all.Action == layer.Allow {
		return layer.Verdict{}, err
	}
	return all, nil
}

// judge returns the verdict of one rule.
func (l *Layer) judge(ctx context.Context, t *layer.Turn, r *rule, sub subject) (layer.Verdict, error) {
	matched, decided := r.match(ctx, sub)
	if decided {
		return layer.Verdict{Action: r.action, Guidance: r.guidance}, nil
	}
	if r.mode != modeSync || !matched {
		return layer.Verdict{}, nil
	}
	return l.ask(ctx, t, r, sub)
}

// Store asks the model for asynchronous verdicts, and stores them for the next recall. It drops those that the model has got with
// this request.
func (l *Layer) Store(ctx context.Context, t *layer.Turn, s layer.State, resp *layer.Response) (layer.State, error) {
	st := read(s)
	var errs []error
	changed := !t.Unshown && st.drop(t.ID)
	for _, c := range l.unasked(ctx, t, resp) {
		v, err := l.ask(ctx, t, c.rule, c.subject)
		if err != nil {
			errs = append(errs, fmt.Errorf("rule %s: %w", c.rule.id, err))
			continue
		}
		if v.Action != layer.Allow {
			st.queue(feedback{Rule: c.rule.id, Guidance: v.Guidance})
			changed = true
		}
	}
	if !changed {
		return s, errors.Join(errs...)
	}
	next, err := layer.Encode(st)
	return next, errors.Join(append(errs, err)...) // a failed check must not lose the verdicts of others
}

// check is an asynchronous question.
type check struct {
	rule    *rule
	subject subject
}

// unasked returns the asynchronous checks of a response and its calls, the response's first, at most maxAsked.
func (l *Layer) unasked(ctx context.Context, t *layer.Turn, resp *layer.Response) []check {
	subjects := []subject{responseSubject(t, resp)}
	for _, c := range resp.Calls[:min(len(resp.Calls), maxAsked)] {
		subjects = append(subjects, callSubject(t, c))
	}
	var all []check
	for _, sub := range subjects {
		for _, r := range l.rules {
			if r.mode != modeAsync || !r.phases[sub.phase] || len(all) == maxAsked {
				continue
			}
			if matched, decided := r.match(ctx, sub); matched && !decided {
				all = append(all, check{r, sub})
			}
		}
	}
	return all
}

// Recall shows asynchronous verdicts. Store drops them once the model has answered: a request may fail. A verdict that does not fit
// waits for the next recall.
func (*Layer) Recall(_ context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	st := read(s)
	r, told := layer.FitEach(t, st.Queue, budget, render)
	if len(told) == 0 {
		return r, nil
	}
	st.told(told, t.ID)
	var err error
	r.State, err = layer.Encode(st)
	return r, err
}

func render(all []feedback) string {
	lines := make([]string, 0, len(all))
	for _, f := range all {
		guidance := cmp.Or(f.Guidance, "Please adjust your response.")
		lines = append(lines, "["+f.Rule+"] "+guidance)
	}
	return layer.Block("steering_feedback", strings.Join(lines, "\n"))
}
