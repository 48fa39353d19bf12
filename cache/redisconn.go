package cache

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	redisPort    = "6379"
	sentinelPort = "26379"

	// redisBuffer is the read and the write buffer of a connection: most batches fit, so they are one system call.
	redisBuffer = 64 << 10
)

const (
	// redisInFlight is how many batches may be on their way to one server. One leaves the server idle while the client
	// digests replies; more than two make the batches smaller and the CPU per call higher (BenchmarkRedisBatching).
	redisInFlight = 2
	redisMaxCalls = 64
	redisMaxBytes = 1 << 20
)

// redisTarget is a parsed store.url.
type redisTarget struct {
	mode   string // "", "sentinel" or "cluster"
	hosts  []string
	master string
	node   *redis.Options
	// sentinelUser and sentinelPassword are for the Sentinels, which have accounts of their own.
	sentinelUser, sentinelPassword string
}

var errDatabase = errors.New("want a database number of 0 or more after the host, as in redis://localhost:6379/0")

// parseRedis reads what follows the scheme. Its errors hold nothing of the input: a password with an unescaped slash
// or at sign ends up in any part of a URL.
func parseRedis(scheme, rest string, o Options) (redisTarget, error) {
	base, mode, _ := strings.Cut(scheme, "+")
	t := redisTarget{mode: mode}
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return t, errors.New("want two slashes after the scheme")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user := ""
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, authority = authority[:i+1], authority[i+1:]
	}
	var err error
	if t.hosts, err = splitHosts(authority, mode); err != nil {
		return t, err
	}
	path, query, _ := strings.Cut(tail, "?")
	if path, err = t.splitPath(path); err != nil {
		return t, err
	}
	if db := strings.TrimPrefix(path, "/"); db != "" {
		if _, err := strconv.Atoi(db); err != nil {
			return t, errDatabase
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return t, errors.New("the part after the question mark is not valid")
	}
	if mode == "sentinel" {
		t.sentinelUser, t.sentinelPassword = values.Get("sentinel_username"), values.Get("sentinel_password")
		values.Del("sentinel_username")
		values.Del("sentinel_password")
	}
	t.node, err = redis.ParseURL(base + "://" + user + t.hosts[0] + path + "?" + values.Encode())
	if err != nil {
		return t, errors.New("not a valid address: check the port, the options after the question mark, and that " +
			"special characters of the password are percent-encoded")
	}
	if db := t.node.DB; db < 0 || db > math.MaxInt32 { // it may stand among the options, too
		return t, errDatabase
	}
	t.tune(o)
	return t, nil
}

// splitHosts splits h1:p1,h2:p2 and fills in the default port.
func splitHosts(authority, mode string) ([]string, error) {
	port := redisPort
	if mode == "sentinel" {
		port = sentinelPort
	}
	list := strings.Split(authority, ",")
	if mode == "" && len(list) > 1 {
		return nil, errors.New("several hosts need redis+sentinel or redis+cluster")
	}
	hosts := make([]string, 0, len(list))
	for _, h := range list {
		u, err := url.Parse("redis://" + h)
		if err != nil || u.Host != h {
			return nil, errors.New("not a valid host and port: " +
				"are special characters of the password percent-encoded?")
		}
		if u.Hostname() == "" {
			return nil, errors.New("want a host after the slashes and after each comma, as in redis://localhost:6379")
		}
		hosts = append(hosts, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)))
	}
	return hosts, nil
}

// splitPath takes the name of the master off a Sentinel path and returns the path with the database.
func (t *redisTarget) splitPath(path string) (string, error) {
	path = strings.TrimSuffix(path, "/")
	switch t.mode {
	case "sentinel":
		master, db, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		name, err := url.PathUnescape(master)
		if err != nil || name == "" {
			return "", errors.New("want the name of the master after the hosts: host1,host2/master")
		}
		t.master = name
		if db == "" {
			return "", nil
		}
		return "/" + db, nil
	case "cluster":
		if path != "" && path != "/0" {
			return "", errors.New("a cluster has no database but 0")
		}
		return "", nil
	}
	return path, nil
}

