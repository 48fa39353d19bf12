package view

import (
	"iter"
	"math"
	"slices"
	"sort"

	"remora/wire"
)

// chooser computes the beginning of a window.
type chooser struct {
	r       *Request
	w       *Window
	entries []entry
	// partner is the other half of each call and result, none for all others.
	partner []int
	seen    []int   // the number of visible entries before each one, and after the last; nil if all are visible
	run     int     // the last user message, -1 for none
	front   int     // the number of items at the beginning that no cut leaves out: see context
	asked   []int   // see questions; nil before replay
	passed  []int64 // what staying returns, by item; nil before replay
	keys    []wire.Hash
	named   bool // whether keys were asked for
	price   prices
}

// choose returns the entries of a conversation to send: all from start on, and, if pinned is not negative, the one
// pinned before them.
//
// A window by items is cut in whole batches of the absolute position, so its cut is stable without state while a conversation
// grows (docs/semantics.md#history-window). A window by tokens begins where the previous view began until its limit is
// exceeded, and is then trimmed by EvictShare. If the conversation does not have the stored cut (an edit, a branch, a client's
// own compaction), or stands beside the one that it is of, the cut is where views of its earlier requests had it.
func (c *chooser) choose() (start, pinned int, at WindowStart) {
	r, limit := c.r, 0
	if r.Tokens != nil {
		limit = c.w.tokenLimit(r.WindowInput)
	}
	c.hide()
	c.front = c.context(limit)
	least, found := c.previous()
	if !found && (r.Apart || r.Previous != (WindowStart{})) && limit > 0 {
		least = c.replay(limit)
		found = least > 0
	}
	start = max(c.byItems(least, found), least)
	if limit > 0 {
		start = c.byTokens(start, limit)
	}
	start = c.keepUnread(start, least)
	if start == 0 && found {
		return 0, -1, r.Previous
	}
	return start, c.pinOf(start), c.cutAt(start)
}

// contextShare is the part of each limit that the context of a conversation may take: a quarter.
const contextShare = 4

// context returns the number of items at the beginning that the client sends with each request before its first question: messages of
// the user, such as the rules of a project. A client that resends them relies on them, as on a system prompt.
func (c *chooser) context(limit int) (n int) {
	items, own := c.r.Items, c.r.Own
	for len(own) > 0 && own[0].Role != wire.User {
		own = own[1:] // the system prompt
	}
	question := 0 // the last of the user's messages in front
	for question+1 < min(len(items), len(own)) && items[question].Role == wire.User && items[question+1].Role == wire.User {
		question++
	}
	var cost int64
	for ; n < question && c.r.Offset <= 0 && wire.SameBytes(items[n].Raw, own[n].Raw); n++ {
		if limit > 0 {
			cost += c.price.of(n)
		}
		if cost > int64(limit/contextShare) || c.w.MaxItems > 0 && n >= int(c.w.MaxItems)/contextShare {
			break
		}
	}
	return n
}

// stays reports whether no cut leaves an item out. A compaction replaces everything before it.
func (c *chooser) stays(item int) bool {
	return item < c.front || c.r.Resolved[item].Kind == wire.Compaction
}

// staying returns what the items before one cost that no cut leaves out.
func (c *chooser) staying(before int) (sum int64) {
	if c.passed != nil {
		return c.passed[before]
	}
	for i := range before {
		if c.stays(i) {
			sum += c.price.of(i)
		}
	}
	return sum
}

// addUp makes staying cheap for any item.
func (c *chooser) addUp() {
	passed := make([]int64, 1, len(c.r.Items)+1)
	for i := range c.r.Items {
		sum := passed[i]
		if c.stays(i) {
			sum += c.price.of(i)
		}
		passed = append(passed, sum)
	}
	c.passed = passed
}

// hide marks hidden entries.
func (c *chooser) hide() {
	hidden := c.r.Hidden
	if len(hidden) != len(c.r.Items) || !slices.Contains(hidden, true) {
		return
	}
	c.seen = make([]int, len(c.entries)+1)
	for i := range c.entries {
		u := &c.entries[i]
		u.hidden = hidden[u.item]
		c.seen[i+1] = c.seen[i]
		if !u.hidden {
			c.seen[i+1]++
		}
	}
}

