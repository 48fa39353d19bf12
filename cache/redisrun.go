package cache

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // G505: Redis names scripts by SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// commitScript writes one batch. KEYS: the group. ARGV: the expected version or *, the TTL in milliseconds or 0, the
// number of deleted fields, these, then fields and values. It returns the new version, or -1 for a conflict.
//
// The version is the server's time in microseconds, or more: a count would come to the same number again after a commit
// that a failover has lost. unpack is called with at most 1000 values because Lua's stack is limited (about 8000), and
// the version is written with the first of them: three commands for most commits.
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

// commitSHA is an argument of commands, made once.
var commitSHA any = scriptSHA(commitScript)

func scriptSHA(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // G401: as above
	return hex.EncodeToString(sum[:])
}

// op is one command on one key, and what became of it.
type op struct {
	key  string
	args []any
	size int
	// frame is what args are in, nil for memory of their own.
	frame *frame
	// readOnly tells that sending it twice does no harm.
	readOnly bool

	cmd *redis.RawCmd
	// reply is the RESP2 reply, never an error. It belongs to the op.
	reply []byte
	err   error
	// redirected tells that the op went through the client's own redirection, which repeats commands.
	redirected bool
}

// run executes all ops, those for one server in one round trip. What a server has refused to execute is sent again
// where that helps: an unknown script in full, a key that lives elsewhere to where it lives.
func (s *redisStore) run(ctx context.Context, ops []op) {
	s.exchange(ctx, ops)
	for i := range ops {
		o := &ops[i]
		if o.err != nil && o.readOnly && isBroken(o.err) && ctx.Err() == nil {
			s.exchange(ctx, ops[i:i+1]) // the server was restarted, and a read may be repeated
		}
		switch code := errorCode(o.reply); code {
		case "":
		case "NOSCRIPT":
			s.loadScripts(ctx, ops[i:])
		case "MOVED", "ASK", "TRYAGAIN", "READONLY", "MASTERDOWN":
			s.redirect(ctx, o)
		}
		if o.err == nil {
			o.err = replyError(o.reply)
		}
		if o.err != nil {
			o.err = cleanError(o.err)
		}
	}
}

// loadScripts sends all ops whose script the server did not know with the script itself: none of them was executed.
func (s *redisStore) loadScripts(ctx context.Context, ops []op) {
	var again []op
	var where []int
	for i, o := range ops {
		if o.err == nil && errorCode(o.reply) == "NOSCRIPT" {
			o.args[0], o.args[1] = "eval", commitScript
			again, where = append(again, o), append(where, i)
		}
	}
	s.exchange(ctx, again)
	for i, at := range where {
		ops[at] = again[i]
	}
}

// redirect lets go-redis find the right server, or drop the connection to one that is no longer a master. Until they have
// agreed on who has a slot that was moved, two servers may send us to each other, and longer than go-redis follows.
func (s *redisStore) redirect(ctx context.Context, o *op) {
	if o.args[0] == "evalsha" {
		o.args[0], o.args[1] = "eval", commitScript
	}
	o.redirected, o.reply = true, nil
	var val any
	var err error
	for wait := time.Millisecond; ; wait *= 2 {
		cmd := redis.NewCmd(ctx, o.args...)
		cmd.SetFirstKeyPos(firstKey(o.args))
		_ = s.client.Process(ctx, cmd)
		if val, err = cmd.Result(); !elsewhere(err) || wait > maxRedirectWait || !sleep(ctx, wait) {
			break
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		o.err = err
		return
	}
	o.reply = appendRESP(nil, val)
}

// maxRedirectWait bounds the waits, each twice the one before, for servers that do not agree on where a key is.
const maxRedirectWait = 500 * time.Millisecond

// sleep waits, and tells whether it was for so long.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d) //nolint:forbidigo // what it waits for is another program
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// elsewhere tells whether err says that the key belongs to another server: then the command was not executed.
func elsewhere(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK "))
}

func firstKey(args []any) int8 {
	if args[0] == "eval" {
		return 3
	}
	return 1
}

// exchange sends ops to their servers and waits for all replies.
func (s *redisStore) exchange(ctx context.Context, ops []op) {
	if len(ops) == 0 {
		return
	}
	for i := range ops {
		ops[i].cmd = redis.NewRawCmd(ctx, ops[i].args...)
		ops[i].reply, ops[i].err = nil, nil
	}
	if s.lanes.only != nil {
		exchangeOn(ctx, s.lanes.only, ops)
		return
	}
	groups, where := map[*lane][]op{}, map[*lane][]int{}
	for i := range ops {
		l, err := s.lanes.of(ctx, ops[i].key)
		if err != nil {
			ops[i].err = err
			continue
		}
		groups[l], where[l] = append(groups[l], ops[i]), append(where[l], i)
	}
	var wg sync.WaitGroup
	for l, group := range groups {
		wg.Go(func() {
			exchangeOn(ctx, l, group)
			for i, at := range where[l] {
				ops[at] = group[i]
			}
			if isBroken(group[0].err) {
				s.lanes.cluster.ReloadState(ctx) // it may have a new master
			}
		})
	}
	wg.Wait()
}

func exchangeOn(ctx context.Context, l *lane, ops []op) {
	cmds, size := make([]redis.Cmder, len(ops)), 0
	for i := range ops {
		cmds[i] = ops[i].cmd
		size += ops[i].size
	}
	err := l.batcher.do(ctx, cmds, size)
	for i := range ops {
		if err != nil {
			ops[i].err = err // the command may still be under way
			continue
		}
		ops[i].reply, ops[i].err = ops[i].cmd.Val(), ops[i].cmd.Err()
	}
}

// isBroken tells whether err is of the connection rather than an answer.
func isBroken(err error) bool {
	var re redis.Error
	return err != nil && !errors.As(err, &re) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, os.ErrDeadlineExceeded)
}

