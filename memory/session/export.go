package session

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"remora/memory/turnrecord"
	"remora/wire"
	"remora/wire/dialects"
)

// ErrNoSession is returned if a session does not exist, ErrSessionExists if an import's session exists.
var (
	ErrNoSession     = errors.New("no such session")
	ErrSessionExists = errors.New("session exists already")
)

// exportVersion is the version of the JSONL format.
const exportVersion = 2

// ExportLine is one line of an exported transcript: the session, one item, one turn, one version of the system prompt, or
// the text of one block. Exactly one of its parts is set.
type ExportLine struct {
	Session      *ExportedHead   `json:"session,omitempty"`
	Item         *ExportedItem   `json:"item,omitempty"`
	Turn         json.RawMessage `json:"turn,omitempty"`
	SystemPrompt *ExportedPrompt `json:"system_prompt,omitempty"`
	Block        *ExportedBlock  `json:"block,omitempty"`
}

// ExportedHead opens an export.
type ExportedHead struct {
	Version int    `json:"remora_transcript"`
	Head    uint64 `json:"head"`  // sequence number of the last item of the conversation
	Items   uint64 `json:"items"` // items of all branches
	State   []byte `json:"state"` // the head record, base64
	// Amendments are the hidden items of the session's views, base64 of the stored bytes.
	Amendments []byte `json:"amendments,omitempty"`
}

// ExportedItem is one stored item.
type ExportedItem struct {
	Seq     uint64 `json:"seq"`
	Parent  uint64 `json:"parent"` // the item before it, 0 for none
	Turn    string `json:"turn"`
	Chain   string `json:"chain"`   // hex, over this item and all before it
	Content string `json:"content"` // hex
	Units   uint64 `json:"units"`
	Line    uint64 `json:"line"` // the number of its line; a new beginning is a new line
	Dialect string `json:"dialect"`
	OnHead  bool   `json:"on_head"` // on the line that ends with the head
	Off     bool   `json:"off_chain,omitempty"`
	Summary bool   `json:"client_summary,omitempty"` // the client's own summary
	Partial bool   `json:"partial,omitempty"`        // of an answer that was cut
	Side    bool   `json:"side,omitempty"`
	Hidden  bool   `json:"hidden,omitempty"` // seen by the model and not by the client
	Data    bool   `json:"data,omitempty"`   // a call that its request demanded

	Provider string `json:"provider,omitempty"` // made it or got it first
	Model    string `json:"model,omitempty"`    // likewise
	Kept     bool   `json:"kept,omitempty"`     // by that provider, which finds it by its id

	// JSON is the item. If its bytes are not compact JSON, Raw has them instead.
	JSON json.RawMessage `json:"json,omitempty"`
	Raw  []byte          `json:"raw,omitempty"`
}

// flags are the flags of a stored item that the line spells out.
func (l *ExportedItem) flags() map[itemFlags]*bool {
	return map[itemFlags]*bool{flagOffChain: &l.Off, flagSummary: &l.Summary, flagPartial: &l.Partial, flagSide: &l.Side, flagHidden: &l.Hidden, flagData: &l.Data}
}

// ExportedPrompt is one version of the system prompt.
type ExportedPrompt struct {
	Hash   string          `json:"hash"`
	Record json.RawMessage `json:"record"`
}

// ExportedBlock is a text that a layer put into views.
type ExportedBlock struct {
	Hash string `json:"hash"`
	Text []byte `json:"text"` // base64: the hash is over its bytes
}

// Item parses the item.
func (l *ExportedItem) Item() (wire.Item, error) {
	d, err := dialects.Parse(l.Dialect)
	if err != nil {
		return wire.Item{}, err
	}
	return wire.ParseItem(d, l.Bytes())
}

// Bytes returns the stored bytes of the item.
func (l *ExportedItem) Bytes() []byte {
	if l.Raw != nil {
		return l.Raw
	}
	return l.JSON
}

// exportPage is how many items an export reads at once.
const exportPage = 512

// exporter makes the lines of a session's export.
type exporter struct {
	transcript
	emit func(ExportLine) error // called with each line
	seen map[string]bool        // hashes of system prompts and blocks that were written
	next uint64                 // the items before it are exported
}

