package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"remora/cache"
	"remora/memory/turnrecord"
)

// ErrNoSession is returned where a session does not exist, ErrSessionExists where one is in the way of an import.
var (
	ErrNoSession     = errors.New("no such session")
	ErrSessionExists = errors.New("session exists already")
)

// exportVersion is the version of the JSONL format.
const exportVersion = 1

// Line is one line of an exported transcript: the session, one item, one turn, one version of the leading items, or
// the text of one block. Exactly one of its parts is set.
type Line struct {
	Session *HeadLine       `json:"session,omitempty"`
	Item    *ItemLine       `json:"item,omitempty"`
	Turn    json.RawMessage `json:"turn,omitempty"`
	Lead    *LeadLine       `json:"lead,omitempty"`
	Block   *BlockLine      `json:"block,omitempty"`
}

// HeadLine opens an export.
type HeadLine struct {
	Version int    `json:"remora_transcript"`
	Head    uint64 `json:"head"`  // sequence number of the last item of the conversation
	Items   uint64 `json:"items"` // items of all branches
	State   []byte `json:"state"` // the head record, base64
	// Amendments are the hidden items of the session's views, base64 of the stored bytes.
	Amendments []byte `json:"amendments,omitempty"`
}

// ItemLine is one stored item.
type ItemLine struct {
	Seq     uint64 `json:"seq"`
	Parent  uint64 `json:"parent"` // the item before it, 0 for none
	Turn    string `json:"turn"`
	Chain   string `json:"chain"`   // hex, over this item and all before it
	Content string `json:"content"` // hex
	Units   uint64 `json:"units"`
	Line    uint64 `json:"line"` // the line that it was stored on; a new beginning is a new line
	Dialect string `json:"dialect"`
	OnHead  bool   `json:"on_head"` // on the line that ends with the head
	Off     bool   `json:"off_chain,omitempty"`
	Aside   bool   `json:"aside,omitempty"`   // the client's own summary
	Partial bool   `json:"partial,omitempty"` // of an answer that was cut
	Side    bool   `json:"side,omitempty"`
	Hidden  bool   `json:"hidden,omitempty"` // seen by the model and not by the client

	Provider string `json:"provider,omitempty"` // that made it, or was sent it first
	Model    string `json:"model,omitempty"`    // likewise
	Kept     bool   `json:"kept,omitempty"`     // by that provider, which finds it by its id

	// JSON is the item. Raw holds its bytes instead where they are not one line of JSON.
	JSON json.RawMessage `json:"json,omitempty"`
	Raw  []byte          `json:"raw,omitempty"`
}

// LeadLine is one version of the instructions and leading system items.
type LeadLine struct {
	Hash   string          `json:"hash"`
	Record json.RawMessage `json:"record"`
}

// BlockLine is a text that a layer put into views.
type BlockLine struct {
	Hash string `json:"hash"`
	Text []byte `json:"text"` // base64: the hash is over its bytes
}

// Bytes returns the item as it was stored.
func (l *ItemLine) Bytes() []byte {
	if l.Raw != nil {
		return l.Raw
	}
	return l.JSON
}

// exportPage is how many items an export reads at once.
const exportPage = 512

// Export writes the whole transcript of a session, all branches, as JSON Lines (see Line).
func (log *Log) Export(ctx context.Context, s Scope, w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	err := log.Walk(ctx, s, func(l Line) error { return enc.Encode(l) })
	if err != nil {
		return err
	}
	return out.Flush()
}

// Walk calls f for every line of a session's export, in order: the session, its items by sequence number, turns by
// their first item, and then turns that stored no items, in the order in which they were written.
func (log *Log) Walk(ctx context.Context, s Scope, f func(Line) error) error {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{headName, amendName}}})
	if err != nil {
		return fmt.Errorf("read session: %w", err)
	}
	state := results[0].Values[0]
	if state == nil {
		return ErrNoSession
	}
	h, err := decodeHead(state)
	if err != nil {
		return err
	}
	if err := f(Line{Session: &HeadLine{Version: exportVersion, Head: h.Pos.Seq, Items: h.NextSeq - 1, State: state, Amendments: results[0].Values[1]}}); err != nil {
		return err
	}
	onHead, err := log.headLine(ctx, s, &h)
	if err != nil {
		return err
	}
	turns, err := log.walkItems(ctx, s, h.NextSeq-1, onHead, f)
	if err != nil {
		return err
	}
	if turns, err = log.withEmpty(ctx, s, turns, h.LastEmpty); err != nil {
		return err
	}
	return log.walkTurns(ctx, s, turns, f)
}

// withEmpty adds the turns that stored no item, from the latest one on: a request that came again and got the same answer,
// or none.
func (log *Log) withEmpty(ctx context.Context, s Scope, turns []string, latest string) ([]string, error) {
	known := make(map[string]bool, len(turns))
	for _, id := range turns {
		known[id] = true
	}
	var bare []string
	met := make(map[string]bool) // a chain that was damaged may lead back
	for id := latest; id != "" && !met[id]; {
		met[id] = true
		if !known[id] {
			bare = append(bare, id)
		}
		raw, err := log.TurnRecord(ctx, s, id)
		if err != nil && !errors.Is(err, ErrNoTurn) {
			return nil, err
		}
		var turn turnrecord.Record
		if err == nil && json.Unmarshal(raw, &turn) != nil {
			turn.Before = "" // one that can't be read names no other
		}
		id = turn.Before
	}
	slices.Reverse(bare)
	return append(turns, bare...), nil
}

// Sessions pages through the names of a tenant's sessions, in no particular order. An empty after starts; an empty
// next ends.
func (log *Log) Sessions(ctx context.Context, tenant, after string, limit int) (names []string, next string, err error) {
	groups, next, err := log.store.List(ctx, tenant, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list sessions: %w", err)
	}
	for _, g := range groups {
		if name, ok := strings.CutPrefix(g, sessionPrefix); ok {
			names = append(names, name)
		}
	}
	return names, next, nil
}