// cleanError makes sure that an error shows no data: a server may repeat what it was sent. A time-out is always a
// context.DeadlineExceeded, whichever of the context's and our own came first.
func cleanError(err error) error {
	var re redis.Error
	var ne net.Error
	switch {
	case errors.As(err, &re):
		return told(re.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &ne) && ne.Timeout():
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// told is what a server says is wrong, with ErrDenied where that is whom it talks to.
func told(text string) error {
	for _, code := range [...]string{"WRONGPASS ", "NOAUTH ", "NOPERM ", "DENIED ", "ERR AUTH "} {
		if strings.HasPrefix(text, code) {
			return fmt.Errorf("%w: %s", ErrDenied, cleanText(text))
		}
	}
	return errors.New(cleanText(text))
}

func cleanText(s string) string {
	const most = 160
	s, _, _ = strings.Cut(s, ", with args beginning with")
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?")
}

// errorCode returns the first word of an error reply, and nothing for other replies.
func errorCode(reply []byte) string {
	if len(reply) == 0 || reply[0] != '-' {
		return ""
	}
	end := bytes.IndexAny(reply, " \r\n")
	if end < 0 {
		end = len(reply)
	}
	return string(reply[1:end])
}

func replyError(reply []byte) error {
	if len(reply) == 0 || reply[0] != '-' {
		return nil
	}
	return told(string(bytes.TrimRight(reply[1:], "\r\n")))
}

var errBadReply = errors.New("the reply is not what was asked for: is another program using these keys?")

// parseInt reads an integer reply.
func parseInt(reply []byte) (int64, error) {
	line, _, ok := bytes.Cut(reply, []byte("\r\n"))
	if !ok || len(line) < 2 || line[0] != ':' {
		return 0, errBadReply
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	if err != nil {
		return 0, errBadReply
	}
	return n, nil
}

// parseResult reads the reply to readOp. The values are parts of reply.
func parseResult(reply []byte, names int) (Result, error) {
	n, rest, err := parseHead(reply, '*')
	if err != nil || n != names+1 {
		return Result{}, errBadReply
	}
	version, rest, err := parseBulk(rest)
	if err != nil {
		return Result{}, err
	}
	out := Result{Values: make([][]byte, names)}
	if version == nil {
		return out, nil
	}
	if out.Version, err = strconv.ParseUint(string(version), 10, 64); err != nil {
		return Result{}, errBadReply
	}
	for i := range out.Values {
		if out.Values[i], rest, err = parseBulk(rest); err != nil {
			return Result{}, err
		}
	}
	return out, nil
}

// parseList reads an array of strings.
func parseList(o op) ([]string, error) {
	if o.err != nil {
		return nil, o.err
	}
	n, rest, err := parseHead(o.reply, '*')
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, max(min(n, len(rest)), 0))
	for range n {
		var b []byte
		if b, rest, err = parseBulk(rest); err != nil {
			return nil, err
		}
		out = append(out, string(b))
	}
	return out, nil
}

// parseBulk reads one string off the front of b; nil for none, non-nil for an empty one.
func parseBulk(b []byte) (val, rest []byte, err error) {
	n, rest, err := parseHead(b, '$')
	if err != nil {
		return nil, nil, err
	}
	if n < 0 {
		return nil, rest, nil
	}
	if len(rest)-2 < n {
		return nil, nil, errBadReply
	}
	return rest[:n:n], rest[n+2:], nil
}

// parseHead reads a line of the given type and its number.
func parseHead(b []byte, typ byte) (n int, rest []byte, err error) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) < 2 || line[0] != typ {
		return 0, nil, errBadReply
	}
	n, err = strconv.Atoi(string(line[1:]))
	if err != nil {
		return 0, nil, errBadReply
	}
	return n, rest, nil
}

// appendRESP writes a value that go-redis has parsed as the reply that it came from, as far as we use replies.
func appendRESP(dst []byte, v any) []byte {
	switch v := v.(type) {
	case int64:
		return fmt.Appendf(dst, ":%d\r\n", v)
	case string:
		return fmt.Appendf(dst, "$%d\r\n%s\r\n", len(v), v)
	case []any:
		dst = fmt.Appendf(dst, "*%d\r\n", len(v))
		for _, e := range v {
			dst = appendRESP(dst, e)
		}
		return dst
	}
	return append(dst, "$-1\r\n"...)
}
