// Package redis is a store in Redis, for any number of replicas: one server, the master of Sentinels, or a cluster. All calls go
// through one batcher per server, so that concurrent requests share round trips. Start at [Open].
package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"remora/cache"
)

// A group is one hash. Its fields are the version, a mark for listed groups, and the caller's values, whose names have a dot as
// prefix.
const (
	versionField = "v"
	listedField  = "l"
	valueMark    = "."
)

// Store uses one server, the master of Sentinels, or a cluster.
type Store struct {
	client redis.UniversalClient
	lanes  lanes
	gate   cache.Gate
	// late holds index entries that could not be written yet.
	late unlisted
}

var _ cache.Store = (*Store)(nil)

// Open opens a store by its URL. scheme is redis, rediss, redis+sentinel, rediss+sentinel, redis+cluster or rediss+cluster,
// rest the part of the URL after the colon. It contacts no server. Errors name the configuration key and never contain a
// password.
func Open(scheme, rest string, o cache.Options) (*Store, error) {
	o = o.WithDefaults()
	t, err := parseURL(scheme, rest, o)
	if err != nil && strings.HasPrefix(err.Error(), "store.tls") {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open store: store.url %s://...: %w", scheme, err)
	}

	// go-redis would print every failed dial to stderr; callers get the error anyway.
	logging.Disable()
	s := &Store{client: t.open()}
	s.late.enter = s.run
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		s.lanes.cluster = c
	case *redis.Client:
		s.lanes.only = newLane("", c)
	default:
		panic("BUG: unknown Redis client")
	}
	return s, nil
}

// Read implements [cache.Store].
func (s *Store) Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
	if err := s.gate.Enter(); err != nil {
		return nil, err
	}
	defer s.gate.Leave()
	ops := make([]op, len(queries))
	for i, q := range queries {
		ops[i] = readOp(q)
	}
	s.run(ctx, ops)
	out := make([]cache.Result, len(queries))
	for i, q := range queries {
		if ops[i].err != nil {
			return nil, fmt.Errorf("read groups from redis: %w", ops[i].err)
		}
		var err error
		if out[i], err = ops[i].result(len(q.Names)); err != nil {
			return nil, cache.Faulty(cache.FaultKey, fmt.Errorf("read groups from redis: %w", err))
		}
	}
	return out, nil
}

func readOp(q cache.Query) op {
	args := make([]any, 0, 3+len(q.Names))
	key := groupKey(q.Group)
	args = append(args, "hmget", key, versionField)
	fields := markNames(q.Names)
	for i := range fields {
		args = append(args, &fields[i])
	}
	return op{key: key, args: args, readOnly: true}
}

// markNames returns the hash fields of values, in one allocation. go-redis accepts pointers to strings, which saves an allocation
// each.
func markNames(names []string) []string {
	n := 0
	for _, name := range names {
		n += len(valueMark) + len(name)
	}
	var b strings.Builder
	b.Grow(n)
	for _, name := range names {
		b.WriteString(valueMark)
		b.WriteString(name)
	}
	all, out := b.String(), make([]string, len(names))
	for i, name := range names {
		n := len(valueMark) + len(name)
		out[i], all = all[:n], all[n:]
	}
	return out
}

// Commit implements [cache.Store].
func (s *Store) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	if err := s.gate.Enter(); err != nil {
		return cache.AllFailed(len(batches), err)
	}
	defer s.gate.Leave()
	ops := make([]op, 0, 2*len(batches))
	for _, b := range batches {
		ops = append(ops, commitOp(b))
	}
	for _, b := range batches {
		// Every commit writes the entry again, which costs Redis one look-up: this restores lost entries.
		if b.Listed && !s.enterLater(b.Group) { //nolint:contextcheck // nothing is sent
			ops = append(ops, indexOp(b.Group))
		}
	}
	s.run(ctx, ops)

	out := make([]cache.Outcome, len(batches))
	entries := ops[len(batches):]
	for i, b := range batches {
		out[i] = outcome(ops[i])
		if ops[i].err == nil { // else the command may still be running
			ops[i].frame.release()
		}
		if len(entries) > 0 && b.Listed && entries[0].group == b.Group {
			if out[i].Err == nil && entries[0].err != nil && !s.tookLate(entries[0]) {
				out[i] = cache.Outcome{Err: entries[0].err}
			}
			entries = entries[1:]
		}
		if err := out[i].Err; err != nil && !errors.Is(err, cache.ErrConflict) {
			out[i].Err = cache.Faulty(cache.FaultKey, fmt.Errorf("commit group to redis: %w", err))
		}
	}
	return out
}

