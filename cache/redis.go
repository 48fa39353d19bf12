package cache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// A group is one hash. Its fields are the version, a mark for listed groups, and the caller's values, whose names
// begin with a dot so that none can be one of the other two.
const (
	versionField = "v"
	listedField  = "l"
	valueMark    = "."
)

// redisStore talks to one server, to the master that Sentinels name, or to a cluster.
type redisStore struct {
	client redis.UniversalClient
	lanes  lanes
	gate   gate
}

var _ Store = (*redisStore)(nil)

func openRedis(scheme, rest string, o Options) (*redisStore, error) {
	t, err := parseRedis(scheme, rest, o)
	if err != nil {
		return nil, err
	}
	// go-redis would print every failed dial to stderr; those who make the call get the error.
	logging.Disable()
	s := &redisStore{client: t.open()}
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		s.lanes.cluster = c
	case *redis.Client:
		s.lanes.only = newLane(c)
	default:
		panic("BUG: unknown Redis client")
	}
	return s, nil
}

// Read implements [Store].
func (s *redisStore) Read(ctx context.Context, queries []Query) ([]Result, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	ops := make([]op, len(queries))
	for i, q := range queries {
		ops[i] = readOp(q)
	}
	s.run(ctx, ops)
	out := make([]Result, len(queries))
	for i, q := range queries {
		if ops[i].err != nil {
			return nil, fmt.Errorf("read groups from redis: %w", ops[i].err)
		}
		var err error
		if out[i], err = parseResult(ops[i].reply, len(q.Names)); err != nil {
			return nil, fmt.Errorf("read groups from redis: %w", err)
		}
	}
	return out, nil
}

func readOp(q Query) op {
	args := make([]any, 0, 3+len(q.Names))
	key := redisGroupKey(q.Group)
	args = append(args, "hmget", key, versionField)
	fields := markNames(q.Names)
	for i := range fields {
		args = append(args, &fields[i])
	}
	return op{key: key, args: args, readOnly: true}
}

// markNames returns the hash fields of the values with these names, in one piece of memory. The writer of go-redis
// takes pointers to strings as they are, which spares one allocation for each.
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

// Commit implements [Store].
func (s *redisStore) Commit(ctx context.Context, batches []Batch) []Outcome {
	if err := s.gate.enter(); err != nil {
		return allFailed(len(batches), err)
	}
	defer s.gate.leave()
	listed := 0
	for i := range batches {
		if batches[i].Listed {
			listed++
		}
	}
	ops := make([]op, 0, len(batches)+listed)
	for _, b := range batches {
		ops = append(ops, commitOp(b))
		if b.Listed {
			// Entered again by every commit, which costs Redis one look-up: a lost entry comes back by itself.
			ops = append(ops, indexOp(b.Group))
		}
	}
	s.run(ctx, ops)
	out := make([]Outcome, len(batches))
	for i, b := range batches {
		out[i] = outcome(ops[0])
		if ops[0].err == nil { // else it may be under way
			ops[0].frame.release()
		}
		ops = ops[1:]
		if b.Listed {
			if out[i].Err == nil && ops[0].err != nil {
				out[i] = Outcome{Err: ops[0].err}
			}
			ops = ops[1:]
		}
		if err := out[i].Err; err != nil && !errors.Is(err, ErrConflict) {
			out[i].Err = fmt.Errorf("commit group to redis: %w", err)
		}
	}
	return out
}

func outcome(o op) Outcome {
	if o.err != nil {
		return Outcome{Err: o.err}
	}
	version, err := parseInt(o.reply)
	switch {
	case err != nil:
		return Outcome{Err: err}
	case version >= 0:
		return Outcome{Version: uint64(version)}
	case o.redirected:
		// The cluster client may have sent the script twice, and the second found what the first had written.
		return Outcome{Err: errors.New("the group moved to another server and may have been written")}
	}
	return Outcome{Err: ErrConflict}
}

