package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"remora/memory/layer"
	"remora/wire"
)

// messageVersion is the version of the messages. It increases with incompatible changes, not with new optional members.
const messageVersion = 1

// request is the body of a call. Members that do not belong to the hook are left out.
type request struct {
	Version int             `json:"version"`
	Hook    string          `json:"hook"`
	Turn    turn            `json:"turn"`
	State   json.RawMessage `json:"state"`

	Budget   *int              `json:"budget,omitempty"`
	Items    []json.RawMessage `json:"items,omitzero"`
	Call     *call             `json:"call,omitempty"`
	Response *response         `json:"response,omitempty"`
	Child    json.RawMessage   `json:"child,omitzero"`
	Outcome  *outcome          `json:"outcome,omitempty"`
	Tool     *toolCall         `json:"tool,omitempty"`
}

type turn struct {
	ID        string   `json:"id"`
	Thread    string   `json:"thread"`
	Resource  string   `json:"resource"`
	Execution string   `json:"execution"`
	Parent    string   `json:"parent"`
	Now       string   `json:"now"`
	Dialect   string   `json:"dialect"`
	Model     string   `json:"model"`
	Query     string   `json:"query"`
	Tools     []string `json:"tools"`
}

type call struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type response struct {
	Items []json.RawMessage `json:"items"`
	Input []json.RawMessage `json:"input"`
	Calls []call            `json:"calls"`
	Text  string            `json:"text"`
	Done  bool              `json:"done"`
}

type outcome struct {
	Result    layer.Result `json:"result"`
	Execution string       `json:"execution"`
	Thread    string       `json:"thread"`
}

type toolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// answer is the server's answer. Members of other hooks than the one called are ignored.
type answer struct {
	Version *int            `json:"version"`
	State   json.RawMessage `json:"state"` // absent: as it was; null: cleared

	Messages []string `json:"messages"`
	Items    *[]entry `json:"items"`
	Rerender bool     `json:"rerender"`
	Keep     *[]int   `json:"keep"`
	Action   string   `json:"action"`
	Guidance string   `json:"guidance"`
	Result   *string  `json:"result"`
}

// entry is an item in the answer of on_item_append: one of the request's items, or a new message.
type entry struct {
	Keep *int   `json:"keep"`
	Role string `json:"role"`
	Text string `json:"text"`
}

func newRequest(hook string, t *layer.Turn, s layer.State) *request {
	tools := t.Tools
	if tools == nil {
		tools = []string{}
	}
	return &request{
		Version: messageVersion, Hook: hook, State: opaque(s),
		Turn: turn{
			ID: t.ID, Thread: t.Thread, Resource: t.Resource, Execution: t.Execution, Parent: t.Parent,
			Now: t.Now.UTC().Format(time.RFC3339Nano), Dialect: t.Dialect.String(), Model: t.Model, Query: t.Query, Tools: tools,
		},
	}
}

// opaque returns a state for the server. A damaged one, which is not JSON, counts as none.
func opaque(s layer.State) json.RawMessage {
	if len(s) == 0 || !json.Valid(s) {
		return json.RawMessage("null")
	}
	return json.RawMessage(s)
}

func rawItems(items []wire.Item) []json.RawMessage {
	raw := make([]json.RawMessage, len(items))
	for i := range items {
		raw[i] = items[i].Raw
	}
	return raw
}

func newCall(c layer.ToolCall) call { return call{ID: c.ID, Name: c.Name, Arguments: c.Arguments} }

func newResponse(r *layer.Response) *response {
	calls := make([]call, len(r.Calls))
	for i, c := range r.Calls {
		calls[i] = newCall(c)
	}
	return &response{Items: rawItems(r.Items), Input: rawItems(r.Input), Calls: calls, Text: r.Text, Done: r.Done}
}

// size estimates the encoded size of r, to refuse a request that is far too large before copying it.
func (r *request) size() int {
	n := len(r.State) + len(r.Child)
	lists := [][]json.RawMessage{r.Items}
	if r.Response != nil {
		lists = append(lists, r.Response.Items, r.Response.Input)
	}
	for _, list := range lists {
		for _, raw := range list {
			n += len(raw)
		}
	}
	return n
}

// encode writes the body of a request of at most limit bytes.
func (r *request) encode(limit int) ([]byte, error) {
	var b bytes.Buffer
	if r.size() <= limit {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false) // items go as they are
		if err := e.Encode(r); err != nil {
			return nil, safe("encode the request: an item is not JSON") // the decoder's own text would quote it
		}
		b.Truncate(b.Len() - 1) // the line end
	}
	if n := b.Len(); n == 0 || n > limit {
		return nil, safe("max_request: the request would have more than %d bytes", limit)
	}
	return b.Bytes(), nil
}

// decode reads an answer. Its errors name members and never quote the answer.
func decode(body []byte) (*answer, error) {
	a := &answer{}
	body = bytes.TrimSpace(body)
	switch {
	case !utf8.Valid(body):
		return nil, safe("%w: want UTF-8", ErrAnswer)
	case !bytes.HasPrefix(body, []byte("{")):
		return nil, safe("%w: want a JSON object", ErrAnswer)
	}
	if err := json.Unmarshal(body, a); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, safe("%w: %s: want %s", ErrAnswer, wrong.Field, kindName(wrong))
		}
		return nil, safe("%w: want a JSON object, this is not JSON", ErrAnswer)
	}
	if a.Version != nil && *a.Version != messageVersion {
		return nil, safe("%w: version: want %d", ErrAnswer, messageVersion)
	}
	if len(a.Messages) > maxMessages {
		return nil, safe("%w: messages: want at most %d", ErrAnswer, maxMessages)
	}
	return a, nil
}

func kindName(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "string":
		return "text"
	case "int":
		return "a whole number"
	case "slice":
		return "a list"
	case "bool":
		return "true or false"
	default:
		return "an object"
	}
}

// next is the state after an answer; nil where the answer clears it.
func (a *answer) next(s layer.State) layer.State {
	if len(a.State) == 0 {
		return s
	}
	if string(a.State) == "null" {
		return nil
	}
	now := layer.Compact(a.State)
	if bytes.Equal(now, layer.Compact(s)) {
		return s // spelled differently is not changed
	}
	return now
}

// changed returns the state after an answer for hooks that return nil to leave it. JSON's null clears it.
func (a *answer) changed(s layer.State) layer.State {
	switch next := a.next(s); {
	case len(a.State) == 0:
		return nil
	case next == nil && len(s) == 0:
		return nil
	case next == nil:
		return layer.State("null")
	default:
		return next
	}
}

// tokens encodes a budget for the server; null for none.
func tokens(budget int) *int {
	if budget == math.MaxInt {
		return nil
	}
	return &budget
}

// pick returns the items that the server selects from those it was sent, and its new ones.
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
		role, ok := roles[e.Role]
		if made++; !ok || made > maxNew || strings.TrimSpace(e.Text) == "" {
			return nil, safe("%w: items: want keep, or role (user, assistant, developer, system) and text, at most %d new ones",
				ErrAnswer, maxNew)
		}
		out = append(out, wire.NewMessage(d, role, e.Text))
	}
	return out, nil
}

// roles are those of new items.
var roles = map[string]wire.Role{"user": wire.User, "assistant": wire.Assistant, "developer": wire.Developer, "system": wire.System}
