package steering

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"remora/memory/layer"
	"remora/wire"
)

// Modes of a model check.
const (
	modeSync  = "sync"
	modeAsync = "async"
)

// Values of applies_to.
const (
	beforeToolCall = layer.HookReviewToolCall
	afterModelCall = layer.HookReviewResponse
)

// Rule is one rule. It needs an expression, a model check, or both. With both and an action, the expression decides if it is
// true, and otherwise the model. With both and no action, the model is asked if the expression is true.
type Rule struct {
	// ID names the rule in errors, in records and to the model: letters, digits, "_", "-" and ".", at most 64.
	ID string `mapstructure:"id"`
	// AppliesTo is before_tool_call, after_model_call or both.
	AppliesTo []string `mapstructure:"applies_to"`
	// When is a boolean CEL expression over session, resource and model; for before_tool_call also over tool.name,
	// tool.arguments (an object; empty if a custom tool gets other text) and tool.input (as the model wrote it, and
	// without escapes: either may match); for after_model_call also over response.text and response.calls (a list of name, arguments and input).
	//
	// A missing member makes it false, unless one differs only in case. Any other failure, such as too much work or arguments
	// that clients read in several ways, counts as true in a rule that denies or asks a model, so that hostile input cannot
	// bypass it.
	When string `mapstructure:"when"`
	// Action is the decision when When is true: deny, guide or allow.
	Action string `mapstructure:"action"`
	// Guidance is the text for the model; empty for the standard text.
	Guidance string `mapstructure:"guidance"`
	// ModelCheck asks the layer's model.
	ModelCheck *ModelCheck `mapstructure:"model_check"`
}

// ModelCheck is a question to a model, which answers ALLOW, DENY or GUIDE.
type ModelCheck struct {
	// Mode is sync (the call or the response waits for the verdict) or async (nothing waits, and the model gets the verdict in
	// the next turn); default sync.
	Mode string `mapstructure:"mode"`
	// Prompt describes what to look for.
	Prompt string `mapstructure:"prompt"`
}

// rule is a checked and compiled Rule.
type rule struct {
	id       string
	phases   map[string]bool
	programs map[string]cel.Program // by phase; nil without an expression
	decides  bool                   // the expression has an action
	action   layer.Action
	guidance string
	mode     string // of the model check, "" without one
	prompt   string
}

// Bounds of an expression.
const (
	maxExpression = 8 << 10 // bytes
	// costLimit is in CEL's units: half a second of loops, or a search through a text of 3 MB.
	costLimit = 300_000
	// interruptEvery is the number of loop iterations between checks for a timeout.
	interruptEvery = 100
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// compile checks a rule and compiles its expression. Its errors begin with at.
func compile(at string, r Rule) (*rule, error) {
	c := &rule{id: r.ID, phases: map[string]bool{}, guidance: r.Guidance}
	var errs []error
	if !idPattern.MatchString(r.ID) {
		errs = append(errs, fmt.Errorf(`%s.id: want letters, digits, "_", "-" and ".", at most 64`, at))
	}
	for _, phase := range r.AppliesTo {
		c.phases[phase] = true
	}
	wrong := func(phase string) bool { return phase != beforeToolCall && phase != afterModelCall }
	if len(r.AppliesTo) == 0 || slices.ContainsFunc(r.AppliesTo, wrong) {
		errs = append(errs, fmt.Errorf("%s.applies_to: want before_tool_call, after_model_call or both", at))
	}
	errs = append(errs, c.takeAction(at, r), c.takeCheck(at, r.ModelCheck), c.takeExpression(at, r.When))
	return c, errors.Join(errs...)
}

func (c *rule) takeAction(at string, r Rule) error {
	switch r.Action {
	case "deny":
		c.action, c.decides = layer.Deny, true
	case "guide":
		c.action, c.decides = layer.Guide, true
	case "allow":
		c.action, c.decides = layer.Allow, true
	case "":
		if r.ModelCheck == nil {
			return fmt.Errorf("%s.action: want deny, guide or allow, or the key model_check", at)
		}
	default:
		return fmt.Errorf("%s.action: want deny, guide or allow", at)
	}
	if c.decides && r.When == "" {
		return fmt.Errorf("%s.when: want an expression for the action, such as true", at)
	}
	return nil
}

func (c *rule) takeCheck(at string, check *ModelCheck) error {
	if check == nil {
		return nil
	}
	c.mode, c.prompt = check.Mode, check.Prompt
	err := layer.OneOf(at+".model_check.mode", &c.mode, modeSync, modeAsync)
	if strings.TrimSpace(c.prompt) == "" {
		err = errors.Join(err, fmt.Errorf("%s.model_check.prompt: want what the model is to look for", at))
	}
	return err
}

// takeExpression compiles the expression for each phase, since their variables differ.
func (c *rule) takeExpression(at, when string) error {
	if when == "" {
		return nil
	}
	if len(when) > maxExpression {
		return fmt.Errorf("%s.when: want at most %d bytes", at, maxExpression)
	}
	c.programs = map[string]cel.Program{}
	var errs []error
	for _, phase := range []string{beforeToolCall, afterModelCall} {
		if !c.phases[phase] {
			continue
		}
		program, err := expression(phase, when)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.when: for %s: %w", at, phase, err))
		}
		c.programs[phase] = program
	}
	return errors.Join(errs...)
}

