package memory

import (
	"context"
	"errors"
	"hash/maphash"

	"remora/cache"
)

// sessionLocks serialise the commits of a session in this process. They are striped by session.
type sessionLocks struct {
	seed  maphash.Seed
	locks [256]chan struct{}
}

func newSessionLocks() *sessionLocks {
	l := &sessionLocks{seed: maphash.MakeSeed()}
	for i := range l.locks {
		l.locks[i] = make(chan struct{}, 1)
	}
	return l
}

var errBusy = errors.New("too many turns of this session commit at once")

// lock waits until no other turn of the session commits. The lock is given back by a receive from held.
func (l *sessionLocks) lock(ctx context.Context, g cache.Group) (held <-chan struct{}, err error) {
	at := maphash.String(l.seed, g.Owner) + maphash.String(l.seed, g.Name)
	one := l.locks[at%uint64(len(l.locks))]
	select {
	case one <- struct{}{}:
		return one, nil
	default:
	}
	select {
	case one <- struct{}{}:
		return one, nil
	case <-ctx.Done():
		return nil, errBusy
	}
}
