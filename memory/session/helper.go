package session

import (
	"bytes"
	"slices"
	"strings"
	"unicode"

	"remora/wire"
)

// Chat pages and agents ask the model for small things about a conversation, under its id: a title, tags, follow-up
// questions, a summary. Their prompts differ in every word but share a form: near the beginning one sentence orders
// such a thing, and says that it is about a conversation.

// helperKind is a kind of helper prompt.
type helperKind struct {
	name string
	// things name the result, orders ask for it. One sentence has a word of each.
	things, orders []string
	// limits are words of which the prompt has one, none for any prompt.
	limits []string
	// material reports whether the request has to bring the conversation that it is about. A title is asked for by the
	// user's first message, however short; a request for a summary that does not hold the text is about the stored conversation.
	material bool
}

// helperKinds is a list of constants.
func helperKinds() []helperKind {
	ask := []string{
		"generate", "generates", "generating", "generator", "create", "creates", "creating", "write", "provide", "produce", "suggest",
		"suggests", "propose", "craft", "crafting", "extract", "summarize", "summarise", "summarizing", "summarising", "output",
	}
	return []helperKind{
		{
			name: "title", things: []string{"title", "titles", "titling", "titler"}, orders: append(ask, "titling", "titler"),
			limits: []string{"short", "concise", "brief", "word", "words", "character", "characters", "only", "generator", "titling", "pithy"},
		},
		{name: "tags", things: []string{"tags", "tag"}, orders: ask, material: true},
		{name: "follow_ups", things: []string{"follow", "followup", "followups", "suggestions"}, orders: append(ask, "predict"), material: true},
		{name: "search_queries", things: []string{"queries"}, orders: ask, material: true},
		{name: "emoji", things: []string{"emoji"}, orders: ask, material: true},
		{
			name: "summary", things: []string{"summary", "summaries", "summarize", "summarise", "summarizing", "summarising", "summarizer", "description"},
			orders: append(ask, "tasked", "task"), material: true,
		},
	}
}

const (
	// helperWords is how many words of a prompt are looked at, helperBytes how much of it at most.
	helperWords = 90
	helperBytes = 2048
	// helperInstructions is the length in bytes above which instructions belong to an agent, even with a helper's
	// words.
	helperInstructions = 16 << 10
	// helperMessages limits the user messages of a helper's request: the order, and the conversation.
	helperMessages = 3
	// helperMaterial is how many bytes of a conversation a request brings at least to be about that.
	helperMaterial = 160
)

// helperPrompt returns the kind of a helper's request, "" for any other. A helper's request has only instructions and
// user messages, and offers no tools.
func helperPrompt(req *wire.Request, in *incoming) string {
	if len(in.items) == 0 || len(in.items) > helperMessages || offersTools(req) {
		return ""
	}
	for i := range in.items {
		if it := &in.items[i]; it.Kind != wire.Message || it.Role == wire.Assistant {
			return ""
		}
	}
	if !mayAsk(req, in) {
		return ""
	}
	var said strings.Builder
	for i := range in.items {
		said.WriteString(in.items[i].Text())
		said.WriteByte('\n')
	}
	instructions, text := systemText(req, in), said.String()
	if len(instructions) <= helperInstructions {
		if kind := orderedBy(instructions); kind.name != "" && (!kind.material || len(text) >= helperMaterial) {
			return kind.name
		}
	}
	// An order in words of the user could be the user's own: it counts where the conversation stands behind it.
	if kind := orderedBy(text); kind.name != "" && len(text) >= helperMaterial && holdsConversation(text) {
		return kind.name
	}
	return ""
}

// maxOrder is how long a message is at most that orders something about the history before it, in bytes.
const maxOrder = 1200

// ordersHelp reports whether a message of the user's role asks for a title, a summary, and the like, of the conversation that it
// ends: a program's order in the user's name, or a question that says nothing new.
func ordersHelp(text string) bool {
	if len(text) > maxOrder {
		return false
	}
	kind := orderedBy(text)
	if kind.name == "" {
		return false
	}
	words := slices.Concat(sentencesOf(strings.ToLower(text))...)
	for i, w := range words {
		if !slices.Contains([]string{"conversation", "chat", "thread", "dialog", "dialogue", "discussion"}, w) {
			continue
		}
		if i > 0 && slices.Contains([]string{"our", "this", "above", "entire", "whole", "current"}, words[i-1]) ||
			i > 0 && kind.limits != nil && words[i-1] == "the" || // of a title
			i+1 < len(words) && slices.Contains([]string{"above", "so", "history", "briefly"}, words[i+1]) {
			return true
		}
	}
	return false
}

