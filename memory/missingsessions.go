package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

// missingSessions logs sessions that are not stored although their clients send a history: evicted, flushed, deleted or
// expired ones, and those that began elsewhere. Such a session is stored from then on, so it is logged once.
type missingSessions struct {
	mu    sync.Mutex
	since time.Time // the beginning of the present interval
	lines int       // written in it
	more  int       // sessions without a line since the last line
}

const (
	// missingEvery and missingLines limit the number of log lines per interval, since clients control them.
	missingEvery = time.Minute
	missingLines = 20
)

func (f *missingSessions) log(m *Memory, s Scope) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := m.o.Now()
	if now.Sub(f.since) >= missingEvery {
		f.since, f.lines = now, 0
	}
	if f.lines++; f.lines > missingLines {
		f.more++
		return
	}
	sum := sha256.Sum256([]byte(s.Tenant + "\x00" + s.Session))
	// On the first day behind the proxy every existing conversation is one of these.
	m.o.Log.Info("a session with a past is not stored: it was evicted, flushed, deleted, has expired, or began elsewhere",
		"session_hash", hex.EncodeToString(sum[:6]), "not_told_of", f.more)
	f.more = 0
}
