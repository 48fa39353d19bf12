// Package taskstate implements the layer task_state: the progress of a long task. It records each answer of the model as a
// checkpoint, and the model records files and other data by calling tools.
package taskstate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"remora/memory/layer"
	"remora/memory/layer/schema"
	"remora/wire"
)

// Bounds of the state; maxFileBytes, maxAllFiles, maxKey and maxData are in bytes. They keep it well below what the
// runtime keeps of a layer.
const (
	maxCheckpoints = 50
	maxFiles       = 1000
	maxFileBytes   = 1024
	maxAllFiles    = 64 << 10
	maxKey         = 256
	maxKeys        = 1000
	maxData        = 256 << 10
	maxDepth       = 32 // nesting of a value
)

// outcomeKey is the member of data with the outcome of the task, until the user goes on. The model cannot set it.
const outcomeKey = "__outcome"

// Options are the layer's own keys.
type Options struct {
	// ReturnMode determines where a child's data goes when it returns: "merge" (default) overwrites the parent's keys,
	// "execution" keeps it under the id of the child's execution.
	ReturnMode string `mapstructure:"return_mode"`
}

// Defaults returns the layer's slot, scope and budget. The block changes with every answer.
func Defaults(Options) layer.Defaults {
	return layer.Defaults{
		ID: "durable-task-state", Slot: 110, Scope: layer.Thread, Budget: layer.Between(100, 800), Placement: layer.AutoLive,
	}
}

// Layer is the layer. It is safe for concurrent use.
type Layer struct{ byExecution bool }

// New checks the options. Errors name their key.
func New(o Options) (*Layer, error) {
	const merge, execution = "merge", "execution"
	err := layer.OneOf("return_mode", &o.ReturnMode, merge, execution)
	return &Layer{byExecution: o.ReturnMode == execution}, err
}

// state is the stored state of the layer.
type state struct {
	Checkpoints []checkpoint               `json:"checkpoints"`
	Files       []string                   `json:"files"`
	Data        map[string]json.RawMessage `json:"data"`
	// What follows is not shown to the model.

	// Marked is the number of all checkpoints, if more than are kept; Base the number at the time of the spawn.
	Marked int `json:"marked,omitempty"`
	Base   int `json:"base,omitempty"`
	// Spawned are fingerprints of the members of the data that the session was spawned with.
	Spawned []byte `json:"spawned,omitempty"`
	// Given records what children have returned, the latest last.
	Given []given `json:"given,omitempty"`
}

// checkpoint is one answer of the model.
type checkpoint struct {
	Timestamp int64 `json:"timestamp"` // milliseconds since 1970
	Depth     int   `json:"depth"`     // 0 in a session of its own, 1 in one that another spawned
	// Outcome is how the run ended, with the answer that ended it: "answered", or "denied" where a layer forbade it; "success" or
	// "failure" where the task ended with it.
	Outcome string `json:"outcome,omitempty"`
}

// read decodes a stored state, and returns the empty state if it is not a task state.
func read(s layer.State) state {
	st := layer.Decode(s, sane)
	st.Marked = max(st.Marked, len(st.Checkpoints))
	// The model is shown lists and an object, never null.
	if st.Checkpoints == nil {
		st.Checkpoints = []checkpoint{}
	}
	if st.Files == nil {
		st.Files = []string{}
	}
	if st.Data == nil {
		st.Data = map[string]json.RawMessage{}
	}
	return st
}

// sane reports whether a state keeps the bounds that this package keeps.
func sane(st *state) bool {
	if len(st.Checkpoints) > maxCheckpoints || !saneCounts(st) || !saneFiles(st.Files) || len(st.Data) > maxKeys+1 || sizeOf(st.Data) > maxData {
		return false
	}
	for key, v := range st.Data {
		if !saneMember(key, v) {
			return false
		}
	}
	return true
}

func saneFiles(files []string) bool {
	all := 0
	for _, f := range files {
		if !saneText(f, maxFileBytes) {
			return false
		}
		all += len(f)
	}
	return len(files) <= maxFiles && all <= maxAllFiles
}