// retitles returns the kind of a helper's request that has its order in the instructions, and behind them a history that the
// transcript has, with no new word of the user's. It is "" for any other.
func retitles(req *wire.Request, in *incoming, fresh int) string {
	if fresh < len(in.items) || !in.hasSystemPrompt || offersTools(req) {
		return ""
	}
	prompt := systemText(req, in)
	if len(prompt) > maxOrder {
		return ""
	}
	return orderedBy(prompt).name
}

// systemText is the text of the instructions and of the system prompt.
func systemText(req *wire.Request, in *incoming) string {
	var text strings.Builder
	text.WriteString(wire.Text(req.Instructions()))
	for i := range in.system {
		text.WriteByte('\n')
		text.WriteString(in.system[i].Text())
	}
	return text.String()
}

// mayAsk reports whether the words of a helper's prompt can be in a request. It reads nothing but bytes, since nearly all
// requests are none.
func mayAsk(req *wire.Request, in *incoming) bool {
	anyHas := func(parts ...string) bool {
		return hasOneOf(req.Instructions(), parts) ||
			slices.ContainsFunc(in.system, func(it wire.Item) bool { return hasOneOf(it.Raw, parts) }) ||
			slices.ContainsFunc(in.items, func(it wire.Item) bool { return hasOneOf(it.Raw, parts) })
	}

	// The words for a conversation come first: few requests have one of them. "ssion" is of a session or a discussion.
	return anyHas("versation", "Chat", "chat", "ssion", "hread", "ialog") &&
		anyHas("itl", "ag", "ollow", "uggest", "ueries", "moji", "ummar", "escription")
}

// hasOneOf reports whether the beginning of a text has one of some parts of words.
func hasOneOf(text []byte, parts []string) bool {
	text = text[:min(len(text), 2*helperBytes)]
	return slices.ContainsFunc(parts, func(part string) bool { return bytes.Contains(text, []byte(part)) })
}

func offersTools(req *wire.Request) bool {
	for _, member := range [...]string{"tools", "functions"} {
		if raw := req.Member(member); len(raw) > len("[]") && string(raw) != "null" {
			return true
		}
	}
	return false
}

// orderedBy finds what the beginning of a prompt orders about a conversation.
func orderedBy(prompt string) helperKind {
	prompt = strings.ToLower(prompt[:min(len(prompt), helperBytes)])
	subjects := []string{"conversation", "chat", "thread", "session", "dialog", "discussion"}
	if !slices.ContainsFunc(subjects, func(s string) bool { return strings.Contains(prompt, s) }) {
		return helperKind{} // as nearly all prompts do not: nothing more is read of them
	}

	sentences := sentencesOf(prompt)
	anywhere := slices.Concat(sentences...)
	if !anyOf(anywhere, append(subjects, "conversations", "chats", "dialogue")) {
		return helperKind{}
	}
	for _, kind := range helperKinds() {
		ordered := slices.ContainsFunc(sentences, func(words []string) bool { return anyOf(words, kind.things) && anyOf(words, kind.orders) })
		if ordered && (kind.limits == nil || anyOf(anywhere, kind.limits)) {
			return kind
		}
	}
	return helperKind{}
}

// sentencesOf are the words of a prompt's first sentences.
func sentencesOf(prompt string) (sentences [][]string) {
	words := 0
	for sentence := range strings.FieldsFuncSeq(prompt, func(r rune) bool { return strings.ContainsRune(".!?\n;", r) }) {
		list := strings.FieldsFunc(sentence, func(r rune) bool { return !unicode.IsLetter(r) })
		if words += len(list); words > helperWords && len(sentences) > 0 {
			break
		}
		sentences = append(sentences, list)
	}
	return sentences
}

func anyOf(words, wanted []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(wanted, w) })
}

// holdsConversation reports whether a text has a conversation in it, by how prompts set one off from their own words.
func holdsConversation(text string) bool {
	text = strings.ToLower(text)
	for _, mark := range [...]string{
		"<chat_history", "chat history:", "<conversation", "conversation:", "<content", "<messages", "<dialog", "<transcript",
		"user:", "human:", "assistant:", "question:", "query:", "message:",
	} {
		if strings.Contains(text, mark) {
			return true
		}
	}
	return false
}
