package session

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"remora/cache"
	"remora/memory/media"
	"remora/memory/turnrecord"
	"remora/wire"
)

// Said is a message of a user or a model, as recall searches it.
type Said struct {
	Seq     uint64
	Content wire.Hash
	Time    time.Time // of its turn
	Role    wire.Role
	Name    string // who of several users speaks, where the message says so (Chat's member name)
	Text    string // of a long one the beginning and the end
	turn    string
}

// Reading is how far a session was read by SaidSince. The zero Reading is of a session of which nothing was read.
type Reading struct {
	Version    uint64 // of the session in the store, 0 where it is not stored
	head, last uint64 // sequence numbers: the end of the conversation, and of all items
	line       uint64 // which line is the conversation
}

// Bounds of what is read for recall: the newest items of a session, and the beginning and the end of each, in bytes.
const (
	maxSaid     = 10_000
	maxSaidText = 8 << 10
)

// Versions returns the versions of sessions in the store, 0 for one that is not stored. They change with every turn.
func (log *Log) Versions(ctx context.Context, tenant string, sessions []string) ([]uint64, error) {
	versions := make([]uint64, 0, len(sessions))
	for len(sessions) > 0 {
		page := sessions[:min(len(sessions), exportPage)]
		sessions = sessions[len(page):]
		queries := make([]cache.Query, len(page))
		for i, name := range page {
			queries[i].Group = Scope{Tenant: tenant, Session: name}.Group()
		}
		results, err := log.store.Read(ctx, queries)
		if err != nil {
			return nil, fmt.Errorf("look for sessions: %w", err)
		}
		for _, r := range results {
			versions = append(versions, r.Version)
		}
	}
	return versions, nil
}

// News is the result of SaidSince, oldest first. Whole: it is all of the session, since the earlier reading no longer
// holds.
type News struct {
	Said  []Said
	Now   Reading
	Whole bool
}

// SaidSince returns the messages of users and models since an earlier reading: on the conversation, and on lines that
// share nothing with it. Messages that an edit or a regeneration has replaced are left out, and so are those for
// another resource. It fails with ErrNoSession.
func (log *Log) SaidSince(ctx context.Context, s Scope, before Reading) (News, error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{headName}}})
	if err != nil {
		return News{}, fmt.Errorf("read session: %w", err)
	}
	if results[0].Values[0] == nil {
		return News{}, ErrNoSession
	}
	if results[0].Version == before.Version {
		return News{Now: before}, nil
	}
	h, err := decodeHead(results[0].Values[0])
	if err != nil {
		return News{}, err
	}

	last := h.NextSeq - 1
	n := News{Now: Reading{Version: results[0].Version, head: h.Pos.Seq, last: last, line: h.Line}}
	first, oldest := before.head+1, max(1, last-min(last, maxSaid)+1)
	if n.Whole = before.head == 0 || before.line != h.Line || first < oldest; n.Whole {
		first = oldest
	}
	l, err := log.endOf(ctx, s, &h, first)
	if err == nil && !n.Whole && l.joins != before.head {
		n.Whole = true
		l, err = log.endOf(ctx, s, &h, oldest)
	}
	if err != nil {
		return News{}, err
	}
	if n.Whole {
		before.last = 0
	}

	for _, it := range l.stored {
		switch {
		case it == nil || it.Flags&(flagOffChain|flagSummary|flagSide|flagHidden) != 0:
		case l.on[it.Pos.Seq] || it.Line != h.Line && it.Pos.Seq > before.last:
			said, ok, err := log.said(ctx, s, it)
			if err != nil {
				return News{}, err
			}
			if ok {
				n.Said = append(n.Said, said)
			}
		}
	}
	n.Said, err = log.ofResource(ctx, s, n.Said)
	return n, err
}

