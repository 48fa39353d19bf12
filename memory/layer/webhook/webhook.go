// Package webhook is the layer kind "http": a layer that somebody else runs, in any language. Each hook that its
// configuration names is one JSON POST to one URL. docs/custom-layer.md describes the messages; they have a version, and
// an answer may leave out whatever it has nothing to say about.
//
// The layer keeps nothing itself: the server gets its state with every call and returns what it is to become, so that
// it can be restarted, and run as often as one likes, without a store of its own. It never sees a credential. Whatever
// it does (hang, fail, answer nonsense or gigabytes) is an error of that one hook, whose text never quotes the answer.
package webhook

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"remora/memory/budget"
	"remora/memory/layer"
)

// Options configure a layer. The zero value of each but URL is its default.
type Options struct {
	// URL is where hooks are posted to: http or https, without a credential in it.
	URL string `mapstructure:"url"`
	// Hooks are the hooks to call, by the names of layer.Timeouts: recall, store, init, on_item_append and so on. It may
	// be empty where there are Tools.
	Hooks []string `mapstructure:"hooks"`
	// Secret is the key of X-Remora-Signature; empty leaves the header out.
	Secret Secret `mapstructure:"secret"`
	// Tag is the block that recalled messages are put in, escaped, so that the model can tell them for data: "memory" by
	// default. "none" sends them as the server gave them, and the server has to do the escaping.
	Tag string `mapstructure:"tag"`
	// Async says that the answer to after_model_call is only noted, never waited for with a decision: it can't deny or
	// guide, and answers stream although the hook is called.
	Async bool `mapstructure:"async"`
	// MaxAnswer is the largest answer in bytes, DefaultMaxAnswer by default. More is an error, and is not read.
	MaxAnswer int64 `mapstructure:"max_answer"`
	// MaxRequest is the largest message to the server in bytes, DefaultMaxRequest by default. A hook that would need more,
	// because a client sends so much, fails without being sent.
	MaxRequest int64 `mapstructure:"max_request"`
	// Tools are the functions that the server offers to the model. A call of one is the hook "tools".
	Tools []ToolOptions `mapstructure:"tools"`
	// Now is the clock of X-Remora-Timestamp, nil for time.Now.
	Now func() time.Time `mapstructure:"-"`
}

// ToolOptions describe a function that the server offers to the model.
type ToolOptions struct {
	// Name is unique in the list: 1 to 48 of a-z, A-Z, 0-9, "_" and "-".
	Name string `mapstructure:"name"`
	// Description tells the model what the function is for.
	Description string `mapstructure:"description"`
	// Parameters is the JSON schema of its arguments, an object: JSON text, or a mapping. Keys of a mapping reach us in
	// lower case, so a schema with capitals in its keys has to be text. Nothing means no arguments.
	Parameters any `mapstructure:"parameters"`
}

// Limits, in bytes unless their name says otherwise.
const (
	DefaultMaxAnswer  = 1 << 20
	DefaultMaxRequest = 8 << 20

	largestLimit   = 64 << 20
	maxTools       = 32
	maxDescription = 4 << 10
	maxParameters  = 64 << 10
	maxMessages    = 64       // of one recall
	maxHeader      = 16 << 10 // of an answer
	maxConnections = 64       // to the server; a hook that finds them all in use waits for one
)

const (
	defaultTag = "memory"
	noTag      = "none"
)

// Secret is a string that prints as a placeholder everywhere.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// Format prints the placeholder under every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue keeps slog handlers from reaching the string.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText serves encoding/json, YAML and their like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Defaults are the place of a layer whose configuration does not say: behind the built-in layers, shared by the sessions
// of a resource, 2000 tokens at most, and behind the history, since what a server recalls may depend on what was asked.
func Defaults() layer.Defaults {
	return layer.Defaults{ID: "http", Slot: 400, Scope: layer.Resource, Budget: budget.AtMost(2000), Live: true}
}

// Layer is a layer behind a URL. It has a method for every hook; Has says which are meant.
type Layer struct {
	o      Options
	tools  []layer.Tool
	client *http.Client
}

// New checks the options. Its error joins one line per problem, each beginning with its key, as "hooks[1]: ...". Close
// ends the connections of the layer.
func New(o Options) (*Layer, error) {
	if o.Tag == "" {
		o.Tag = defaultTag
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = DefaultMaxAnswer
	}
	if o.MaxRequest == 0 {
		o.MaxRequest = DefaultMaxRequest
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default clock of a layer that takes one
	}
	l := &Layer{o: o}
	tools, err := l.check()
	if err != nil {
		return nil, err
	}
	l.tools, l.client = tools, newClient()
	return l, nil
}

// Close closes the connections that are not in use. Those in use end with their hooks.
func (l *Layer) Close() error {
	l.client.CloseIdleConnections()
	return nil
}

// Has tells whether a hook is called.
func (l *Layer) Has(hook string) bool {
	if hook == layer.HookTools {
		return len(l.tools) > 0
	}
	return slices.Contains(l.o.Hooks, hook)
}

// Async tells that reviews of responses decide nothing.
func (l *Layer) Async() bool { return l.o.Async }

// Slow tells that storing waits for a network.
func (l *Layer) Slow() bool { return true }

// Tools are the functions that the server offers.
func (l *Layer) Tools() []layer.Tool { return slices.Clone(l.tools) }
