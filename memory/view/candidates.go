package view

import (
	"math"
	"slices"

	"remora/wire"
)

// Candidates describes a history for [Fit] under a policy, which counts what it needs of Cost. Group is the number from [Groups].
// Stays is set for the current run, which begins with the last user message or, without one, with the last item; for
// results before it that no answer follows yet; for a compaction, which replaces everything before it; for the newest
// Policy.MinTurns pairs; and for what is in a group with one of these. Pairs and Score are set as well.
//
// With [OverflowFIFO] a group is a request and its answer: one answer of the model with the results of all its calls,
// and the user message directly before it.
func Candidates(items []wire.Item, p Policy) []Candidate {
	entries, g := groupsOf(items)
	if p.Overflow == OverflowFIFO {
		g.exchanges(items, entries)
	}
	list := make([]Candidate, len(items))
	run := min(RunStart(items), unread(items))
	for i, group := range g.numbers(entries, len(items)) {
		list[i] = Candidate{
			Group: group,
			Stays: i >= run || items[i].Kind == wire.Compaction,
			Score: Score(items[i], i, len(items)),
			item:  &items[i],
		}
	}
	turns := completeTurns(items)
	for k, t := range turns {
		from := 0
		if k > 0 {
			from = turns[k-1].from
		}
		for i := from; i < t.from; i++ {
			list[i].Pairs = len(turns) - k
		}
		for i := t.from; i < t.to && len(turns)-k <= p.MinTurns; i++ {
			list[i].Stays = true
		}
	}

	groups := make(map[int]bool) // that stay
	for _, e := range list {
		if e.Stays && e.Group != 0 {
			groups[e.Group] = true
		}
	}
	for i := range list {
		list[i].Stays = list[i].Stays || groups[list[i].Group]
	}
	return list
}

// Firm returns the index of the first item of the current run, of results that no answer follows yet, and of the newest
// Policy.MinTurns pairs. Before it, only compactions and the partners of items after it always stay.
func Firm(items []wire.Item, p Policy) int {
	firm := min(RunStart(items), unread(items))
	if turns := completeTurns(items); p.MinTurns > 0 && len(turns) > 0 {
		firm = min(firm, turns[max(0, len(turns)-p.MinTurns)].from)
	}
	return firm
}

// RunStart returns the index of the user message that began the current run, or of the last item if there is none.
func RunStart(items []wire.Item) int {
	if last := lastAsked(items); last >= 0 {
		return last
	}
	return max(0, len(items)-1)
}

// unread returns the index of the first result that no item of the model follows, len(items) if there is none.
func unread(items []wire.Item) int {
	first := len(items)
	for i, it := range slices.Backward(items) {
		if ofModel(it) || it.Kind == wire.Reference {
			break
		}
		if it.Parts[0].Kind == wire.ToolResult {
			first = i
		}
	}
	return first
}

// lastAsked returns the index of the last message of the user, -1 for none.
func lastAsked(items []wire.Item) int {
	for i, it := range slices.Backward(items) {
		if it.Role == wire.User {
			return i
		}
	}
	return -1
}

// turn is a complete user-assistant pair: items from (inclusive) to (exclusive).
type turn struct{ from, to int }

// completeTurns lists the complete user-assistant pairs of a history, oldest first. One begins with a user message, the
// first one of several in a row, and reaches up to the next, with all that the model did between. It is complete if that
// ends with something other than a call or its result: an agent that was stopped in its loop gave no reply.
func completeTurns(items []wire.Item) []turn {
	var turns []turn
	from, worked, replied := -1, false, false
	end := func(to int) {
		if from >= 0 && replied {
			turns = append(turns, turn{from, to})
		}
	}
	for i, it := range items {
		switch {
		case it.Role == wire.User:
			if from < 0 || worked {
				end(i)
				from, worked, replied = i, false, false
			}
		case ofModel(it), it.Kind == wire.Reference: // which stands for what a model made
			worked, replied = true, !it.HasCalls() && it.Kind != wire.Reasoning
		case it.Kind == wire.ToolResult:
			worked, replied = true, false
		}
	}
	end(len(items))
	return turns
}

// Score returns an item's score for [OverflowPriority], by its role and its age: its index, from 0 for the oldest, of count
// items. Items of Responses are scored like the equivalent Chat message, and reasoning like the calls that it led to.
func Score(it wire.Item, index, count int) float64 {
	r := float64(index+1) / float64(count)
	switch {
	case it.Role == wire.System || it.Role == wire.Developer:
		return math.MaxFloat64
	case it.Role == wire.User:
		return 100 + 50*r
	case it.Kind == wire.ToolCall || it.Kind == wire.Reasoning || it.HasCalls():
		return 80 + 40*r
	case it.Role == wire.Assistant:
		return 60 + 30*r
	case it.Kind == wire.ToolResult:
		return 50 + 40*r
	default:
		return 10 + 5*r
	}
}
