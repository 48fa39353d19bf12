package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // G505: Redis names scripts by SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"remora/cache"
)

// commitScript writes one batch. KEYS: the group. ARGV: the expected version or *, the TTL in milliseconds or 0, the
// number of deleted fields, these, then fields and values. It returns the new version, or -1 for a conflict.
//
// The version is at least the server's time in microseconds: a counter would repeat a number after a failover that lost a commit.
// unpack is called with at most 1000 values because Lua's stack is limited (about 8000). The version is written with the first of
// them: three commands for most commits.
const commitScript = `
local key = KEYS[1]
local have = redis.call('HGET', key, 'v')
if ARGV[1] ~= '*' and (have or '0') ~= ARGV[1] then return -1 end
local now = redis.call('TIME')
local version = math.max((have and tonumber(have) or 0) + 1, now[1] * 1000000 + now[2])
local n, at = #ARGV, 4 + ARGV[3]
for i = 4, at - 1, 1000 do
  redis.call('HDEL', key, unpack(ARGV, i, math.min(i + 999, at - 1)))
end
redis.call('HSET', key, 'v', version, unpack(ARGV, at, math.min(at + 999, n)))
for i = at + 1000, n, 1000 do
  redis.call('HSET', key, unpack(ARGV, i, math.min(i + 999, n)))
end
if ARGV[2] ~= '0' then
  redis.call('PEXPIRE', key, ARGV[2])
elseif have then
  redis.call('PERSIST', key)
end
return version
`

// commitSHA is the script's SHA-1 as an argument of commands, boxed once.
var commitSHA any = scriptSHA(commitScript)

func scriptSHA(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // G401: as above
	return hex.EncodeToString(sum[:])
}

// op is one command on one key, and its result.
type op struct {
	key  string
	args []any
	size int
	// group is the group whose index entry the op adds, or zero.
	group cache.Group
	// frame holds the memory of args, or is nil.
	frame *frame
	// readOnly: the command may be sent twice.
	readOnly bool

	// cmd holds the reply if err is nil. Otherwise the command may still be running.
	cmd *redis.Cmd
	err error
	// shard is the server of a cluster that got the command, or that it redirected to; empty without a cluster.
	shard string
	// redirected: go-redis followed a redirection, which repeats commands.
	redirected bool
}

// run executes all ops, those for one server in one round trip. It repeats commands that a server did not execute: with an
// unknown script it sends the script, for a moved key it sends the command to the right server.
func (s *Store) run(ctx context.Context, ops []op) {
	all := make([]*op, len(ops))
	for i := range ops {
		all[i] = &ops[i]
	}
	s.exchange(ctx, all)
	s.repeat(ctx, all, func(o *op) bool { return o.readOnly && isBroken(o.err) }) // the server was restarted
	s.repeat(ctx, all, func(o *op) bool {
		unknown := errorCode(o.err) == "NOSCRIPT"
		if unknown {
			o.args[0], o.args[1] = "eval", commitScript
		}
		return unknown
	})
	for _, o := range all {
		switch errorCode(o.err) {
		case "MOVED", "ASK", "TRYAGAIN", "READONLY", "MASTERDOWN":
			s.redirect(ctx, o)
		}
		if o.err != nil {
			o.err = cache.OnShard(o.shard, o.cleanError())
		}
	}
}

// cleanError is the error of an op for callers: see cleanError.
func (o *op) cleanError() error {
	err := cleanError(o.err)
	if code := errorCode(o.err); o.shard == "" && (code == "MOVED" || code == "CLUSTERDOWN") {
		return fmt.Errorf("%w; the server belongs to a cluster: want redis+cluster:// in store.url", err)
	}
	return err
}

// repeat sends the failed ops for which again is true once more, those for one server in one round trip.
func (s *Store) repeat(ctx context.Context, ops []*op, again func(*op) bool) {
	var failed []*op
	for _, o := range ops {
		if o.err != nil && again(o) {
			failed = append(failed, o)
		}
	}
	if ctx.Err() == nil {
		s.exchange(ctx, failed)
	}
}

