package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"remora/secret"
	"remora/test/kit"
)

// store runs `remora store`.
func (d *workspace) store(code int, args ...string) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), kit.BuildProxy(d.t), append([]string{"store", "--config", d.config}, args...)...)
	cmd.Dir = d.dir
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != code {
		d.t.Errorf("store %q: want exit code %d, have %s\n%s", args, code, cmd.ProcessState, out)
	}
	return string(out)
}

// TestStoreCompact: compacting removes deleted sessions from the file and keeps the others. A file that a proxy has open is not
// compacted.
func TestStoreCompact(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	const canary = "CANARY-4711"
	for range 80 { // frees more pages than the next writes use
		d.say("chat/completions", chat("user: SAY "+strings.Repeat(canary+" ", 100)+rand.Text()), "X-Session-Id: gone")
	}
	d.say("chat/completions", chat("user: SAY kept"), "X-Session-Id: kept")
	if out := d.store(1, "compact"); !strings.Contains(out, "store.url") || !strings.Contains(out, "is locked") {
		t.Errorf("of a file that is open: %s", out)
	}
	d.proxy.Stop()
	d.run(0, "", "delete", "--session", "gone")
	file := filepath.Join(d.dir, "remora.db")
	holds := func() bool {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(b), canary)
	}
	if !holds() {
		t.Error("deleted content is not in the file any more: then the page that says so is wrong")
	}
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	out := d.store(0, "compact")
	after, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("remora.db: %d bytes, before %d\n", after.Size(), before.Size()); out != want || after.Size() >= before.Size() {
		t.Errorf("told %q, want %q", out, want)
	}
	if holds() {
		t.Error("deleted content is still in the file")
	}
	if text, _ := d.run(0, "", "--text", "--session", "kept"); !strings.Contains(text, "kept") {
		t.Errorf("what was not deleted: %s", text)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if out := d.store(1, "compact"); !strings.Contains(out, "no such file") {
		t.Errorf("of no file: %s", out)
	}
	if err := os.WriteFile(d.config, []byte("store: {url: \"redis://:hush@localhost\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := d.store(1, "compact"); !strings.Contains(out, "want bolt:PATH") || strings.Contains(out, "hush") {
		t.Errorf("of Redis: %s", out)
	}
}

// TestEvictionIsLogged: the log warns of a Redis that evicts sessions, and says if it could not find out.
func TestEvictionIsLogged(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	for _, c := range []struct {
		name, policy string
		acl          []string
		user         string
		hangs        bool
		want         string
	}{
		{"one that keeps all", "noeviction", nil, "", false, ""},
		{"one that hangs", "allkeys-lru", nil, "", true, `"level":"INFO","msg":"whether Redis evicts sessions is not known`},
		{"one that evicts", "allkeys-lru", nil, "", false, `"level":"WARN","msg":"Redis deletes whole sessions`},
		{"one that evicts what expires", "volatile-ttl", nil, "", false, `"maxmemory_policy":"volatile-ttl"`},
		{"an account without CONFIG", "allkeys-lru", []string{"+@all", "-config"}, "u:p@", false, `"level":"WARN","msg":"Redis deletes whole sessions`},
		{"an account without both", "allkeys-lru", []string{"+@all", "-config", "-info"}, "u:p@", false, `"reason":"ask for maxmemory-policy: the store refuses store.url: NOPERM`},
		{"an account that is refused", "allkeys-lru", []string{"+@all"}, "u:wrong@", false, `"reason":"ask for maxmemory-policy: the store refuses store.url: WRONGPASS`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := kit.StartRedis(t, "--maxmemory-policy", c.policy)
			if c.acl != nil {
				if _, err := srv.Do(append([]string{"ACL", "SETUSER", "u", "on", ">p", "~*"}, c.acl...)...); err != nil {
					t.Fatal(err)
				}
			}
			if c.hangs {
				srv.Pause()
				defer srv.Resume() // the end of the proxy, which waits for it too
			}
			d := &workspace{t: t, dir: t.TempDir()}
			d.start(d.configFor("redis://"+c.user+srv.Addr(), up.URL()))
			log := d.proxy.Log()
			// On a busy machine, Redis may not answer within the time of a start.
			for try := 1; try < 10 && !c.hangs && strings.Contains(log, "deadline exceeded"); try++ {
				d.proxy.Stop()
				d.proxy.Restart()
				log = d.proxy.Log()
			}
			if c.want != "" {
				d.proxy.Logged(c.want, 1)
			} else if strings.Contains(log, "evict") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

// TestALaterEvictionPolicyIsLogged: once for each change, and not again after an outage.
func TestALaterEvictionPolicyIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		answers := []string{"", "", "allkeys-lru", "allkeys-lru", "down", "allkeys-lru", "volatile-lru", ""}
		later := time.Duration(len(answers)-1) * evictionEvery
		stop := watchEviction(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) ([]string, error) {
			policy := answers[0]
			if answers = answers[1:]; policy == "down" {
				return nil, errors.New(policy)
			}
			return strings.Fields(policy), nil
		})
		time.Sleep(later + time.Second)
		stop()
		for line, n := range map[string]int{"deletes whole": 2, "maxmemory_policy=allkeys-lru": 1, "maxmemory_policy=volatile-lru": 1, "no sessions any more": 1, "down": 0} {
			if got := strings.Count(log.String(), line); got != n {
				t.Errorf("%q is logged %d times, want %d: %s", line, got, n, log.String())
			}
		}
	})
}