// before returns the number of visible entries before entry i.
func (c *chooser) before(i int) int {
	if c.seen == nil {
		return i
	}
	return c.seen[i]
}

// visible is the inverse of before: the visible entry after n others.
func (c *chooser) visible(n int) int {
	if c.seen == nil {
		return n
	}
	return sort.SearchInts(c.seen, n+1) - 1
}

// previous returns the present place of the previous cut; 0 if there is none, or it cannot be found.
func (c *chooser) previous() (at int, found bool) {
	cut := c.r.Previous
	if !c.w.Stateful() || cut.Key == (wire.Hash{}) {
		return 0, false
	}
	offset := uint64(max(0, c.r.Offset))
	if cut.Units < offset {
		return 0, true // before all that is here
	}
	item := slices.Index(c.names(), cut.Key)
	if item < 0 {
		return 0, false
	}
	at = sort.Search(len(c.entries), func(i int) bool { return c.entries[i].item >= item })
	// The count selects one of the parallel calls of a message.
	if within := int64(cut.Units) - int64(offset) - int64(c.before(at)); within > 0 && //nolint:gosec // compared with what a body has
		within < int64(len(c.entries)-at) && c.entries[at+int(within)].item == item {
		at += int(within)
	}
	return at, true
}

// replayEffort bounds how many entries replay looks at, as a multiple of all entries. A window that slides, or that what it cannot
// leave out exceeds, takes more.
const replayEffort = 16

// replay returns where views of the conversation's earlier requests began by the limit of tokens, worked out from its items: a request
// ended wherever an item of the model follows one of the client. So a conversation whose cuts are not stored is cut in the same steps
// as others, and keeps the provider's prompt cache between them. Beyond replayEffort the last cut found is returned.
//
// Each item is priced once, and each cut looks only at its window.
func (c *chooser) replay(limit int) (start int) {
	if c.fits(0, limit) {
		return 0
	}
	c.addUp()
	c.asked = questions(c.entries)
	early, r := *c, *c.r
	early.r, early.price.r = &r, &r
	whole := c.w.InFlight != InFlightWindow && c.w.MaxExpansion == 0 // the run in flight is never cut
	sum, pinned := int64(0), int64(0)                                // the costs of the window and of what is pinned before it
	effort := replayEffort * len(c.entries)
	for i := 1; i < len(c.entries); i++ {
		last := &c.entries[i-1]
		if last.item == c.entries[i].item {
			continue
		}
		sum += c.price.of(last.item)
		early.run = c.asked[i]
		if last.ofModel() || !c.entries[i].ofModel() || sum+pinned <= int64(limit) || whole && early.run >= 0 && start >= early.run {
			continue
		}
		if effort -= i - start; effort < 0 {
			break
		}
		early.entries, r.Items, r.Resolved = c.entries[:i], c.r.Items[:last.item+1], c.r.Resolved[:last.item+1]
		early.price.counted = c.price.counted[:len(r.Resolved)]
		next := early.keepUnread(early.byTokens(start, limit), start)
		for item := c.entries[start].item; item < c.entries[next].item; item++ {
			if !c.stays(item) {
				sum -= c.price.of(item)
			}
		}
		start, pinned = next, early.pinned(early.pinOf(next))
	}
	return start
}

// questions returns the last user message before each entry, -1 for none.
func questions(entries []entry) []int {
	last, asked := -1, make([]int, len(entries))
	for i := range entries {
		asked[i] = last
		if entries[i].role == wire.User {
			last = i
		}
	}
	return asked
}

// names returns the keys of the items, nil where they are not known.
func (c *chooser) names() []wire.Hash {
	if !c.named && c.r.Keys != nil {
		if keys := c.r.Keys(); len(keys) == len(c.r.Items) {
			c.keys = keys
		}
	}
	c.named = true
	return c.keys
}