// redirect lets go-redis find the right server, or close the connection to one that is no longer a master. While a slot moves,
// two servers may redirect to each other more often than go-redis follows.
func (s *Store) redirect(ctx context.Context, o *op) {
	if o.args[0] == "evalsha" {
		o.args[0], o.args[1] = "eval", commitScript
	}
	if to := movedTo(o.err); to != "" && o.shard != "" {
		o.shard = to
	}
	o.redirected = true
	for wait := time.Millisecond; ; wait *= 2 {
		o.cmd = redis.NewCmd(ctx, o.args...)
		o.cmd.SetFirstKeyPos(firstKey(o.args))
		o.err = s.client.Process(ctx, o.cmd)
		// A client that knows one server only would ask that again.
		if s.lanes.only != nil || !isMoved(o.err) || wait > maxRedirectWait || !sleep(ctx, wait) {
			return
		}
	}
}

// maxRedirectWait bounds the exponential backoff while servers disagree on the place of a key.
const maxRedirectWait = 500 * time.Millisecond

// sleep waits for d. It returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d) //nolint:forbidigo // waits for another program
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isMoved reports whether err says that the key belongs to another server. The command was not executed then.
func isMoved(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK "))
}

// movedTo returns the server of a MOVED or ASK error, "" for other errors.
func movedTo(err error) string {
	if !isMoved(err) {
		return ""
	}
	fields := strings.Fields(err.Error()) // MOVED slot address
	if len(fields) != 3 {
		return ""
	}
	return fields[2]
}

func firstKey(args []any) int8 {
	if args[0] == "eval" {
		return 3
	}
	return 1
}

// exchange sends ops to their servers and waits for all replies.
func (s *Store) exchange(ctx context.Context, ops []*op) {
	if len(ops) == 0 {
		return
	}
	for _, o := range ops {
		o.cmd, o.err = redis.NewCmd(ctx, o.args...), nil
	}
	if s.lanes.only != nil {
		exchangeOn(ctx, s.lanes.only, ops)
		return
	}

	groups := map[*lane][]*op{}
	for _, o := range ops {
		l, err := s.lanes.of(ctx, o.key)
		if err != nil {
			o.err = err
			continue
		}
		o.shard = l.shard
		groups[l] = append(groups[l], o)
	}

	var wg sync.WaitGroup
	for l, group := range groups {
		wg.Go(func() {
			exchangeOn(ctx, l, group)
			if isBroken(group[0].err) {
				s.lanes.cluster.ReloadState(ctx) // the slots may have a new master
			}
		})
	}
	wg.Wait()
}

func exchangeOn(ctx context.Context, l *lane, ops []*op) {
	cmds, size := make([]redis.Cmder, len(ops)), 0
	for i, o := range ops {
		cmds[i] = o.cmd
		size += o.size
	}
	err := l.batcher.Do(ctx, cmds, size)
	for _, o := range ops {
		if o.err = err; err == nil { // else the command may still be running
			o.err = o.cmd.Err()
		}
	}
}

// isBroken reports whether the connection failed, rather than the server having replied with an error.
func isBroken(err error) bool {
	var re redis.Error
	return err != nil && !errors.As(err, &re) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, os.ErrDeadlineExceeded)
}

