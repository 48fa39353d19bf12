// Package layer is the contract between the memory of a session and the layers that contribute to it. A layer is any Go
// value that implements some of the one-method interfaces below; a value that implements none is refused. Its name, its
// slot and its budget come from the configuration, not from the layer (package pipeline).
//
// Hooks are functions of their arguments: they get the stored state of the layer's scope and return the new one, and have no
// other state between calls. So one layer value serves all sessions concurrently, and if another replica has changed a state
// meanwhile, the hook is called again with the fresh one. Hooks must not modify their slice arguments.
package layer

import (
	"context"
	"errors"
	"time"

	"remora/wire"
)

// Scope determines which requests share a layer's state.
type Scope uint8

// Scopes, from the narrowest.
const (
	// Execution: one agent run, from a user message to the answer that ends its tool loop. Never persisted.
	Execution Scope = iota + 1
	// Thread: one session.
	Thread
	// Resource: all sessions of a resource; without a resource, the session.
	Resource
	// Global: all sessions of the tenant.
	Global
)

// State is a layer's state for one key of its scope, encoded as JSON; nil if there is none. A hook that returns its input state
// changes nothing; one that returns nil clears the state, so that the next request begins with Init.
type State []byte

// Turn describes the request that a hook is called for. All layers share it; it must not be changed.
type Turn struct {
	ID        string // unique, sorts by time
	Thread    string // the session
	Resource  string // empty where the request names none
	Execution string
	Parent    string // the session that spawned this one, empty for none
	Layer     string // the id of the layer that is called
	Now       time.Time
	Dialect   wire.Dialect
	Model     string // that the client asks for
	// Query is the text of the last user message, empty without one.
	Query string
	// Tools are the names of the tools that the client offers.
	Tools []string
	// Count counts tokens as the model's vocabulary does. It is never nil.
	Count func(text string) int
	// CountItem counts the tokens of an item of the history, as charged to the view's budget. It is never nil.
	CountItem func(it wire.Item) int
	// Overhead is the tokens of the request besides its history: system prompt, instructions, definitions of tools and recalled
	// blocks. It is set only for ProjectHistory.
	Overhead int
	// InView reports whether the view has an item of this content (wire.Item.ContentHash). It is set for a Recall that
	// runs because of OfView, and nil otherwise.
	InView func(content wire.Hash) bool
	// Upstream, set with InView, means that upstream stores the conversation itself: the model sees the whole session.
	Upstream bool
	// Cut is the history window's cut, nil if there is none. It is set when InView is.
	Cut *WindowCut
	// Unshown: the view had no room for the layer's block. It is set for Store.
	Unshown bool
	// Past searches earlier messages of this session and the others of its resource. It is nil if these are unknown, and in
	// hooks of a request that is not the conversation's.
	Past Past
	// Note adds a named value (a string, a number or a bool) to the layer's part of the turn's record. The last value of a name
	// counts. It is never nil, and any hook may call it.
	Note func(name string, value any)
	// Complete ends the work of the session: a tool calls it for the model. Layers and the layers of the parent session
	// are notified when the turn is over. It is nil outside of a request.
	Complete func(Result)
	// Ask calls the layer's configured model, with the caller's credential if it has none of its own. It is nil for a layer
	// without a model.
	Ask Model
}

// Past searches the earlier messages of a resource's sessions, or of the session itself if no resource is named.
type Past interface {
	// Empty reports whether there is nothing to search: the turn has no resource, and the model sees the whole session.
	Empty() bool
	// Search returns the messages that answer a question best, best first, at most limit; none if no message shares a word or
	// the meaning with the question. It waits for the store until ctx ends.
	Search(ctx context.Context, question string, limit int) ([]Statement, error)
}

// Statement is a message of a user or a model, or a part of a long one.
type Statement struct {
	// ID identifies the item; parts of one item share it. Session is a digest of its session, and Order its position there.
	ID, Session string
	Order       int
	// Own: it is from the session that asks.
	Own  bool
	Role string // user or assistant
	// Named: the text begins with the speaker's name and a colon, as in transcripts of several people.
	Named   bool
	Time    time.Time
	Text    string
	Content wire.Hash // as InView takes it
	// Score ranks the statements of one question: exp of a difference is the ratio of likelihoods.
	Score float32
	// Match is the share of the question's words, weighted by rarity, in the statement and its neighbours, 0 to 1.
	Match float32
	// Near is the statement's similarity to the question by an embedding model, -1 to 1; 0 without one.
	Near float32
}