func expression(phase, when string) (cel.Program, error) {
	object := cel.MapType(cel.StringType, cel.DynType)
	variables := []cel.EnvOption{
		cel.Variable("session", cel.StringType), cel.Variable("resource", cel.StringType), cel.Variable("model", cel.StringType),
	}
	known := "response.text, response.calls, session, resource and model"
	if phase == beforeToolCall {
		known = "tool.name, tool.arguments, tool.input, session, resource and model"
		variables = append(variables, cel.Variable("tool.name", cel.StringType), cel.Variable("tool.arguments", object),
			cel.Variable("tool.input", cel.StringType))
	} else {
		variables = append(variables, cel.Variable("response.text", cel.StringType),
			cel.Variable("response.calls", cel.ListType(object)))
	}
	env, err := cel.NewEnv(variables...)
	if err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	ast, issues := env.Compile(when)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		message := first.Message
		if undeclared, ok := strings.CutSuffix(message, " (in container '')"); ok {
			message = undeclared + "; there are " + known
		}
		return nil, fmt.Errorf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, message)
	}
	if ast.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("want true or false, have %s", ast.OutputType())
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(costLimit),
		cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return nil, fmt.Errorf("want an expression that can be run: %w", err)
	}
	return program, nil
}

// stops reports whether the rule may deny or guide synchronously in a phase.
func (c *rule) stops(phase string) bool {
	return c.phases[phase] && (c.decides && c.action != layer.Allow || c.mode == modeSync)
}

// match evaluates the expression. decided: the rule's action applies. matched, if not decided: ask the model.
func (c *rule) match(ctx context.Context, sub subject) (matched, decided bool) {
	program := c.programs[sub.phase]
	if program == nil {
		return true, false
	}
	// A rule that allows has to hold for every reading, any other for one of them.
	allows := c.decides && c.action == layer.Allow
	yes := allows
	for _, vars := range sub.readings {
		if c.holds(ctx, program, vars) != allows {
			yes = !allows
			break
		}
	}
	if c.decides {
		return true, yes
	}
	return yes, false
}

// holds evaluates the expression for one reading.
func (c *rule) holds(ctx context.Context, program cel.Program, vars map[string]any) (yes bool) {
	result, _, err := program.ContextEval(ctx, vars)
	if err == nil {
		yes, _ = result.Value().(bool)
	} else if name, missing := strings.CutPrefix(err.Error(), "no such key: "); !missing || spelledOtherwise(vars, name) {
		yes = !c.decides || c.action == layer.Deny
	}
	return yes
}