// TestRedisThatClosesConnections: a server that wants TLS cuts off one that speaks without. The log says what may be wrong.
func TestRedisThatClosesConnections(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	for _, reset := range []bool{false, true} {
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1<<10))
				if tcp, ok := conn.(*net.TCPConn); ok && reset {
					_ = tcp.SetLinger(0)
				}
				_ = conn.Close()
			}
		}()
		d := &workspace{t: t, dir: t.TempDir()}
		d.start(d.configFor("redis://"+ln.Addr().String(), up.URL()))
		d.proxy.Logged("if the server wants TLS, begin store.url with rediss", 1)
	}
}

// TestRedisWithoutTLS: a server without TLS never answers the handshake. The log says what may be wrong.
func TestRedisWithoutTLS(t *testing.T) {
	t.Parallel()
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(d.configFor("rediss://"+kit.StartRedis(t).Addr(), startUpstream(t).URL()))
	d.proxy.Logged("if the server has no TLS, begin store.url with redis", 1)
}

// TestDocumentedAccount: the account that docs/redis.md describes is enough, and the log says what one with fewer keys lacks.
func TestDocumentedAccount(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(page), "\nACL SETUSER ")
	if line, _, _ = strings.Cut(line, "\n"); !found {
		t.Fatal("docs/redis.md has no ACL SETUSER")
	}
	up, srv := startUpstream(t), kit.StartRedis(t, "--maxmemory-policy", "noeviction")
	allow := func(line string) {
		t.Helper()
		if _, err := srv.Do(append([]string{"ACL", "SETUSER"}, strings.Fields(line)...)...); err != nil {
			t.Fatal(err)
		}
	}
	allow(line)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(d.configFor("redis://remora:PASSWORD@"+srv.Addr(), up.URL()) + "limits: {tenant: {requests_per_minute: 6000}}\n")
	res, _, err := d.send("chat/completions", chat("user: SAY kept"), "X-Session-Id: s", "X-Resource-Id: r")
	if err != nil || !strings.HasPrefix(res.Header.Get("X-Memory"), "ok;") {
		t.Errorf("%v, %v", res.Header, err)
	}
	if out, _ := d.run(0, "", "list"); out != "s\n" {
		t.Errorf("listed %q", out)
	}
	d.run(0, "", "delete", "--session", "s")
	if log := d.proxy.Log(); strings.Contains(log, "NOPERM") || strings.Contains(log, "is not known") {
		t.Errorf("Redis refused a call:\n%s", log)
	}

	allow(strings.Replace(line, "~i1:*", "", 1))
	_, _, _ = d.send("chat/completions", chat("user: SAY kept"), "X-Session-Id: s")
	d.proxy.Logged("the account needs the keys ~r1:* and ~i1:*", 1)
}

// TestEmptyFileIsLogged: a file that lost its content is not taken for a new store without a word.
func TestEmptyFileIsLogged(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(d.configFor("bolt:remora.db", up.URL()))
	const line = "is empty and begins as a new store"
	if log := d.proxy.Log(); strings.Contains(log, line) {
		t.Errorf("of a new store:\n%s", log)
	}
	d.proxy.Stop()
	if err := os.Truncate(filepath.Join(d.dir, "remora.db"), 0); err != nil {
		t.Fatal(err)
	}
	d.proxy.Restart()
	d.proxy.Logged(line, 1)
}