// saneMember reports whether a key and its value are within the limits. A child's data is nested one level deeper.
func saneMember(key string, v json.RawMessage) bool {
	return saneText(key, maxKey) && schema.Depth(v) <= maxDepth+1
}

// saneText reports whether a name is short, on one line, and at most twice as long in JSON.
func saneText(s string, limit int) bool {
	return s != "" && len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func (st state) encode() (layer.State, error) {
	if st.Marked == len(st.Checkpoints) {
		st.Marked = 0
	}
	return layer.Encode(st)
}

// Init keeps a stored task state and discards anything else.
func (*Layer) Init(_ context.Context, _ *layer.Turn, stored layer.State) (layer.State, error) {
	var st state
	if err := json.Unmarshal(stored, &st); err == nil && bytes.HasPrefix(stored, []byte("{")) && sane(&st) {
		return stored, nil
	}
	return nil, nil
}

// Recall returns the block task_state, even for an empty state. Over the budget the older half of the checkpoints is dropped
// until it fits, then the end is cut; a budget of 0 drops nothing.
func (*Layer) Recall(_ context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	const tag = "task_state"
	st := read(s)
	body := st.pretty(t.Now.Location())
	if budget <= 0 {
		return layer.OneBlock(layer.Block(tag, body)), nil
	}
	for len(st.Checkpoints) > 0 && !layer.Fits(t.Count, layer.Block(tag, body), budget) {
		st.Checkpoints = st.Checkpoints[(len(st.Checkpoints)+1)/2:]
		body = st.pretty(t.Now.Location())
	}
	return layer.OneBlock(layer.BlockWithin(t.Count, tag, body, budget)), nil
}

// pretty returns what the model is shown of the state, as JSON with two spaces of indentation and times that it can read.
func (st state) pretty(zone *time.Location) string {
	type shown struct {
		Timestamp string `json:"timestamp"`
		Depth     int    `json:"depth"`
		Outcome   string `json:"outcome,omitempty"`
	}
	checkpoints := make([]shown, len(st.Checkpoints))
	for i, c := range st.Checkpoints {
		checkpoints[i] = shown{time.UnixMilli(c.Timestamp).In(zone).Format(time.RFC3339), c.Depth, c.Outcome}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		Checkpoints []shown                    `json:"checkpoints"`
		Files       []string                   `json:"files"`
		Data        map[string]json.RawMessage `json:"data"`
	}{checkpoints, st.Files, st.Data})
	if err != nil {
		panic(fmt.Sprintf("BUG: encode a task state: %v", err)) // text, numbers, and JSON that was read
	}
	return strings.TrimSpace(out.String())
}

// mark adds a checkpoint and leaves the newest.
func (st *state) mark(c ...checkpoint) {
	st.Marked += len(c)
	st.Checkpoints = append(st.Checkpoints, c...)
	st.Checkpoints = layer.Last(st.Checkpoints, maxCheckpoints)
}

func depth(t *layer.Turn) int {
	if t.Parent != "" {
		return 1
	}
	return 0
}

// AppendItems clears the outcome of the task when the user goes on.
func (*Layer) AppendItems(_ context.Context, _ *layer.Turn, s layer.State, items []wire.Item) (layer.Appended, error) {
	out := layer.Appended{Items: items}
	if !bytes.Contains(s, []byte(outcomeKey)) || !slices.ContainsFunc(items, func(it wire.Item) bool { return it.Role == wire.User }) {
		return out, nil
	}
	st := read(s)
	if _, ended := st.Data[outcomeKey]; !ended {
		return out, nil
	}
	delete(st.Data, outcomeKey)
	var err error
	out.State, err = st.encode()
	return out, err
}

// Store marks a checkpoint.
func (*Layer) Store(_ context.Context, t *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
	st := read(s)
	st.mark(checkpoint{Timestamp: t.Now.UnixMilli(), Depth: depth(t)})
	return st.encode()
}

