package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"remora/cache"
	"remora/cache/encrypted"
	"remora/cache/redis"
	"remora/cache/spool"
	"remora/cache/stores"
	"remora/memory"
	"remora/proxy/limit"
	"remora/telemetry"
)

// storage is the store, and the spool that holds turns while the store is unavailable. Both are encrypted if configured.
type storage struct {
	cache.Store
	guarded *encrypted.Guarded // checks the keys
	raw     cache.Store        // without encryption
	queue   memory.Spool       // nil without a spool
	spool   *spool.Queue
	tel     *telemetry.Telemetry // nil without metrics
	log     *slog.Logger
	scheme  string // of store.url
	// accepted is whether the store has accepted the account of store.url since the start.
	accepted atomic.Bool
}

// storeWait bounds the wait for the store at the start, after which the proxy serves without it.
const storeWait = time.Second

// The shortest time limits for connecting to a store and for one round trip. They are longer if store.commit_wait or
// store.read_wait is, which bound the wait of a request.
const (
	leastDialTimeout = time.Second
	leastOpTimeout   = 2 * time.Second
)

// openStorage opens the store, and the spool if one is configured. It contacts no server: see [storage.check].
func openStorage(o storeOptions, log *slog.Logger) (*storage, error) {
	sealer, err := encrypted.New(o.Encryption)
	if err != nil {
		return nil, err
	}
	warnOfEmptyFile(o.URL.Reveal(), log)
	isNew := isNewStore(o.URL.Reveal())
	longest := max(o.CommitWait, o.ReadWait)
	store, err := stores.Open(o.URL.Reveal(), cache.Options{
		Now: time.Now, TLS: o.TLS, DialTimeout: max(leastDialTimeout, longest), OpTimeout: max(leastOpTimeout, longest),
	})
	if err != nil {
		return nil, err
	}

	guarded := sealer.Guard(store)
	scheme, _, _ := strings.Cut(o.URL.Reveal(), ":")
	s := &storage{Store: sealer.Store(guarded), guarded: guarded, raw: store, log: log, scheme: scheme}
	if o.Spool.Dir != "" {
		if s.spool, err = spool.Open(o.Spool.Dir, o.Spool.MaxBytes); err != nil {
			dir, _ := filepath.Abs(o.Spool.Dir)
			return nil, errors.Join(fmt.Errorf("open store.spool.dir: want a folder that this process may write to, have %q: %w", dir, err), s.close())
		}
		s.spool.OnQuarantine = func(a spool.Quarantined) {
			log.Error("spooled turns that cannot be read are set aside; the next start tries them again",
				"file", a.File, "turns", a.Records-a.Lost, "error", a.Cause.Error())
			if a.Lost > 0 {
				log.Error("turns lost: they cannot be read, and a quarter of store.spool.max_bytes is set aside already", "turns", a.Lost)
			}
			s.tel.Lost(a.Lost)
			s.tel.Quarantined(a.Records - a.Lost)
		}
		s.queue = sealer.Queue(s.spool)
	}

	guarded.OnBegin = func(again bool) {
		switch {
		case again:
			log.Warn("the store has lost the record of its encryption keys, as after FLUSHALL; it is written again")
		case !o.Encryption.AcceptPlaintext && !isNew:
			log.Warn("encryption begins with this start; what was stored before, if anything, is not read, see store.encryption.accept_plaintext")
		}
	}
	return s, nil
}

// check checks the store at the start of a proxy instead of at the first request. It only fails for a store that was written with
// other keys: a proxy serves without its store. A store that does not answer now is checked before its first use.
func (s *storage) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	log, err := s.log, s.guarded.Ping(ctx)
	s.guarded.OnMismatch = func(err error) {
		log.Error("store is not used: it was written with other keys than those configured", "error", err.Error())
	}
	if errors.Is(err, encrypted.ErrMismatch) {
		return err
	}
	if err == nil {
		s.accepted.Store(true)
		return nil
	}
	level := slog.LevelWarn
	if errors.Is(err, cache.ErrDenied) { // unlike an outage, it does not end by itself
		level = slog.LevelError
	}
	scheme, _, _ := strings.Cut(s.scheme, "+")
	switch {
	case scheme == "redis" && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)):
		log = log.With("hint", "if the server wants TLS, begin store.url with rediss")
	case scheme == "rediss" && errors.Is(err, context.DeadlineExceeded): // Redis waits for the end of the handshake as for that of a line
		log = log.With("hint", "if the server has no TLS, begin store.url with redis")
	}
	if fault, _ := cache.FaultOf(err); fault == cache.FaultShard {
		log.Log(ctx, level, "a server of the store does not answer; until it does, calls of its sessions are served as memory.on_store_error says",
			"error", err.Error())
		return nil
	}
	log.Log(ctx, level, "store does not answer; until it does, calls are served as memory.on_store_error says", "error", err.Error())
	return nil
}

// warnOfEmptyFile logs that the file of a store is there and has no content, as after a truncation: it begins as a new store, like a
// missing one.
func warnOfEmptyFile(url string, log *slog.Logger) {
	path := stores.File(url)
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		log.Warn("the file of store.url is empty and begins as a new store; if it held sessions, stop and restore a backup", "file", path)
	}
}

