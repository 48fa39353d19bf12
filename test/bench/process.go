package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"remora/test/process"
)

// child is a child process of the benchmark. It ends with the context of its start.
type child struct {
	*process.Child

	begun time.Time
}

func launch(ctx context.Context, program string, args ...string) (*child, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	process.DieWithParent(cmd)
	begun := time.Now()
	c, err := process.Launch(cmd)
	return &child{c, begun}, err
}

// launchRole starts this program in another role, and returns the address on which it serves.
func launchRole(ctx context.Context, self string, args ...string) (*child, string, error) {
	p, err := launch(ctx, self, args...)
	if err != nil {
		return nil, "", err
	}
	url, err := p.Await()
	if err != nil {
		p.stop()
		return nil, "", err
	}
	return p, strings.TrimPrefix(url, "http://"), nil
}

// stop stops the process. It may be nil.
func (p *child) stop() {
	const grace = 3 * time.Second
	if p != nil {
		_ = p.StopWithin(grace)
	}
}

// family returns the process and its children, such as nginx's workers.
func (p *child) family() []int {
	pid := p.PID()
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // none without /proc
	pids := []int{pid}
	for field := range strings.FieldsSeq(string(list)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// cpu returns the user and system time used so far; 0 for no process.
func (p *child) cpu() time.Duration {
	if p == nil {
		return 0
	}
	var sum time.Duration
	for _, pid := range p.family() {
		d, err := processCPU(pid)
		if err != nil {
			continue // the worker has ended
		}
		sum += d
	}
	return sum
}

// resident reads VmRSS (current) or VmHWM (peak), in MB.
func (p *child) resident(field string) float64 {
	var sum float64
	for _, pid := range p.family() {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // none without /proc
		_, rest, found := bytes.Cut(status, []byte(field+":"))
		if fields := bytes.Fields(rest); found && len(fields) > 0 {
			kb, _ := strconv.ParseFloat(string(fields[0]), 64) // always a number
			sum += kb * 1024 / 1e6
		}
	}
	return sum
}

// firstAnswer waits until addr answers a request, and returns the time of the answer.
func (p *child) firstAnswer(addr string) (time.Time, error) {
	const within = 15 * time.Second
	t := newTalker(smallDialogue(), growing(1, 1), "start", 1)
	req := t.next(nil)
	for {
		at, err := ask(addr, req)
		if err == nil {
			return at, nil
		}
		select {
		case <-p.Ended():
			return time.Time{}, fmt.Errorf("%s ended before its first answer: %s", p.Name(), p.printed())
		case <-time.After(200 * time.Microsecond):
		}
		if time.Since(p.begun) > within {
			return time.Time{}, fmt.Errorf("wait for the first answer of %s: %w: %s", p.Name(), err, p.printed())
		}
	}
}

func ask(addr string, req []byte) (time.Time, error) {
	c, err := dial(addr)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = c.net.Close() }()
	_ = c.net.SetDeadline(time.Now().Add(5 * time.Second)) // fails only for a closed socket
	var r reply
	if err := c.exchange(req, &r, nil); err != nil {
		return time.Time{}, err
	}
	if r.status != 200 {
		return time.Time{}, fmt.Errorf("answer has status %d", r.status)
	}
	return r.first, nil
}

// freeAddr returns an unused address, which is reserved until the end of the context.
func freeAddr(ctx context.Context) (string, error) {
	port, release, err := process.FreePort()
	if err == nil {
		context.AfterFunc(ctx, func() { _ = release() }) // at the end
	}
	return process.Loopback(port), err
}

// startRedis starts a server that runs for all rounds, with its files in a new folder. It writes nothing to disk, except for what
// the other arguments say.
func (l *lab) startRedis(ctx context.Context, name string, args ...string) (server, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return server{}, err
	}
	dir := filepath.Join(l.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return server{}, err
	}
	_, port, _ := net.SplitHostPort(addr) // it has one
	args = append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--auto-aof-rewrite-percentage", "0"}, args...)
	p, err := launch(ctx, "redis-server", args...)
	if err != nil {
		return server{}, err
	}
	l.children = append(l.children, p)
	for range 200 {
		if err = flushRedis(ctx, addr); err == nil {
			return server{p, addr}, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return server{}, fmt.Errorf("start redis-server: %w: %s", err, p.printed())
}

// flushRedis empties a server.
func flushRedis(ctx context.Context, addr string) error {
	db := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ReadTimeout: 10 * time.Second})
	defer func() { _ = db.Close() }()
	return db.FlushAll(ctx).Err()
}

// printed returns the end of the process's stderr.
func (p *child) printed() string {
	const most = 4 << 10 // bytes
	if p == nil {
		return ""
	}
	log := p.Log()
	return log[max(0, len(log)-most):]
}
