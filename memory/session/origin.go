package session

import (
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
	return Origin{provider[:min(len(provider), maxOrigin)], model[:min(len(model), maxOrigin)], kept}
}

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
	if a.Provider != "" {
		o.Provider = newOrigin(a.Provider, "", false).Provider
	}
	if a.Model != "" {
		o.Model = newOrigin("", a.Model, false).Model
	}
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
	return a.adaptWith(made, items, func(it wire.Item) wire.Item { return it })
}

// adaptHidden does the same for hidden items. Servers that parse the arguments of calls refuse those of a cut answer, and the
// client could not repair them.
func (a *adapter) adaptHidden(made Origin, items []wire.Item) []*wire.Item {
	return a.adaptWith(made, items, wire.Item.WithObjectArguments)
}

func (a *adapter) adaptWith(made Origin, items []wire.Item, mend func(wire.Item) wire.Item) []*wire.Item {
	call, out := &a.place.call, make([]*wire.Item, len(items))
	reach := a.reach(made, items)
	// Upstream knows none of these ids: readable items stay unchanged next to those that it cannot find.
	readable := reach == wire.Unnamed && !made.Kept && slices.ContainsFunc(items, isSealed)
	for i, it := range items {
		reach := reach
		if readable && !IsLookedUp(it) {
			reach = wire.Near
		}
		to, ok := it.AsInput(func(sound wire.Audio) bool {
			here := it.Dialect == call.Request.Dialect && made.Provider != "" && made.Provider == call.Provider
			return here && sound.Expires > a.started.Add(audioSpare).Unix()
		})
		if ok {
			to, ok = to.Portable(reach)
		}
		if !ok {
			continue
		}
		to = mend(to.WithoutMarks())
		out[i] = &to
		if !wire.SameBytes(to.Raw, it.Raw) {
			if a.changed == nil {
				a.changed = make(map[*byte]wire.Meaning)
			}
			a.changed[&to.Raw[0]] = a.place.in.mark(it).meaning()
		}
	}
	return out
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
	out := &storedLine{want: stored.want, skipped: stored.skipped}
	same := true
	for from := 0; from < len(stored.items); {
		to := from + 1
		for ; to < len(stored.items) && stored.as[to].Made == stored.as[from].Made && stored.as[to].Turn == stored.as[from].Turn; to++ {
		}
		for i, it := range a.adapt(stored.as[from].Made, stored.items[from:to]) {
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

// meaning returns the transcript's Meaning of an item of a conversation.
func (a *adapter) meaning(it wire.Item) wire.Meaning {
	if m, ok := a.changed[&it.Raw[0]]; ok {
		return m
	}
	return a.place.in.mark(it).meaning()
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

// isSealed reports whether an item is encrypted reasoning, which its maker can read.
func isSealed(it wire.Item) bool {
	return it.Kind == wire.Reasoning && wire.Text(wire.Member(it.Raw, "encrypted_content")) != ""
}
