package session

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"unicode"

	"remora/wire"
)

// relation is how a request relates to the transcript; it is written into the turn record.
type relation string

const (
	relRoot     relation = "root"     // a new beginning
	relContinue relation = "continue" // the history was resent, followed by new items
	relResend   relation = "resend"   // nothing new: a repeated request, or a regeneration
	relBranch   relation = "branch"   // an edited history: shares a beginning
	relTrim     relation = "trim"     // the client trimmed or compacted its own history
	relDelta    relation = "delta"    // only what is new was sent
	relUpstream relation = "upstream" // upstream has the history
)

// match is what a request has in common with the transcript. It is empty without anything in common.
type match struct {
	relation relation
	// line is the line that the items are stored on, 0 for a new one. A line is all that shares its beginning, with its
	// branches; one of them is the conversation.
	line         uint64
	side         bool      // the line was stored as a side request's
	systemPrompt wire.Hash // of the history that the request goes on from, as far as the head knows
	parent       position  // the new items come after it
	fresh        int       // items[fresh:] are new
	summary      int       // items[:summary] are the client's own summary of the items that it left out
	offset       int       // units of the conversation before items[0] that are not in the request
	certain      bool      // a trimmed history that cannot be the beginning of a fully known one
	upto         position  // the end of the items of a repetition with the stored history before it; else zero
}

// found reports whether the request has anything in common with the transcript.
func (m *match) found() bool { return m.relation != "" }

// moveAfter moves the new items, with the history before them, after another end.
func (m *match) moveAfter(t *tail) {
	m.parent, m.line, m.systemPrompt, m.offset = t.Pos, t.Line, t.SystemPrompt, unitsBetween(position{}, t.Pos)
}

// merger finds the matches of a request in the transcript of its session. It does not choose among them: placement does. The head has the
// ends and the latest items; older items are looked up in the store.
type merger struct {
	stored transcript
	head   *head
	in     *incoming

	latest []wire.Item // see latestMessages
}

// ends looks for the head and the other known ends among the request's chain hashes; the longest match wins.
func (m *merger) ends() match {
	h, in := m.head, m.in
	for i, end := range slices.Backward(in.ends) {
		at, ok := h.endAt(end.Chain)
		if !ok || !in.marks[i].onChain {
			continue
		}
		p := match{relation: relContinue, parent: h.Pos, line: h.Line, systemPrompt: h.SystemPrompt, fresh: i + 1}
		if at >= 0 {
			t := &h.Tails[at]
			p.parent, p.line, p.systemPrompt, p.side = t.Pos, t.Line, t.SystemPrompt, t.Side
		} else {
			p.fresh = h.afterReasoning(in, p.fresh)
		}
		if p.fresh == len(in.items) {
			p.relation = relResend
		}
		return p
	}
	return match{}
}

// trimmed recognises a client that left out the beginning of its own history: the request contains the head, preceded by the
// end of the head line. The items before that are the client's summary.
func (m *merger) trimmed() match {
	h, in := m.head, m.in
	if len(h.Ring) == 0 {
		return match{}
	}
	last := h.Ring[len(h.Ring)-1].Content
	for i := range slices.Backward(in.items) {
		if !in.marks[i].onChain || shortHash(in.marks[i].Content) != last {
			continue
		}
		first, equal := m.equalEnd(i)
		if equal < 2 && first > 0 {
			continue
		}
		return match{
			relation: relTrim, parent: h.Pos, line: h.Line, systemPrompt: h.SystemPrompt, fresh: i + 1, summary: first, offset: unitsBetween(in.ends[i], h.Pos),
			certain: first == 0 && equal >= certainItems && h.Ring.endsOnce(),
		}
	}
	return match{}
}

// certainItems is the number of items at the beginning of a request, equal to the end of the head line, that cannot match by
// chance.
const certainItems = 8

// equalEnd compares items[..i] with the end of the ring, backwards, and returns the first item of those that are equal and
// how many of them are on the chain.
func (m *merger) equalEnd(i int) (first, equal int) {
	ring := m.head.Ring
	first = i + 1
	for r := len(ring) - 1; i >= 0 && r >= 0; i-- {
		if m.in.marks[i].onChain {
			if shortHash(m.in.marks[i].Content) != ring[r].Content {
				break
			}
			r--
			equal++
		}
		first = i
	}
	if equal == len(ring) && len(ring) == ringSize {
		// The ring is full and equal: the items before it are older history, not a summary.
		first = 0
	}
	return first, equal
}