// TestForgottenSessionIsLogged: a session that is gone although its client continues it is logged once, by a hash and without
// content. A new session is not logged.
func TestForgottenSessionIsLogged(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	srv := kit.StartRedis(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(d.configFor(srv.URL(), up.URL()))
	const line = "a session with a past is not stored"
	resent := chat("user: SAY one", "assistant: one", "user: SAY two")
	d.say("chat/completions", chat("user: SAY one"), "X-Session-Id: secret-name")
	d.say("chat/completions", resent, "X-Session-Id: secret-name")
	d.say("chat/completions", chat("user: SAY new"), "X-Session-Id: other")
	if log := d.proxy.Log(); strings.Contains(log, line) {
		t.Errorf("before anything is gone:\n%s", log)
	}
	if _, err := srv.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	d.say("chat/completions", chat("user: SAY one", "assistant: one", "user: SAY two", "assistant: two", "user: SAY three"), "X-Session-Id: secret-name")
	// This upstream does not know the answer either, and refuses the request.
	_, _, _ = d.send("responses", `{"model":"m","previous_response_id":"resp_gone","input":"SAY on"}`, "X-Session-Id: by-id")
	for range 3 {
		d.say("chat/completions", resent, "X-Session-Id: third")
	}
	log := d.proxy.Logged(line, 3)
	if n := strings.Count(log, line); n != 3 || strings.Contains(log, "secret-name") || strings.Contains(log, "third") || strings.Contains(log, "by-id") || !strings.Contains(log, `"session_hash":"`) {
		t.Errorf("%d lines:\n%s", n, log)
	}
}

// TestStoreBackup: a proxy starts with a copy of a bolt file and has all sessions, whether or not a proxy had the file open.
func TestStoreBackup(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	d.say("chat/completions", chat("user: SAY kept"), "X-Session-Id: s")

	info, err := os.Stat(filepath.Join(d.dir, "remora.db.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v; want it for the owner alone", info, err)
	}
	for _, name := range []string{"running.db", "stopped.db"} {
		if name == "stopped.db" {
			d.proxy.Stop()
		}
		if out := d.store(0, "backup", name); !strings.HasPrefix(out, name+": ") {
			t.Errorf("told %q", out)
		}
		if out := d.store(1, "backup", name); !strings.Contains(out, "is there already") {
			t.Errorf("over another backup: %s", out)
		}
	}
	d.proxy.Restart()
	d.say("chat/completions", chat("user: SAY later"), "X-Session-Id: later")
	d.proxy.Stop()

	for _, name := range []string{"running.db", "stopped.db"} {
		if err := os.Rename(filepath.Join(d.dir, name), filepath.Join(d.dir, "remora.db")); err != nil {
			t.Fatal(err)
		}
		if text, _ := d.run(0, "", "--text", "--session", "s"); !strings.Contains(text, "kept") {
			t.Errorf("%s, restored: %s", name, text)
		}
		d.refuses("", "--session", "later")
	}
}

// TestUnusablePaths: a file or folder of the store that cannot be made ends the start. The error has the whole path, since a relative
// one depends on where the process was started, and says what to want.
func TestUnusablePaths(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full := func(p string) string {
		full, err := filepath.Abs(p)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Quote(full)
	}
	for _, c := range []struct{ url, spool, want string }{
		{"bolt:none/x.db", "", "open store " + full("none/x.db") + " (store.url): want a file in a folder that exists, which this process may write to: "},
		{"memory:", "file/spool", "open store.spool.dir: want a folder that this process may write to, have " + full("file/spool") + ": "},
	} {
		o := storeOptions{URL: secret.String(c.url)}
		o.Spool.Dir, o.Spool.MaxBytes = c.spool, 1<<20
		if _, err := openStorage(o, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("have %v, want %s...", err, c.want)
		}
	}
}

// TestHungDiskIsLeftBehind: the process ends although a disk hangs, and says which part it has left.
func TestHungDiskIsLeftBehind(t *testing.T) {
	failed, hangs := errors.New("disk full"), make(chan struct{})
	for _, tt := range []struct {
		name  string
		close func() error
		want  string
	}{
		{"answers", func() error { return nil }, "<nil>"},
		{"is slow and fails", func() error { time.Sleep(time.Second); return failed }, "disk full"},
		{"hangs", func() error { <-hangs; return nil }, "close the spool: its disk does not answer; it is left as it is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs = make(chan struct{})
				begun := time.Now()
				if got := fmt.Sprint(closeInTime("the spool", tt.close)); got != tt.want || time.Since(begun) > diskGrace {
					t.Errorf("after %s: %s", time.Since(begun), got)
				}
				close(hangs)
			})
		})
	}
}
