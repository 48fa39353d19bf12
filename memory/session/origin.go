package session

import (
	"cmp"
	"slices"
	"time"

	"remora/memory/turnrecord"
	"remora/wire"
)

// Origin is the upstream that made an item or, for a client's item, that got it first.
type Origin struct {
	Provider, Model string
	// Kept reports whether that upstream stores the item, so that later requests may refer to its id.
	Kept bool
}

// maxOrigin is the longest name of a provider or of a model that is stored with an item, in bytes.
const maxOrigin = 256

func newOrigin(provider, model string, kept bool) Origin {
	return Origin{originName(provider), originName(model), kept}
}

func originName(name string) string { return name[:min(len(name), maxOrigin)] }

// Stores reports whether upstream stores the answer to a request. In Responses it does unless the client forbids it.
func Stores(r *wire.Request) bool { return string(r.Member("store")) != "false" }

// target returns the upstream of a request, as far as known before the answer.
func (c *Call) target() Origin {
	return newOrigin(c.Provider, c.Request.Model(), Stores(c.Request))
}

// maker returns the upstream that gave an answer. Kept is set only if the answer has ended.
func (c *Call) maker(a *Answer) Origin {
	o := c.target()
	if a == nil {
		return o
	}
	o.Provider, o.Model = cmp.Or(originName(a.Provider), o.Provider), cmp.Or(originName(a.Model), o.Model)
	o.Kept = o.Kept && a.status() == turnrecord.Complete
	return o
}

// adapter converts stored items to a form that the upstream of a turn accepts.
type adapter struct {
	place   *Place
	started time.Time              // of the turn
	changed map[*byte]wire.Meaning // of the items that are sent in another form, by the address of their bytes
}

// adapt converts items that one upstream made together, at the index of each; nil for an item that the turn's upstream does not
// accept.
func (a *adapter) adapt(made Origin, items []wire.Item) []*wire.Item {
	return a.adaptWith(made, items, a.reach(made, items), func(_ int, it wire.Item) wire.Item { return it })
}

// adaptHidden does the same for hidden items. Servers that parse the arguments of calls refuse those of a cut answer, and the
// client could not repair them.
func (a *adapter) adaptHidden(made Origin, items []wire.Item) []*wire.Item {
	return a.adaptWith(made, items, a.reach(made, items), func(_ int, it wire.Item) wire.Item { return it.WithObjectArguments() })
}

// adaptData does the same for items of which some make calls that are data: these become text. Reasoning and ids cannot stay in
// such an answer, since they belong to the calls.
func (a *adapter) adaptData(made Origin, items []wire.Item, data []bool) []*wire.Item {
	return a.adaptWith(made, items, max(a.reach(made, items), wire.OtherModel), func(i int, it wire.Item) wire.Item {
		if data[i] {
			return it.CallsAsText()
		}
		return it
	})
}

func (a *adapter) adaptWith(made Origin, items []wire.Item, reach wire.Reach, mend func(int, wire.Item) wire.Item) []*wire.Item {
	call, out := &a.place.call, make([]*wire.Item, len(items))
	// Where no reasoning that upstream knows binds the ids, readable items stay unchanged next to those that it cannot find.
	readable := reach == wire.Unnamed && (!slices.ContainsFunc(items, isReasoning) || !made.Kept && slices.ContainsFunc(items, isSealed))
	for i, it := range items {
		reach := reach
		if readable && !IsLookedUp(it) || it.IsImage() && it.Dialect != call.Request.Dialect {
			reach = wire.Near // an image of another dialect becomes words, whoever made it
		}
		to, ok := sentBack(it, func(sound wire.Audio) bool {
			here := it.Dialect == call.Request.Dialect && made.Provider != "" && made.Provider == call.Provider
			return here && sound.Expires > a.started.Add(audioSpare).Unix()
		})
		if ok {
			to, ok = to.Portable(reach)
		}
		if !ok {
			continue
		}
		to = mend(i, to)
		out[i] = &to
		if !wire.SameBytes(to.Raw, it.Raw) {
			if a.changed == nil {
				a.changed = make(map[*byte]wire.Meaning)
			}
			a.changed[&to.Raw[0]] = a.place.in.mark(it).Meaning
		}
	}
	return out
}

// sentBack returns an item as the upstream that made it accepts it in a later request, and false if nothing remains. kept is that of
// wire.Item.AsInput.
func sentBack(it wire.Item, kept func(wire.Audio) bool) (wire.Item, bool) {
	it, ok := it.WithoutThoughts().AsInput(kept)
	return it.WithoutMarks(), ok
}