// List implements [Store]. A group that its index names but that is gone, or was never listed because its commit met
// a conflict, is left out and its entry dropped.
func (s *redisStore) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if err := s.gate.enter(); err != nil {
		return nil, "", err
	}
	defer s.gate.leave()
	start, later, err := pageStart(after)
	if err != nil {
		return nil, "", err
	}
	from := "-"
	if later {
		from = "(" + start
	}
	limit = pageLimit(limit)
	index := redisIndexKey(owner)
	ops := []op{{
		key: index, readOnly: true,
		args: []any{"zrangebylex", index, from, "+", "limit", 0, limit},
	}}
	s.run(ctx, ops)
	found, err := parseList(ops[0])
	if err != nil {
		return nil, "", fmt.Errorf("list groups in redis: %w", err)
	}
	live, err := s.listed(ctx, owner, found)
	if err != nil {
		return nil, "", fmt.Errorf("list groups in redis: %w", err)
	}
	var names, gone []string
	for i, name := range found {
		if live[i] {
			names = append(names, name)
		} else {
			gone = append(gone, name)
		}
	}
	s.unlist(ctx, owner, index, gone)
	if len(found) < limit {
		return names, "", nil
	}
	return names, pageToken(found[len(found)-1]), nil
}

// listed tells which of an owner's groups exist and are listed, in one round trip.
func (s *redisStore) listed(ctx context.Context, owner string, names []string) ([]bool, error) {
	ops := make([]op, len(names))
	for i, name := range names {
		key := redisGroupKey(Group{owner, name})
		ops[i] = op{key: key, args: []any{"hexists", key, listedField}, readOnly: true}
	}
	s.run(ctx, ops)
	out := make([]bool, len(names))
	for i, o := range ops {
		if o.err != nil {
			return nil, o.err
		}
		n, err := parseInt(o.reply)
		if err != nil {
			return nil, err
		}
		out[i] = n == 1
	}
	return out, nil
}

// unlist drops entries of the index whose groups are gone. A group that came back in between gets its entry again;
// should that fail, its next commit enters it. Errors are left to the calls that matter.
func (s *redisStore) unlist(ctx context.Context, owner, index string, gone []string) {
	if len(gone) == 0 {
		return
	}
	args := make([]any, 0, 2+len(gone))
	args = append(args, "zrem", index)
	for _, name := range gone {
		args = append(args, name)
	}
	s.run(ctx, []op{{key: index, args: args}})
	back, err := s.listed(ctx, owner, gone)
	if err != nil {
		return
	}
	var ops []op
	for i, name := range gone {
		if back[i] {
			ops = append(ops, indexOp(Group{owner, name}))
		}
	}
	s.run(ctx, ops)
}

// Delete implements [Store]. The entry goes first: were it last, it could take away the entry of a group that is
// committed anew in between.
func (s *redisStore) Delete(ctx context.Context, g Group) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	index, key := redisIndexKey(g.Owner), redisGroupKey(g)
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

// Ping implements [Store]. In a cluster every master has to answer.
func (s *redisStore) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	var err error
	if c := s.lanes.cluster; c != nil {
		err = c.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error { return m.Ping(ctx).Err() })
	} else {
		err = s.client.Ping(ctx).Err()
	}
	if err != nil {
		return fmt.Errorf("ping redis: %w", cleanError(err))
	}
	return nil
}

// Close implements [Store].
func (s *redisStore) Close() error {
	if !s.gate.shut() {
		return nil
	}
	s.lanes.wait()
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("close redis: %w", cleanError(err))
	}
	return nil
}

func indexOp(g Group) op {
	key := redisIndexKey(g.Owner)
	return op{key: key, args: []any{"zadd", key, "0", g.Name}}
}

// ttlMillis is the TTL as PEXPIRE wants it; 0 for none. It is an argument of a command: a constant takes no memory.
func ttlMillis(ttl time.Duration) any {
	if ttl <= 0 {
		return "0"
	}
	return strconv.FormatInt(max(ttl.Milliseconds(), 1), 10)
}

// commitOp is one batch as one script. The data is copied, as the caller may leave before it is sent.
func commitOp(b Batch) op {
	key := redisGroupKey(b.Group)
	size := 0
	for _, p := range b.Puts {
		size += len(p.Data)
	}
	names := 0
	for _, name := range b.Deletes {
		names += len(valueMark) + len(name)
	}
	for _, p := range b.Puts {
		names += len(valueMark) + len(p.Name)
	}
	const longest = 20 // digits of a version
	f := newFrame(1+len(b.Deletes)+2*len(b.Puts), longest+names+size, 9+len(b.Deletes)+2*len(b.Puts))
	f.args = append(f.args, "evalsha", commitSHA, "1", key)
	if b.Expect == AnyVersion {
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
		f.add("", "", p.Data)
	}
	if b.Listed {
		f.args = append(f.args, listedField, "1")
	}
	return op{key: key, args: f.args, size: size, frame: f}
}
