package proxy

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"remora/memory/view"
	"remora/providers"
)

// refusal is an answer of upstream to a request that it may take in another shape. Its text only decides which shape is tried
// first: servers have many words, and a shape is remembered only if it helped.
type refusal struct {
	status int
	body   []byte
	text   string // of the body, in lower case, as far as refusalLimit
	later  bool   // it is of a later round of an answer
}

func newRefusal(status int, body []byte) *refusal {
	return &refusal{status: status, body: body, text: strings.ToLower(string(body[:min(len(body), refusalLimit)]))}
}

// refusalLimit is the size in bytes up to which a refusal is read. After a longer one no other shape is tried.
const refusalLimit = 64 << 10

// correctable reports whether an answer is a refusal that another shape may avoid. Refusals about the caller's credential,
// money or rate, or upstream's health are not.
func correctable(h *providers.Head) bool {
	switch status := h.Status(); status {
	case fasthttp.StatusUnauthorized, fasthttp.StatusPaymentRequired, fasthttp.StatusForbidden, fasthttp.StatusRequestTimeout,
		fasthttp.StatusTooManyRequests:
		return false
	case fasthttp.StatusInternalServerError, fasthttp.StatusNotImplemented:
	default:
		if status < fasthttp.StatusBadRequest || status > fasthttp.StatusInternalServerError {
			return false
		}
	}
	return !asksToWait(h)
}

// asksToWait reports whether there is a Retry-After header, in any case.
func asksToWait(h *providers.Head) bool {
	for name := range h.All() {
		if bytes.EqualFold(name, []byte("retry-after")) || bytes.EqualFold(name, []byte("retry-after-ms")) {
			return true
		}
	}
	return false
}

// mayMeanRoles reports whether servers refuse roles and calls with this status: vLLM answers 400, llama.cpp 500.
func mayMeanRoles(status int) bool {
	return status == fasthttp.StatusBadRequest || status == fasthttp.StatusUnprocessableEntity || status == fasthttp.StatusInternalServerError
}

// mayMeanItems reports whether servers refuse stored items with this status.
func mayMeanItems(status int) bool {
	return status == fasthttp.StatusBadRequest || status == fasthttp.StatusNotFound || status == fasthttp.StatusUnprocessableEntity
}

func (r *refusal) says(list ...string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(r.text, s) })
}

// aboutLength reports whether the request is longer than the model's context, or than what upstream takes within a minute. Else
// a rate is a matter of time. Some servers repeat what they were sent, so words of any prompt count only if the refusal asks for
// nothing else.
func (r *refusal) aboutLength() bool {
	return r.says("context length", "context_length", "context window", "context size", "context_size", "context limit", "maximum model length",
		"model token limit", "prompt is too long", "input is too long", "maximum prompt length", "exceeds max length", "input length",
		"sequence length", "request too large for", "'messages': array too long", "'input': array too long") ||
		r.isTooLarge() && r.says("tokens") ||
		r.status != fasthttp.StatusTooManyRequests && !r.says("rate limit", "per min") &&
			r.says("prompt", "input", "messages") && r.says("token", "seq_len") &&
			r.says("exceed", "too long", "too large", "too many", "longer than", "larger than", "greater than", "more than", "less than", "<=") &&
			!r.aboutParameter() && !r.aboutTools() && r.wanted() == view.Shape{}
}

// contextLimits finds the number of tokens that upstream takes, the surest words first.
var contextLimits = []*regexp.Regexp{
	regexp.MustCompile(`\bn_ctx"?: ?(\d{3,9})\b`),
	regexp.MustCompile(`\s(?:>|<=) (\d{3,9})\b`),
	regexp.MustCompile(`\b(\d{3,9}) maximum`),
	regexp.MustCompile(`(?:less than|greater than|max_seq_len)\W{1,3}(\d{3,9})\b`),
	regexp.MustCompile(`(?:context (?:length|size|window|limit)|(?:prompt|model|maximum|max) length|token limit|allowed|limit|max size)\D{0,24}(\d{3,9})\b`),
}

var figures = regexp.MustCompile(`\b\d{3,9}\b`)