// walk emits all lines in order: see Log.Walk.
func (x *exporter) walk(ctx context.Context) error {
	st, values, err := x.head(ctx, amendName)
	if err != nil {
		return err
	}
	h := st.head
	x.next = h.NextSeq
	first := &ExportedHead{Version: exportVersion, Head: h.Pos.Seq, Items: h.items(), State: values[0], Amendments: values[1]}
	if err := x.emit(ExportLine{Session: first}); err != nil {
		return err
	}
	turns, err := x.itemLines(ctx, h)
	if err != nil {
		return err
	}
	if turns, err = x.withEmpty(ctx, turns, h.LastEmpty); err != nil {
		return err
	}
	for record, err := range x.turns(ctx, turns) {
		if err == nil && record != nil {
			err = x.turnLines(ctx, record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// itemLines writes the items by sequence number, and returns their turns.
func (x *exporter) itemLines(ctx context.Context, h *head) (turns []string, err error) {
	onHead := make(map[uint64]bool) // items on the line that ends with the head
	for items, err := range x.pagesBack(ctx, h.Pos.Seq) {
		if err != nil {
			return nil, err
		}
		for _, at := range items {
			onHead[at.Pos.Seq] = true
		}
	}

	seen := make(map[string]bool)
	for first := uint64(1); first < h.NextSeq; first += exportPage {
		items, err := x.withoutMedia(ctx, sequence(first, min(h.NextSeq-1, first+exportPage-1)))
		if err != nil {
			return nil, err
		}
		for it, err := range x.withMedia(ctx, items) {
			if err != nil {
				return nil, err
			}
			if it == nil { // it was retracted
				continue
			}
			if !seen[it.Turn] {
				seen[it.Turn] = true
				turns = append(turns, it.Turn)
			}
			line := newExportedItem(it)
			line.OnHead = onHead[it.Pos.Seq]
			if err := x.emit(ExportLine{Item: line}); err != nil {
				return nil, err
			}
		}
	}
	return turns, nil
}

func newExportedItem(it *storedItem) *ExportedItem {
	l := &ExportedItem{
		Seq: it.Pos.Seq, Parent: it.Parent, Turn: it.Turn, Units: it.Pos.Units, Line: it.Line, Dialect: it.Dialect.String(),
		Chain: hex.EncodeToString(it.Pos.Chain[:]), Content: hex.EncodeToString(it.Content[:]),
		Provider: it.Made.Provider, Model: it.Made.Model, Kept: it.Made.Kept,
	}
	for flag, set := range l.flags() {
		*set = it.Flags&flag != 0
	}
	// Encoding compacts a json.RawMessage, so it is only used for bytes that this does not change.
	var compact bytes.Buffer
	if json.Compact(&compact, it.Raw) == nil && bytes.Equal(compact.Bytes(), it.Raw) {
		l.JSON = it.Raw
	} else {
		l.Raw = it.Raw
	}
	return l
}

// withEmpty adds the turns without stored items, from the latest one on: repeated requests with the same answer, or none.
func (x *exporter) withEmpty(ctx context.Context, turns []string, latest string) ([]string, error) {
	known := make(map[string]bool, len(turns))
	for _, id := range turns {
		known[id] = true
	}
	var empty []string
	met := make(map[string]bool) // a damaged list may have a cycle
	for id := latest; id != "" && !met[id]; {
		met[id] = true
		if !known[id] {
			empty = append(empty, id)
		}
		raw, err := x.turn(ctx, id)
		if err != nil && !errors.Is(err, ErrNoTurn) {
			return nil, err
		}
		var turn turnrecord.Record
		if err == nil && json.Unmarshal(raw, &turn) != nil {
			turn.Before = "" // an unreadable record ends the list
		}
		id = turn.Before
	}
	slices.Reverse(empty)
	return append(turns, empty...), nil
}

// turnLines writes a turn, after the system prompt and blocks that it used first.
func (x *exporter) turnLines(ctx context.Context, record []byte) error {
	var turn turnrecord.Record
	if json.Unmarshal(record, &turn) == nil { // an unreadable record names no blocks
		record = x.asOpen(turn, record)
		if err := x.systemPromptLine(ctx, &turn); err != nil {
			return err
		}
		if err := x.blockLines(ctx, &turn); err != nil {
			return err
		}
	}
	return x.emit(ExportLine{Turn: record})
}

// asOpen returns the record of a turn as it was before its answer if that was written during the export: without the items that
// the export lacks.
func (x *exporter) asOpen(t turnrecord.Record, record []byte) []byte {
	added := func(seq uint64) bool { return seq >= x.next }
	if !slices.ContainsFunc(slices.Concat(append([][]uint64{t.Input, t.Hidden}, t.Output...)...), added) {
		return record
	}
	t.Status, t.Open, t.Later, t.HTTPStatus, t.Cut, t.Finish, t.Usage = turnrecord.Incomplete, true, false, 0, "", "", nil
	t.Output, t.ResponseID, t.Layers = nil, "", nil
	t.Input, t.Hidden = slices.DeleteFunc(t.Input, added), slices.DeleteFunc(t.Hidden, added)
	if added(t.Parent) {
		t.Parent = 0
	}
	if added(t.Tip) {
		t.Tip = t.Parent
	}
	return t.AppendTo(nil)
}

// systemPromptLine writes the version of the system prompt that a turn used, once.
func (x *exporter) systemPromptLine(ctx context.Context, turn *turnrecord.Record) error {
	if turn.SystemPrompt == "" || x.seen[turn.SystemPrompt] {
		return nil
	}
	x.seen[turn.SystemPrompt] = true
	hash, err := hex.DecodeString(turn.SystemPrompt)
	if err != nil {
		return fmt.Errorf("turn %s: system_prompt: %w", turn.ID, ErrCorrupt)
	}
	values, err := x.read(ctx, "read system prompt", []string{systemPromptPrefix + string(hash)})
	if err != nil || values[0] == nil {
		return err
	}
	return x.emit(ExportLine{SystemPrompt: &ExportedPrompt{Hash: turn.SystemPrompt, Record: values[0]}})
}

// blockLines writes the blocks of a turn that no earlier turn had.
func (x *exporter) blockLines(ctx context.Context, turn *turnrecord.Record) error {
	refs := slices.DeleteFunc(slices.Clone(turn.Blocks), func(ref turnrecord.BlockRef) bool { return x.seen[ref.Hash] })
	texts, err := x.blocks(ctx, refs)
	if err != nil {
		return fmt.Errorf("turn %s: %w", turn.ID, err)
	}
	for i, text := range texts {
		if text == nil || x.seen[refs[i].Hash] {
			continue
		}
		x.seen[refs[i].Hash] = true
		if err := x.emit(ExportLine{Block: &ExportedBlock{Hash: refs[i].Hash, Text: text}}); err != nil {
			return err
		}
	}
	return nil
}
