package providers

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Errors of [Client] and [Exchange] wrap exactly one of these.
var (
	// ErrUnreachable: no connection could be made. Nothing was sent.
	ErrUnreachable = errors.New("upstream cannot be reached")
	// ErrClosed: upstream ended the connection before its answer was complete.
	ErrClosed = errors.New("upstream closed the connection")
	// ErrTimeout: upstream was silent for longer than the options allow.
	ErrTimeout = errors.New("upstream did not answer in time")
	// ErrMalformed: the answer is not HTTP/1.x.
	ErrMalformed = errors.New("upstream answer is not valid HTTP")
	// ErrLargeHead: the head of the answer is larger than MaxHeader.
	ErrLargeHead = errors.New("the head of upstream's answer is too large (server.upstream.max_header)")
	// ErrIdle: nothing has arrived for [Exchange.Silence]. The answer goes on: call Next again.
	ErrIdle = errors.New("upstream is silent")
	// ErrAborted: [Exchange.Abort] was called.
	ErrAborted = errors.New("exchange was aborted")
)

// ClientOptions configure a Client. Durations of 0 mean "no limit".
type ClientOptions struct {
	// DialTimeout bounds name resolution, TCP connect and TLS handshake together.
	DialTimeout time.Duration `mapstructure:"dial_timeout"`
	// ResponseHeaderTimeout bounds the time from the start of sending to the end of the response head. It has to be long for
	// models that think for minutes before they send an unstreamed answer.
	ResponseHeaderTimeout time.Duration `mapstructure:"response_header_timeout"`
	// StreamIdleTimeout bounds the silence between two pieces of a body.
	StreamIdleTimeout time.Duration `mapstructure:"stream_idle_timeout"`
	// IdleConnTimeout is how long an unused connection is kept. It should be shorter than the upstream's own timeout.
	IdleConnTimeout time.Duration `mapstructure:"idle_conn_timeout"`
	// MaxIdleConns is how many unused connections are kept per upstream.
	MaxIdleConns int `mapstructure:"max_idle_conns"`
	// MaxHeader is the largest response head in bytes. It is also the read buffer of a connection in use.
	MaxHeader int `mapstructure:"max_header"`
	// TLS is the base of the TLS configuration, nil for Go's defaults. ServerName and ALPN are set per upstream.
	TLS *tls.Config `mapstructure:"-"`
	// Proxy chooses a forward proxy, as in net/http; nil means the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).
	Proxy func(*http.Request) (*url.URL, error) `mapstructure:"-"`
	// Now is the clock, nil for time.Now.
	Now func() time.Time `mapstructure:"-"`
}

// Validate returns all problems, joined, each under its path below path.
func (o *ClientOptions) Validate(path string) error {
	var problems []error
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"dial_timeout", o.DialTimeout},
		{"response_header_timeout", o.ResponseHeaderTimeout},
		{"stream_idle_timeout", o.StreamIdleTimeout},
		{"idle_conn_timeout", o.IdleConnTimeout},
	} {
		if d.value < 0 {
			problems = append(problems, fmt.Errorf("%s.%s: must not be negative, is %s", path, d.key, d.value))
		}
	}
	if o.MaxIdleConns < 0 {
		problems = append(problems, fmt.Errorf("%s.max_idle_conns: must not be negative, is %d", path, o.MaxIdleConns))
	}
	if o.MaxHeader < minHeader || o.MaxHeader > maxHeader {
		problems = append(problems, fmt.Errorf("%s.max_header: must be from %d to %d, is %d",
			path, minHeader, maxHeader, o.MaxHeader))
	}
	return errors.Join(problems...)
}

const (
	minHeader = 4 << 10
	maxHeader = 1 << 20
)

// Client sends requests to upstreams over pooled HTTP/1.1 connections. It is safe for concurrent use.
//
// It has a connection pool of its own: fasthttp's HostClient can't dial under a context, does not check a pooled connection
// before it uses it, takes the oldest one instead of the one used last, and starts a goroutine that can't be stopped.
type Client struct {
	o       ClientOptions
	readers sync.Pool // *bufio.Reader of MaxHeader bytes

	mu     sync.Mutex
	pools  map[Address]*pool
	closed bool

	stop   chan struct{}
	reaper sync.WaitGroup
}