// fitting returns how many tokens of a request, which was estimated to have so many, upstream would take, 0 if the refusal does not
// say. Upstream counts other tokens than the estimate, and often those of the answer as well: what the refusal gives is a share.
func (r *refusal) fitting(estimate int) int {
	limit := 0
	for _, words := range contextLimits {
		if m := words.FindStringSubmatch(r.text); m != nil {
			limit, _ = strconv.Atoi(m[1])
			break
		}
	}
	if limit == 0 || r.says("array too long") { // which is a number of messages
		return 0
	}

	var others []int
	for _, digits := range figures.FindAllString(r.text, 32) {
		if n, _ := strconv.Atoi(digits); n != limit {
			others = append(others, n)
		}
	}
	counted := 0 // of the request alone: the nearest to the estimate, if that is near
	distance := func(n int) float64 { return math.Abs(math.Log(float64(n) / float64(estimate))) }
	for _, n := range others {
		if d := distance(n); d < math.Log(3) && (counted == 0 || d < distance(counted)) {
			counted = n
		}
	}
	if counted == 0 {
		return 0
	}
	largest := 0
	for _, n := range others {
		if n != counted {
			largest = max(largest, n)
		}
	}
	answer := min(limit/4, 8192) // enough for most
	switch {
	case largest > max(limit, counted): // request and answer together
		answer = largest - counted
	case counted <= limit:
		answer = largest
	}
	const margin = 0.9 // what is left out may have fewer tokens than the estimate of it
	share := margin * float64(limit-answer) / float64(counted)
	return max(1, int(share*float64(estimate)))
}

// wanted returns the changes that the refusal asks for, apart from those of tools.
func (r *refusal) wanted() view.Shape {
	items := r.aboutItems()
	return view.Shape{Form: r.form(), Portable: items, Own: items, NoMedia: r.aboutMedia(), Mend: r.mend()}
}

func (r *refusal) aboutTools() bool { return r.says("tool", "function") }

// aboutContent reports whether a filter has refused what the prompt says. OpenRouter calls a request of the wrong form an invalid
// prompt, too.
func (r *refusal) aboutContent() bool {
	return r.says("invalid_prompt") && !r.says("api request") ||
		r.says("content_filter", "content filter", "contentfilter", "content_policy", "content policy", "contentpolicy", "content management policy",
			"content_moderation", "moderation_blocked", "moderation policy", "responsibleai", "responsible ai", "was flagged", "been flagged",
			"flagged as", "flagged for", "flagged by", "usage polic", "usage guidelines", "policy violation", "policy_violation", "policyviolation",
			"safety system", "safety polic", "safety_check", "guardrail", "content exists risk", "high risk", "data_inspection", "datainspection",
			"inappropriate content", "sensitive content", "sensitivecontent", "sensitive_content", "sensitive information", "sensitive words",
			"new_sensitive", "unsafe content", "unsafe or sensitive", "prohibited content", "prohibited_content", "敏感")
}

// parameters finds the members of a request that a refusal names: OpenAI's "param", and "loc" of servers in Python, either also in the
// text of another server's refusal.
var parameters = regexp.MustCompile(`\\?["'](?:param\\?["']\s*:\s*|loc\\?["']\s*:\s*[\[(]\s*\\?["']body\\?["'],\s*)\\?["'](?:\$\.|/)?([a-z_]+)`)

// conversation matches the members of a request that memory may change.
var conversation = regexp.MustCompile(`^(?:messages?|contents?|role|input.*|instructions|system.*|tools?|tool_.*|functions?|function_.*|parallel_tool_calls|body)$`)

// aboutParameter reports whether the refusal names members of the request, none of which memory changes.
func (r *refusal) aboutParameter() bool {
	found := false
	for _, m := range parameters.FindAllStringSubmatch(r.text, 16) {
		if conversation.MatchString(m[1]) {
			return false
		}
		found = found || m[1] != "none" && m[1] != "null"
	}
	return found
}

// aboutTemplate reports whether the model's chat template has refused the request, for whatever reason.
func (r *refusal) aboutTemplate() bool {
	return r.says("jinja", "chat template", "chat_template", "prompt template", "no user query found")
}

// aboutRoles reports whether the refusal speaks of roles.
func (r *refusal) aboutRoles() bool {
	return r.aboutTemplate() || r.form() != view.AsIs || r.says("role")
}

// aboutThisRequest reports whether what helps this request says nothing about others: they have fewer tools, or their model writes
// its calls better.
func (r *refusal) aboutThisRequest() bool { return r.aboutToolCount() || r.says("failed_generation") }

// aboutToolCount reports whether the request has more tools than upstream takes: OpenAI takes 128.
func (r *refusal) aboutToolCount() bool {
	return r.says("tools", "functions") && r.says("array too long", "array_above_max_length", "too many tools", "too many functions", "maximum number of tools")
}

