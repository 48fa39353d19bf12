package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"remora/memory/helperprompt"
	"remora/memory/media"
	"remora/memory/turnrecord"
	"remora/wire"
)

// Said is a message of a user or a model, for recall.
type Said struct {
	Seq     uint64
	Content wire.Hash
	Time    time.Time // of its turn
	Role    wire.Role
	Name    string // who of several users speaks, where the message says so (Chat's member name)
	Text    string // of a long one the beginning and the end
	turn    string
	// unanswered: it stands after the end of the conversation.
	unanswered bool
}

// Reading is the state of reading a session by Log.SaidSince. The zero Reading has read nothing.
type Reading struct {
	Version    uint64    // of the session in the store, 0 where it is not stored
	head, last uint64    // sequence numbers: the end of the conversation, and of all items
	chain      wire.Hash // of the end: another session of this name may have as many items
	line       uint64    // which line is the conversation
	unanswered bool      // something after the end was read, which what comes next may replace
}

// Bounds of what is read for recall: the newest items of a session, and the beginning and the end of each, in bytes.
const (
	maxSaid     = 10_000
	maxSaidText = 8 << 10
)

// News is the result of Log.SaidSince, oldest first. Whole: it is the whole session, since the earlier reading is no longer
// valid.
type News struct {
	Said  []Said
	Now   Reading
	Whole bool
}

// newsReader reads what was said in a session.
type newsReader struct {
	transcript
	resource string // that it has to be said for, empty for the session itself
}

// since returns what was said since an earlier reading: see Log.SaidSince.
func (r *newsReader) since(ctx context.Context, before Reading) (News, error) {
	st, _, err := r.head(ctx)
	if err != nil {
		return News{}, err
	}
	if st.version == before.Version {
		return News{Now: before}, nil
	}

	h := st.head
	last := h.items()
	n := News{Now: Reading{Version: st.version, head: h.Pos.Seq, last: last, chain: h.Pos.Chain, line: h.Line}}
	first, oldest := before.head, max(1, last-min(last, maxSaid)+1)
	if n.Whole = before.head == 0 || before.line != h.Line || before.unanswered || first < oldest; n.Whole {
		first = oldest
	}
	l, err := r.newest(ctx, h, first)
	if err == nil && !n.Whole && !l.passes(before) {
		n.Whole = true
		l, err = r.newest(ctx, h, oldest)
	}
	if err != nil {
		return News{}, err
	}
	if n.Whole {
		before.last = 0
	}

	for _, it := range l.stored {
		if it == nil || it.Flags&unsaid != 0 || !n.Whole && it.Pos.Seq == before.head {
			continue
		}
		unanswered := it.Line == h.Line && it.Pos.Seq > h.Pos.Seq && (it.Parent == h.Pos.Seq || it.Parent > h.Pos.Seq && l.on[it.Parent])
		if unanswered {
			l.on[it.Pos.Seq] = true
		}
		if !l.on[it.Pos.Seq] && (it.Line == h.Line || it.Pos.Seq <= before.last) {
			continue
		}

		if said, ok := l.said[it.Pos.Seq]; ok {
			said.unanswered = unanswered
			n.Said = append(n.Said, said)
		}
	}
	n.Said, err = r.ofResource(ctx, n.Said)
	n.Now.unanswered = slices.ContainsFunc(n.Said, func(it Said) bool { return it.unanswered })
	return n, err
}

// said reads a message of a user or a model; nothing from another item.
func (r *newsReader) said(ctx context.Context, it *storedItem) (said Said, ok bool, err error) {
	item, ok, err := message(ctx, r.transcript, it)
	if err != nil || !ok || item.Role != wire.User && item.Role != wire.Assistant {
		return Said{}, false, err
	}
	return Said{
		Seq: it.Pos.Seq, Content: it.Content, Role: item.Role, Name: wire.Text(wire.Member(item.Raw, "name")), Text: ends(item.Said()), turn: it.Turn,
	}, true, nil
}

