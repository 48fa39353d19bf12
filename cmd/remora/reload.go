package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// pollInterval is the time between two reads of the file. Unlike file notifications, polling also sees that a symbolic link in
// its path has changed; Kubernetes replaces files that way.
const pollInterval = 2 * time.Second

// failedPollsNoted is the number of consecutive failed reads after which the log and /readyz say so. Replacing a file may remove it
// first.
const failedPollsNoted = 2

// watch reloads the configuration on each hangup, and when its file or that of a secret has changed. It stops when ctx ends, and
// then closes the channel that it returned.
func (l *live) watch(ctx context.Context, hangup <-chan os.Signal) <-chan struct{} {
	l.loaded, l.polled, l.empty = l.c.from, l.c.from, l.c.from.content == emptyFile
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pollInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				l.reloadCertificate()
				l.problem = "" // an operator who asks for a reload gets the reason again
				l.reload(ctx)
			case <-tick.C:
				l.reloadCertificate()
				settled := l.poll()
				l.admin.stale.Store(l.problem != "" || l.failedPolls >= failedPollsNoted)
				if settled && (!l.polled.same(l.loaded) || l.problem != "") {
					l.reload(ctx)
				}
			}
		}
	}()
	return done
}

// poll reads the file and the secrets, and reports whether they are unchanged since the previous poll: a file that is still being
// written must not be loaded, and an empty one would be valid. It returns false for a file that it cannot read.
func (l *live) poll() bool {
	if l.readOnce() {
		return false
	}
	data, err := l.readFile()
	if err != nil {
		if l.failedPolls++; l.failedPolls == failedPollsNoted {
			l.log.Error("the configuration's file cannot be read; the configuration stays", "file", l.file, "error", err.Error())
		}
		return false
	}
	if l.failedPolls >= failedPollsNoted {
		l.log.Info("the configuration's file can be read again")
	}
	l.failedPolls = 0
	before := l.polled
	l.polled = files{content: sha256.Sum256(data), secrets: l.loaded.hashSecrets()}
	return l.polled.same(before)
}

// readOnce reports whether the file is a pipe, as with --config <(decrypt config.yaml). Its content is gone after the start: a second
// read finds an empty file, which would mean the built-in defaults, or blocks for ever.
func (l *live) readOnce() bool {
	info, err := os.Stat(l.file)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir() // reading a directory is an error, which is reported
}

// reloadCertificate loads a replaced certificate. The old one stays in use until the new key and certificate match.
func (l *live) reloadCertificate() {
	changed, err := l.server.ReloadCertificate()
	switch text := fmt.Sprint(err); {
	case err == nil && changed:
		l.log.Info("certificate reloaded")
		l.certProblem = ""
	case err != nil && text != l.certProblem:
		l.log.Error("certificate not reloaded; the old one stays", "error", text)
		l.certProblem = text
	}
	l.warnOfExpiry()
}

// expiryNotice is how long before its end a certificate is reported. Tools that renew certificates have done so by then.
const expiryNotice = 7 * 24 * time.Hour

// expiresSoon reports whether a certificate with that expiry, if it is not zero, should have been replaced.
func expiresSoon(expiry time.Time) bool { return !expiry.IsZero() && time.Until(expiry) < expiryNotice }

// warnOfExpiry logs that the certificate of clients expires, once for each certificate.
func (l *live) warnOfExpiry() {
	if expiry := l.server.CertificateExpiry(); expiresSoon(expiry) && !expiry.Equal(l.expiry) {
		l.expiry = expiry
		l.log.Warn("the certificate of server.tls_cert expires soon, or has expired: clients refuse it then", "expires", expiry)
	}
}

// emptyFile is the hash of a file without content.
var emptyFile = sha256.Sum256(nil) //nolint:gochecknoglobals // never changed

// errEmptied is the error of a file that has lost its content, as by an editor on a full disk. It would mean the built-in defaults,
// and callers' keys would go to another provider.
var errEmptied = errors.New("the file is empty now: restart to use the built-in defaults")

var errReadOnce = errors.New("want a regular file to reload; a pipe can be read only once: restart to change the configuration")

// reload reads the configuration and applies it. An invalid configuration changes nothing, and is tried again at the next poll: what
// it lacks may be in another file, such as a secret, that is replaced later. One problem is logged once.
func (l *live) reload(ctx context.Context) {
	c, err := l.loadAgain()
	l.loaded = c.from
	if err == nil {
		err = l.apply(c)
	}
	l.admin.stale.Store(err != nil)
	if err != nil {
		if text := err.Error(); text != l.problem {
			l.log.Error("configuration not reloaded; the old one stays", "problems", strings.Split(text, "\n"))
			l.problem = text
		}
		return
	}

	l.problem = ""
	warnOfMistakes(&c, l.log)
	l.empty = c.from.content == emptyFile
	level, left := slog.LevelInfo, l.c.differs(c)
	if len(left) > 0 {
		level = slog.LevelWarn
	}
	l.log.Log(ctx, level, "configuration reloaded", "needs_restart", left)
}

// loadAgain is load, for a file that must still have its content.
func (l *live) loadAgain() (c Config, err error) {
	if l.readOnce() {
		return c, fmt.Errorf("%s: %w", l.file, errReadOnce)
	}
	if c, err = l.load(); err == nil && c.from.content == emptyFile && !l.empty {
		err = fmt.Errorf("%s: %w", l.file, errEmptied)
	}
	return c, err
}

func (l *live) apply(c Config) error {
	upstreams, policy, err := openProviders(&c, l.policy, l.log)
	if err != nil {
		return err
	}
	clients, operators := l.listeners.addresses() // which a reload does not change
	if err := checkLoops(upstreams, clients, operators); err != nil {
		return err
	}
	m, err := openModels(&c, upstreams, l.log, l.measured, l.models)
	if err != nil {
		return err
	}
	l.models.catalog.Close()
	l.models = m
	l.memory.Reshape(c.shape(m))
	l.policy = policy
	l.server.Route(upstreams, policy)
	l.limits.Configure(c.limits())
	return nil
}