// audioSpare is how much longer upstream must store the audio of an answer that a request refers to.
const audioSpare = time.Minute

// reach classifies the origin of items that were made together, relative to the turn's upstream. Ids bind the items of an
// answer to its reasoning: if that cannot be sent, no item is sent by its id.
func (a *adapter) reach(made Origin, items []wire.Item) wire.Reach {
	to := a.place.call.target()
	switch {
	case made.Provider != to.Provider:
		return wire.OtherProvider
	case made.Model != to.Model:
		return wire.OtherModel
	case made.Kept && to.Kept || !slices.ContainsFunc(items, IsLookedUp):
		return wire.Near
	default:
		return wire.Unnamed
	}
}

// adaptLine converts the stored history to a form that upstream accepts, and leaves out the rest. If nothing changes, it
// returns the line itself.
func (a *adapter) adaptLine(stored *storedLine) *storedLine {
	out := &storedLine{skipped: stored.skipped}
	same, data := true, a.data(stored)
	for from := 0; from < len(stored.items); {
		to := from + 1
		for ; to < len(stored.items) && stored.as[to].Made == stored.as[from].Made && stored.as[to].Turn == stored.as[from].Turn; to++ {
		}
		made, items := stored.as[from].Made, stored.items[from:to]
		var adapted []*wire.Item
		if data != nil && slices.Contains(data[from:to], true) {
			adapted = a.adaptData(made, items, data[from:to])
		} else {
			adapted = a.adaptWith(made, items, a.reach(made, items), func(i int, it wire.Item) wire.Item {
				if at := from + i; at > 0 {
					return withoutReasoning(it, stored.items[at-1])
				}
				return it
			})
		}
		for i, it := range adapted {
			if it == nil {
				same = false
				continue
			}
			at := from + i
			same = same && wire.SameBytes(it.Raw, stored.items[at].Raw)
			out.add(*it, stored.as[at])
		}
		from = to
	}
	if same {
		return stored
	}
	return out
}

// withoutReasoning returns an answer without its reasoning if it follows a user message directly. After calls some upstreams want to
// have it.
func withoutReasoning(it, before wire.Item) wire.Item {
	if before.Kind == wire.Message && before.Role == wire.User {
		return it.WithoutReasoning()
	}
	return it
}

// data returns which items of the stored history have calls that are data: the request demanded them, no result ever came, and
// the user speaks next. It is nil if there are none.
func (a *adapter) data(stored *storedLine) (data []bool) {
	demanded := func(at *storedItem) bool { return at.Flags&flagData != 0 }
	if !slices.ContainsFunc(stored.as, demanded) {
		return nil
	}
	answered, user := make(map[string]bool), false // calls whose result stands after an item; a user speaks after its answer
	walk := func(it wire.Item) (isData bool) {
		switch {
		case it.Kind == wire.ToolResult:
			answered[it.Answers().Key()], user = true, false
		case it.HasCalls():
			isData = user && unanswered(it, answered)
		case it.Kind == wire.Message && it.Role != wire.Assistant:
			user = it.Role == wire.User
		default:
		}
		return isData
	}
	for _, it := range slices.Backward(a.place.in.items) {
		walk(it)
	}
	data = make([]bool, len(stored.items))
	for i, it := range slices.Backward(stored.items) {
		data[i] = walk(it) && demanded(stored.as[i])
	}
	return data
}

// unanswered reports whether none of an item's calls is among those whose result stands after it, and removes them from these.
func unanswered(it wire.Item, answered map[string]bool) bool {
	without := true
	for _, call := range it.Calls() {
		without = without && !answered[call.Key()]
		delete(answered, call.Key())
	}
	return without
}

// meaning returns the transcript's Meaning of an item of a conversation.
func (a *adapter) meaning(it wire.Item) wire.Meaning {
	if m, ok := a.changed[&it.Raw[0]]; ok {
		return m
	}
	return a.place.in.mark(it).Meaning
}

// IsLookedUp reports whether an item is only an id: upstream must have stored the item to accept it.
func IsLookedUp(it wire.Item) bool {
	switch it.Kind {
	case wire.Reference:
		return true
	case wire.Reasoning:
		return !isSealed(it)
	case wire.Other:
		return it.IsImage()
	default:
		return false
	}
}

func isReasoning(it wire.Item) bool { return it.Kind == wire.Reasoning }

// isSealed reports whether an item is encrypted reasoning, which its maker can read.
func isSealed(it wire.Item) bool {
	return it.Kind == wire.Reasoning && wire.Text(wire.Member(it.Raw, "encrypted_content")) != ""
}
