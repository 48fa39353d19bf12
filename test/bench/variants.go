package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"remora/test/process"
)

// Names of the variants, as the columns of the table.
const (
	direct     = "direct"
	nginx      = "nginx"
	bare       = "bare fasthttp"
	bareRedis  = "bare fasthttp + Redis GET, SET"
	none       = "Remora, no session"
	onMemory   = "session, memory"
	onBolt     = "session, bolt"
	onRedis    = "session, Redis"
	onRedisRAM = "session, Redis without AOF"
	shipped    = "session, Redis, shipped layers"
	withLayers = "session, Redis, window, notes, observations"
)

// variant is one path from the load generator to the upstream.
type variant struct {
	name string
	// named: requests have a session, which is read and committed.
	named bool
	start starter
}

// starter starts an instance of a variant, with its files below dir.
type starter func(ctx context.Context, l *lab, dir string) (*instance, error)

// instance is a running variant.
type instance struct {
	addr    string
	proc    *child // the proxy; nil for direct
	store   *child // the Redis server, which outlives the instance; nil for none
	startup time.Duration
}

// lab is shared by all variants of a run.
type lab struct {
	dir      string   // temporary
	self     string   // this program
	upstream string   // address
	remora   string   // the binary under test
	redis    server   // with an append-only file; without a process if there is no redis-server
	redisRAM server   // without one
	children []*child // processes that run for all rounds
}

func (l *lab) stop() {
	for _, p := range l.children {
		p.stop()
	}
}

// server is a Redis server.
type server struct {
	proc *child
	addr string
}

// newLab builds Remora, and starts the processes that run for all rounds.
func newLab(ctx context.Context, dir string, o options) (*lab, error) {
	l := &lab{dir: dir}
	var err error
	if l.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if l.remora, err = process.BuildUnless(ctx, o.remora, dir); err != nil {
		return nil, err
	}
	p, addr, err := launchRole(ctx, l.self, "-role", "upstream")
	if err != nil {
		return nil, err
	}
	l.upstream, l.children = addr, append(l.children, p)
	if _, err := exec.LookPath("redis-server"); err != nil {
		return l, nil //nolint:nilerr // variants with Redis are left out
	}
	l.redis, err = l.startRedis(ctx, "redis", "--appendonly", "yes", "--appendfsync", "everysec")
	if err == nil {
		l.redisRAM, err = l.startRedis(ctx, "redis-ram", "--appendonly", "no")
	}
	if err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

// variants returns the variants that this machine can run.
func (l *lab) variants() []variant {
	all := []variant{
		{name: direct, start: startDirect},
		{name: nginx, start: startNginx},
		{name: bare, start: startBare("")},
		{name: bareRedis, start: withRedis(l.redis, startBare(l.redis.addr))},
		{name: none, start: remoraOn("memory:", windowOnly)},
		{name: onMemory, named: true, start: remoraOn("memory:", windowOnly)},
		{name: onBolt, named: true, start: remoraOn("bolt:remora.db", windowOnly)},
		{name: onRedis, named: true, start: remoraOnRedis(l.redis, windowOnly)},
		{name: onRedisRAM, named: true, start: remoraOnRedis(l.redisRAM, windowOnly)},
		{name: shipped, named: true, start: remoraOnRedis(l.redis, "")},
		{name: withLayers, named: true, start: remoraOnRedis(l.redis, layered)},
	}
	_, noNginx := exec.LookPath("nginx")
	return slices.DeleteFunc(all, func(v variant) bool {
		return v.name == nginx && noNginx != nil || strings.Contains(v.name, "Redis") && l.redis.proc == nil
	})
}

func startDirect(_ context.Context, l *lab, _ string) (*instance, error) {
	return &instance{addr: l.upstream}, nil
}

// startBare starts the bare proxy, with the Redis server at store unless that is empty.
func startBare(store string) starter {
	return func(ctx context.Context, l *lab, _ string) (*instance, error) {
		p, addr, err := launchRole(ctx, l.self, "-role", "bare", "-upstream", l.upstream, "-store", store)
		if err != nil {
			return nil, err
		}
		return awaitInstance(p, addr)
	}
}

// awaitInstance waits for the first answer, the end of a program's start.
func awaitInstance(p *child, addr string) (*instance, error) {
	at, err := p.firstAnswer(addr)
	if err != nil {
		p.stop()
		return nil, err
	}
	return &instance{addr: addr, proc: p, startup: at.Sub(p.begun)}, nil
}

// startProgram writes a configuration and starts a program with it. The file is the last argument.
func startProgram(ctx context.Context, addr, file, conf, program string, args ...string) (*instance, error) {
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	p, err := launch(ctx, program, append(args, file)...)
	if err != nil {
		return nil, err
	}
	return awaitInstance(p, addr)
}

const nginxConf = `
daemon off;
%s
worker_processes 2;
pid %[2]s/nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
	access_log off;
	client_max_body_size 0;
	client_body_buffer_size 1m;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	keepalive_requests 1000000000;
	upstream api { server %[3]s; keepalive 256; keepalive_requests 1000000000; }
	server {
		listen %[4]s;
		location / {
			proxy_pass http://api;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
			proxy_request_buffering off;
		}
	}
}
`

func startNginx(ctx context.Context, l *lab, dir string) (*instance, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // only this user can read the temporary folder
	}
	return startProgram(ctx, addr, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(nginxConf, user, dir, l.upstream, addr), "nginx", "-e", "stderr", "-c")
}

const remoraConf = `
server: {listen: %q, admin_listen: ""}
store:
  url: %q
  spool: {dir: %q}
providers:
  - {name: bench, kind: compatible, base_url: "http://%s/v1"}
`

// windowOnly stores transcripts and sends a window of 80 items, without layers that add blocks: the targets are for the cost of
// every session. Without it the shipped layers run.
const windowOnly = `
memory: {layers: [{kind: history_window, max_items: 80, evict_batch: 40}]}
`

// layered has layers that add blocks in every turn.
const layered = `
memory: {layers: [{kind: working_memory}, {kind: observational_memory}, {kind: history_window, max_tokens: 64000, in_flight: window}]}
`

// remoraOn starts the proxy. A store on disk is in the instance's folder.
func remoraOn(store, layers string) starter {
	return func(ctx context.Context, l *lab, dir string) (*instance, error) {
		addr, err := freeAddr(ctx)
		if err != nil {
			return nil, err
		}
		url := store
		if path, onDisk := strings.CutPrefix(store, "bolt:"); onDisk {
			url = "bolt:" + filepath.Join(dir, path)
		}
		conf := fmt.Sprintf(remoraConf, addr, url, filepath.Join(dir, "spool"), l.upstream) + layers
		return startProgram(ctx, addr, filepath.Join(dir, "remora.yaml"), conf, l.remora, "--config")
	}
}

// withRedis starts an instance on an emptied Redis server.
func withRedis(s server, start starter) starter {
	return func(ctx context.Context, l *lab, dir string) (*instance, error) {
		if err := flushRedis(ctx, s.addr); err != nil {
			return nil, err
		}
		in, err := start(ctx, l, dir)
		if err == nil {
			in.store = s.proc
		}
		return in, err
	}
}

func remoraOnRedis(s server, layers string) starter {
	return withRedis(s, remoraOn("redis://"+s.addr, layers))
}
