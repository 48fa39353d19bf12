package session

import (
	"slices"
	"time"

	"remora/memory/turnrecord"
	"remora/wire"
)

// Origin is the upstream that made an item or, of what a client said, the one that was asked with it first.
type Origin struct {
	Provider, Model string
	// Kept reports whether that upstream keeps the item, so that later requests may refer to it by its id.
	Kept bool
}

// maxOrigin is the longest name of a provider or of a model that is stored with an item, in bytes.
const maxOrigin = 256

func newOrigin(provider, model string, kept bool) Origin {
	return Origin{provider[:min(len(provider), maxOrigin)], model[:min(len(model), maxOrigin)], kept}
}

// Stores reports whether a request lets upstream keep its answer. Responses does unless the client forbids it.
func Stores(r *wire.Request) bool { return string(r.Member("store")) != "false" }

// target is where a request goes, as far as is known before there is an answer.
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

// adapter makes of items that were stored what the upstream of a turn accepts.
type adapter struct {
	place   *Place
	started time.Time              // of the turn
	changed map[*byte]wire.Meaning // of the items that are sent otherwise than they are stored, by where their bytes are
}

// adapt makes of items that one upstream made together what the turn's upstream accepts, at the index of each; nil where
// it accepts nothing of one.
func (a *adapter) adapt(made Origin, items []wire.Item) []*wire.Item {
	return a.adaptWith(made, items, func(it wire.Item) wire.Item { return it })
}

// adaptHidden does so for items that the client does not see. Servers that parse the arguments of calls refuse what a cut
// answer left of them, and the client could not mend it.
func (a *adapter) adaptHidden(made Origin, items []wire.Item) []*wire.Item {
	return a.adaptWith(made, items, wire.Item.WithObjectArguments)
}

func (a *adapter) adaptWith(made Origin, items []wire.Item, mend func(wire.Item) wire.Item) []*wire.Item {
	call, out := &a.place.call, make([]*wire.Item, len(items))
	reach := a.reach(made, items)
	// Upstream knows none of these ids: what it can read stays as it is beside what it can't find.
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
		to = mend(to)
		out[i] = &to
		if &to.Raw[0] != &it.Raw[0] {
			if a.changed == nil {
				a.changed = make(map[*byte]wire.Meaning)
			}
			a.changed[&to.Raw[0]] = a.place.in.mark(it).meaning()
		}
	}
	return out
}

// audioSpare is how much longer than now upstream must keep the sound of an answer that a request refers to.
const audioSpare = time.Minute

// reach is how far items that were made together are from the turn's upstream. Ids that upstream knows bind the items of
// an answer to its reasoning: where that can't be sent, none of them goes by its id.
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

// adaptLine makes of the stored history what upstream accepts in a request, and leaves out the rest. Where nothing changes,
// it returns the line itself.
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
			same = same && &it.Raw[0] == &stored.items[at].Raw[0]
			out.add(*it, stored.as[at])
		}
		from = to
	}
	if same {
		return stored
	}
	return out
}

// meaning is what an item of a conversation means in the transcript.
func (a *adapter) meaning(it wire.Item) wire.Meaning {
	if m, ok := a.changed[&it.Raw[0]]; ok {
		return m
	}
	return a.place.in.mark(it).meaning()
}

// IsLookedUp reports whether an item is no more than an id to upstream: it has to have kept the item to accept it.
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

// isSealed reports whether an item is reasoning that its maker can read again.
func isSealed(it wire.Item) bool {
	return it.Kind == wire.Reasoning && wire.Text(wire.Member(it.Raw, "encrypted_content")) != ""
}
