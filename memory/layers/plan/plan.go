// Package plan implements the layer plan_memory: a plan that the model writes before it acts. While the model plans, it may
// only call tools that read; then it sees the plan until the work has ended.
package plan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"remora/memory/layer"
)

// Limits of a plan. Lengths are in characters.
const (
	maxPRD       = 50_000
	maxTree      = 20_000
	maxTreeDepth = 5
	maxWorkflows = 20
	maxWorkflow  = 20_000
	maxLog       = 10
	maxVersion   = 1 << 31
	maxAllowed   = 500   // tools of the allow-list
	maxAdvice    = 4_000 // bytes of instructions
	// maxState bounds all of it together, in bytes: the limits above allow more than is worth keeping.
	maxState = 512 << 10
	// maxEntry is what the log entry of a run's end may add to that, in bytes.
	maxEntry = 1 << 10
)

var workflowName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Phases of a plan.
const (
	idle      = "idle"
	planning  = "planning"
	executing = "executing"
	completed = "completed"
	failed    = "failed"
)

// Options are the layer's own keys.
type Options struct {
	// AllowedTools are the client's tools that may be called while planning; default the usual names of agents' reading
	// tools (see readOnlyTools). Functions of layers are always allowed.
	AllowedTools []string `mapstructure:"allowed_tools"`
	// Instructions are shown to the model while it plans, after the layer's own.
	Instructions string `mapstructure:"instructions"`
}

// readOnlyTools is the default allow-list.
func readOnlyTools() []string {
	return []string{
		"AskUserQuestion", "Find", "Glob", "Grep", "LS", "Ls", "Read", "WebFetch", "WebSearch",
		"find_files", "glob", "grep", "list_dir", "list_directory", "list_files", "read_file", "search_files", "view",
	}
}

// Defaults returns the layer's slot, scope and budget.
func Defaults(Options) layer.Defaults {
	return layer.Defaults{ID: "plan", Slot: 240, Scope: layer.Thread, Budget: layer.Between(100, 3000)}
}

// Layer is the layer. It is safe for concurrent use.
type Layer struct {
	allowed map[string]bool
	advice  string
}