// enterLater queues the index entry of a group if the server of its index failed recently, and reports whether it did. An entry
// for a group whose commit fails is harmless: see List.
func (s *Store) enterLater(g cache.Group) bool {
	shard := s.lanes.shard(indexKey(g.Owner))
	return s.late.away(shard) && s.late.add(shard, g)
}

// tookLate queues an index entry if its server failed and is not that of the group. It reports whether it did.
func (s *Store) tookLate(o op) bool {
	if s.lanes.cluster == nil {
		return false
	}
	switch fault, _ := cache.FaultOf(o.err); fault {
	case cache.FaultShard, cache.FaultTimeout:
		return s.late.add(o.shard, o.group)
	default:
		return false
	}
}

func outcome(o op) cache.Outcome {
	if o.err != nil {
		return cache.Outcome{Err: o.err}
	}
	version, err := o.number()
	switch {
	case err != nil:
		return cache.Outcome{Err: err}
	case version >= 0:
		return cache.Outcome{Version: uint64(version)}
	case o.redirected:
		// The cluster client may have sent the script twice: the conflict may be with the first one.
		return cache.Outcome{Err: errors.New("the group moved to another server and may have been written")}
	}
	return cache.Outcome{Err: cache.ErrConflict}
}

// List implements [cache.Store]. It leaves out index entries whose group is gone, or was never listed because of a conflict, and
// removes them. It leaves out those whose key holds a value of a foreign type, too: no other group may suffer from one.
func (s *Store) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if err := s.gate.Enter(); err != nil {
		return nil, "", err
	}
	defer s.gate.Leave()
	start, later, err := cache.PageStart(after)
	if err != nil {
		return nil, "", err
	}
	from := "-"
	if later {
		from = "(" + start
	}

	limit = cache.PageLimit(limit)
	index := indexKey(owner)
	ops := []op{{
		key: index, readOnly: true,
		args: []any{"zrangebylex", index, from, "+", "limit", 0, limit},
	}}
	s.run(ctx, ops)
	found, err := ops[0].list()
	if err != nil {
		return nil, "", cache.Faulty(cache.FaultKey, fmt.Errorf("list groups in redis: %w", err))
	}

	live, foreign, err := s.listed(ctx, owner, found)
	if err != nil {
		return nil, "", cache.Faulty(cache.FaultKey, fmt.Errorf("list groups in redis: %w", err))
	}
	var names, gone []string
	for i, name := range found {
		switch {
		case live[i]:
			names = append(names, name)
		case !foreign[i]:
			gone = append(gone, name)
		}
	}
	s.unlist(ctx, owner, index, gone)
	if len(found) < limit {
		return names, "", nil
	}
	return names, cache.PageToken(found[len(found)-1]), nil
}

// listed reports for each of an owner's groups whether it exists and is listed, or its key holds a value of a foreign type, in one
// round trip.
func (s *Store) listed(ctx context.Context, owner string, names []string) (live, foreign []bool, err error) {
	ops := make([]op, len(names))
	for i, name := range names {
		key := groupKey(cache.Group{Owner: owner, Name: name})
		ops[i] = op{key: key, args: []any{"hexists", key, listedField}, readOnly: true}
	}
	s.run(ctx, ops)
	live, foreign = make([]bool, len(names)), make([]bool, len(names))
	for i, o := range ops {
		if foreign[i] = isForeign(o.err); foreign[i] {
			continue
		}
		if o.err != nil {
			return nil, nil, o.err
		}
		n, err := o.number()
		if err != nil {
			return nil, nil, err
		}
		live[i] = n == 1
	}
	return live, foreign, nil
}

// unlist removes index entries whose groups are gone. A group that was created again in between gets its entry back with its next
// commit at the latest. Errors are ignored.
func (s *Store) unlist(ctx context.Context, owner, index string, gone []string) {
	if len(gone) == 0 {
		return
	}
	args := make([]any, 0, 2+len(gone))
	args = append(args, "zrem", index)
	for _, name := range gone {
		args = append(args, name)
	}
	s.run(ctx, []op{{key: index, args: args}})
	back, _, err := s.listed(ctx, owner, gone)
	if err != nil {
		return
	}
	var ops []op
	for i, name := range gone {
		if back[i] {
			ops = append(ops, indexOp(cache.Group{Owner: owner, Name: name}))
		}
	}
	s.run(ctx, ops)
}

