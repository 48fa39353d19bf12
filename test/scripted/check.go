package scripted

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// checkChat validates a history as Chat Completions does: first the shape of every message, then the pairs of calls and tool
// messages, last null contents.
func checkChat(messages []chatMessage) *apiError {
	if len(messages) == 0 {
		return badHistory("Invalid 'messages': empty array. Expected an array with minimum length 1, "+
			"but got an empty array instead.", "messages", "empty_array")
	}
	for i := range messages {
		if e := checkMessage(i, &messages[i]); e != nil {
			return e
		}
	}
	if e := checkAdjacency(messages); e != nil {
		return e
	}
	for i := range messages {
		if messages[i].needsContent() {
			return badHistory("Invalid value for 'content': expected a string, got null.",
				fmt.Sprintf("messages.[%d].content", i), "")
		}
	}
	return nil
}

// maxCallID is the longest id of a call in Chat.
const maxCallID = 40

func checkMessage(i int, m *chatMessage) *apiError {
	switch m.Role {
	case "system", "developer", "user", "assistant", "tool", "function":
	case "":
		return badHistory(fmt.Sprintf("Missing required parameter: 'messages[%d].role'.", i),
			fmt.Sprintf("messages[%d].role", i), "missing_required_parameter")
	default:
		return badHistory(fmt.Sprintf("Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', "+
			"'function', 'tool', and 'developer'.", m.Role), fmt.Sprintf("messages[%d].role", i), "invalid_value")
	}
	if m.ToolCalls != nil && len(*m.ToolCalls) == 0 {
		param := fmt.Sprintf("messages[%d].tool_calls", i)
		return badHistory("Invalid '"+param+"': empty array. Expected an array with minimum length 1, "+
			"but got an empty array instead.", param, "empty_array")
	}
	for j, c := range m.calls() {
		if len(c.ID) > maxCallID {
			param := fmt.Sprintf("messages[%d].tool_calls[%d].id", i, j)
			return badHistory(fmt.Sprintf("Invalid '%s': string too long. Expected a string with maximum length %d, "+
				"but got a string with length %d instead.", param, maxCallID, len(c.ID)), param, "string_above_max_length")
		}
		if a := c.Function.Arguments; len(a) > 0 && a[0] == '{' {
			param := fmt.Sprintf("messages[%d].tool_calls[%d].function.arguments", i, j)
			return badHistory(fmt.Sprintf("Invalid type for '%s': expected a string, but got an object instead.", param), param, "invalid_type")
		}
	}
	if m.Role == "tool" && bytes.Contains(m.Content, []byte(`"image_url"`)) {
		return badHistory(fmt.Sprintf("Invalid 'messages[%d]'. Image URLs are only allowed for messages with role 'user', but this message "+
			"with role 'tool' contains an image URL.", i), fmt.Sprintf("messages[%d]", i), "invalid_value")
	}
	if m.Role == "tool" && m.ToolCallID == nil {
		return badHistory("Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
			fmt.Sprintf("messages.[%d].tool_call_id", i), "")
	}
	return nil
}

// needsContent reports whether a message without other members has null or no content.
func (m *chatMessage) needsContent() bool {
	if !isNull(m.Content) {
		return false
	}
	if m.Role == "function" {
		return false // the only role whose content may be null by its schema
	}
	return m.Role != "assistant" ||
		len(m.calls()) == 0 && isNull(m.FunctionCall) && isNull(m.Refusal) && isNull(m.Audio)
}

// checkAdjacency checks that every call is answered by the tool messages directly after it, and that every tool message answers
// a call of the assistant message directly before its run.
func checkAdjacency(messages []chatMessage) *apiError {
	var calls, open []string // of the assistant message before: the ids of all its calls, and of those without an answer
	for i := range messages {
		m := &messages[i]
		if m.Role == "tool" {
			if e := checkAnswer(i, *m.ToolCallID, calls, open); e != nil {
				return e
			}
			open = slices.DeleteFunc(open, func(id string) bool { return id == *m.ToolCallID })
			continue
		}
		if len(open) > 0 {
			return unanswered(open, fmt.Sprintf("messages.[%d].role", i))
		}
		calls = nil
		if m.Role != "assistant" {
			continue
		}
		for _, c := range m.calls() {
			if slices.Contains(calls, c.ID) {
				return duplicateCall(i, c.ID)
			}
			calls = append(calls, c.ID)
		}
		open = slices.Clone(calls)
	}
	if len(open) > 0 {
		return unanswered(open, "messages")
	}
	return nil
}