// cutAt returns the WindowStart of a window that begins at start.
func (c *chooser) cutAt(start int) WindowStart {
	if start == 0 {
		return WindowStart{}
	}
	cut := WindowStart{Units: uint64(max(0, c.r.Offset) + c.before(start))} //nolint:gosec // not negative
	if c.w.Stateful() {
		if keys := c.names(); keys != nil && start < len(c.entries) {
			cut.Key = keys[c.entries[start].item]
		}
	}
	return cut
}

// byItems returns the beginning of the window by the limit of items. least is its previous beginning, if found.
func (c *chooser) byItems(least int, found bool) int {
	limit := int(c.w.MaxItems)
	if limit == 0 {
		return least
	}
	n := c.before(len(c.entries))
	want := c.w.cutAt(c.r.Offset+n) - c.r.Offset
	if c.w.Stateful() {
		kept, target := n-c.before(least), limit-c.w.EvictBatch+1
		switch {
		case c.r.Cold && kept > target:
			want = max(want, n-target)
		case found && kept <= limit:
			return least
		}
	}
	if want <= 0 {
		return 0
	}
	return c.settle(c.visible(want))
}

// settle returns a valid beginning for a window that should begin at start.
func (c *chooser) settle(start int) int {
	if c.w.InFlight == InFlightWindow {
		return c.snapToGroup(start, c.opening(start)+1)
	}

	if c.run >= 0 {
		start = min(start, c.run)
	}
	start = minimumExchange(c.entries, start)
	n := c.before(len(c.entries))
	if bound := c.w.MaxExpansion * int(c.w.MaxItems); bound > 0 && n-c.before(start) > bound {
		start = c.visible(n - bound)
		if c.run >= 0 && start > c.run {
			return c.snapToGroup(start, c.run+1)
		}
	}
	return withReasoning(c.entries, start)
}

// keepUnread moves start back to the latest calls, though not before least, if the model has not seen their results yet. These end
// most requests of an agent, but its user may have written while the tools ran, and that message begins another run.
func (c *chooser) keepUnread(start, least int) int {
	item := unread(c.r.Resolved)
	at := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].item >= item })
	last := at - 1 // of the model's entries before them
	for last >= least && !c.entries[last].ofModel() {
		last--
	}

	first := start
	for i := last; i >= least && c.entries[i].ofModel(); i-- {
		if c.partner[i] >= at {
			first = min(first, i)
		}
	}
	if first < start {
		for splits := grouped(c.entries, c.partner, least).splits(); splits[first-least]; first-- {
		}
	}
	return first
}

// pinOf returns the user message to send before a window that begins at start inside its run, -1 for none. It stays as long as
// the cut, so that a new run does not change the beginning of the view. With InFlightKeep only the current run has one.
func (c *chooser) pinOf(start int) int {
	if c.w.InFlight == InFlightWindow {
		return c.opening(start)
	}
	if start > c.run {
		return c.run
	}
	return -1
}

// opening returns the user message of the run that a cut at start is inside of, -1 for none.
func (c *chooser) opening(start int) int {
	switch {
	case start >= len(c.entries) || c.entries[start].role == wire.User:
		return -1
	case c.asked != nil:
		return c.asked[start]
	default:
		return lastUser(c.entries[:start])
	}
}

// lastUser returns the index of the last user message, -1 if there is none: the run in flight starts there.
func lastUser(entries []entry) int {
	for i, e := range slices.Backward(entries) {
		if e.role == wire.User {
			return i
		}
	}
	return -1
}

// minimumExchange moves start back until the window has a user and an assistant message, if the history has them.
func minimumExchange(entries []entry, start int) int {
	var user, assistant bool
	see := func(u entry) bool {
		if u.Kind != wire.Message {
			return false
		}
		missing := (u.role == wire.User && !user) || (u.role == wire.Assistant && !assistant)
		user = user || u.role == wire.User
		assistant = assistant || u.role == wire.Assistant
		return missing
	}
	for _, u := range entries[start:] {
		see(u)
	}
	for i := start - 1; i >= 0 && (!user || !assistant); i-- {
		if see(entries[i]) {
			start = i
		}
	}
	return start
}