// subject is the call or the response that is judged.
type subject struct {
	phase    string
	readings []map[string]any // variables of the expressions: as the model wrote it, and without escapes in inputs
	tag      string           // and text: what a model is shown
	text     string
}

func callSubject(t *layer.Turn, c layer.ToolCall) subject {
	sub := subject{phase: beforeToolCall, tag: "tool_call", text: "name: " + c.Name + "\ninput: " + c.Arguments}
	sub.read([]layer.ToolCall{c}, func(inputs []string) map[string]any {
		return variables(t, map[string]any{"tool.name": c.Name, "tool.arguments": arguments(c), "tool.input": inputs[0]})
	})
	return sub
}

func responseSubject(t *layer.Turn, r *layer.Response) subject {
	var text strings.Builder
	text.WriteString(r.Text)
	for _, c := range r.Calls {
		text.WriteString("\n[calls " + c.Name + " with " + c.Arguments + "]")
	}
	sub := subject{phase: afterModelCall, tag: "response", text: text.String()}
	sub.read(r.Calls, func(inputs []string) map[string]any {
		calls := make([]map[string]any, len(r.Calls))
		for i, c := range r.Calls {
			calls[i] = map[string]any{"name": c.Name, "arguments": arguments(c), "input": inputs[i]}
		}
		return variables(t, map[string]any{"response.text": r.Text, "response.calls": calls})
	})
	return sub
}

// read makes the readings. JSON can write any character as an escape, which must not hide a text from a rule that looks for it
// in an input.
func (sub *subject) read(calls []layer.ToolCall, variables func(inputs []string) map[string]any) {
	written, plain := make([]string, len(calls)), make([]string, len(calls))
	for i, c := range calls {
		written[i], plain[i] = c.Arguments, c.Arguments
		if !c.Custom {
			plain[i] = string(wire.Unescaped([]byte(c.Arguments)))
		}
	}
	sub.readings = append(sub.readings, variables(written))
	if !slices.Equal(written, plain) {
		sub.readings = append(sub.readings, variables(plain))
	}
}

func variables(t *layer.Turn, vars map[string]any) map[string]any {
	vars["session"], vars["resource"], vars["model"] = t.Thread, t.Resource, t.Model
	return vars
}

// arguments returns a call's arguments as expressions see them: an object, empty if there are none. Many clients repair JSON
// that is broken, such as by a line break in a string, and of a member that stands twice some take the first. Arguments that
// clients can read in another way are an error, so that a rule which looks at them denies. The input of a custom tool is
// text, which need not be JSON.
func arguments(c layer.ToolCall) any {
	var object map[string]any
	err := json.Unmarshal([]byte(c.Arguments), &object)
	switch {
	case strings.TrimSpace(c.Arguments) == "", err != nil && c.Custom, err == nil && object == nil:
		return map[string]any{}
	case err != nil || repeats(object):
		return types.NewErr("the arguments can be read in several ways")
	}
	return object
}

// repeats reports whether an object in v has members whose names differ only in case. Decoders of some languages ignore case.
func repeats(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		names := make(map[string]bool, len(v))
		for name, value := range v {
			folded := strings.ToLower(strings.ToUpper(name))
			if names[folded] || repeats(value) {
				return true
			}
			names[folded] = true
		}
	case []any:
		return slices.ContainsFunc(v, repeats)
	}
	return false
}

// spelledOtherwise reports whether an object in v has a member of that name in another case.
func spelledOtherwise(v any, name string) bool {
	within := func(v any) bool { return spelledOtherwise(v, name) }
	switch v := v.(type) {
	case map[string]any:
		for other, value := range v {
			if other != name && strings.EqualFold(other, name) || within(value) {
				return true
			}
		}
	case []map[string]any:
		return slices.ContainsFunc(v, func(m map[string]any) bool { return within(m) })
	case []any:
		return slices.ContainsFunc(v, within)
	}
	return false
}