// message parses a message that was read without its large strings, with a long text, but without pictures and files. It returns
// false for another item, and for one that cannot be parsed.
func message(ctx context.Context, t transcript, it *storedItem) (item wire.Item, ok bool, err error) {
	const place = "\uFFFC" // of a large string
	raw, cut := it.Raw, it.Flags&flagCut != 0
	if cut {
		if raw, err = media.Without(it.Raw, place); err != nil {
			return wire.Item{}, false, fmt.Errorf("item %d: %w: %w", it.Pos.Seq, ErrCorrupt, err)
		}
	}
	item, err = wire.ParseItem(it.Dialect, raw)
	if err != nil || item.Kind != wire.Message {
		return wire.Item{}, false, nil //nolint:nilerr // what cannot be read says nothing
	}
	if !cut || !strings.Contains(item.Text(), place) {
		return item, true, nil
	}
	whole := *it
	if err := t.joinMedia(ctx, []*storedItem{&whole}); err != nil {
		return wire.Item{}, false, err
	}
	item, err = wire.ParseItem(it.Dialect, whole.Raw)
	return item, err == nil, nil
}

// ends is a text, or its beginning and its end where it is long. It is cut between lines, or else between words: half of a secret, or
// one without its label, no longer looks like one.
func ends(text string) string {
	if len(text) <= 2*maxSaidText {
		return text
	}
	const nearby = 512 // bytes
	head, tail := text[:maxSaidText], text[len(text)-maxSaidText:]
	last := head[maxSaidText-nearby:]
	if i := cmp.Or(strings.LastIndexByte(last, '\n')+1, strings.LastIndexByte(last, ' ')+1); i > 0 {
		head = head[:maxSaidText-nearby+i-1]
	}
	first := tail[:nearby]
	tail = tail[cmp.Or(strings.IndexByte(first, '\n')+1, strings.IndexByte(first, ' ')+1):]
	return strings.ToValidUTF8(head+"\n\n"+tail, "")
}

// unsaid are the flags of items that are not read for recall.
const unsaid = flagOffChain | flagSummary | flagSide | flagHidden

// newestItems are the newest items of a session.
type newestItems struct {
	stored []*storedItem // without their bytes
	said   map[uint64]Said
	on     map[uint64]bool // those on the conversation
}

// passes reports whether the conversation leads through the end of an earlier reading, the first of these items.
func (l *newestItems) passes(r Reading) bool {
	return l.on[r.head] && l.stored[0].Pos.Chain == r.chain
}

// newest reads the items from seq first on.
func (r *newsReader) newest(ctx context.Context, h *head, first uint64) (newestItems, error) {
	l := newestItems{said: map[uint64]Said{}, on: map[uint64]bool{}}
	for at := first; at < h.NextSeq; at += exportPage {
		page, err := r.withoutMedia(ctx, sequence(at, min(h.NextSeq-1, at+exportPage-1)))
		if err != nil {
			return newestItems{}, err
		}
		for _, it := range page {
			if it == nil {
				continue
			}
			if it.Flags&unsaid == 0 {
				said, ok, err := r.said(ctx, it)
				if err != nil {
					return newestItems{}, err
				}
				if ok {
					l.said[it.Pos.Seq] = said
				}
			}
			it.Raw = nil // a page of long texts is not to be held at once
		}
		l.stored = append(l.stored, page...)
	}
	for seq := h.Pos.Seq; seq >= first; {
		it := l.stored[seq-first]
		if it == nil || it.Parent >= seq {
			return newestItems{}, fmt.Errorf("item %d: %w", seq, ErrCorrupt)
		}
		l.on[seq] = true
		seq = it.Parent
	}
	return l, nil
}

// ofResource leaves what was said for the resource, in turns that were no side requests and asked for nothing about the
// conversation, and dates it.
func (r *newsReader) ofResource(ctx context.Context, said []Said) ([]Said, error) {
	turns := map[string]*turnrecord.Record{}
	var ids []string
	for _, it := range said {
		if _, met := turns[it.turn]; !met {
			turns[it.turn] = nil
			ids = append(ids, it.turn)
		}
	}
	i := 0
	for raw, err := range r.turns(ctx, ids) {
		if err != nil {
			return nil, err
		}
		var turn turnrecord.Record
		if raw != nil && json.Unmarshal(raw, &turn) == nil {
			turns[ids[i]] = &turn
		}
		i++
	}

	orders := map[string]bool{} // by turn
	for _, it := range said {
		orders[it.turn] = orders[it.turn] || it.Role == wire.User && helperprompt.IsOrder(it.Text)
	}

	ours := said[:0]
	for _, it := range said {
		turn := turns[it.turn]
		switch {
		case turn == nil || turn.Resource != r.resource || turn.Side != "" || orders[it.turn]:
		case it.unanswered && turn.Status == turnrecord.Failed: // the client sends it again, or gives it up
		default:
			it.Time = turn.Time
			ours = append(ours, it)
		}
	}
	return ours, nil
}