// Model completes a prompt. system may be empty; maxTokens bounds the answer, 0 is the model's own bound. Errors never
// quote the prompt. If one has the method Refused() bool and that returns true, the model refuses this prompt and would refuse it
// again.
type Model interface {
	Complete(ctx context.Context, system, user string, maxTokens int) (string, error)
}

// Initializer is called once per request, before any other hook of the layer. stored is nil if there is no state; it returns
// the initial state. An error fails the request unless on_init_error is disable.
type Initializer interface {
	Init(ctx context.Context, t *Turn, stored State) (State, error)
}

// Recaller returns text for the model, within budget tokens (math.MaxInt without a limit).
type Recaller interface {
	Recall(ctx context.Context, t *Turn, s State, budget int) (Recalled, error)
}

// OfView is implemented by layers whose Recall depends on the items in the view. If it returns true, Recall is called again
// after the view is chosen, and the second result counts.
type OfView interface {
	OfView() bool
}

// ErrCutOver is the error of a WindowCut's methods after Recall has returned. A Recall that runs again on a state that another turn
// has changed meets it.
var ErrCutOver = errors.New("what a window has cut is read during recall only")

// WindowCut is a history window's cut of a conversation. Its results are copies and never change. Its methods fail after Recall
// has returned.
type WindowCut struct {
	// Place identifies the cut: it stays the same in later requests while the window begins there.
	Place func(ctx context.Context) (string, error)
	// Lost reads the items of the conversation that the view lacks, oldest first: from the request, or from the store
	// if the client sends only new items. Of a long conversation it returns the newest part. Shown returns the items of
	// the view, with the system prompt.
	Lost, Shown func(ctx context.Context) ([]wire.Item, error)
}

// MaxRecall is the most bytes of the messages of one Recall. If there are more, all are refused.
const MaxRecall = 1 << 20

// Recalled is one layer's contribution to a view.
type Recalled struct {
	// Messages become developer messages, in order. Stored text in them must be escaped (see Block).
	Messages []string
	// State replaces the layer's state, nil to leave it.
	State State
	// NoRoom: there are no Messages only because the budget was too small for any of the layer's text.
	NoRoom bool
}

// OneBlock returns a recall of one block; an empty block is one that had no room.
func OneBlock(block string) Recalled {
	if block == "" {
		return Recalled{NoRoom: true}
	}
	return Recalled{Messages: []string{block}}
}

// HistoryProjector chooses the part of the history to send. It returns some of its input items, in order, and cannot make new
// ones.
type HistoryProjector interface {
	ProjectHistory(ctx context.Context, t *Turn, s State, history []wire.Item) ([]wire.Item, error)
}

// ItemAppender is called with the new input items of a request, never with the model's. The model sees the returned
// items in their place, now and in every later request; the transcript keeps the client's items.
type ItemAppender interface {
	AppendItems(ctx context.Context, t *Turn, s State, items []wire.Item) (Appended, error)
}

// Appended is the result of an ItemAppender.
type Appended struct {
	// Items may be the input slice. Each item must be an input item, or made with wire.NewMessage or wire.MapTexts.
	Items []wire.Item
	State State
	// Rerender: the layer's Recall runs for this request, although an earlier block of the run or of its state would do.
	Rerender bool
}

// ToolCall is a call that the model wants to make.
type ToolCall struct {
	ID string
	// Name is the tool's name as the model is offered it: layerid_function for a layer's tool.
	Name string
	// OfLayer: the tool is a layer's, which changes nothing but memory.
	OfLayer bool
	// Arguments is the call's input as the model wrote it, which need not be JSON.
	Arguments string
	// Custom: the tool is a custom one, whose input is text.
	Custom bool
}

// Action is the decision of a reviewer.
type Action uint8

// Actions, from the weakest. Of several decisions the strongest counts.
const (
	Allow Action = iota
	// Guide lets the model try again with advice.
	Guide
	// Deny refuses. A denied call gets the guidance as its result, and the client never sees it; a denied response fails.
	Deny
)

// Verdict is a reviewer's decision.
type Verdict struct {
	Action Action
	// Guidance is shown to the model; empty for the standard text.
	Guidance string
	// State replaces the layer's state, nil to leave it.
	State State
}

// With is the verdict together with that of the next rule or reviewer: the stronger action counts. The guidance of several that guide
// is joined by line ends; a denial has only its own. An empty one never erases another.
func (v Verdict) With(next Verdict) Verdict {
	switch {
	case next.Action == Allow || next.Action < v.Action:
		return v
	case next.Guidance == "":
		next.Guidance = v.Guidance
	case next.Action == Guide && v.Guidance != "":
		next.Guidance = v.Guidance + "\n" + next.Guidance
	}
	return next
}

