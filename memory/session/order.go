package session

import (
	"errors"
	"slices"
)

// Pending is a turn that has begun and is not completely in the log. The head lists it, so that every process sees it.
type Pending struct {
	Turn  string // its id
	Owner uint64 // the process that serves it
	// Parked: it was answered, and waits for an earlier turn. Its record is stored with the session.
	Parked bool
}

const (
	// maxPending is the number of turns that the head lists. Turns do not wait for others beyond it.
	maxPending = 16
	// journalPrefix and a turn's id name the record of a parked turn.
	journalPrefix = "j"
	// asidePrefix and a turn's id name a record that makes no sense.
	asidePrefix = journalPrefix + "aside "
	// steadyTurns is the number of turns of one process after which the next one is expected there, too.
	steadyTurns = 8
)

// ErrEarlierOpen is returned by [Entry.Commit] for a turn after the stored history while an earlier turn of the session is
// open in another process. See [Entry.Park].
var ErrEarlierOpen = errors.New("an earlier turn of the session is open in another process")

// ErrNoRoom is returned by [Entry.Park] if too many turns of the session wait.
var ErrNoRoom = errors.New("too many turns of the session wait for an earlier one")

// Order keeps a turn behind earlier turns of its session in other processes.
type Order struct {
	place *Place
	turn  string // its id
	owner uint64 // this process, 0 if no other uses the store

	seen  []string // turns that the head listed when the view was made
	ended []uint64 // dead processes: turns do not wait for theirs

	// Resumed: the turn waited, in the spool or in its session, and its record was read. The head may have moved on since.
	Resumed bool
	// Partial: the view lacks turns that may have been answered before this one began, or was made without the store.
	Partial bool
	// Abandoned: the process that served the turn has ended. Its answer will not come, and no turn waits for it.
	Abandoned bool
	// Waits: the turn waits for one that the head does not list. Another process has it, and could not store it yet.
	Waits bool
	// GoesAhead: the turn is written although an earlier one is open.
	GoesAhead bool
}

// look records the turns that the head lists when the view is made.
func (o *Order) look() {
	o.seen = nil
	for _, p := range o.place.state.head.Pending {
		o.seen = append(o.seen, p.Turn)
	}
}

// UsesHistory reports whether the turn's view uses stored history, which other processes may change.
func (o *Order) UsesHistory() bool { return o.owner != 0 && o.place.usesHistory() }

// Earlier returns the turns that belong before this one and are not in the log: open in other processes, or parked.
// There are none if the turn does not use the stored history. They are in the head's order, since the clocks of
// processes differ.
func (o *Order) Earlier() (list []Pending) {
	h := o.place.state.head
	if len(h.Pending) == 0 || !o.place.usesHistory() {
		return nil
	}
	own := h.Pending.at(o.turn)
	for i, p := range h.Pending {
		before := i < own || own < 0 && (slices.Contains(o.seen, p.Turn) || (o.Resumed || o.Partial) && p.Turn < o.turn)
		if before && (p.Parked || p.Owner != o.owner && !slices.Contains(o.ended, p.Owner)) {
			list = append(list, p)
		}
	}
	return list
}

// Ended marks processes as dead: turns do not wait for theirs.
func (o *Order) Ended(owners ...uint64) {
	for _, owner := range owners {
		if !slices.Contains(o.ended, owner) {
			o.ended = append(o.ended, owner)
		}
	}
}

// hasEnded reports whether an open turn will never be answered.
func (o *Order) hasEnded(p Pending) bool { return !p.Parked && slices.Contains(o.ended, p.Owner) }

// OpensAtOnce reports whether the head should list the turn as soon as it is sent: the client's next request may go to another
// process, which relies on the store.
func (o *Order) OpensAtOnce() bool {
	if o.owner == 0 || !o.place.loaded || !o.place.usesHistory() {
		return false
	}
	h := o.place.state.head
	return h.Writer != o.owner || h.Streak < steadyTurns || len(h.Pending) > 0
}

// IsPending reports whether the head lists the turn as open, so that other processes see it.
func (o *Order) IsPending() bool { return o.place.state.head.Pending.at(o.turn) >= 0 }

// mustWait reports whether the turn must not be written yet.
func (o *Order) mustWait() bool {
	return o.owner != 0 && !o.GoesAhead && (o.Waits && o.place.usesHistory() || len(o.Earlier()) > 0)
}

// OthersParked reports whether other turns are parked, which may have waited for this one to be written.
func (o *Order) OthersParked() bool {
	return slices.ContainsFunc(o.place.state.head.Pending, func(p Pending) bool { return p.Parked && p.Turn != o.turn })
}

// park marks the turn in a head as answered and waiting. It returns false if too many wait.
func (o *Order) park(h *head) bool {
	h.Pending = slices.DeleteFunc(h.Pending, o.hasEnded)
	return h.Pending.add(Pending{Turn: o.turn, Owner: o.owner, Parked: true}, o.Resumed)
}

// update marks the turn in a head as open or written; wasParked reports whether a record of it waited.
func (o *Order) update(h *head, open bool) (wasParked bool) {
	h.Pending = slices.DeleteFunc(h.Pending, o.hasEnded)
	switch {
	case !open:
		wasParked = h.Pending.remove(o.turn)
		if o.owner != 0 {
			h.wrote(o.owner)
		}
	case o.Abandoned:
		h.Pending.remove(o.turn)
	case o.owner != 0 && o.place.plan.standing == InConversation:
		h.Pending.add(Pending{Turn: o.turn, Owner: o.owner}, o.Resumed)
	}
	return wasParked
}

// pendingTurns are the turns that the head lists, in order.
type pendingTurns []Pending

// at returns the index of a turn, or -1.
func (ps pendingTurns) at(turn string) int {
	return slices.IndexFunc(ps, func(p Pending) bool { return p.Turn == turn })
}

// isParked reports whether a turn is listed and parked.
func (ps pendingTurns) isParked(turn string) bool {
	i := ps.at(turn)
	return i >= 0 && ps[i].Parked
}

// add adds a turn after the others or, with sorted, before those that began later. It returns false if there are too many.
func (ps *pendingTurns) add(p Pending, sorted bool) bool {
	list := *ps
	if i := list.at(p.Turn); i >= 0 {
		list[i] = p
		return true
	}
	if len(list) >= maxPending {
		return false
	}
	at := len(list)
	for sorted && at > 0 && list[at-1].Turn > p.Turn {
		at--
	}
	*ps = slices.Insert(list, at, p)
	return true
}

// remove removes a turn, and reports whether it was parked.
func (ps *pendingTurns) remove(turn string) (parked bool) {
	i := ps.at(turn)
	if i < 0 {
		return false
	}
	parked = (*ps)[i].Parked
	*ps = slices.Delete(*ps, i, i+1)
	return parked
}