// pool holds the unused connections of one upstream, the one that was used last at the end.
type pool struct {
	client *Client
	addr   Address
	tls    *tls.Config // nil for plain TCP
	proxy  *url.URL    // nil for a direct connection

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

// conn is a connection to an upstream, owned by one Exchange or by its pool.
type conn struct {
	net.Conn
	probe Probe // of the connection below TLS
	pool  *pool
	since time.Time // when it became unused
}

// NewClient starts a Client. Close must be called to stop it.
func NewClient(o ClientOptions) *Client {
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default clock of a library that takes one
	}
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}
	o.MaxHeader = min(max(o.MaxHeader, minHeader), maxHeader)
	c := &Client{o: o, pools: make(map[Address]*pool), stop: make(chan struct{})}
	c.readers.New = func() any { return bufio.NewReaderSize(nil, c.o.MaxHeader) }
	if o.IdleConnTimeout > 0 {
		c.reaper.Add(1)
		go c.reap(max(o.IdleConnTimeout/2, time.Millisecond))
	}
	return c
}

// Close closes the unused connections. Those in use are closed with their exchanges.
func (c *Client) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	pools := c.pools
	c.mu.Unlock()
	close(c.stop)
	c.reaper.Wait()
	for _, p := range pools {
		p.shut()
	}
}

// reap closes connections that have not been used for a while. Upstream would close them soon, and their descriptors would
// stay open here until the next request.
func (c *Client) reap(every time.Duration) {
	defer c.reaper.Done()
	tick := time.NewTicker(every) //nolint:forbidigo // paces a sweep, measures nothing
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		pools := make([]*pool, 0, len(c.pools))
		for _, p := range c.pools {
			pools = append(pools, p)
		}
		c.mu.Unlock()
		for _, p := range pools {
			p.expire(c.o.Now().Add(-c.o.IdleConnTimeout))
		}
	}
}

// pool returns the pool of an upstream.
func (c *Client) pool(up Address) (*pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pools[up]; p != nil {
		return p, nil
	}
	p := &pool{client: c, addr: up, closed: c.closed}
	target := &url.URL{Scheme: "http", Host: up.Addr}
	if up.TLS {
		target.Scheme = "https"
		p.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		if c.o.TLS != nil {
			p.tls = c.o.TLS.Clone()
		}
		p.tls.ServerName = cmp.Or(p.tls.ServerName, up.ServerName)
		// Offer only HTTP/1.1, which Client speaks: without ALPN some servers assume HTTP/2.
		p.tls.NextProtos = []string{"http/1.1"}
		if p.tls.ClientSessionCache == nil {
			p.tls.ClientSessionCache = tls.NewLRUClientSessionCache(64)
		}
	}
	var err error
	if p.proxy, err = c.o.Proxy(&http.Request{URL: target}); err != nil {
		return nil, fmt.Errorf("%w: read the proxy settings of the environment: %w", ErrUnreachable, err)
	}
	c.pools[up] = p
	return p, nil
}

// get returns an unused connection that the other end has not closed, nil if there is none.
func (p *pool) get() *conn {
	for {
		p.mu.Lock()
		n := len(p.idle) - 1
		if n < 0 {
			p.mu.Unlock()
			return nil
		}
		cn := p.idle[n]
		p.idle[n] = nil
		p.idle = p.idle[:n]
		p.mu.Unlock()
		// Bytes that arrive before a request are not an answer to it: such a connection can't be used either.
		if s := cn.probe.Look(); s == PeerQuiet || s == PeerUnknown {
			return cn
		}
		_ = cn.Close()
	}
}

// empty reports whether nothing follows the answer that has just been read. TLS reads ahead, and may hold bytes that neither
// the buffer above it nor the kernel shows. They would be taken for the answer to the next request.
func (cn *conn) empty() bool {
	if cn.pool.tls == nil {
		return true
	}
	_ = cn.SetReadDeadline(past()) // so that only what was read ahead is read
	var one [1]byte
	n, err := cn.Read(one[:])
	var timeout net.Error
	return n == 0 && errors.As(err, &timeout) && timeout.Timeout()
}

// put keeps cn for the next exchange.
func (p *pool) put(cn *conn) {
	cn.since = p.client.o.Now()
	p.mu.Lock()
	full := p.closed || len(p.idle) >= p.client.o.MaxIdleConns
	if !full {
		p.idle = append(p.idle, cn)
	}
	p.mu.Unlock()
	if full {
		_ = cn.Close()
	}
}

// expire closes the connections that have been unused since before the given time.
func (p *pool) expire(before time.Time) {
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && p.idle[n].since.Before(before) {
		n++
	}
	old := append([]*conn(nil), p.idle[:n]...)
	kept := copy(p.idle, p.idle[n:])
	clear(p.idle[kept:])
	p.idle = p.idle[:kept]
	p.mu.Unlock()
	for _, cn := range old {
		_ = cn.Close()
	}
}

func (p *pool) shut() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, cn := range idle {
		_ = cn.Close()
	}
}