func checkAnswer(i int, id string, calls, open []string) *apiError {
	switch {
	case len(calls) == 0:
		//nolint:misspell // the API's spelling
		return badHistory("Invalid parameter: messages with role 'tool' must be a response to a preceeding message "+
			"with 'tool_calls'.", fmt.Sprintf("messages.[%d].role", i), "")
	case !slices.Contains(calls, id):
		return badHistory(fmt.Sprintf("Invalid parameter: 'tool_call_id' of '%s' not found in 'tool_calls' of "+
			"previous message.", id), fmt.Sprintf("messages.[%d].tool_call_id", i), "")
	case !slices.Contains(open, id):
		return duplicateCall(i, id)
	}
	return nil
}

func duplicateCall(i int, id string) *apiError {
	return badHistory(fmt.Sprintf("Duplicate value for 'tool_call_id' of '%s' in message[%d]", id, i),
		fmt.Sprintf("messages.[%d].tool_call_id", i), "")
}

func unanswered(ids []string, param string) *apiError {
	return badHistory("An assistant message with 'tool_calls' must be followed by tool messages responding to each "+
		"'tool_call_id'. The following tool_call_ids did not have response messages: "+strings.Join(ids, ", "), param, "")
}

// pairedCalls are the types of calls that need results.
var pairedCalls = []string{
	"function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call", "tool_search_call",
}

// hostedCalls are the types of calls that the vendor runs itself, with their results.
var hostedCalls = []string{
	"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call", "mcp_list_tools",
	"mcp_approval_request", "program", "program_output",
}

// answeredBy returns the type of the calls that an item of type t answers, "" if it is no result.
func answeredBy(t string) string {
	call, ok := strings.CutSuffix(t, "_output")
	if t == "tool_search_output" {
		call = "tool_search_call"
	}
	if !ok || !slices.Contains(pairedCalls, call) {
		return ""
	}
	return call
}

// label returns the name of a type of items in error texts.
func label(t string) string { return strings.ReplaceAll(t, "_", " ") }

func badInput(message string) *apiError { return badHistory(message, "input", "") }

// checkResponses validates a history as the Responses API does. history is the stored items and the input, with references
// resolved. With a prompt template, missing calls are no error, since they may be in the template.
func checkResponses(req *responsesRequest, history []item, o organization, m *memory) *apiError {
	return cmp.Or(checkItemIDs(history), checkContents(history), o.checkItems(history),
		checkReasoning(history), checkPartners(history, m), checkPairs(req, history))
}

// itemPrefix has the prefixes of ids by the type of the items.
var itemPrefix = map[string]string{
	"message":               "msg",
	"function_call":         "fc",
	"custom_tool_call":      "ctc",
	"reasoning":             "rs",
	"web_search_call":       "ws",
	"file_search_call":      "fs",
	"code_interpreter_call": "ci",
	"image_generation_call": "ig",
	"mcp_call":              "mcp",
	"mcp_list_tools":        "mcpl",
	"compaction":            "cmp",
}

func checkItemIDs(history []item) *apiError {
	const most = 64
	seen := make(map[string]bool)
	for i := range history {
		it := &history[i]
		param := fmt.Sprintf("input[%d].id", it.input)
		if it.ID == "" {
			if slices.Contains(hostedCalls, it.Type) {
				return badHistory("Missing required parameter: '"+param+"'.", param, "missing_required_parameter")
			}
			continue
		}
		switch prefix := itemPrefix[it.Type]; {
		case len(it.ID) > most:
			return badHistory(fmt.Sprintf("Invalid '%s': string too long. Expected a string with maximum length %d, "+
				"but got a string with length %d instead.", param, most, len(it.ID)), param, "string_above_max_length")
		case strings.ContainsFunc(it.ID, notInID):
			return badHistory(fmt.Sprintf("Invalid '%s': '%s'. Expected an ID that contains letters, numbers, "+
				"underscores, or dashes, but this value contained additional characters.", param, it.ID), param, "invalid_value")
		case !strings.HasPrefix(it.ID, prefix):
			return badHistory(fmt.Sprintf("Invalid '%s': '%s'. Expected an ID that begins with '%s'.", param, it.ID, prefix),
				param, "invalid_value")
		case seen[it.ID]:
			return badInput("Duplicate item found with id " + it.ID + ". Remove duplicate items from your input and try again.")
		}
		seen[it.ID] = true
	}
	return nil
}