// Complete records at the last checkpoint how the run or the work ended. The end of the work is in data.__outcome, too; the end of a
// run does not end the task.
func (*Layer) Complete(_ context.Context, _ *layer.Turn, s layer.State, o layer.Outcome) (layer.State, error) {
	st := read(s)
	if o.Result.Ends() {
		st.end(o.Result)
	}
	if n := len(st.Checkpoints); n > 0 {
		st.Checkpoints[n-1].Outcome = string(o.Result)
	}
	return st.encode()
}

// end notes how the task ended.
func (st *state) end(result layer.Result) {
	st.Data[outcomeKey] = json.RawMessage(`"` + string(result) + `"`)
}

// put sets one key of the data, if it fits.
func (st *state) put(key string, value json.RawMessage) error {
	old, had := st.Data[key]
	st.Data[key] = value
	if len(st.Data) <= maxKeys+1 && sizeOf(st.Data) <= maxData && saneMember(key, value) {
		return nil
	}
	if delete(st.Data, key); had {
		st.Data[key] = old
	}
	return fmt.Errorf("value: the data would have more than %d keys, %d bytes or %d levels; keep less", maxKeys, maxData, maxDepth)
}

func sizeOf(data map[string]json.RawMessage) int {
	n := 0
	for key, v := range data {
		n += len(key) + len(v)
	}
	return n
}

// Tools are the functions recordArtifact, setTaskData and completeTask.
func (*Layer) Tools() []layer.Tool {
	return []layer.Tool{{
		Name:        "recordArtifact",
		Description: "Record the path of a file that you made or changed for this task, so that it is not forgotten.",
		Parameters:  []byte(`{"type":"object","properties":{"path":{"type":"string","minLength":1}},"required":["path"],"additionalProperties":false}`),
		Run:         recordArtifact,
	}, {
		Name:        "setTaskData",
		Description: "Keep a value under a key for the rest of this task. It replaces what was there.",
		Parameters:  []byte(`{"type":"object","properties":{"key":{"type":"string","minLength":1},"value":{}},"required":["key","value"],"additionalProperties":false}`),
		Run:         setTaskData,
	}, {
		Name:        "completeTask",
		Description: "End this task: when it is done, or with success false when it is given up.",
		Parameters:  []byte(`{"type":"object","properties":{"success":{"type":"boolean"}},"additionalProperties":false}`),
		Run:         completeTask,
	}}
}

func completeTask(_ context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
	var a struct {
		Success *bool `json:"success"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil {
		return "", s, errors.New("success: want true or false")
	}
	result := layer.Success
	if a.Success != nil && !*a.Success {
		result = layer.Failure
	}
	st := read(s)
	st.end(result)
	next, err := st.encode()
	if err == nil && t.Complete != nil {
		t.Complete(result)
	}
	return "The task has ended: " + string(result) + ".", next, err
}

func recordArtifact(_ context.Context, _ *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
	var a struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil || !saneText(a.Path, maxFileBytes) {
		return "", s, fmt.Errorf("path: want a line of 1 to %d bytes", maxFileBytes)
	}
	st := read(s)
	if slices.Contains(st.Files, a.Path) {
		return "Recorded already.", s, nil
	}
	if st.Files = append(st.Files, a.Path); !saneFiles(st.Files) {
		return "", s, fmt.Errorf("path: want at most %d paths of %d bytes in all", maxFiles, maxAllFiles)
	}
	next, err := st.encode()
	return "Recorded.", next, err
}

func setTaskData(_ context.Context, _ *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
	var a struct {
		Key   string          `json:"key"`
		Value json.RawMessage `json:"value"`
	}
	err := json.Unmarshal(arguments, &a)
	switch {
	case err != nil || a.Value == nil:
		return "", s, errors.New("value: want a key, as text, and a value")
	case !saneText(a.Key, maxKey):
		return "", s, fmt.Errorf("key: want a line of 1 to %d bytes", maxKey)
	case strings.TrimSpace(a.Key) == outcomeKey:
		return "", s, fmt.Errorf("key: %s is kept by the proxy, want another", outcomeKey)
	}
	st := read(s)
	if err := st.put(a.Key, layer.Compact(a.Value)); err != nil {
		return "", s, err
	}
	next, err := st.encode()
	return "Kept.", next, err
}
