package history

import (
	"context"
	"slices"
	"strings"

	"remora/memory/layer"
)

// How the block is spelled (SEMANTICS 3, cases 112 to 114).
const (
	tag             = "conversation_memory"
	summariesHead   = "Previously in this conversation:\n"
	latestHead      = "Previously: "
	summarySep      = "\n---\n"
	memoriesHead    = "Relevant context from memory:\n"
	partSep         = "\n\n"
	sharedSummaries = 2 // summaries may cost the budget of memories divided by this
)

// Recall tells the summaries of the conversation and the memories that the user's last message is about, in one block.
// The client's own system text stands before it, untouched: with it, the block is what the source calls the enriched
// system text (case 112).
func (l *Layer) Recall(_ context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	st := decode(s)
	told := st.of(identifier(t.Thread))
	summaries, shown := l.summaries(t, told)
	lines := l.lines(t, &st, shown)
	t.Note("summaries", len(shown))
	for n := len(lines); n >= 0; n-- {
		text := join(summaries, lines[:n])
		if text == "" {
			continue
		}
		if block := layer.Block(tag, text); layer.Fits(t.Count, block, budget) {
			t.Note("memories", n)
			return layer.Recalled{Messages: []string{block}, Tokens: t.Count(block)}, nil
		}
	}
	if len(told) == 0 {
		return layer.Recalled{}, nil
	}
	block, tokens := layer.BlockWithin(t.Count, tag, latestHead+told[len(told)-1], budget)
	if len(block) <= len("<"+tag+">\n"+latestHead+cutMark+"\n</"+tag+">") {
		return layer.Recalled{}, nil // nothing of the summary itself
	}
	return layer.Recalled{Messages: []string{block}, Tokens: tokens}, nil
}

// join is the text of the block, with an empty line between summaries and memories.
func join(summaries string, lines []string) string {
	var memories string
	if len(lines) > 0 {
		memories = memoriesHead + strings.TrimSuffix(strings.Join(lines, ""), "\n")
	}
	if summaries == "" || memories == "" {
		return summaries + memories
	}
	return summaries + partSep + memories
}

// summaries is the text of all of them if they cost no more than half of memory_token_budget, else of the newest (case
// 113), and which these are.
func (l *Layer) summaries(t *layer.Turn, told []string) (text string, shown []string) {
	if len(told) == 0 {
		return "", nil
	}
	all := summariesHead + strings.Join(told, summarySep)
	if layer.Fits(t.Count, all, l.o.MemoryTokenBudget/sharedSummaries) {
		return all, told
	}
	return latestHead + told[len(told)-1], told[len(told)-1:]
}

// lines are the memories that are told, the best first, up to the first that memory_token_budget has no room for (case
// 114). Summaries of this conversation that are told as such are not told again.
func (l *Layer) lines(t *layer.Turn, st *state, told []string) []string {
	if !l.o.EnableLongTermMemory || l.topK == 0 || t.Query == "" {
		return nil
	}
	own := identifier(t.Thread)
	others := slices.DeleteFunc(slices.Clone(st.Memories), func(e Entry) bool {
		return e.Type == Summary && e.Conversation == own && slices.Contains(told, e.Content)
	})
	var lines []string
	used := t.Count(memoriesHead)
	for _, e := range others.Recall(t.Query, l.topK, l.filters(t)) {
		line := "- [" + string(e.Type) + "] " + e.Content + "\n"
		if used += t.Count(line); used > l.o.MemoryTokenBudget {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

// filters are whose memories this request is told. Where a request names no user, they are those of its conversation.
func (l *Layer) filters(t *layer.Turn) Filters {
	f := Filters{Agent: l.o.AgentID, Types: l.types}
	switch {
	case l.o.RecallFrom == FromConversation, l.o.RecallFrom == FromUser && t.Resource == "":
		f.Conversation = identifier(t.Thread)
	case l.o.RecallFrom == FromUser:
		f.User = identifier(t.Resource)
	}
	if l.o.MemoryMaxAge > 0 {
		f.After = t.Now.Add(-l.o.MemoryMaxAge)
	}
	return f
}