// Delete implements [cache.Store]. It removes the index entry first: otherwise it could remove that of a group that is created
// again in between.
func (s *Store) Delete(ctx context.Context, g cache.Group) error {
	if err := s.gate.Enter(); err != nil {
		return err
	}
	defer s.gate.Leave()
	s.late.drop(g)
	index, key := indexKey(g.Owner), groupKey(g)
	ops := []op{
		{key: index, args: []any{"zrem", index, g.Name}},
		{key: key, args: []any{"unlink", key}},
	}
	s.run(ctx, ops)
	if err := errors.Join(ops[0].err, ops[1].err); err != nil {
		return fmt.Errorf("delete group from redis: %w", err)
	}
	return nil
}

// Ping implements [cache.Store]. In a cluster every master must answer.
func (s *Store) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return cache.Faulty(cache.FaultTimeout, err)
	}
	if err := s.gate.Enter(); err != nil {
		return err
	}
	defer s.gate.Leave()
	if s.lanes.cluster != nil {
		return s.pingMasters(ctx)
	}
	if err := s.client.Ping(ctx).Err(); err != nil {
		return cache.OnShard("", fmt.Errorf("ping redis: %w", cleanError(err)))
	}
	return nil
}

// reloadShare: querying the cluster for its masters may take 1/reloadShare of a ping's time. If that server hangs, the known
// masters are pinged.
const reloadShare = 4

// pingMasters pings all masters of the cluster.
func (s *Store) pingMasters(ctx context.Context) error {
	reload := ctx
	if until, ok := ctx.Deadline(); ok && s.lanes.known() {
		var cancel context.CancelFunc
		reload, cancel = context.WithTimeout(ctx, time.Until(until)/reloadShare) //nolint:forbidigo // context.WithTimeout has no other clock either
		defer cancel()
	}
	var mu sync.Mutex
	masters, failed := 0, map[string]error{}
	err := s.lanes.cluster.ForEachMaster(reload, func(_ context.Context, m *redis.Client) error {
		err := s.lanes.ping(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		masters++
		if err != nil {
			failed[m.Options().Addr] = fmt.Errorf("ping redis at %s: %w", m.Options().Addr, cleanError(err))
		}
		return nil
	})
	if err != nil {
		return cache.OnShard("", fmt.Errorf("ping redis: %w", cleanError(err)))
	}
	return cache.JoinFaults(failed, masters)
}

// Shard implements [cache.Store].
func (s *Store) Shard(g cache.Group) string { return s.lanes.shard(groupKey(g)) }

// Close implements [cache.Store].
func (s *Store) Close() error {
	if !s.gate.Shut() {
		return nil
	}
	s.late.close()
	s.lanes.wait()
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("close redis: %w", cleanError(err))
	}
	return nil
}

func indexOp(g cache.Group) op {
	key := indexKey(g.Owner)
	return op{key: key, group: g, args: []any{"zadd", key, "0", g.Name}}
}

// ttlMillis returns the TTL as the argument of PEXPIRE, 0 for none.
func ttlMillis(ttl time.Duration) any {
	if ttl <= 0 {
		return "0"
	}
	return strconv.FormatInt(max(ttl.Milliseconds(), 1), 10)
}

// commitOp returns the call of the script for one batch. The caller may return before it is sent, so it copies the data, except
// what lasts.
func commitOp(b cache.Batch) op {
	key := groupKey(b.Group)
	size, copied := 0, 0
	for _, p := range b.Puts {
		size += len(p.Data)
		if !p.Lasting {
			copied += len(p.Data)
		}
	}
	names := 0
	for _, name := range b.Deletes {
		names += len(valueMark) + len(name)
	}
	for _, p := range b.Puts {
		names += len(valueMark) + len(p.Name)
	}

	const longest = 20 // digits of a version
	f := newFrame(1+len(b.Deletes)+2*len(b.Puts), longest+names+copied, 9+len(b.Deletes)+2*len(b.Puts))
	f.args = append(f.args, "evalsha", commitSHA, "1", key)
	if b.Expect == cache.AnyVersion {
		f.args = append(f.args, "*")
	} else {
		var digits [longest]byte
		f.add("", "", strconv.AppendUint(digits[:0], b.Expect, 10))
	}

	f.args = append(f.args, ttlMillis(b.TTL), len(b.Deletes))
	for _, name := range b.Deletes {
		f.add(valueMark, name, nil)
	}
	for _, p := range b.Puts {
		f.add(valueMark, p.Name, nil)
		if p.Lasting {
			f.addBlob(p.Data)
		} else {
			f.add("", "", p.Data)
		}
	}
	if b.Listed {
		f.args = append(f.args, listedField, "1")
	}
	return op{key: key, args: f.args, size: size, frame: f}
}
