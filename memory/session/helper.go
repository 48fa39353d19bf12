package session

import (
	"slices"
	"strings"

	"remora/memory/helperprompt"
	"remora/wire"
)

// helperMessages limits the user messages of a helper's request: the order, and the conversation.
const helperMessages = 3

// helperPrompt returns the kind of a helper's request, "" for other requests. A helper's request has only instructions and user
// messages, and no tools.
func helperPrompt(req *wire.Request, in *incoming) string {
	if len(in.items) == 0 || len(in.items) > helperMessages || req.OffersTools() {
		return ""
	}
	for i := range in.items {
		if it := &in.items[i]; it.Kind != wire.Message || it.Role == wire.Assistant {
			return ""
		}
	}
	if isProbe(req, in) {
		return "probe"
	}
	mentions := func(it wire.Item) bool { return helperprompt.Mentions(it.Raw) }
	if !helperprompt.Mentions(req.Instructions()) && !slices.ContainsFunc(in.system, mentions) && !slices.ContainsFunc(in.items, mentions) {
		return ""
	}
	var said strings.Builder
	for i := range in.items {
		said.WriteString(in.items[i].Text())
		said.WriteByte('\n')
	}
	return helperprompt.Kind(systemText(req, in), said.String())
}

// probeBytes is the length of the message of a probe: "quota", "test", "Hello". Clients that have a model decide between two words
// take one token, too, and say what it is to decide.
const probeBytes = 16

// isProbe reports whether a client tests its key or the quota: it says one word, and takes one token.
func isProbe(req *wire.Request, in *incoming) bool {
	one := slices.ContainsFunc([]string{"max_tokens", "max_completion_tokens"}, func(member string) bool { return string(req.Member(member)) == "1" })
	return one && len(in.items) == 1 && len(in.items[0].Text()) <= probeBytes
}

// ordersSummary reports whether a request orders a summary of its history: as its last message, or in instructions, without tools, that
// the conversation does not have. That of a chat page may speak of summaries, too.
func ordersSummary(req *wire.Request, in *incoming, h *head) bool {
	n := len(in.items)
	if n == 0 {
		return false
	}
	switch last := in.items[n-1]; {
	case last.Kind != wire.Message || last.Role != wire.User:
		return false
	case helperprompt.Mentions(last.Raw) && helperprompt.OrdersSummary(last.Text()):
		return true
	}
	return h.Answered && in.hasSystemPrompt && in.systemPrompt != h.SystemPrompt && in.anyMadeByModel(in.items) && !req.OffersTools() &&
		helperprompt.InstructionsOrderSummary(systemText(req, in))
}

// retitles returns the kind of a helper's request with its order in the instructions, followed by a known history without new
// user text. It is "" for other requests.
func retitles(req *wire.Request, in *incoming, fresh int) string {
	if fresh < len(in.items) || !in.hasSystemPrompt || req.OffersTools() {
		return ""
	}
	return helperprompt.KindOfHistory(systemText(req, in))
}

// systemText returns the text of the instructions and the system prompt.
func systemText(req *wire.Request, in *incoming) string {
	var text strings.Builder
	text.WriteString(wire.Text(req.Instructions()))
	for i := range in.system {
		text.WriteByte('\n')
		text.WriteString(in.system[i].Text())
	}
	return text.String()
}
