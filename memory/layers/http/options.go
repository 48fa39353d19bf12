package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"remora/address"
	"remora/memory/layer"
	"remora/secret"
)

// Options configure a layer. The zero value of each but URL is its default.
type Options struct {
	// URL is the URL that hooks are posted to: http or https, without a credential.
	URL string `mapstructure:"url"`
	// Hooks are the hooks to call, by the names of layer.Timeouts: recall, store, init, on_item_append and so on. It may
	// be empty where there are Tools.
	Hooks []string `mapstructure:"hooks"`
	// Secret is the key of X-Remora-Signature; empty leaves the header out.
	Secret secret.String `mapstructure:"secret"`
	// Tag is the block for recalled messages, which are escaped, to mark them as data: "memory" by default. "none" sends them
	// unchanged, and the server must escape them.
	Tag string `mapstructure:"tag"`
	// Async: after_model_call is only notified. It cannot deny or guide, and answers stream although it is called.
	Async bool `mapstructure:"async"`
	// MaxAnswer is the largest answer in bytes, 1 MiB by default. A larger one is an error, and is not read.
	MaxAnswer int `mapstructure:"max_answer"`
	// MaxRequest is the largest message to the server in bytes, 8 MiB by default. A hook with a larger one fails
	// without being sent.
	MaxRequest int `mapstructure:"max_request"`
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
	// Parameters is the JSON schema of its arguments, an object: JSON text, or a mapping. Empty means no arguments.
	Parameters any `mapstructure:"parameters"`
}

// Limits, in bytes unless their name says otherwise.
const (
	defaultMaxAnswer  = 1 << 20
	defaultMaxRequest = 8 << 20

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

// Defaults returns the layer's slot, scope and budget. Its block stands after the history, since a server may recall by the
// question.
func Defaults(Options) layer.Defaults {
	return layer.Defaults{ID: "http", Slot: 400, Scope: layer.Resource, Budget: layer.AtMost(2000), Placement: layer.AutoLive}
}

// hooks lists the values allowed in Options.Hooks.
func hooks() []string {
	return []string{
		layer.HookInit, layer.HookRecall, layer.HookStore, layer.HookAppendItems, layer.HookProjectHistory,
		layer.HookReviewToolCall, layer.HookReviewResponse, layer.HookSpawn, layer.HookReturn, layer.HookComplete,
		layer.HookDispose,
	}
}

// check sets the limits that are not set, reports every problem of the options, and makes the tools.
func (o *Options) check() ([]layer.Tool, error) {
	var problems []error
	report := func(key, format string, a ...any) {
		problems = append(problems, fmt.Errorf(key+": "+format, a...))
	}
	if err := checkURL(o.URL); err != nil {
		report("url", "%w", err)
	}
	o.checkHooks(report)
	if !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`).MatchString(o.Tag) {
		report("tag", `want "none", or a letter and at most 63 letters, digits, "_" and "-" behind it`)
	}
	if o.Async && !slices.Contains(o.Hooks, layer.HookReviewResponse) {
		report("async", "means something only where hooks names %s", layer.HookReviewResponse)
	}
	problems = append(problems,
		layer.Bounded("max_answer", &o.MaxAnswer, defaultMaxAnswer, largestLimit),
		layer.Bounded("max_request", &o.MaxRequest, defaultMaxRequest, largestLimit))
	tools := o.checkTools(report)
	return tools, errors.Join(problems...)
}

// checkURL never repeats the URL: its query may hold a key.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("want an absolute http or https URL")
	}
	if u.User != nil {
		return errors.New("must not hold a credential, use secret")
	}
	if u.Fragment != "" {
		return errors.New("must not have a fragment")
	}
	return address.CheckURL(u)
}

func (o Options) checkHooks(report func(key, format string, a ...any)) {
	known := hooks()
	for i, h := range o.Hooks {
		key := fmt.Sprintf("hooks[%d]", i)
		switch {
		case h == layer.HookTools:
			report(key, "tools are called where the key tools lists them")
		case !slices.Contains(known, h):
			report(key, "want one of %s, have %q", strings.Join(known, ", "), h)
		case slices.Index(o.Hooks, h) < i:
			report(key, "%q is in the list already", h)
		}
	}
	if len(o.Hooks) == 0 && len(o.Tools) == 0 {
		report("hooks", "want at least one of %s, or tools", strings.Join(known, ", "))
	}
}

func (o Options) checkTools(report func(key, format string, a ...any)) []layer.Tool {
	if len(o.Tools) > maxTools {
		report("tools", "want at most %d, have %d", maxTools, len(o.Tools))
		return nil
	}
	name := regexp.MustCompile(`^[A-Za-z0-9_-]{1,48}$`)
	tools := make([]layer.Tool, 0, len(o.Tools))
	for i, t := range o.Tools {
		at := fmt.Sprintf("tools[%d].", i)
		if !name.MatchString(t.Name) {
			report(at+"name", `want 1 to 48 letters, digits, "_" and "-", have %q`, t.Name)
		}
		if slices.ContainsFunc(tools, func(o layer.Tool) bool { return o.Name == t.Name }) {
			report(at+"name", "%q is in the list already", t.Name)
		}
		if len(t.Description) > maxDescription {
			report(at+"description", "want at most %d bytes, have %d", maxDescription, len(t.Description))
		}
		parameters, err := schema(t.Parameters)
		if err != nil {
			report(at+"parameters", "%w", err)
		}
		tools = append(tools, layer.Tool{
			Name: t.Name, Description: t.Description, Parameters: parameters,
		})
	}
	return tools
}

// schema reads the parameters of a tool: JSON text or a mapping, which has to describe an object.
func schema(v any) ([]byte, error) {
	var text []byte
	switch v := v.(type) {
	case nil:
		return []byte(`{"type":"object","properties":{}}`), nil
	case string:
		text = []byte(v)
	case map[string]any:
		var err error
		if text, err = json.Marshal(v); err != nil {
			return nil, errors.New("want a mapping of text, numbers, lists and mappings")
		}
	default:
		return nil, errors.New("want a JSON schema, as text or as a mapping")
	}
	if len(text) > maxParameters {
		return nil, fmt.Errorf("want at most %d bytes, have %d", maxParameters, len(text))
	}
	var top struct {
		Type string `json:"type"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) || json.Unmarshal(text, &top) != nil || top.Type != "object" {
		return nil, errors.New(`want a JSON schema of an object, {"type": "object", ...}`)
	}
	return layer.Compact(text), nil
}
