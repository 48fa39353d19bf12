package redis

import (
	"context"
	"sync"
	"time"

	"remora/cache"
)

const (
	// indexRetry is the interval at which failed entries are retried, and for which new ones are not sent to that server.
	indexRetry = time.Second
	// maxUnlisted bounds the waiting entries. Beyond it, a commit fails if its entry does.
	maxUnlisted = 1 << 16
)

// unlisted holds index entries that could not be written. The index of an owner is on one server of a cluster, the owner's groups
// are on all servers: while the index's server is unavailable, groups on other servers are written, and their entries later. If
// the process dies before that, a group's next commit writes its entry.
type unlisted struct {
	enter func(context.Context, []op) // sends the entries
	work  sync.WaitGroup

	mu     sync.Mutex
	groups map[cache.Group]struct{}
	shards map[string]struct{} // servers that failed to write an entry since the last retry
	timer  *time.Timer         // of the retry, nil if no entry waits
	closed bool
}

// away reports whether the server of an index failed since the last retry. Commits do not wait for it then.
func (u *unlisted) away(shard string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.shards[shard]
	return ok
}

// add stores an entry for later. It reports whether there was room for it.
func (u *unlisted) add(shard string, g cache.Group) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || len(u.groups) >= maxUnlisted {
		return false
	}
	if u.groups == nil {
		u.groups, u.shards = map[cache.Group]struct{}{}, map[string]struct{}{}
	}
	u.groups[g], u.shards[shard] = struct{}{}, struct{}{}
	if u.timer == nil {
		u.work.Add(1)
		u.timer = time.AfterFunc(indexRetry, u.retry) //nolint:forbidigo // wakes; no clock is read
	}
	return true
}

// drop removes the entry of a group that was deleted.
func (u *unlisted) drop(g cache.Group) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.groups, g)
}

// retry sends all waiting entries.
func (u *unlisted) retry() {
	defer u.work.Done()
	u.mu.Lock()
	groups := u.groups
	u.groups, u.shards, u.timer = nil, nil, nil
	u.mu.Unlock()
	ops := make([]op, 0, len(groups))
	names := make([]cache.Group, 0, len(groups))
	for g := range groups {
		ops, names = append(ops, indexOp(g)), append(names, g)
	}
	ctx, cancel := context.WithTimeout(context.Background(), indexRetry)
	defer cancel()
	u.enter(ctx, ops)
	for i, o := range ops {
		if o.err != nil {
			u.add(o.shard, names[i])
		}
	}
}

// close sends the waiting entries a last time, and waits until no retry runs.
func (u *unlisted) close() {
	u.mu.Lock()
	u.closed = true
	last := u.timer != nil && u.timer.Stop()
	u.mu.Unlock()
	if last {
		u.retry()
	}
	u.work.Wait()
}