// cleanError removes data from an error, since servers may quote arguments. It adds context.DeadlineExceeded to every timeout,
// whether it is the context's or the client's.
func cleanError(err error) error {
	var re redis.Error
	var ne net.Error
	switch {
	case errors.As(err, &re):
		return replyError(re.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &ne) && ne.Timeout():
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// replyError returns the error for an error reply: a FaultKey if it concerns only the keys of the command, one that wraps ErrDenied
// if the server refuses the account or is another than store.url says, and ErrUnserved if no server serves the key.
func replyError(text string) error {
	err := errors.New(cleanText(text))
	for _, code := range [...]string{"WRONGPASS ", "NOAUTH ", "NOPERM ", "DENIED ", "ERR AUTH "} {
		if strings.HasPrefix(text, code) {
			err = fmt.Errorf("%w: %s", cache.ErrDenied, cleanText(text))
		}
	}
	if strings.HasPrefix(text, "NOPERM ") && isOfKey(text) {
		err = fmt.Errorf("%w; the account needs the keys ~%s* and ~%s* (docs/redis.md)", err, groupKeyPrefix, indexKeyPrefix)
	}
	for _, k := range otherServers {
		if strings.HasPrefix(strings.ToLower(text), k.reply) {
			err = fmt.Errorf("%w: %s; %s", cache.ErrDenied, cleanText(text), k.want)
		}
	}
	if isUnserved(text) {
		err = fmt.Errorf("%w: %w", cache.ErrUnserved, err)
	}
	if isOfKey(text) {
		return cache.Faulty(cache.FaultKey, err)
	}
	return err
}

// otherServers are the replies of servers that are not what store.url says, in lower case, and what it should say.
var otherServers = []struct{ reply, want string }{ //nolint:gochecknoglobals // never changed
	{"err this instance has cluster support disabled", "the server is in no cluster: want redis:// in store.url"},
	{"err unknown command 'sentinel'", "the server is no Sentinel: want the addresses of Sentinels, or redis://, in store.url"},
	{strings.ToLower(redis.Nil.Error()), "the Sentinels know no such master: want the name that they have for it in store.url"}, // else no command has a nil reply
	{"err db index is out of range", "the server has no such database: want the number of one that it has in store.url"},
	{"err select is not allowed in cluster mode", "the server belongs to a cluster: want redis+cluster:// in store.url"},
}

// isOfKey reports whether an error reply concerns only the keys of the command. Before Redis 7, the text of an error in a script
// follows the script's own.
func isOfKey(text string) bool {
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "WRONGTYPE", "CROSSSLOT":
		return true
	case "NOPERM":
		return strings.Contains(text, " key")
	case "ERR":
		return strings.Contains(text, "user_script") && !isServerWide(text)
	}
	return isUnserved(text)
}

// isUnserved reports whether an error reply says that no server of a cluster serves the key, or that they disagree on its place.
func isUnserved(text string) bool {
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "TRYAGAIN", "MOVED", "ASK":
		return true
	case "CLUSTERDOWN":
		return strings.Contains(text, "Hash slot not served")
	}
	return false
}

// isForeign reports whether an error of run says that a key holds another type than the command expects.
func isForeign(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE ") }

// isServerWide reports whether an error has a code that concerns all keys of the server.
func isServerWide(text string) bool {
	codes := []string{"OOM ", "READONLY ", "MISCONF ", "NOREPLICAS ", "LOADING ", "MASTERDOWN ", "BUSY ", "CLUSTERDOWN ", "NOPERM "}
	return slices.ContainsFunc(codes, func(code string) bool { return strings.Contains(text, code) })
}

func cleanText(s string) string {
	const most = 160
	s, _, _ = strings.Cut(s, ", with args beginning with")
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?")
}

// errorCode returns the first word of an error reply, "" for other errors.
func errorCode(err error) string {
	if re, ok := errors.AsType[redis.Error](err); ok {
		code, _, _ := strings.Cut(re.Error(), " ")
		return code
	}
	return ""
}

var errBadReply = errors.New("unexpected reply: is another program using these keys?")

// result parses the reply to readOp.
func (o *op) result(names int) (cache.Result, error) {
	fields, err := o.cmd.Slice()
	if err != nil || len(fields) != names+1 {
		return cache.Result{}, errBadReply
	}
	out := cache.Result{Values: make([][]byte, names)}
	if fields[0] == nil {
		return out, nil
	}

	version, ok := fields[0].(string)
	if out.Version, err = strconv.ParseUint(version, 10, 64); !ok || err != nil {
		return cache.Result{}, errBadReply
	}
	for i, field := range fields[1:] {
		value, ok := field.(string)
		if !ok && field != nil {
			return cache.Result{}, errBadReply
		}
		if ok {
			out.Values[i] = []byte(value)
		}
	}
	return out, nil
}

// number parses an integer reply.
func (o *op) number() (int64, error) {
	n, ok := o.cmd.Val().(int64)
	if !ok {
		return 0, errBadReply
	}
	return n, nil
}

// list parses an array of strings.
func (o *op) list() ([]string, error) {
	if o.err != nil {
		return nil, o.err
	}
	all, err := o.cmd.StringSlice()
	if err != nil {
		return nil, errBadReply
	}
	return all, nil
}