// tune sets what Remora depends on, whatever the URL says: a retry inside the client would write twice after a lost
// reply, deadlines must hold, and replies are read as plain RESP2.
func (t *redisTarget) tune(o Options) {
	n := t.node
	n.Protocol = 2
	n.MaxRetries = -1
	n.ContextTimeoutEnabled = true
	n.DialTimeout = o.DialTimeout
	n.DialerRetries = 1
	n.DialerRetryTimeout = time.Millisecond
	n.ReadTimeout, n.WriteTimeout, n.PoolTimeout = o.OpTimeout, o.OpTimeout, o.OpTimeout
	n.PoolSize = o.PoolSize
	n.MaxActiveConns = o.PoolSize
	n.PipelinePoolSize = -1 // batches are all that there is, so they have the pool for themselves
	n.ReadBufferSize, n.WriteBufferSize = redisBuffer, redisBuffer
	n.DisableIdentity = true
	n.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// open returns the client for the way of running Redis that t describes.
func (t *redisTarget) open() redis.UniversalClient {
	n := t.node
	switch t.mode {
	case "sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: t.master, SentinelAddrs: t.hosts,
			SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
			ClientName: n.ClientName, Protocol: n.Protocol, Username: n.Username, Password: n.Password, DB: n.DB,
			MaxRetries: n.MaxRetries, ContextTimeoutEnabled: n.ContextTimeoutEnabled,
			DialTimeout: n.DialTimeout, DialerRetries: n.DialerRetries, DialerRetryTimeout: n.DialerRetryTimeout,
			ReadTimeout: n.ReadTimeout, WriteTimeout: n.WriteTimeout, PoolTimeout: n.PoolTimeout,
			PoolSize: n.PoolSize, MaxActiveConns: n.MaxActiveConns, PipelinePoolSize: n.PipelinePoolSize,
			ReadBufferSize: n.ReadBufferSize, WriteBufferSize: n.WriteBufferSize,
			MinIdleConns: n.MinIdleConns, ConnMaxIdleTime: n.ConnMaxIdleTime, ConnMaxLifetime: n.ConnMaxLifetime,
			DisableIdentity: n.DisableIdentity, TLSConfig: t.tls(),
		})
	case "cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:      t.hosts,
			ClientName: n.ClientName, Protocol: n.Protocol, Username: n.Username, Password: n.Password,
			MaxRetries: n.MaxRetries, ContextTimeoutEnabled: n.ContextTimeoutEnabled,
			DialTimeout: n.DialTimeout, DialerRetries: n.DialerRetries, DialerRetryTimeout: n.DialerRetryTimeout,
			ReadTimeout: n.ReadTimeout, WriteTimeout: n.WriteTimeout, PoolTimeout: n.PoolTimeout,
			PoolSize: n.PoolSize, MaxActiveConns: n.MaxActiveConns, PipelinePoolSize: n.PipelinePoolSize,
			ReadBufferSize: n.ReadBufferSize, WriteBufferSize: n.WriteBufferSize,
			MinIdleConns: n.MinIdleConns, ConnMaxIdleTime: n.ConnMaxIdleTime, ConnMaxLifetime: n.ConnMaxLifetime,
			DisableIdentity: n.DisableIdentity, TLSConfig: t.tls(),
			MaintNotificationsConfig: n.MaintNotificationsConfig,
		})
	}
	return redis.NewClient(n)
}

// tls returns the TLS settings for servers of several names: each is checked against the name it was dialled by.
func (t *redisTarget) tls() *tls.Config {
	if t.node.TLSConfig == nil {
		return nil
	}
	c := t.node.TLSConfig.Clone()
	c.ServerName = ""
	return c
}

// lane is the way to one server.
type lane struct {
	client  *redis.Client
	batcher *batcher[[]redis.Cmder]
}

func newLane(c *redis.Client) *lane {
	l := &lane{client: c}
	l.batcher = &batcher[[]redis.Cmder]{
		run: l.send, inline: true,
		slots: redisInFlight, maxCalls: redisMaxCalls, maxBytes: redisMaxBytes,
	}
	return l
}

// send is one round trip. Replies are read raw: that is one allocation a command whatever it returns, and an error
// reply of one command does not make go-redis repeat or drop the others.
func (l *lane) send(ctx context.Context, calls [][]redis.Cmder) {
	if len(calls) == 1 && len(calls[0]) == 1 {
		_ = l.client.Process(ctx, calls[0][0])
		return
	}
	pipe := l.client.Pipeline()
	for _, cmds := range calls {
		_ = pipe.BatchProcess(ctx, cmds...)
	}
	_, _ = pipe.Exec(ctx) // every command holds its own error
}

// lanes finds the batcher of the server that holds a key.
type lanes struct {
	only    *lane // nil in a cluster
	cluster *redis.ClusterClient

	mu     sync.Mutex
	byAddr map[string]*lane
}

func (l *lanes) of(ctx context.Context, key string) (*lane, error) {
	if l.only != nil {
		return l.only, nil
	}
	node, err := l.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	addr := node.Options().Addr
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := l.byAddr[addr]; got != nil && got.client == node {
		return got, nil
	}
	if l.byAddr == nil {
		l.byAddr = map[string]*lane{}
	}
	l.byAddr[addr] = newLane(node)
	return l.byAddr[addr], nil
}

func (l *lanes) wait() {
	if l.only != nil {
		l.only.batcher.work.Wait()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.byAddr {
		lane.batcher.work.Wait()
	}
}

// blob is an argument of a command whose bytes go out as they are. As a pointer it costs no allocation, which a slice
// in an interface does.
type blob []byte

// MarshalBinary lets the writer of go-redis take the bytes.
func (b *blob) MarshalBinary() ([]byte, error) { return *b, nil }

// frame is the memory of one commit's command: names and data one behind the other, and the arguments that point there.
type frame struct {
	bytes []byte
	blobs []blob
	args  []any
}

var frames sync.Pool // of *frame

// maxFrame is the size in bytes of the largest frame that is kept for the next commit.
const maxFrame = 64 << 10

func newFrame(values, bytes, args int) *frame {
	f, ok := frames.Get().(*frame)
	if !ok {
		f = new(frame)
	}
	f.bytes = slices.Grow(f.bytes[:0], bytes)
	f.blobs = slices.Grow(f.blobs[:0], values)
	f.args = slices.Grow(f.args[:0], args)
	return f
}

// release gives the frame back. Nobody may use the command any more.
func (f *frame) release() {
	if f == nil || cap(f.bytes) > maxFrame {
		return
	}
	clear(f.args)
	frames.Put(f)
}

// add appends an argument of several parts. Neither bytes nor blobs may grow by it: newFrame was told how many there are.
func (f *frame) add(mark, name string, data []byte) {
	from := len(f.bytes)
	f.bytes = append(append(append(f.bytes, mark...), name...), data...)
	f.blobs = append(f.blobs, f.bytes[from:])
	f.args = append(f.args, &f.blobs[len(f.blobs)-1])
}
