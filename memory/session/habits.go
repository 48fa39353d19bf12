package session

import (
	"slices"

	"remora/wire"
)

// habit is the behaviour of a kind of client: it resends the history, or sends only new items.
type habit struct {
	Dialect wire.Dialect
	Client  uint64 // see offer.Client
	Resends bool
}

// habits are those of the clients of a session, the latest last. They are not changed in place.
type habits []habit

// evidence is what a request reveals about its client's habit.
type evidence uint8

const (
	noEvidence evidence = iota
	onlyNew             // it sends only what is new
	resends             // it sends the history again
)

// of returns the known habit of a kind of client, or else of the latest client of its dialect. Requests of one program may or
// may not have tools, and agents hand off to others, but all of them treat the history alike.
func (hs habits) of(d wire.Dialect, client uint64) evidence {
	found := noEvidence
	for _, k := range hs {
		if k.Dialect != d {
			continue
		}
		if found = onlyNew; k.Resends {
			found = resends
		}
		if k.Client == client {
			break
		}
	}
	return found
}

// have reports whether a kind of client has shown a habit of its own.
func (hs habits) have(d wire.Dialect, client uint64) bool {
	return slices.ContainsFunc(hs, func(k habit) bool { return k.Dialect == d && k.Client == client })
}

// learn returns the habits with a request's evidence.
func (hs habits) learn(d wire.Dialect, client uint64, e evidence) habits {
	now := habit{Dialect: d, Client: client, Resends: e == resends}
	if e == noEvidence || len(hs) > 0 && hs[len(hs)-1] == now {
		return hs
	}
	others := slices.DeleteFunc(slices.Clone(hs), func(k habit) bool { return k.Dialect == d && k.Client == client })
	return append(others, now)[max(0, len(others)+1-maxHabits):]
}
