package redis

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"remora/address"
	"remora/cache"
)

const (
	redisPort    = "6379"
	sentinelPort = "26379"

	// redisBuffer is the size of a connection's read and write buffers: most batches fit, so they take one system call.
	redisBuffer = 64 << 10
)

const (
	// inFlight is the number of batches in flight to one server. One would leave the server idle while the client parses
	// replies; more than two make the batches smaller and the CPU time per call higher (BenchmarkRedisBatching).
	inFlight = 2
	maxCalls = 64
	maxBytes = 1 << 20

	// poolSize is the number of connections to each server, more than inFlight.
	poolSize = 8
)

// target is a parsed store.url.
type target struct {
	mode   string // "", "sentinel" or "cluster"
	hosts  []string
	master string
	node   *redis.Options
	// sentinelUser and sentinelPassword are for the Sentinels, whose accounts are separate.
	sentinelUser, sentinelPassword string
}

// mostDatabase is larger than the number of databases of any server: 16 by default.
const mostDatabase = 1 << 16

var (
	errDatabase        = errors.New("want a database number of 0 or more after the host, as in redis://localhost:6379/0")
	errClusterDatabase = errors.New("a cluster only has database 0")

	errPassword = errors.New("special characters of the password have to be percent-encoded: / is %2F, ? is %3F, # is %23, % is %25")
)

// parseURL parses the URL after the scheme. Its errors quote nothing: a password with an unescaped slash or at sign can end up in
// any part of the URL.
func parseURL(scheme, rest string, o cache.Options) (target, error) {
	base, mode, _ := strings.Cut(scheme, "+")
	t := target{mode: mode}
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
	path, query, _ := strings.Cut(tail, "?")

	var err error
	t.hosts, err = splitHosts(authority, mode)
	if strings.Contains(path, "@") || err != nil && strings.Contains(tail, "@") { // the password has ended too early
		return t, errPassword
	}
	if err != nil {
		return t, err
	}
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
	if db := t.node.DB; db < 0 || db > mostDatabase { // it may also be an option
		return t, errDatabase
	}
	if mode == "cluster" && t.node.DB != 0 {
		return t, errClusterDatabase
	}

	if t.node.TLSConfig == nil && o.TLS != (cache.TLS{}) {
		return t, cache.ErrNoTLS
	}
	if t.node.TLSConfig != nil {
		if mode != "" {
			t.node.TLSConfig.ServerName = "" // verify each server by the name that was dialled
		}
		if err := o.TLS.Apply(t.node.TLSConfig); err != nil {
			return t, err
		}
		t.node.Dialer = o.TLS.Dialer(t.node.TLSConfig, o.DialTimeout)
	}
	t.tune(o)
	return t, nil
}

// splitHosts splits h1:p1,h2:p2 and adds the default port.
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
		if address.CheckURL(u) != nil {
			return nil, errors.New("want names or IP addresses, and ports from 1 to 65535")
		}
		hosts = append(hosts, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)))
	}
	return hosts, nil
}

// splitPath removes the name of the master from a Sentinel path, and returns the path with the database.
func (t *target) splitPath(path string) (string, error) {
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
			return "", errClusterDatabase
		}
		return "", nil
	}
	return path, nil
}