// headLine is the set of items on the line that ends with the head.
func (log *Log) headLine(ctx context.Context, s Scope, h *head) (map[uint64]bool, error) {
	on := make(map[uint64]bool)
	for at, err := range log.backBy(ctx, s, h.Pos.Seq, exportPage, exportPage) {
		if err != nil {
			return nil, err
		}
		on[at.Pos.Seq] = true
	}
	return on, nil
}

func (log *Log) walkItems(ctx context.Context, s Scope, last uint64, onHead map[uint64]bool, f func(Line) error) ([]string, error) {
	var turns []string
	seen := make(map[string]bool)
	for first := uint64(1); first <= last; first += exportPage {
		items, err := log.items(ctx, s, first, min(last, first+exportPage-1))
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			if it == nil {
				continue
			}
			if !seen[it.Turn] {
				seen[it.Turn] = true
				turns = append(turns, it.Turn)
			}
			line := newItemLine(it)
			line.OnHead = onHead[it.Pos.Seq]
			if err := f(Line{Item: line}); err != nil {
				return nil, err
			}
		}
	}
	return turns, nil
}

func newItemLine(it *storedItem) *ItemLine {
	l := &ItemLine{
		Seq: it.Pos.Seq, Parent: it.Parent, Turn: it.Turn, Units: it.Pos.Units, Line: it.Line, Dialect: it.Dialect.String(),
		Chain: hex.EncodeToString(it.Pos.Chain[:]), Content: hex.EncodeToString(it.Content[:]),
		Off: it.Flags&flagOffChain != 0, Aside: it.Flags&flagSummary != 0, Partial: it.Flags&flagPartial != 0,
		Side: it.Flags&flagSide != 0, Hidden: it.Flags&flagHidden != 0, Provider: it.Made.Provider, Model: it.Made.Model, Kept: it.Made.Kept,
	}
	// json.RawMessage is compacted when it is encoded; only bytes that this leaves alone may go that way.
	var compact bytes.Buffer
	if json.Compact(&compact, it.Raw) == nil && bytes.Equal(compact.Bytes(), it.Raw) {
		l.JSON = it.Raw
	} else {
		l.Raw = it.Raw
	}
	return l
}

func (log *Log) walkTurns(ctx context.Context, s Scope, turns []string, f func(Line) error) error {
	seen := make(map[string]bool) // hashes of leads and of blocks
	for len(turns) > 0 {
		page := turns[:min(len(turns), exportPage)]
		turns = turns[len(page):]
		names := make([]string, len(page))
		for i, id := range page {
			names[i] = turnPrefix + id
		}
		results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: names}})
		if err != nil {
			return fmt.Errorf("read turns: %w", err)
		}
		for _, record := range results[0].Values {
			if record == nil {
				continue
			}
			if err := log.walkTurn(ctx, s, record, seen, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// walkTurn writes a turn, behind what it used and no turn before it did.
func (log *Log) walkTurn(ctx context.Context, s Scope, record []byte, seen map[string]bool, f func(Line) error) error {
	var turn turnrecord.Record
	if json.Unmarshal(record, &turn) == nil { // one that can't be read names nothing more to show
		if err := log.walkLead(ctx, s, &turn, seen, f); err != nil {
			return err
		}
		if err := log.walkBlocks(ctx, s, &turn, seen, f); err != nil {
			return err
		}
	}
	return f(Line{Turn: record})
}

// walkLead writes the version of the leading items that a turn used, the first time that it is met.
func (log *Log) walkLead(ctx context.Context, s Scope, turn *turnrecord.Record, seen map[string]bool, f func(Line) error) error {
	if turn.Lead == "" || seen[turn.Lead] {
		return nil
	}
	seen[turn.Lead] = true
	name, err := hex.DecodeString(turn.Lead)
	if err != nil {
		return fmt.Errorf("turn %s: lead: %w", turn.ID, ErrCorrupt)
	}
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{leadPrefix + string(name)}}})
	if err != nil {
		return fmt.Errorf("read leading items: %w", err)
	}
	if results[0].Values[0] == nil {
		return nil
	}
	return f(Line{Lead: &LeadLine{Hash: turn.Lead, Record: results[0].Values[0]}})
}

// walkBlocks writes the blocks of a turn that no turn before it had.
func (log *Log) walkBlocks(ctx context.Context, s Scope, turn *turnrecord.Record, seen map[string]bool, f func(Line) error) error {
	refs := slices.DeleteFunc(slices.Clone(turn.Blocks), func(ref turnrecord.BlockRef) bool { return seen[ref.Hash] })
	texts, err := log.readBlocks(ctx, s, refs)
	if err != nil {
		return fmt.Errorf("turn %s: %w", turn.ID, err)
	}
	for i, text := range texts {
		if text == nil || seen[refs[i].Hash] {
			continue
		}
		seen[refs[i].Hash] = true
		if err := f(Line{Block: &BlockLine{Hash: refs[i].Hash, Text: text}}); err != nil {
			return err
		}
	}
	return nil
}

// readBlocks reads the texts of blocks, nil where one is not stored.
func (log *Log) readBlocks(ctx context.Context, s Scope, refs []turnrecord.BlockRef) ([][]byte, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	names := make([]string, len(refs))
	for i, ref := range refs {
		h, err := parseHash(ref.Hash)
		if err != nil {
			return nil, err
		}
		names[i] = blockName(h)
	}
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: names}})
	if err != nil {
		return nil, fmt.Errorf("read blocks: %w", err)
	}
	return results[0].Values, nil
}