func notInID(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' && r != '-'
}

// checkImages checks that no image of a request has a member that only answers have.
func checkImages(input []item) *apiError {
	for i := range input {
		it := &input[i]
		var members map[string]raw
		if it.Type != "image_generation_call" || json.Unmarshal(it.raw, &members) != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if !slices.Contains([]string{"id", "type", "status", "result"}, name) {
				param := fmt.Sprintf("input[%d].%s", it.input, name)
				return badHistory("Unknown parameter: '"+param+"'.", param, "unknown_parameter")
			}
		}
	}
	return nil
}

// checkContents checks that the parts of a message match its role.
func checkContents(history []item) *apiError {
	for i := range history {
		it := &history[i]
		var parts []struct {
			Type string `json:"type"`
		}
		if it.Type != "message" || json.Unmarshal(it.Content, &parts) != nil {
			continue
		}
		for j, part := range parts {
			output := part.Type == "output_text" || part.Type == "refusal"
			param := fmt.Sprintf("input[%d].content[%d]", it.input, j)
			switch {
			case it.Role == "assistant" && !output:
				return badHistory("Invalid value: '"+part.Type+"'. Supported values are: 'output_text' and 'refusal'.",
					param, "invalid_value")
			case it.Role != "assistant" && (output || !strings.HasPrefix(part.Type, "input_")):
				return badHistory("Invalid value: '"+part.Type+"'. Supported values are: 'input_text', 'input_image', "+
					"and 'input_file'.", param, "invalid_value")
			}
		}
	}
	return nil
}

// checkReasoning checks that an item of the model follows every reasoning item; further reasoning may be in between.
func checkReasoning(history []item) *apiError {
	var open *item
	for i := range history {
		it := &history[i]
		switch {
		case it.Type == "reasoning":
			if open == nil && it.ID != "" {
				open = it
			}
		case open != nil && !it.isModel():
			return withoutFollower(open)
		default:
			open = nil
		}
	}
	if open != nil {
		return withoutFollower(open)
	}
	return nil
}

func withoutFollower(it *item) *apiError {
	return badInput("Item '" + it.ID + "' of type 'reasoning' was provided without its required following item.")
}

// checkPartners checks that an item with an id follows the reasoning that it was produced with, and that a reasoning item is
// not followed by an item of another. Items without id are not checked.
func checkPartners(history []item, m *memory) *apiError {
	reasoning := make(map[string]bool) // since the last other item
	for i := range history {
		it := &history[i]
		if it.Type == "reasoning" {
			reasoning[it.ID] = true
			continue
		}
		for id := range reasoning {
			if follower := m.partner(id); it.ID != "" && follower != "" && follower != it.ID {
				return badInput("Item '" + id + "' of type 'reasoning' was provided without its required following item.")
			}
		}
		partner := m.partner(it.ID)
		if it.ID != "" && strings.HasPrefix(partner, "rs_") && !reasoning[partner] {
			return badInput(fmt.Sprintf("Item '%s' of type '%s' was provided without its required 'reasoning' item: '%s'.",
				it.ID, it.Type, partner))
		}
		clear(reasoning)
	}
	return nil
}

// pairKey is shared by a call and its output.
type pairKey struct{ call, id string }