// tune sets the options that Remora depends on, and overrides the URL: a retry by the client would write twice after a lost
// reply, deadlines must hold, and replies are RESP2.
func (t *target) tune(o cache.Options) {
	n := t.node
	n.Protocol = 2
	n.MaxRetries = -1
	n.ContextTimeoutEnabled = true
	n.DialTimeout = o.DialTimeout
	n.DialerRetries = 1
	n.DialerRetryTimeout = time.Millisecond
	n.ReadTimeout, n.WriteTimeout, n.PoolTimeout = o.OpTimeout, o.OpTimeout, o.OpTimeout
	n.PoolSize, n.MaxActiveConns = poolSize, poolSize
	n.PipelinePoolSize = -1 // all calls are batches: they use the main pool
	n.ReadBufferSize, n.WriteBufferSize = redisBuffer, redisBuffer
	n.DisableIdentity = true
	n.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// open returns the client for the mode of t.
func (t *target) open() redis.UniversalClient {
	n := t.node
	if t.mode == "" {
		return redis.NewClient(n)
	}
	several := &redis.UniversalOptions{
		Addrs: t.hosts, MasterName: t.master, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		ClientName: n.ClientName, Protocol: n.Protocol, Username: n.Username, Password: n.Password, DB: n.DB,
		MaxRetries: n.MaxRetries, ContextTimeoutEnabled: n.ContextTimeoutEnabled,
		Dialer: n.Dialer, DialTimeout: n.DialTimeout, DialerRetries: n.DialerRetries, DialerRetryTimeout: n.DialerRetryTimeout,
		ReadTimeout: n.ReadTimeout, WriteTimeout: n.WriteTimeout, PoolTimeout: n.PoolTimeout,
		PoolSize: n.PoolSize, MaxActiveConns: n.MaxActiveConns, PipelinePoolSize: n.PipelinePoolSize,
		ReadBufferSize: n.ReadBufferSize, WriteBufferSize: n.WriteBufferSize,
		MinIdleConns: n.MinIdleConns, ConnMaxIdleTime: n.ConnMaxIdleTime, ConnMaxLifetime: n.ConnMaxLifetime,
		DisableIdentity: n.DisableIdentity, TLSConfig: n.TLSConfig, MaintNotificationsConfig: n.MaintNotificationsConfig,
	}
	if t.mode == "sentinel" {
		return redis.NewFailoverClient(several.Failover())
	}
	return redis.NewClusterClient(several.Cluster())
}

// lane is the client and the batcher of one server.
type lane struct {
	shard   string // its address; empty for an only server
	probe   string // a key that it holds, for pings; empty for an only server
	client  *redis.Client
	batcher *cache.Batcher[[]redis.Cmder]
}

func newLane(shard string, c *redis.Client) *lane {
	l := &lane{shard: shard, client: c}
	l.batcher = &cache.Batcher[[]redis.Cmder]{
		Run: l.send, Inline: true,
		Slots: inFlight, MaxCalls: maxCalls, MaxBytes: maxBytes,
	}
	return l
}

// send is one round trip. go-redis does not repeat or drop commands after an error reply to one of them, since retries are off:
// see tune.
func (l *lane) send(ctx context.Context, calls [][]redis.Cmder) {
	if len(calls) == 1 && len(calls[0]) == 1 {
		_ = l.client.Process(ctx, calls[0][0])
		return
	}
	pipe := l.client.Pipeline()
	for _, cmds := range calls {
		_ = pipe.BatchProcess(ctx, cmds...)
	}
	sent, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(sent, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return // every command has its own error
	}
	for _, c := range sent { // the server has refused the connection, as for a wrong password
		c.SetErr(err)
	}
}

// lanes finds the lane of the server that holds a key.
type lanes struct {
	only    *lane // nil in a cluster
	cluster *redis.ClusterClient

	mu       sync.Mutex
	byAddr   map[string]*lane
	replaced []*lane // that may still have calls in flight
}

func (l *lanes) of(ctx context.Context, key string) (*lane, error) {
	if l.only != nil {
		return l.only, nil
	}
	node, err := l.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return l.to(node, key), nil
}

// to returns the lane of a server that holds a key. A server that left the cluster and came back has another client, and another lane.
func (l *lanes) to(node *redis.Client, key string) *lane {
	addr := node.Options().Addr
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.byAddr[addr]
	if got != nil && got.client == node {
		return got
	}
	if got != nil {
		l.replaced = append(slices.DeleteFunc(l.replaced, func(o *lane) bool { return o.batcher.IsIdle() }), got)
	}
	if l.byAddr == nil {
		l.byAddr = map[string]*lane{}
	}
	l.byAddr[addr] = newLane(addr, node)
	l.byAddr[addr].probe = key
	return l.byAddr[addr]
}

// shard returns the address of the server that holds a key, without contacting any; "" without a cluster.
func (l *lanes) shard(key string) string {
	if l.only != nil {
		return ""
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel() // nothing is sent
	node, err := l.cluster.MasterForKey(ended, key)
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// known reports whether any server of the cluster has been found.
func (l *lanes) known() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byAddr) > 0
}

// ping reads a key that the server of a cluster holds, if one is known: a server that is cut off from the others still answers
// PING but refuses all other commands.
func (l *lanes) ping(ctx context.Context, c *redis.Client) error {
	l.mu.Lock()
	there := l.byAddr[c.Options().Addr]
	l.mu.Unlock()
	if there == nil {
		return c.Ping(ctx).Err()
	}
	err := c.HMGet(ctx, there.probe, versionField).Err()
	if re, ok := errors.AsType[redis.Error](err); ok && isOfKey(re.Error()) {
		return nil
	}
	return err
}

func (l *lanes) wait() {
	if l.only != nil {
		l.only.batcher.Wait()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.replaced {
		lane.batcher.Wait()
	}
	for _, lane := range l.byAddr {
		lane.batcher.Wait()
	}
}

// blob is a raw argument of a command. In an interface, a pointer to it needs no allocation; a slice would.
type blob []byte

// MarshalBinary returns the bytes to go-redis.
func (b *blob) MarshalBinary() ([]byte, error) { return *b, nil }

// frame is the memory of one commit's command: a buffer with names and data, and arguments that point into it, or to data that
// lasts.
type frame struct {
	bytes []byte
	blobs []blob
	args  []any
}

var frames sync.Pool // of *frame

// maxFrame is the size of the largest frame that returns to the pool, in bytes.
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

// release returns the frame to the pool. The command must no longer be used.
func (f *frame) release() {
	if f == nil || cap(f.bytes) > maxFrame {
		return
	}
	clear(f.args)
	clear(f.blobs)
	frames.Put(f)
}

// add appends an argument of several parts. bytes and blobs must not be reallocated: newFrame has allocated enough.
func (f *frame) add(mark, name string, data []byte) {
	from := len(f.bytes)
	f.bytes = append(append(append(f.bytes, mark...), name...), data...)
	f.addBlob(f.bytes[from:])
}

// addBlob appends an argument without a copy.
func (f *frame) addBlob(b []byte) {
	f.blobs = append(f.blobs, b)
	f.args = append(f.args, &f.blobs[len(f.blobs)-1])
}