// kind identifies refusals that ask for the same changes. Those that name no change are of one kind.
func (r *refusal) kind() string { return fmt.Sprint(r.wanted(), r.aboutTools()) }

// aboutItems reports whether the refusal is about items of earlier answers.
func (r *refusal) aboutItems() bool {
	return r.says("encrypted content", "encrypted_content", "'reasoning'", "reasoning item", "item with id", "not persisted", "signature", "container",
		"compaction", "thinking block", "redacted_thinking", "file with id", "file_id", "audio", "].id'", "id that begins with") || r.aboutMembers()
}

// aboutMembers reports whether messages have members or parts that the server does not know: servers answer with thoughts and
// the like under names of their own.
func (r *refusal) aboutMembers() bool {
	return r.says("messages", "input[", "assistant", "reasoning_content") &&
		r.says("is unsupported", "not permitted", "extra_forbidden", "unknown parameter", "unknown name", "unrecognized", "additional properties",
			"supported values are")
}

// listsRoles reports whether the refusal lists the roles that the server takes, without one for results of tools.
func (r *refusal) listsRoles() bool { return r.says("only user", "only system") && !r.aboutTools() }

// isFailure reports whether the status is that of a failure, which llama.cpp has for all that it refuses.
func (r *refusal) isFailure() bool { return r.status == fasthttp.StatusInternalServerError }

// isTooLarge reports whether the request has too many bytes, whatever its tokens.
func (r *refusal) isTooLarge() bool { return r.status == fasthttp.StatusRequestEntityTooLarge }

// aboutMedia reports whether the refusal is about pictures, files or sounds: the model takes none, upstream cannot fetch one, or
// they are too large together.
func (r *refusal) aboutMedia() bool {
	return r.isTooLarge() || r.says("image", "vision", "multimodal", "multi-modal", "video", "pdf", "input_file", "input_audio", "audio input", "download", "fetch",
		"must be a string", "payload size") &&
		!r.says("image_generation")
}

// form returns which form of messages the server wants, AsIs if the refusal does not mention roles.
func (r *refusal) form() view.Form {
	switch {
	case r.says("expected last role", "last message must"):
		return view.Joined
	case r.says("invalid role", "unsupported role", "incorrect role", "unknown role"):
		return view.OneSystem
	case r.says("must alternate", "should alternate", "roles alternate", "alternating", "unexpected role", "start with a user", "comes immediately after a user",
		"first message must"):
		return view.Alternate
	case !r.says("system message", "system role", "role system", "system prompt", "system instruction", "developer instruction", "developer message",
		"developer role", "developer`", "developer'", `developer\"`, "message role", "'role'", "'system'", "only user"):
		return view.AsIs
	case r.says("not supported", "unsupported", "not support", "not enabled", "not allowed", "only user and assistant"):
		return view.NoSystem
	default:
		return view.OneSystem
	}
}

// mend returns which changes of calls the refusal asks for.
func (r *refusal) mend() (m view.Mend) {
	if r.says("tool call id", "tool_call_id", "].id", "call_id", "tool_use.id", "tool_use_id", "tooluseid") &&
		r.says("length", "pattern", "too long", "alphanumeric", "a-z", "regular expression", "missing", "empty") {
		if m = view.OddCallIDs; r.says("length of 9", "length 9", "9 char") {
			m = view.CallIDs
		}
	}
	if r.says("reasoning_content", "reasoning content") && !r.aboutMembers() {
		m |= view.Reasoning
	}
	if r.says("thought_signature", "thought signature", "value is not a string: null") {
		m |= view.Signatures | view.NullContent // Gemini refuses one after the other
	}
	if r.says(".name", "name of", "function name", "tool name") && r.says("pattern", "a-z", "alphanumeric", "empty string", "minimum length", "too long") {
		m |= view.ToolNames
	}
	if r.says("arguments", ".input") && r.says("json", "parse", "dictionary", "an object", "a string", "valid string", "type string") {
		m |= view.Arguments
	}
	if r.says("content", "text", "message at position") && r.says("non-empty", "nonempty", "must not be empty", "cannot be empty", "can't be empty",
		"is blank", "non-whitespace", "at least one content", "either content or tool_calls", "have a text parameter") {
		m |= view.EmptyText
	}
	if r.says("tool_calls") && r.says("empty array", "empty_array", "[] is too short") {
		m |= view.EmptyCalls | view.EmptyText // what was beside the list may be null
	}
	if r.says("null") && r.says("not a string", "expected a string") {
		m |= view.NullContent | view.EmptyText
	}
	return m
}