// run finds the place of a later request of an agent's run whose first request had only new items: agents without a memory
// resend the items of the run, and nothing before it.
func (m *merger) run() match {
	starts := m.runStarts()
	for _, start := range starts {
		m.in.begin(start)
		if p := m.ends(); p.found() && m.in.anySaidByModel(m.in.items[:p.fresh]) {
			p.offset = unitsBetween(position{}, start)
			return p
		}
	}
	if len(starts) > 0 {
		m.in.begin(position{})
	}
	return match{}
}

// runStarts returns the possible beginnings of a request that is not the first of its run, the likeliest first.
func (m *merger) runStarts() []position {
	if len(m.head.Begun) == 0 || !m.in.anySaidByModel(m.in.items) || m.in.unresolved() {
		return nil
	}
	starts := slices.Clone(m.head.Begun)
	slices.Reverse(starts)
	return starts
}

// earlierRun is run for a request that is not the latest of its run: a repetition, or another run was answered meanwhile. The
// match is empty for other requests.
func (m *merger) earlierRun(ctx context.Context) (match, error) {
	starts, in := m.runStarts(), m.in
	if len(starts) == 0 {
		return match{}, nil
	}
	for _, start := range starts {
		in.begin(start)
		p, err := m.longestKnown(ctx, 0, len(in.ends))
		if err != nil {
			return match{}, err
		}
		if p.found() && (in.anySaidByModel(in.items[:p.fresh]) || m.repaired(p.fresh) || in.feedback(p.fresh+1)) {
			p.offset = unitsBetween(position{}, start)
			return p, nil
		}
	}
	in.begin(position{})
	return match{}, nil
}

// beginsAgain finds the place of a request with the items that a run began with, as asked reports of the last of them. What the model
// said, or a program about it, may stand after them. The match is empty for other requests.
func (m *merger) beginsAgain(ctx context.Context, asked func(item int) bool) (match, error) {
	in := m.in
	for _, start := range slices.Backward(m.head.Begun) {
		in.begin(start)
		last := len(in.items) - 1
		for last > 0 && !asked(last) && (in.saidByModel(in.items[last]) || in.isFeedback(last)) {
			last--
		}
		if !asked(last) {
			continue
		}
		known, err := m.stored.lookup(ctx, in.ends[last:last+1])
		if err != nil {
			return match{}, err
		}
		if known[0] == nil {
			break
		}
		p := in.branch(last, known[0])
		p.offset = unitsBetween(position{}, start)
		return p, nil
	}
	in.begin(position{})
	return match{}, nil
}

// beginsWithAnswer reports whether a text has the latest answer on the head line at its beginning.
func (m *merger) beginsWithAnswer(ctx context.Context, text string) (bool, error) {
	for at, err := range m.stored.back(ctx, m.head.Pos.Seq) {
		if err != nil {
			return false, err
		}
		if at.Flags&(flagSummary|flagHidden|flagOffChain) != 0 {
			continue
		}
		it, err := wire.ParseItem(at.Dialect, at.Raw)
		if err != nil || it.Kind != wire.Message || it.Role != wire.Assistant {
			return false, err
		}
		answer := strings.TrimSpace(it.Text())
		return answer != "" && strings.HasPrefix(strings.TrimSpace(text), answer), nil
	}
	return false, nil
}

// repaired reports whether the first call in items[from:] is one that the conversation waits for, in other words: a client has repaired
// its arguments, or its user has edited them. The result is that of the client's version.
func (m *merger) repaired(from int) bool {
	for _, it := range m.in.items[from:] {
		for _, call := range m.in.resolve(it).Calls() {
			return m.head.Open.has(call)
		}
	}
	return false
}

// maxLandmarks is the number of items of a request that are looked up by content.
const maxLandmarks = 8

// overlap finds the place of a request whose beginning is missing: it looks for two consecutive items of the transcript. The
// match is empty if there are none.
func (m *merger) overlap(ctx context.Context) (match, error) {
	var landmarks []int
	var names []string
	for i, it := range m.in.items {
		if m.in.marks[i].onChain && landmark(it) && len(landmarks) < maxLandmarks {
			landmarks = append(landmarks, i)
			names = append(names, textName(m.in.marks[i].Content))
		}
	}
	if len(landmarks) == 0 {
		return match{}, nil
	}
	found, err := m.stored.index(ctx, names)
	if err != nil {
		return match{}, err
	}
	for n, i := range landmarks {
		if found[n] == nil || i+1 == len(m.in.items) {
			continue
		}
		p, err := m.overlapFrom(ctx, i, found[n])
		if err != nil || p.found() {
			return p, err
		}
	}
	return match{}, nil
}

