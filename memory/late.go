package memory

import (
	"context"
)

// Late is a turn with a background answer.
type Late struct {
	m     *Memory
	scope Scope
	turn  string
	id    string // of the answer
}

// ID returns the turn's id.
func (l *Late) ID() string { return l.turn }

// Commit puts the answer into the transcript if it is complete. If the store fails, the next request for the answer retries it.
func (l *Late) Commit(a Answer) {
	group := l.scope.Group()
	if a.HTTPStatus >= 300 || !a.Reply.Complete || l.m.outages.available(group) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.m.o.CommitWait)
	defer cancel()
	held, err := l.m.locks.lock(ctx, group)
	if err == nil {
		err = l.m.log.Later(ctx, l.scope, l.turn, l.id, &a)
		<-held
	}
	if err != nil {
		l.m.outages.failed(err)
		l.m.o.Log.Warn("an answer that was made in the background is not in the transcript until it is fetched again", "turn", l.turn, "error", err.Error())
	}
}
