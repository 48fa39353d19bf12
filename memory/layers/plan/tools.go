package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"remora/memory/layer"
)

// arguments are the arguments of all functions; each uses some.
type arguments struct {
	Goal     string          `json:"goal"`
	Content  string          `json:"content"`
	Document json.RawMessage `json:"document"`
	Name     string          `json:"name"`
	Action   string          `json:"action"`
	Success  *bool           `json:"success"`
}

// function changes the state and returns a message. If changed is false, the message is the reason and the state is
// unchanged.
type function func(t *layer.Turn, st *state, a arguments) (said string, changed bool)

// Tools are the functions of the plan. Their failures are results, not errors: the model reads them and continues.
func (*Layer) Tools() []layer.Tool {
	const begin, end = `{"type":"object","properties":{`, `],"additionalProperties":false}`
	named := `"name":{"type":"string","pattern":"^[a-z0-9][a-z0-9_-]{0,63}$"}`
	return []layer.Tool{
		tool("enterPlanMode", "Begin to plan before you act. Until the plan is executed only tools that read may be called.",
			begin+`"goal":{"type":"string","description":"What is to be reached"}},"required":[`+end, enter),
		tool("updatePrd", "Replace the text of the plan: why, what will change and where, how it will be checked. Markdown.",
			begin+`"content":{"type":"string"}},"required":["content"`+end, planned(updatePRD)),
		tool("setPlanTree", "Replace the steps of the plan: a JSON object, whose steps may hold steps, at most 5 levels in all.",
			begin+`"document":{}},"required":["document"`+end, planned(setTree)),
		tool("setWorkflow", "Keep a longer procedure of the plan under a name: text, or a JSON object.",
			begin+named+`,"document":{}},"required":["name","document"`+end, planned(setWorkflow)),
		tool("removeWorkflow", "Drop a procedure of the plan.", begin+named+`},"required":["name"`+end, planned(removeWorkflow)),
		tool("getWorkflow", "Read a procedure of the plan.", begin+named+`},"required":["name"`+end, getWorkflow),
		tool("exitPlanMode", "End planning: execute begins the work, cancel drops the plan.",
			begin+`"action":{"type":"string","enum":["execute","cancel"]}},"required":["action"`+end, planned(exit)),
		tool("completePlan", "End the plan that is being executed: when it is carried out, or with success false when it is given up.",
			begin+`"success":{"type":"boolean"}},"required":[`+end, complete),
	}
}

func tool(name, description, parameters string, f function) layer.Tool {
	return layer.Tool{
		Name: name, Description: description, Parameters: []byte(parameters),
		Run: func(_ context.Context, t *layer.Turn, s layer.State, raw []byte) (string, layer.State, error) {
			var a arguments
			if err := json.Unmarshal(raw, &a); err != nil {
				return "The arguments are not what the function takes.", s, nil //nolint:nilerr // failures are results
			}
			st := read(s)
			said, changed := f(t, &st, a)
			if !changed {
				return said, s, nil
			}
			if st.Phase == idle {
				return said, nil, nil
			}
			next, err := layer.Encode(&st)
			if err != nil {
				return "", s, err
			}
			if len(next) > maxState {
				return fmt.Sprintf("The plan would have more than %d bytes in all; write less.", maxState), s, nil
			}
			return said, next, nil
		},
	}
}

// planned is a function that may be called only while the model plans.
func planned(f function) function {
	return func(t *layer.Turn, st *state, a arguments) (string, bool) {
		if st.Phase != planning {
			return fmt.Sprintf("You are not planning; the phase is %s. Call %s first.", st.Phase, t.ToolName("enterPlanMode")), false
		}
		return f(t, st, a)
	}
}

func enter(t *layer.Turn, st *state, a arguments) (string, bool) {
	if st.Phase == planning || st.Phase == executing {
		return fmt.Sprintf("There is a plan already; its phase is %s.", st.Phase), false
	}
	prd := ""
	if a.Goal != "" {
		prd = "# Goal\n\n" + a.Goal + "\n"
	}
	if utf8.RuneCountInString(prd) > maxPRD {
		return tooLong("goal", maxPRD), false
	}
	*st = state{Phase: planning, PRD: prd, Version: (st.Version + 1) % maxVersion}
	return "You are planning now. Look around, then write the plan with " + t.ToolName("updatePrd") + ".", true
}

