// Package reminder implements the layer reminder: it repeats fixed texts of the operator to the model when a session or a
// tool loop gets long.
package reminder

import (
	"context"
	"errors"
	"fmt"
	"math"

	"remora/memory/layer"
	"remora/wire"
)

// Bounds of the configuration.
const (
	maxReminders = 64
	maxText      = 16 << 10 // bytes
	maxEvery     = 1_000_000
)

// Options are the layer's own keys.
type Options struct {
	Reminders []Reminder `mapstructure:"reminders"`
}

// Reminder is one text and its conditions. At least one is set; with both, either is enough.
type Reminder struct {
	Text string `mapstructure:"text"`
	// EveryUserTurns shows it during the run of every user message whose number is a multiple of this; 0 is never.
	EveryUserTurns int `mapstructure:"every_user_turns"`
	// AfterToolCalls shows it from this number of tool results of a run until its end; 0 is never.
	AfterToolCalls int `mapstructure:"after_tool_calls"`
}

// Defaults returns the layer's slot, scope and budget. User messages are counted over the
// session, so the scope is the thread, not the run.
func Defaults(Options) layer.Defaults {
	return layer.Defaults{ID: "reminder", Slot: 80, Scope: layer.Thread, Budget: layer.AtMost(800), Placement: layer.AutoLive, Fresh: true}
}

// Layer is the layer. It is safe for concurrent use.
type Layer struct {
	reminders []Reminder
}

// New checks the options. Errors name their key.
func New(o Options) (*Layer, error) {
	var errs []error
	if len(o.Reminders) == 0 || len(o.Reminders) > maxReminders {
		errs = append(errs, fmt.Errorf("reminders: want 1 to %d of them", maxReminders))
	}
	l := &Layer{}
	for i, r := range o.Reminders {
		at := fmt.Sprintf("reminders[%d]", i)
		errs = append(errs,
			layer.Text(at+".text", &r.Text, maxText),
			layer.UpTo(at+".every_user_turns", r.EveryUserTurns, maxEvery),
			layer.UpTo(at+".after_tool_calls", r.AfterToolCalls, maxEvery))
		if r.EveryUserTurns == 0 && r.AfterToolCalls == 0 {
			errs = append(errs, fmt.Errorf("%s: want every_user_turns or after_tool_calls", at))
		}
		l.reminders = append(l.reminders, r)
	}
	return l, errors.Join(errs...)
}

// state counts the user messages of the session, and the results of tools since the last one.
type state struct {
	Turns int `json:"turns"`
	Calls int `json:"calls"`
	// Before is Turns before the request with the last of them: one may have several.
	Before int `json:"before,omitempty"`
}

// read decodes a stored state, and returns the empty state if it is not a count.
func read(s layer.State) state {
	return layer.Decode(s, func(st *state) bool {
		return min(st.Turns, st.Calls, st.Before) >= 0 && st.Before <= st.Turns && max(st.Turns, st.Calls) <= math.MaxInt32
	})
}

// AppendItems counts. The items do not change.
func (*Layer) AppendItems(_ context.Context, _ *layer.Turn, s layer.State, items []wire.Item) (layer.Appended, error) {
	before := read(s)
	st := before
	for _, it := range items {
		switch {
		case it.Role == wire.User:
			st.Turns++
			st.Calls = 0
		case it.Kind == wire.ToolResult:
			st.Calls++
		}
	}
	if st.Turns > before.Turns {
		st.Before = before.Turns
	}
	if st == before {
		return layer.Appended{Items: items}, nil
	}
	next, err := layer.Encode(st)
	return layer.Appended{Items: items, State: next}, err
}

// due reports whether a reminder is shown. The first request of a session may have a whole history: only the last message counts.
func (r Reminder) due(st state) bool {
	n := r.EveryUserTurns
	return n > 0 && st.Turns > 0 && (st.Turns%n == 0 || st.Before > 0 && st.Turns/n > st.Before/n) ||
		r.AfterToolCalls > 0 && st.Calls >= r.AfterToolCalls
}

// Recall returns one block per reminder that is due, in the order of the configuration; one that does not fit is left out
// completely, since half of it may say the opposite.
func (l *Layer) Recall(_ context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	st := read(s)
	var out layer.Recalled
	for _, r := range l.reminders {
		if !r.due(st) {
			continue
		}
		block := layer.Block("reminder", r.Text)
		if cost := t.Count(block); cost <= budget {
			out.Messages = append(out.Messages, block)
			budget -= cost
		}
		out.NoRoom = len(out.Messages) == 0
	}
	return out, nil
}
