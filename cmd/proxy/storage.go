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
	"strings"
	"time"

	"remora/cache"
	"remora/cache/seal"
	"remora/memory"
	"remora/proxy/limit"
	"remora/telemetry"
)

// storage is where turns are kept: the store, and a spool for the time that it is away. Both are encrypted if the
// configuration says so.
type storage struct {
	cache.Store
	queue memory.Spool // nil without a spool
	spool *cache.Spool
	log   *slog.Logger
}

// storeWait is how long a starting proxy waits for its store before it serves without it.
const storeWait = time.Second

// What connecting to a store and one round trip may take at least. Whoever waits for them goes after store.commit_wait or
// store.read_wait, which may be longer.
const (
	leastDialTimeout = time.Second
	leastOpTimeout   = 2 * time.Second
)

// openStorage opens the store, and the spool if there is to be one.
func openStorage(ctx context.Context, o storeOptions, log *slog.Logger) (*storage, error) {
	sealer, err := seal.New(o.Encryption)
	if err != nil {
		return nil, err
	}
	longest := max(o.CommitWait, o.ReadWait)
	store, err := cache.Open(o.URL.Reveal(), cache.Options{
		Now: time.Now, DialTimeout: max(leastDialTimeout, longest), OpTimeout: max(leastOpTimeout, longest),
	})
	if err != nil {
		return nil, err
	}
	guarded := sealer.Guard(store)
	s := &storage{Store: guarded, log: log}
	if o.Spool.Dir != "" {
		if s.spool, err = cache.OpenSpool(o.Spool.Dir, o.Spool.MaxBytes); err != nil {
			return nil, errors.Join(fmt.Errorf("open store.spool.dir %s: %w", o.Spool.Dir, err), s.close())
		}
		s.spool.OnAside = func(a cache.Aside) {
			log.Error("spooled turns that cannot be read are set aside; the next start tries them again",
				"file", a.File, "turns", a.Records, "error", a.Cause.Error())
		}
		s.queue = sealer.Queue(s.spool)
	}
	if !o.Encryption.AcceptPlaintext {
		guarded.OnBegin = func() {
			log.Warn("encryption begins with this start; what was stored before is not read, see store.encryption.accept_plaintext")
		}
	}
	if err := await(ctx, guarded, log); err != nil {
		return nil, errors.Join(err, s.close())
	}
	guarded.OnMismatch = func(err error) { // the store was away when this would have ended the start
		log.Error("store is not used: the keys configured do not fit it, which no waiting cures", "error", err.Error())
	}
	s.Store = sealer.Store(guarded)
	return s, nil
}

// await tells early what else only the first request would: a proxy starts without its store, as it goes on without it
// later, but not with a store that was written with other keys. One that does not answer now is not touched before it has
// told that.
func await(ctx context.Context, store *seal.Guarded, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	err := store.Ping(ctx)
	if errors.Is(err, seal.ErrMismatch) {
		return err
	}
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, cache.ErrDenied) { // which does not pass by itself, as an outage does
			level = slog.LevelError
		}
		log.Log(ctx, level, "store does not answer; until it does, calls are served as memory.on_store_error says", "error", err.Error())
	}
	return nil
}

// measure has all operations of the store and the size of the spool measured.
func (s *storage) measure(t *telemetry.Telemetry) {
	if t == nil {
		return
	}
	s.Store = observed{s.Store, t, time.Now}
	if s.queue != nil {
		t.WatchSpool(s.queue.Len)
	}
}

// limits bound what callers may ask for. Replicas on one Redis share what each tenant may.
func (s *storage) limits(c Config, log *slog.Logger) *limit.Limiter {
	o := limit.Config{Options: c.Limits, Replica: rand.Uint64(), Now: time.Now} //nolint:gosec // unique, not secret
	if strings.HasPrefix(c.Store.URL.Reveal(), "redis") {
		o.Store = s
		o.OnStore = func(err error) {
			if err != nil {
				log.Warn("limits of tenants are not shared with other replicas for now", "error", err.Error())
			}
		}
	}
	return limit.New(o)
}

// close closes both. Nobody uses them any more.
func (s *storage) close() error {
	var errs []error
	if s.spool != nil {
		if turns, _ := s.spool.Len(); turns > 0 {
			s.log.Warn("turns stay in the spool (store.spool.dir) until the next start", "turns", turns)
		}
		errs = append(errs, s.spool.Close())
	}
	return errors.Join(append(errs, s.Close())...)
}

// wantFile refuses a bolt file that does not exist, which opening would create: whoever reads wants another one.
func wantFile(url string) error {
	path, ok := strings.CutPrefix(url, "bolt:")
	if !ok {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("open store (store.url): %w", err)
	}
	return nil
}

// warnOfSpool tells that a transcript may lack turns which the store could not take.
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