// New checks the options. Errors name their key.
func New(o Options) (*Layer, error) {
	var errs []error
	if len(o.AllowedTools) > maxAllowed || slices.Contains(o.AllowedTools, "") {
		errs = append(errs, fmt.Errorf("allowed_tools: want at most %d names of tools, none empty", maxAllowed))
	}
	if len(o.Instructions) > maxAdvice || !utf8.ValidString(o.Instructions) {
		errs = append(errs, fmt.Errorf("instructions: want UTF-8 text of at most %d bytes", maxAdvice))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	l := &Layer{allowed: map[string]bool{}, advice: o.Instructions}
	if o.AllowedTools == nil {
		o.AllowedTools = readOnlyTools()
	}
	for _, name := range o.AllowedTools {
		l.allowed[name] = true
	}
	return l, nil
}

// state is the stored state of the layer.
type state struct {
	Phase     string                     `json:"phase"`
	PRD       string                     `json:"prd,omitempty"`
	Tree      json.RawMessage            `json:"planTree,omitempty"`
	Workflows map[string]json.RawMessage `json:"workflows,omitempty"`
	Log       []logEntry                 `json:"executionLog,omitempty"`
	Version   int                        `json:"version"`
}

// logEntry is one execution that ended.
type logEntry struct {
	Timestamp int64  `json:"timestamp"` // milliseconds since 1970
	Version   int    `json:"version"`
	Outcome   string `json:"outcome"` // success or failure
}

// read decodes a stored state, and returns the idle state if it is not a plan.
func read(s layer.State) state {
	st := layer.Decode(s, func(st *state) bool { return len(s) <= maxState+maxEntry && st.sane() })
	st.Phase = cmp.Or(st.Phase, idle)
	return st
}

// sane reports whether a state keeps the limits.
func (st *state) sane() bool {
	for name, document := range st.Workflows {
		if !workflowName.MatchString(name) || characters(document) > maxWorkflow {
			return false
		}
	}
	if st.Tree != nil && (st.Tree[0] != '{' || characters(st.Tree) > maxTree || treeDepth(st.Tree) > maxTreeDepth) {
		return false
	}
	return slices.Contains([]string{idle, planning, executing, completed, failed}, st.Phase) &&
		utf8.RuneCountInString(st.PRD) <= maxPRD && len(st.Workflows) <= maxWorkflows && len(st.Log) <= maxLog &&
		st.Version >= 0 && st.Version < maxVersion
}

func characters(raw []byte) int { return utf8.RuneCount(raw) }

// Init keeps a stored plan and discards anything else.
func (*Layer) Init(_ context.Context, _ *layer.Turn, stored layer.State) (layer.State, error) {
	if st := read(stored); st.Phase == idle {
		return nil, nil
	}
	return stored, nil
}

// Recall returns the block of the phase: plan_mode, active_plan or plan_outcome; nothing without a plan. Over the budget its
// end is cut, before the closing tag.
func (l *Layer) Recall(_ context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	st := read(s)
	var tag, text string
	switch st.Phase {
	case idle:
		return layer.Recalled{}, nil
	case planning:
		tag, text = "plan_mode", l.planning(t, &st)
	case executing:
		tag, text = "active_plan", st.document("# Plan")
	default:
		return st.outcome(t, budget), nil
	}
	return layer.OneBlock(layer.BlockWithin(t.Count, tag, text, budget)), nil
}

// outcome recalls how the plan ended.
func (st *state) outcome(t *layer.Turn, budget int) layer.Recalled {
	result := "unknown"
	if n := len(st.Log); n > 0 {
		result = layer.Escape(st.Log[n-1].Outcome)
	}
	text := fmt.Sprintf("<plan_outcome>Plan v%d %s.</plan_outcome>", st.Version, result)
	if !layer.Fits(t.Count, text, budget) {
		return layer.Recalled{NoRoom: true}
	}
	return layer.OneBlock(text)
}

// planning returns the rules of planning and the plan so far.
func (l *Layer) planning(t *layer.Turn, st *state) string {
	parts := []string{
		"You are planning. Look at what is there with tools that only read; every other tool is refused until the plan is executed.",
		"1. Find out what you need to know; ask the user where something stays open.\n" +
			"2. Write the plan with " + t.ToolName("updatePrd") + ": why, what will change and where, and how it will be checked.\n" +
			"3. Give its steps with " + t.ToolName("setPlanTree") + ", and longer procedures with " + t.ToolName("setWorkflow") + ".\n" +
			"4. Call " + t.ToolName("exitPlanMode") + " with action execute to begin, or cancel to drop the plan.",
	}
	if l.advice != "" {
		parts = append(parts, l.advice)
	}
	if st.PRD != "" || st.Tree != nil || len(st.Workflows) > 0 {
		parts = append(parts, st.document("# Plan so far"))
	}
	return strings.Join(parts, "\n\n")
}

// document is the plan as text: its PRD, its steps, and the names of its workflows, which getWorkflow reads.
func (st *state) document(title string) string {
	parts := []string{title}
	if st.PRD != "" {
		parts = append(parts, st.PRD)
	}
	if st.Tree != nil {
		var steps bytes.Buffer
		if json.Indent(&steps, st.Tree, "", "  ") == nil {
			parts = append(parts, "# Steps", steps.String())
		}
	}
	if len(st.Workflows) > 0 {
		names := slices.Sorted(maps.Keys(st.Workflows))
		parts = append(parts, "# Workflows", "- "+strings.Join(names, "\n- "))
	}
	return strings.Join(parts, "\n\n")
}

// ReviewToolCall denies tools outside the allow-list while planning.
func (l *Layer) ReviewToolCall(_ context.Context, t *layer.Turn, s layer.State, c layer.ToolCall) (layer.Verdict, error) {
	if l.allowed[c.Name] || c.OfLayer || read(s).Phase != planning {
		return layer.Verdict{Action: layer.Allow}, nil
	}
	return layer.Verdict{
		Action: layer.Deny,
		Guidance: "A plan is being written, and this tool is not among those that only read. " +
			"Finish the plan with " + t.ToolName("updatePrd") + " and " + t.ToolName("setPlanTree") + ", then call " +
			t.ToolName("exitPlanMode") + ".",
	}, nil
}

// Spawn gives a child its parent's plan.
func (*Layer) Spawn(_ context.Context, _ *layer.Turn, parent layer.State) (layer.State, error) {
	return slices.Clone(parent), nil
}

// Complete ends an executing plan when the work is over. The end of a run does not end the work: the model may have asked the
// user, or the user may continue.
func (*Layer) Complete(_ context.Context, t *layer.Turn, s layer.State, o layer.Outcome) (layer.State, error) {
	st := read(s)
	if st.Phase != executing || !o.Result.Ends() {
		return s, nil
	}
	st.end(t, o.Result)
	return layer.Encode(&st)
}

// end notes how the plan ended.
func (st *state) end(t *layer.Turn, result layer.Result) {
	st.Phase = failed
	if result == layer.Success {
		st.Phase = completed
	}
	st.Log = append(st.Log, logEntry{Timestamp: t.Now.UnixMilli(), Version: st.Version, Outcome: string(result)})
	st.Log = layer.Last(st.Log, maxLog)
}