// said reads what an item says, nothing of one that is no message of a user or a model. Pictures and files that are kept
// apart are not read for it; a long text is.
func (log *Log) said(ctx context.Context, s Scope, it *storedItem) (said Said, ok bool, err error) {
	const place = "\uFFFC" // of a large string
	raw, cut := it.Raw, it.Flags&flagCut != 0
	if cut {
		if raw, err = media.Without(it.Raw, place); err != nil {
			return Said{}, false, fmt.Errorf("item %d: %w: %w", it.Pos.Seq, ErrCorrupt, err)
		}
	}
	item, err := wire.ParseItem(it.Dialect, raw)
	if err != nil || item.Kind != wire.Message || item.Role != wire.User && item.Role != wire.Assistant {
		return Said{}, false, nil //nolint:nilerr // what cannot be read says nothing
	}
	text := item.Text()
	if cut && strings.Contains(text, place) {
		if err := log.join(ctx, s, []*storedItem{it}); err != nil {
			return Said{}, false, err
		}
		item, err = wire.ParseItem(it.Dialect, it.Raw)
		if text = item.Text(); err != nil {
			return Said{}, false, nil //nolint:nilerr // likewise
		}
	}
	said = Said{Seq: it.Pos.Seq, Content: it.Content, Role: item.Role, Name: wire.Text(wire.Member(item.Raw, "name")), Text: ends(text), turn: it.Turn}
	it.Raw = nil // a page of long texts is not to be held at once
	return said, true, nil
}

// ends is a text, or its beginning and its end where it is long.
func ends(text string) string {
	if len(text) <= 2*maxSaidText {
		return text
	}
	return strings.ToValidUTF8(text[:maxSaidText]+"\n\n"+text[len(text)-maxSaidText:], "")
}

// reach has the newest items of a session.
type reach struct {
	stored []*storedItem
	on     map[uint64]bool // those on the conversation
	joins  uint64          // the item before these at which the conversation goes on
}

// endOf reads the items from seq first on.
func (log *Log) endOf(ctx context.Context, s Scope, h *head, first uint64) (reach, error) {
	l := reach{on: map[uint64]bool{}}
	for at := first; at < h.NextSeq; at += exportPage {
		page, err := log.withoutMedia(ctx, s, at, min(h.NextSeq-1, at+exportPage-1))
		if err != nil {
			return reach{}, err
		}
		l.stored = append(l.stored, page...)
	}
	for l.joins = h.Pos.Seq; l.joins >= first; {
		it := l.stored[l.joins-first]
		if it == nil || it.Parent >= l.joins {
			return reach{}, fmt.Errorf("item %d: %w", l.joins, ErrCorrupt)
		}
		l.on[l.joins] = true
		l.joins = it.Parent
	}
	return l, nil
}

// ofResource leaves what was said for the scope's resource, in turns that were no side requests, and dates it.
func (log *Log) ofResource(ctx context.Context, s Scope, said []Said) ([]Said, error) {
	want := s.Resource
	if want == s.Session {
		want = ""
	}
	turns := map[string]*turnrecord.Record{}
	var ids []string
	for _, it := range said {
		if _, met := turns[it.turn]; !met {
			turns[it.turn] = nil
			ids = append(ids, it.turn)
		}
	}
	for len(ids) > 0 {
		page := ids[:min(len(ids), exportPage)]
		ids = ids[len(page):]
		names := make([]string, len(page))
		for i, id := range page {
			names[i] = turnPrefix + id
		}
		results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: names}})
		if err != nil {
			return nil, fmt.Errorf("read turns: %w", err)
		}
		for i, raw := range results[0].Values {
			var r turnrecord.Record
			if raw != nil && json.Unmarshal(raw, &r) == nil {
				turns[page[i]] = &r
			}
		}
	}

	ours := said[:0]
	for _, it := range said {
		if r := turns[it.turn]; r != nil && r.Resource == want && r.Side == "" {
			it.Time = r.Time
			ours = append(ours, it)
		}
	}
	return ours, nil
}