func updatePRD(_ *layer.Turn, st *state, a arguments) (string, bool) {
	if utf8.RuneCountInString(a.Content) > maxPRD {
		return tooLong("content", maxPRD), false
	}
	st.PRD = a.Content
	return "The plan is written.", true
}

func setTree(t *layer.Turn, st *state, a arguments) (string, bool) {
	tree := layer.Compact(a.Document)
	var text string
	if json.Unmarshal(tree, &text) == nil {
		tree = layer.Compact([]byte(text)) // models often write an object as text
	}
	switch {
	case len(tree) == 0 || tree[0] != '{':
		return "document: want a JSON object.", false
	case characters(tree) > maxTree:
		return tooLong("document", maxTree), false
	case treeDepth(tree) > maxTreeDepth:
		return fmt.Sprintf("document: want at most %d levels of steps.", maxTreeDepth), false
	}
	st.Tree = tree
	return "The steps are set. Call " + t.ToolName("exitPlanMode") + " to begin.", true
}

func setWorkflow(_ *layer.Turn, st *state, a arguments) (string, bool) {
	document := layer.Compact(a.Document)
	_, had := st.Workflows[a.Name]
	switch {
	case !workflowName.MatchString(a.Name):
		return "name: want at most 64 small letters, digits, _ or -, beginning with a letter or digit.", false
	case len(document) == 0 || document[0] != '{' && document[0] != '"':
		return "document: want text or a JSON object.", false
	case characters(document) > maxWorkflow:
		return tooLong("document", maxWorkflow), false
	case !had && len(st.Workflows) >= maxWorkflows:
		return fmt.Sprintf("There are %d workflows already; remove one first.", maxWorkflows), false
	}
	if st.Workflows == nil {
		st.Workflows = map[string]json.RawMessage{}
	}
	st.Workflows[a.Name] = document
	return "The workflow is set.", true
}

func removeWorkflow(_ *layer.Turn, st *state, a arguments) (string, bool) {
	if _, ok := st.Workflows[a.Name]; !ok {
		return noWorkflow, false
	}
	delete(st.Workflows, a.Name)
	return "The workflow is removed.", true
}

const noWorkflow = "There is no workflow of that name."

func getWorkflow(_ *layer.Turn, st *state, a arguments) (string, bool) {
	document, ok := st.Workflows[a.Name]
	if !ok {
		return noWorkflow, false
	}
	var text string
	if json.Unmarshal(document, &text) == nil {
		return text, false
	}
	return string(document), false
}

func exit(t *layer.Turn, st *state, a arguments) (string, bool) {
	switch {
	case a.Action == "cancel":
		*st = state{Phase: idle}
		return "The plan is dropped.", true
	case a.Action != "execute":
		return "action: want execute or cancel.", false
	case st.PRD == "":
		return "The plan is not written yet. Call " + t.ToolName("updatePrd") + " first.", false
	case st.Tree == nil:
		return "The plan has no steps yet. Call " + t.ToolName("setPlanTree") + " first.", false
	}
	st.Phase = executing
	return "Planning has ended. Carry out the plan, and call " + t.ToolName("completePlan") + " when that is done.", true
}

// complete ends the plan, and with it what the session works on.
func complete(t *layer.Turn, st *state, a arguments) (string, bool) {
	if st.Phase != executing {
		return fmt.Sprintf("No plan is being executed; the phase is %s.", st.Phase), false
	}
	result := layer.Success
	if a.Success != nil && !*a.Success {
		result = layer.Failure
	}
	st.end(t, result)
	if t.Complete != nil {
		t.Complete(result)
	}
	return "The plan has ended: " + string(result) + ".", true
}

func tooLong(key string, limit int) string {
	return fmt.Sprintf("%s: want at most %d characters.", key, limit)
}

// treeDepth returns the depth of nested objects in a JSON document. Lists between them do not count, unless there are too many for
// a tree of steps.
func treeDepth(document []byte) int {
	deepest, open, lists := 0, 0, 0
	dec := jsontext.NewDecoder(bytes.NewReader(document), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return deepest
		}
		switch token.Kind() {
		case '{':
			open++
		case '}':
			open--
		case '[':
			lists++
		case ']':
			lists--
		default:
		}
		deepest = max(deepest, open, lists-maxTreeDepth)
	}
}