// ToolCallReviewer judges each tool call of a response before the client sees it.
type ToolCallReviewer interface {
	ReviewToolCall(ctx context.Context, t *Turn, s State, c ToolCall) (Verdict, error)
}

// Response is a whole answer of the model.
type Response struct {
	// Items are the answer's items with the hidden ones; if there are several choices, the items of the first.
	Items []wire.Item
	// Input are the request's new items, as the client sent them.
	Input []wire.Item
	// Calls are the tool calls in Items, in order, including calls of layers' tools, whose names are the layers' own.
	Calls []ToolCall
	// Text is the model's text, without its reasoning.
	Text string
	// Done: the answer calls no tool and ends the execution.
	Done bool
}

// ResponseReviewer judges a whole response. While one is configured that is not Async, answers are held back until
// they are judged.
type ResponseReviewer interface {
	ReviewResponse(ctx context.Context, t *Turn, s State, r *Response) (Verdict, error)
}

// Async is implemented by reviewers. If it returns true, ReviewResponse decides nothing, and answers are not held back for it.
type Async interface {
	Async() bool
}

// Storer updates the state after a complete answer. A layer with a model is called after the client is served, unless it is a
// Distiller. Any other is called before, within store.commit_wait, and its state is written together with the turn. A state
// returned with an error is kept, and the error is reported.
type Storer interface {
	Store(ctx context.Context, t *Turn, s State, r *Response) (State, error)
}

// ModelRests is how long a model that failed is left alone.
const ModelRests = 30 * time.Second

// Distiller is implemented by layers whose model condenses what Store has collected. Their Store asks no model, and is called
// before the client is served.
type Distiller interface {
	// Distil asks the model about the state, after the client is served; in one process never twice at the same time for one
	// state. Other turns change the state meanwhile, so it returns the change to make to it then; nil for none. A change that
	// comes with an error is made, too, and a state that it returns with an error is kept; errors are reported.
	Distil(ctx context.Context, t *Turn, s State) (func(ctx context.Context, s State) (State, error), error)
}

// EvictionObserver gets, after a complete answer, the items of the conversation that were not in its view, each once, oldest
// first. items is never empty. A layer with a model is called after the client is served, unless it is a Distiller; any other
// before. A state returned with an error is kept, and the error is reported.
type EvictionObserver interface {
	Evicted(ctx context.Context, t *Turn, s State, items []wire.Item) (State, error)
}

// Spawner returns what the state of a child session begins with, nil for nothing.
type Spawner interface {
	Spawn(ctx context.Context, t *Turn, parent State) (State, error)
}

// Returner merges the state of a child session into its parent's, each time that the child's work ends.
type Returner interface {
	Return(ctx context.Context, t *Turn, parent, child State, o Outcome) (State, error)
}

// Result is how a run or the work of a session ended.
type Result string

// Results. The end of a run does not end the work: the model ends it by a layer's tool, or the operator by the completion
// endpoint.
const (
	Answered Result = "answered" // the run ended with an answer that calls no tool
	Denied   Result = "denied"   // the run ended with an answer that a layer denied
	Success  Result = "success"  // the work is done
	Failure  Result = "failure"  // the work was given up
)

// Ends reports whether the work is over.
func (r Result) Ends() bool { return r == Success || r == Failure }

// Outcome is how a run, or the work of a session, ended.
type Outcome struct {
	Result Result
	// Execution is the one that ended, Thread its session.
	Execution, Thread string
	// Unseen are the items of the session that no EvictionObserver has seen, oldest first, for layers that observe evictions.
	// Like evictions, each is passed once.
	Unseen []wire.Item
}

// Completer is called at the end of a run, and when the work of the session ends.
type Completer interface {
	Complete(ctx context.Context, t *Turn, s State, o Outcome) (State, error)
}

// Disposer is called when a session is deleted, last layer first.
type Disposer interface {
	Dispose(ctx context.Context, t *Turn, s State) error
}

// Forgetter removes from a shared state the data that came only from deleted or expired sessions. gone reports whether the
// session with a Digest is one of them.
type Forgetter interface {
	Forget(ctx context.Context, t *Turn, s State, gone func(digest string) bool) (State, error)
}