// overlapFrom follows a request from item i, whose place is known, as far as it equals the transcript.
func (m *merger) overlapFrom(ctx context.Context, i int, from *linePosition) (match, error) {
	in := m.in
	at, ends := from.Pos, make([]position, 0, len(in.items)-i-1)
	for j := i + 1; j < len(in.items); j++ {
		at = at.after(in.marks[j])
		ends = append(ends, at)
	}
	known, err := m.stored.lookup(ctx, ends)
	if err != nil {
		return match{}, err
	}
	last, k := in.longest(i+1, known)
	if k == nil {
		return match{}, nil
	}
	p := match{relation: relTrim, parent: k.Pos, line: k.Line, fresh: last + 1, side: k.Side}
	p.offset = unitsBetween(in.ends[last], p.parent)
	p.summary, err = m.summaryBefore(ctx, i, from.Pos.Seq)
	return p, err
}

// summaryBefore goes back from item i, at seq, as far as the request equals the transcript, and returns the first equal item of
// the request. The items before it are the client's own summary.
func (m *merger) summaryBefore(ctx context.Context, i int, seq uint64) (int, error) {
	for items, err := range m.stored.pagesBack(ctx, seq) {
		if err != nil {
			return 0, err
		}
		for _, at := range items {
			switch {
			case i == 0:
				return 0, nil
			case at.Pos.Seq == seq, at.Flags&flagHidden != 0, at.Flags&flagOffChain != 0 && m.in.marks[i-1].onChain:
			case at.Content != m.in.marks[i-1].Content:
				return i, nil
			default:
				i--
			}
		}
	}
	return i, nil
}

// repetition finds the place of a request that repeats the client's last request on the head line: the client has not seen the
// answer. With brokenOff, the answer must have broken off. The match is empty for other requests.
func (m *merger) repetition(ctx context.Context, brokenOff bool) (match, error) {
	h, in := m.head, m.in
	p, left := match{relation: relResend, line: h.Line, systemPrompt: h.SystemPrompt}, len(in.items)
	for at, err := range m.stored.back(ctx, h.Pos.Seq) {
		if err != nil {
			return match{}, err
		}
		brokenOff = brokenOff && at.Flags&flagPartial == 0 // a partial thought is off the chain
		switch {
		case at.Flags&(flagSummary|flagHidden) != 0 || left > 0 && at.Flags&flagOffChain != 0:
		case left == 0:
			p.parent, p.offset = at.Pos, unitsBetween(position{}, at.Pos)
			return p, nil
		case at.Content == in.marks[left-1].Content:
			if p.upto.Seq == 0 && brokenOff {
				return match{}, nil
			}
			if left--; p.upto.Seq == 0 {
				p.upto = at.Pos
			}
		case p.upto.Seq != 0:
			return match{}, nil
		default:
			it, err := wire.ParseItem(at.Dialect, at.Raw)
			if err != nil || it.Kind == wire.ToolResult || it.Kind == wire.Message && it.Role != wire.Assistant {
				return match{}, err
			}
		}
	}
	if left > 0 {
		return match{}, nil
	}
	return p, nil
}

const (
	// minExtended is the length in bytes of the shortest message that is recognised in a later one, maxExtended that of the longest later one.
	minExtended = 64
	maxExtended = 1 << 20
)

// extension finds the place of a message that is the last one of the head line with its answer inserted, by a program that keeps the
// history as text in one message. It takes the place of that message, and has all of the exchange. The match is empty for others.
func (m *merger) extension(ctx context.Context) (match, error) {
	h, items := m.head, m.in.items
	if len(items) != 1 || items[0].Kind != wire.Message || items[0].Role != wire.User {
		return match{}, nil
	}
	text := items[0].Text()
	if len(text) < 2*minExtended || len(text) > maxExtended || !strings.Contains(text, "\n") {
		return match{}, nil // a history takes lines: other questions cost no reading
	}

	p, answer := match{}, ""
	for at, err := range m.stored.back(ctx, h.Pos.Seq) {
		if err != nil {
			return match{}, err
		}
		if at.Flags&(flagSummary|flagHidden|flagOffChain) != 0 {
			continue
		}
		if p.found() {
			p.parent, p.offset = at.Pos, unitsBetween(position{}, at.Pos)
			return p, nil
		}
		it, err := wire.ParseItem(at.Dialect, at.Raw)
		switch {
		case err != nil || it.Kind != wire.Message:
			return match{}, err
		case it.Role == wire.Assistant && answer == "":
			answer = it.Text()
		case it.Role == wire.User && extends(text, it.Text(), answer):
			p = match{relation: relDelta, line: h.Line, systemPrompt: h.SystemPrompt}
		default:
			return match{}, nil
		}
	}
	return p, nil
}

