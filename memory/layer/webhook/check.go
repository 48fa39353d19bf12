package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"remora/memory/layer"
)

// hooks are what Options.Hooks may name.
func hooks() []string {
	return []string{
		layer.HookInit, layer.HookRecall, layer.HookStore, layer.HookAppendItems, layer.HookProjectHistory,
		layer.HookReviewToolCall, layer.HookReviewResponse, layer.HookSpawn, layer.HookReturn, layer.HookComplete,
		layer.HookDispose,
	}
}

// check reports every problem of the options, and makes the tools.
func (l *Layer) check() ([]layer.Tool, error) {
	var problems []error
	report := func(key, format string, a ...any) {
		problems = append(problems, fmt.Errorf(key+": "+format, a...))
	}
	if err := checkURL(l.o.URL); err != nil {
		report("url", "%w", err)
	}
	l.checkHooks(report)
	if !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`).MatchString(l.o.Tag) {
		report("tag", `want "none", or a letter and at most 63 letters, digits, "_" and "-" behind it`)
	}
	if l.o.Async && !slices.Contains(l.o.Hooks, layer.HookReviewResponse) {
		report("async", "means something only where hooks names %s", layer.HookReviewResponse)
	}
	for _, n := range []struct {
		key   string
		value int64
	}{{"max_answer", l.o.MaxAnswer}, {"max_request", l.o.MaxRequest}} {
		if n.value < 1 || n.value > largestLimit {
			report(n.key, "want 1 to %d bytes, have %d", largestLimit, n.value)
		}
	}
	tools := l.checkTools(report)
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
	return nil
}

func (l *Layer) checkHooks(report func(key, format string, a ...any)) {
	known := hooks()
	for i, h := range l.o.Hooks {
		key := fmt.Sprintf("hooks[%d]", i)
		switch {
		case h == layer.HookTools:
			report(key, "tools are called where the key tools lists them")
		case !slices.Contains(known, h):
			report(key, "want one of %s, have %q", strings.Join(known, ", "), h)
		case slices.Index(l.o.Hooks, h) < i:
			report(key, "%q is in the list already", h)
		}
	}
	if len(l.o.Hooks) == 0 && len(l.o.Tools) == 0 {
		report("hooks", "want at least one of %s, or tools", strings.Join(known, ", "))
	}
}

func (l *Layer) checkTools(report func(key, format string, a ...any)) []layer.Tool {
	if len(l.o.Tools) > maxTools {
		report("tools", "want at most %d, have %d", maxTools, len(l.o.Tools))
		return nil
	}
	name := regexp.MustCompile(`^[A-Za-z0-9_-]{1,48}$`)
	tools := make([]layer.Tool, 0, len(l.o.Tools))
	for i, t := range l.o.Tools {
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
			Name: t.Name, Description: t.Description, Parameters: parameters, Run: l.runner(t.Name),
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
		if key := lowered(v, 0); key != "" {
			return nil, fmt.Errorf("has the key %q, since keys of a mapping lose their capitals: write the schema as JSON text", key)
		}
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
	var tidy bytes.Buffer
	if err := json.Compact(&tidy, text); err != nil {
		return nil, errors.New("want JSON")
	}
	return tidy.Bytes(), nil
}

// lowered finds a keyword of JSON schema that has lost its capitals on the way through the configuration.
func lowered(v any, depth int) string {
	const maxDepth = 64
	if depth > maxDepth {
		return ""
	}
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			if slices.Contains([]string{
				"additionalproperties", "allof", "anyof", "dependentrequired", "exclusivemaximum", "exclusiveminimum", "maxitems",
				"maxlength", "maxproperties", "minitems", "minlength", "minproperties", "multipleof", "oneof", "patternproperties",
				"prefixitems", "propertynames", "uniqueitems",
			}, key) {
				return key
			}
			if found := lowered(child, depth+1); found != "" {
				return found
			}
		}
	case []any:
		for _, child := range v {
			if found := lowered(child, depth+1); found != "" {
				return found
			}
		}
	}
	return ""
}