// Tool is a function that a layer offers to the model. The proxy runs it, and the client never sees it.
type Tool struct {
	// Name is unique within the layer; the model sees layerid_name.
	Name        string
	Description string
	// Parameters is a JSON schema of an object; arguments that violate it are refused before Run.
	Parameters []byte
	// Run answers a call. The model gets an error as the call's result, and the state stays.
	Run func(ctx context.Context, t *Turn, s State, arguments []byte) (result string, next State, err error)
}

// notInToolName are the characters that providers refuse in the name of a tool.
var notInToolName = Lazily(`[^a-zA-Z0-9_-]`)

// ToolName returns the name under which the model is offered a tool of the layer with an id.
func ToolName(id, name string) string { return id + "_" + notInToolName().ReplaceAllString(name, "_") }

// ToolName returns the name under which the model is offered a tool of the layer that is called.
func (t *Turn) ToolName(name string) string { return ToolName(t.Layer, name) }

// ToolProvider offers tools.
type ToolProvider interface {
	Tools() []Tool
}

// Defaults are a kind's defaults for slot, scope, budget and the like.
type Defaults struct {
	ID     string
	Slot   int
	Scope  Scope
	Budget Budget
	// Timeouts by hook that differ from the standard ones (docs/semantics.md#hooks).
	Timeouts  Timeouts
	Placement Placement
	// Fresh: recall must run for each request of a tool loop, since the block follows the loop or recall changes the state. For
	// other live layers it runs once per run.
	Fresh bool
}

// Placement is where a layer's block stands. The auto ones are where it stands until the layer is seen to change often or
// seldom.
type Placement uint8

// Placements. The zero value is AutoAnchored.
const (
	AutoAnchored Placement = iota
	AutoLive
	Anchored // before the history, pinned
	Live     // after the history
)

// Auto reports whether the place depends on how often the layer changes.
func (p Placement) Auto() bool { return p < Anchored }

// Live reports whether the block stands after the history, with Auto as long as nothing else is known.
func (p Placement) Live() bool { return p == Live || p == AutoLive }

// Timeouts are how long each hook may take; 0 is the standard one, a negative one none.
type Timeouts struct {
	Init           time.Duration `mapstructure:"init"`
	Recall         time.Duration `mapstructure:"recall"`
	Store          time.Duration `mapstructure:"store"`
	AppendItems    time.Duration `mapstructure:"on_item_append"`
	ProjectHistory time.Duration `mapstructure:"project_history"`
	ReviewToolCall time.Duration `mapstructure:"before_tool_call"`
	ReviewResponse time.Duration `mapstructure:"after_model_call"`
	Evicted        time.Duration `mapstructure:"on_evict"`
	Spawn          time.Duration `mapstructure:"on_spawn"`
	Return         time.Duration `mapstructure:"on_return"`
	Complete       time.Duration `mapstructure:"on_complete"`
	Dispose        time.Duration `mapstructure:"dispose"`
}

// Names of the hooks in Selective, configuration, logs and X-Memory: the hooks of Timeouts, and HookTools for the tools
// of a ToolProvider.
const (
	HookInit           = "init"
	HookRecall         = "recall"
	HookStore          = "store"
	HookAppendItems    = "on_item_append"
	HookProjectHistory = "project_history"
	HookReviewToolCall = "before_tool_call"
	HookReviewResponse = "after_model_call"
	HookEvicted        = "on_evict"
	HookSpawn          = "on_spawn"
	HookReturn         = "on_return"
	HookComplete       = "on_complete"
	HookDispose        = "dispose"
	HookForget         = "forget"
	HookTools          = "tools"
)

// Selective is implemented by layers that do not want all of their hook methods called, such as one whose configuration lists
// its hooks. Has is called once, when the pipeline is built; a hook for which it returns false counts as not implemented.
type Selective interface {
	Has(hook string) bool
}

// Stateless is implemented by layers whose hooks return no state. If it returns true, none is read or written for them.
type Stateless interface {
	Stateless() bool
}

// Quieter is implemented by layers that know at once when Recall would return nothing. If Quiet returns true, Recall is not
// called, so that the layer costs nothing in a short conversation. Quiet must not block.
type Quieter interface {
	Quiet(t *Turn, s State) bool
}

// Slow is implemented by layers whose Store, Evicted or Complete may take long without a model, because they call another
// service. If it returns true, these hooks run after the client is served, as for a layer with a model.
type Slow interface {
	Slow() bool
}

// Inline is implemented by layers whose hooks and tools only compute: they wait for nothing, and take milliseconds at
// most for the largest input. If it returns true and the layer has no model, the request's own goroutine calls them,
// which saves a goroutine and a timer per call; their time limits are not enforced.
type Inline interface {
	Inline() bool
}
