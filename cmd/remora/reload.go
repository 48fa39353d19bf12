package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// origin is where the configuration came from, to read it again.
type origin struct {
	file    string
	environ []string
	flags   []setting
}

func (o origin) load() (Config, error) { return load(o.file, o.environ, o.flags) }

// lookEvery is how often the file is read. Unlike notifications, polling also sees a change of a symbolic link on the way
// to it, which is how Kubernetes replaces a file.
const lookEvery = 2 * time.Second

// missingLooks is how often in a row the file must be missing before that is logged: replacing a file may remove it first.
const missingLooks = 2

// watch reads the configuration again on each hangup, and when its file has changed, until ctx ends. Then the channel that
// it returns is closed.
func (l *live) watch(ctx context.Context, hangup <-chan os.Signal) <-chan struct{} {
	l.settled()
	l.read = l.seen
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				l.settled()
				l.renew()
				l.reload(ctx)
			case <-tick.C:
				l.renew()
				if l.settled() && l.seen != l.read {
					l.reload(ctx)
				}
			}
		}
	}()
	return done
}

// settled reads the file and reports whether it is the same as at the read before: a file that is being written is no
// configuration yet, though an empty one would pass. It returns false for a file that cannot be read.
func (l *live) settled() bool {
	if l.file == "" {
		return false
	}
	data, err := os.ReadFile(l.file)
	if err != nil {
		if l.unread++; l.unread == missingLooks {
			l.log.Error("the configuration's file cannot be read; the configuration stays", "error", err.Error())
		}
		return false
	}
	l.unread = 0
	before := l.seen
	l.seen = sha256.Sum256(data)
	return l.seen == before
}

// renew takes over a certificate that has been replaced. Until both of its files fit together the old one stays.
func (l *live) renew() {
	changed, err := l.server.ReloadCertificate()
	switch text := fmt.Sprint(err); {
	case err == nil && changed:
		l.log.Info("certificate reloaded")
		l.badCert = ""
	case err != nil && text != l.badCert:
		l.log.Error("certificate not reloaded; the old one stays", "error", text)
		l.badCert = text
	}
}

// reload replaces what can be replaced. A configuration that is wrong anywhere changes nothing.
func (l *live) reload(ctx context.Context) {
	l.read = l.seen
	c, err := l.load()
	if err == nil {
		err = l.apply(c)
	}
	if err != nil {
		l.log.Error("configuration not reloaded; the old one stays", "problems", strings.Split(err.Error(), "\n"))
		return
	}
	level, left := slog.LevelInfo, l.c.differs(c)
	if len(left) > 0 {
		level = slog.LevelWarn
	}
	l.log.Log(ctx, level, "configuration reloaded", "needs_restart", left)
}

func (l *live) apply(c Config) error {
	upstreams, policy, err := openProviders(&c, l.policy, l.log)
	if err != nil {
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