// checkPairs checks that each output follows a call, and that each call has one output, matched by call_id within its type.
func checkPairs(req *responsesRequest, history []item) *apiError {
	answered := make(map[pairKey]bool)
	var calls []*item
	asked := make(map[pairKey]bool) // calls with other rules: approvals and programs
	for i := range history {
		it := &history[i]
		switch it.Type {
		case "mcp_approval_request":
			asked[pairKey{it.Type, it.ID}] = true
		case "program":
			asked[pairKey{it.Type, it.callID()}] = true
		case "mcp_approval_response":
			if !asked[pairKey{"mcp_approval_request", it.ApprovalRequestID}] {
				return badInput("No approval request found with id " + it.ApprovalRequestID + ".")
			}
		case "program_output":
			if !asked[pairKey{"program", it.callID()}] {
				return badInput("No program found for program output with call_id " + it.callID() + ".")
			}
		}

		if it.Execution == "server" {
			continue
		}
		if slices.Contains(pairedCalls, it.Type) && it.CallID != nil {
			if done, twice := answered[pairKey{it.Type, it.callID()}]; twice && !done {
				break // its output is missing before the id is used again
			}
			answered[pairKey{it.Type, it.callID()}] = false
			calls = append(calls, it)
			continue
		}
		call, id := answeredBy(it.Type), it.answers()
		if call != "" && id != "" && !answer(answered, call, id) && isNull(req.Prompt) {
			return badInput("No tool call found for " + label(call) + " output with call_id " + id + ".")
		}
	}

	for _, it := range calls {
		if !answered[pairKey{it.Type, it.callID()}] {
			return badInput("No tool output found for " + label(it.Type) + " " + it.callID() + ".")
		}
	}
	return nil
}

// answers returns the id of the call that an output answers. Empty is valid: an output that answers no call of the model.
func (it *item) answers() string {
	if it.CallID == nil && it.Type == "local_shell_call_output" {
		return it.ID
	}
	return it.callID()
}

// answer marks an open call as answered. It returns false if there is none.
func answer(answered map[pairKey]bool, call, id string) bool {
	k := pairKey{call, id}
	done, known := answered[k]
	if !known && call == "function_call" {
		k.call = "local_shell_call" // Codex answers a local shell call with a function's output
		done, known = answered[k]
	}
	if !known || done {
		return false
	}
	answered[k] = true
	return true
}

// maxBreakpoints and maxCacheKey are the limits of Anthropic and of OpenAI.
const (
	maxBreakpoints = 4
	maxCacheKey    = 64 // characters
)

// caching holds the members of a request about the prompt cache.
type caching struct {
	Key   *string `json:"prompt_cache_key"`
	Tools []struct {
		Mark raw `json:"cache_control"`
	} `json:"tools"`
	Messages []struct {
		Content raw `json:"content"`
	} `json:"messages"`
}

// checkCaching validates cache breakpoints and keys as the APIs with a prompt cache do.
func checkCaching(body []byte) *apiError {
	if !bytes.Contains(body, []byte("cache_")) {
		return nil // saves parsing most requests
	}
	var c caching
	_ = json.Unmarshal(body, &c) // other checks report wrong types
	if c.Key != nil && len(*c.Key) > maxCacheKey {
		return badHistory(fmt.Sprintf("Invalid 'prompt_cache_key': string too long. Expected a string with maximum length %d, "+
			"but got a string with length %d instead.", maxCacheKey, len(*c.Key)), "prompt_cache_key", "string_above_max_length")
	}
	marks := 0
	for _, tool := range c.Tools {
		if !isNull(tool.Mark) {
			marks++
		}
	}
	for i, m := range c.Messages {
		var parts []struct {
			Type string `json:"type"`
			Text string `json:"text"`
			Mark raw    `json:"cache_control"`
		}
		_ = json.Unmarshal(m.Content, &parts) // a string, or null
		for j, p := range parts {
			if isNull(p.Mark) {
				continue
			}
			if p.Type == "text" && strings.TrimSpace(p.Text) == "" {
				return badHistory(fmt.Sprintf("messages.%d.content.%d.text: cache_control cannot be set for empty text blocks", i, j), "", "")
			}
			marks++
		}
	}
	if marks > maxBreakpoints {
		return badHistory(fmt.Sprintf("A maximum of %d blocks with cache_control may be provided. Found %d.", maxBreakpoints, marks), "", "")
	}
	return nil
}