// snapToGroup moves start to the next place, not before low, that splits no group: forward, so that the limit is kept, or back
// if the last group reaches to the end.
func (c *chooser) snapToGroup(start, low int) int {
	splits := grouped(c.entries, c.partner, low).splits()
	for i := start; i < len(c.entries); i++ {
		if !splits[i-low] {
			return i
		}
	}
	for i := start - 1; i > low; i-- {
		if !splits[i-low] {
			return i
		}
	}
	return low
}

// withReasoning moves start back to the reasoning that led to the item there: upstream refuses an item with an id but without
// its reasoning.
func withReasoning(entries []entry, start int) int {
	for i := start; i > 0 && entries[i].ofModel(); i-- {
		if entries[i-1].Kind == wire.Reasoning {
			for start = i - 1; start > 0 && entries[start-1].Kind == wire.Reasoning; start-- {
			}
			return start
		}
	}
	return start
}

// byTokens returns the beginning of the window by the limit of tokens; start is its beginning otherwise.
func (c *chooser) byTokens(start, limit int) int {
	inside := c.w.InFlight == InFlightWindow || c.run < 0
	if !inside && c.w.MaxExpansion > 0 && limit <= math.MaxInt/c.w.MaxExpansion {
		if bound := limit * c.w.MaxExpansion; !c.fits(max(start, c.run), bound) {
			inside, limit = true, bound
		}
	}
	if !inside && start >= c.run {
		return start
	}
	target := limit - int(float64(limit)*c.w.EvictShare)
	if c.fits(start, limit) && (!c.r.Cold || c.fits(start, target)) {
		return start
	}
	last := len(c.entries)
	if !inside {
		last = c.run
	}
	return c.cutTo(start, last, int64(target), int64(limit))
}

// fits reports whether a window from start, with the entry pinned before it, costs at most limit.
func (c *chooser) fits(start, limit int) bool {
	first, free := c.entries[start].item, int64(limit)
	free -= c.staying(first) + c.pinned(c.pinOf(start))
	return free >= 0 && c.price.within(first, free)
}

// pinned returns what a pinned entry costs, 0 for none.
func (c *chooser) pinned(pin int) int64 {
	if pin < 0 {
		return 0
	}
	return c.price.of(c.entries[pin].item)
}

// cutTo returns the first place between two entries for a cut that leaves at most target tokens and splits no group. If less
// than half of target would remain without a group, the group stays up to limit: it is usually a large result that was just
// requested. If no cut fits, it returns the last one.
func (c *chooser) cutTo(first, last int, target, limit int64) int {
	best, left := first, int64(-1) // the place found, and what a cut there leaves
	for i, cost := range c.places(first, last, limit) {
		if left >= 0 && cost > target {
			if 2*left < target && cost <= limit {
				return i
			}
			return best
		}
		best, left = i, cost
		if cost > target {
			break
		}
	}
	return best
}

// places returns the entries between first and last at which a cut splits no group, with the remaining tokens, from the last
// on. Counting stops above limit.
func (c *chooser) places(first, last int, limit int64) iter.Seq2[int, int64] {
	return func(yield func(int, int64) bool) {
		splits, pins := grouped(c.entries, c.partner, first).splits(), c.pins(first)
		sum := c.staying(len(c.r.Items))
		for i := len(c.entries) - 1; i >= first; i-- {
			item := c.entries[i].item
			if i > first && c.entries[i-1].item == item {
				continue
			}
			if sum <= limit && !c.stays(item) {
				sum += c.price.of(item)
			}
			if i > last || i < last && splits[i-first] {
				continue
			}
			if !yield(i, sum+c.pinned(pins[i-first])) {
				return
			}
		}
	}
}

// pins are pinOf for every entry from first on.
func (c *chooser) pins(first int) []int {
	pins := make([]int, len(c.entries)-first)
	inside := c.w.InFlight == InFlightWindow
	opened := c.pinOf(first)
	for i := range pins {
		pins[i] = opened
		if at := first + i; c.entries[at].role == wire.User && (inside || at == c.run) {
			pins[i], opened = -1, at
		}
	}
	return pins
}