// extends reports whether a message is an earlier one with a text inserted that has the answer to that. White space may differ.
func extends(message, earlier, answer string) bool {
	if len(earlier) < minExtended || len(message) < len(earlier) {
		return false
	}
	message, earlier, answer = withoutSpace(message), withoutSpace(earlier), withoutSpace(answer)
	same := 0
	for same < min(len(earlier), len(message)) && message[same] == earlier[same] {
		same++
	}
	return answer != "" && strings.HasSuffix(message[same:], earlier[same:]) && strings.Count(message, answer) > strings.Count(earlier, answer)
}

func withoutSpace(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
}

// repeats finds the request's items, from first to end, that would be duplicates if the transcript were put before them. They
// end with an item of the model, since a user may say the same twice.
func (m *merger) repeats(ctx context.Context) (first, end int, err error) {
	if !m.in.anySaidByModel(m.in.items) {
		return 0, 0, nil
	}
	if p := m.ends(); p.found() && p.parent == m.head.Pos {
		end = p.fresh
	} else if p := m.trimmed(); p.found() {
		first, end = p.summary, p.fresh
	}
	if first > 0 || end == 0 {
		known, err := m.beginning(ctx)
		if err != nil {
			return 0, 0, err
		}
		if known >= first { // the items before the passage are no summary: turns that the client does not have are between
			first, end = 0, max(known, end)
		}
	}
	for end > first && !m.in.saidByModel(m.in.items[end-1]) {
		end--
	}
	return first, end, nil
}

// beginning returns how many of the request's first items are a beginning of the head's line.
func (m *merger) beginning(ctx context.Context) (int, error) {
	places, err := m.stored.lookup(ctx, m.in.ends)
	if err != nil {
		return 0, err
	}
	at := make(map[uint64]int, len(places)) // items by sequence number
	oldest := m.head.Pos.Seq + 1
	for i, k := range places {
		if k != nil && m.in.marks[i].onChain {
			at[k.Pos.Seq], oldest = i+1, min(oldest, k.Pos.Seq)
		}
	}
	var later []*storedItem // the last first
	for it, err := range m.stored.back(ctx, m.head.Pos.Seq) {
		if err != nil {
			return 0, err
		}
		if n, ok := at[it.Pos.Seq]; ok {
			return m.in.follow(n, later), nil
		}
		if it.Pos.Seq <= oldest {
			break
		}
		if it.Flags&(flagSummary|flagHidden|flagOffChain) == 0 {
			later = append(later, it)
		}
	}
	return 0, nil
}

// follow returns how many of the first items are those of a line: n, and of later, the items after them there, the last first. White
// space around an answer does not count, since some clients strip it.
func (in *incoming) follow(n int, later []*storedItem) int {
	i := n
	for _, it := range slices.Backward(later) {
		for i < len(in.items) && !in.marks[i].onChain {
			i++
		}
		if i == len(in.items) || in.marks[i].Content != it.Content && !it.isAnswer(in.items[i]) {
			break
		}
		i++
		n = i
	}
	return n
}

// isAnswer reports whether the item is a model's text, and the same as a client's but for white space around it, and
// for thoughts: chat pages send back neither.
func (it *storedItem) isAnswer(resent wire.Item) bool {
	stored, err := wire.ParseItem(it.Dialect, it.Raw)
	text := strings.TrimSpace(resent.Said())
	for _, a := range [...]wire.Item{stored, resent} {
		if err != nil || a.Kind != wire.Message || a.Role != wire.Assistant || a.HasCalls() {
			return false
		}
	}
	return text != "" && text == strings.TrimSpace(stored.Said())
}

// longestKnown returns the match of the longest known history that ends with one of items[from:to]; it is empty if there is none.
func (m *merger) longestKnown(ctx context.Context, from, to int) (match, error) {
	for to > from {
		first := max(from, to-maxNames)
		known, err := m.stored.lookup(ctx, m.in.ends[first:to])
		if err != nil {
			return match{}, err
		}
		if i, k := m.in.longest(first, known); k != nil {
			return m.in.branch(i, k), nil
		}
		to = first
	}
	return match{}, nil
}

// longest returns the longest of the request's histories that ends at a known place, as the item at its end and that place; nil
// for none. known[i] is the place after item first+i, if there is one.
func (in *incoming) longest(first int, known []*linePosition) (item int, k *linePosition) {
	for i, k := range slices.Backward(known) {
		if k != nil && in.marks[first+i].onChain {
			return first + i, k
		}
	}
	return 0, nil
}

// branch returns the match of a request whose items up to i end at k.
func (in *incoming) branch(i int, k *linePosition) match {
	p := match{relation: relBranch, parent: k.Pos, line: k.Line, fresh: i + 1, side: k.Side}
	if p.fresh == len(in.items) {
		p.relation = relResend
	}
	return p
}

func shortHash(h wire.Hash) uint64 { return binary.BigEndian.Uint64(h[:8]) }