// isNewStore reports whether the store of a URL is known to hold nothing yet. It must be asked before the store is opened.
func isNewStore(url string) bool {
	if path := stores.File(url); path != "" {
		info, err := os.Stat(path)
		return errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0
	}
	return stores.InProcess(url)
}

// evictionEvery is how often Redis is asked for its eviction policy, which an operator can change at any time.
const evictionEvery = time.Minute

// watchEviction logs that Redis deletes sessions when its memory is full, now and when that has changed. ask returns the policies
// with which it does. Call stop at the end, which waits.
func watchEviction(ctx context.Context, log *slog.Logger, ask func(context.Context) ([]string, error)) (stop func()) {
	told, err := ask(ctx)
	if len(told) > 0 {
		warnOfEviction(log, told)
	}
	if err != nil {
		log.Info("whether Redis evicts sessions is not known; see docs/redis.md", "reason", err.Error(), "want_maxmemory_policy", redis.NoEviction)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(evictionEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			policies, err := ask(ctx)
			if err != nil || slices.Equal(policies, told) {
				continue // a store that does not answer is logged elsewhere
			}
			if told = policies; len(told) > 0 {
				warnOfEviction(log, told)
			} else {
				log.Info("Redis deletes no sessions any more when its memory is full")
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

func warnOfEviction(log *slog.Logger, policies []string) {
	log.Warn("Redis deletes whole sessions when its memory is full, and their clients are not told; see docs/redis.md",
		"maxmemory_policy", strings.Join(policies, ", "), "want", redis.NoEviction)
}

// evictionPolicies returns the policies with which the store evicts sessions: see [redis.EvictionPolicies].
func (s *storage) evictionPolicies(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	return redis.EvictionPolicies(ctx, s.raw)
}

// measure adds metrics to the operations of the store, and counts turns that are lost or quarantined.
func (s *storage) measure(t *telemetry.Telemetry) {
	if t == nil {
		return
	}
	s.Store = observed{s.Store, t, time.Now}
	s.tel = t
}

// limits returns a new rate limiter. Replicas on one Redis share the rate of each tenant.
func (s *storage) limits(c Config, log *slog.Logger) *limit.Limiter {
	o := limit.Config{Options: c.limits(), Replica: rand.Uint64(), Now: time.Now} //nolint:gosec // unique, not secret
	if stores.Shared(c.Store.URL.Reveal()) {
		o.Store = s
		o.OnStore = func(err error) {
			if err != nil {
				log.Warn("limits of tenants are not shared with other replicas for now", "error", err.Error())
			}
		}
	}
	return limit.New(o)
}

// close closes the store and the spool, which must no longer be in use.
func (s *storage) close() error {
	var errs []error
	if s.spool != nil {
		if records, _ := s.spool.Len(); records > 0 {
			s.log.Warn("turns stay in the spool (store.spool.dir) until the next start", "records", records)
		}
		errs = append(errs, closeInTime("the spool (store.spool.dir)", s.spool.Close))
	}
	return errors.Join(append(errs, closeInTime("the store (store.url)", s.Close))...)
}

// diskGrace is how long the end of the process waits for a disk.
const diskGrace = 5 * time.Second

// closeInTime calls the Close of a part, which hangs if its disk does: then the part is left as after a crash.
func closeInTime(part string, closes func() error) error {
	closed := make(chan error, 1)
	go func() { closed <- closes() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(diskGrace):
		return fmt.Errorf("close %s: its disk does not answer; it is left as it is", part)
	}
}

// wantStore returns an error for a store that a command cannot use: the memory of a process, since the command would open one of its
// own; and, unless it may create one, a file that does not exist.
func wantStore(url string, create bool) error {
	if stores.InProcess(url) {
		return errors.New("open store: store.url is memory:, the memory of the proxy, which commands cannot open: " +
			"with bolt:PATH or redis://host they can")
	}
	path := stores.File(url)
	if path == "" || create {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("open store (store.url): %w", err)
	}
	return nil
}

// warnOfSpool warns that a transcript may lack turns that are still in the spool.
func warnOfSpool(w io.Writer, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if dir == "" || err != nil {
		return
	}
	for _, name := range files {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			_, _ = fmt.Fprintf(w, "turns may wait in %s (store.spool.dir) for the next proxy, and be missing here\n", dir)
			return
		}
	}
}

// observed adds metrics to a store.
type observed struct {
	cache.Store
	telemetry *telemetry.Telemetry
	now       func() time.Time
}

// Read reads, and records how long it took.
func (o observed) Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
	begun := o.now()
	results, err := o.Store.Read(ctx, queries)
	o.telemetry.Store(ctx, "read", begun, o.now().Sub(begun), err)
	return results, err
}

// Commit writes, and records how long it took. A conflict does not count as an error.
func (o observed) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	begun := o.now()
	outcomes := o.Store.Commit(ctx, batches)
	var err error
	for _, out := range outcomes {
		if out.Err != nil && !errors.Is(out.Err, cache.ErrConflict) {
			err = out.Err
		}
	}
	o.telemetry.Store(ctx, "commit", begun, o.now().Sub(begun), err)
	return outcomes
}
