package session

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"remora/wire"
)

const (
	// quotedRunes is the minimum length of a quoted passage.
	quotedRunes = 64
	// quoteBlock is the length in bytes of the pieces by which passages are found: a passage of twice that length contains a
	// whole piece.
	quoteBlock = quotedRunes / 2
	// quotedAnswers is the number of latest answers that are compared, quotedItems the number of latest items to find them in.
	quotedAnswers = 4
	quotedItems   = 24
	// quotedBytes is the compared part of a text, or of the user's messages.
	quotedBytes = 64 << 10
	// quotedTries is the maximum number of compared passages, for repetitive texts, and of compared arguments.
	quotedTries = 512
)

// quotes reports whether the user's messages of a request repeat a long passage of one of the session's latest answers, on any
// line. A client that compacts its history sends a summary by the model, or the last answers, in a user message.
func (m *merger) quotes(ctx context.Context) (bool, error) {
	said := saidByUser(m.in.items)
	if len(said) < quotedRunes || m.head.NextSeq < 2 {
		return false, nil
	}
	latest, err := m.latestMessages(ctx)
	if err != nil {
		return false, err
	}
	answers := 0
	for i, it := range slices.Backward(latest) {
		if it.Role != wire.Assistant || !it.HasContent() {
			continue
		}
		if answers++; answers > quotedAnswers {
			break
		}
		if sharesPassage(it.Text(), said, saidByUser(latest[:i])) { // later messages may quote it, too
			return true, nil
		}
	}
	return false, nil
}

// saidByUser returns the user's messages among some items, the newest first, up to about quotedBytes.
func saidByUser(items []wire.Item) string {
	var said strings.Builder
	for _, it := range slices.Backward(items) {
		if it.Role == wire.User && said.Len() < quotedBytes {
			text := it.Text()
			said.WriteString(text[:min(len(text), quotedBytes)])
			said.WriteByte('\n')
		}
	}
	return said.String()
}

// latestMessages returns the messages among the session's latest items, without pictures and files. They are read once.
func (m *merger) latestMessages(ctx context.Context) ([]wire.Item, error) {
	if m.latest != nil {
		return m.latest, nil
	}
	last := m.head.NextSeq - 1
	stored, err := m.stored.withoutMedia(ctx, sequence(last-min(last-1, quotedItems-1), last))
	if err != nil {
		return nil, err
	}
	latest := make([]wire.Item, 0, len(stored))
	for _, at := range stored {
		if at == nil || at.Flags&flagHidden != 0 {
			continue
		}
		it, ok, err := message(ctx, m.stored, at)
		if err != nil {
			return nil, err
		}
		if ok {
			latest = append(latest, it)
		}
	}
	m.latest = latest
	return latest, nil
}

// isWrapped reports whether the request is a user message that a message of the session's only turn contains: a program has asked about
// it before passing it on, such as for the intent or the language.
func (m *merger) isWrapped(ctx context.Context) (bool, error) {
	const shortest = 12 // bytes of a message that proves something
	items := m.in.items
	if len(items) != 1 || items[0].Kind != wire.Message || items[0].Role != wire.User {
		return false, nil
	}
	text := strings.TrimSpace(items[0].Text())
	if len(text) < shortest || len(text) > quotedBytes {
		return false, nil
	}
	latest, err := m.latestMessages(ctx)
	return slices.ContainsFunc(latest, func(it wire.Item) bool {
		return it.Role == wire.User && wraps(strings.TrimSpace(it.Text()), text)
	}), err
}

// wraps reports whether a message is more than a text, and has it between signs that are no letters.
func wraps(message, text string) bool {
	before, after, ok := strings.Cut(message, text)
	if !ok || before+after == "" {
		return false
	}
	last, _ := utf8.DecodeLastRuneInString(before)
	next, _ := utf8.DecodeRuneInString(after)
	return !unicode.IsLetter(last) && !unicode.IsLetter(next)
}

// openCall reports whether the latest answer of the conversation has an open call, and whether a user message of the request is a text
// from the arguments of such a call, or contains one that is long.
func (m *merger) openCall(ctx context.Context) (waits, asks bool, err error) {
	var asked []string // the newest messages
	size := 0
	for _, it := range slices.Backward(m.in.items) {
		if it.Role == wire.User && size < quotedBytes {
			text := it.Text()
			text = text[:min(len(text), quotedBytes)]
			asked, size = append(asked, text), size+len(text)
		}
	}
	tries := 0
	says := func(argument string) bool {
		tries++
		return tries <= quotedTries && slices.ContainsFunc(asked, func(text string) bool { return repeats(text, argument) })
	}

	left := quotedItems
	for at, err := range m.stored.back(ctx, m.head.Pos.Seq) {
		if err != nil {
			return false, false, err
		}
		it, err := wire.ParseItem(at.Dialect, at.Raw)
		if left--; left < 0 || err != nil || landmark(it) {
			return waits, false, nil
		}
		for i, call := range it.Calls() {
			if !m.head.Open.has(call) {
				continue
			}
			waits = true
			if input := it.Input(i); says(input) || anyText([]byte(input), argumentDepth, says) {
				return true, true, nil
			}
		}
	}
	return waits, false, nil
}

// asksAboutAnswer reports whether the request is one user message with the text of the conversation's latest answer.
func (m *merger) asksAboutAnswer(ctx context.Context) (bool, error) {
	items := m.in.items
	if len(items) != 1 || items[0].Kind != wire.Message || items[0].Role != wire.User {
		return false, nil
	}
	for at, err := range m.stored.back(ctx, m.head.Pos.Seq) {
		if err != nil {
			return false, err
		}
		if at.Flags&(flagHidden|flagOffChain) != 0 {
			continue
		}
		it, err := wire.ParseItem(at.Dialect, at.Raw)
		return err == nil && it.Kind == wire.Message && it.Role == wire.Assistant && repeats(items[0].Text(), it.Text()), nil
	}
	return false, nil
}

// repeats reports whether a message is a text, or contains one that is long.
func repeats(message, text string) bool {
	message, text = strings.TrimSpace(message), strings.TrimSpace(text)
	return text != "" && (message == text || utf8.RuneCountInString(text) >= argumentRunes && strings.Contains(message, text))
}

const (
	// argumentRunes is the length from which an argument or an answer proves something if it is only a part of a message.
	argumentRunes = 24
	// argumentDepth is how deep texts are looked for in arguments.
	argumentDepth = 4
)

// anyText reports whether a string in a JSON value is one of those that is looks for.
func anyText(value []byte, depth int, is func(string) bool) bool {
	if _, ok := wire.Inside(value); ok {
		return is(wire.Text(value))
	}
	for p := range wire.Children(value) {
		if depth > 0 && anyText(p.Value, depth-1, is) {
			return true
		}
	}
	return false
}

// sharesPassage reports whether an answer and the new message share quotedRunes consecutive runes that are not in the
// questions before it, which answers often repeat.
func sharesPassage(answer, said, asked string) bool {
	answer, said = answer[:min(len(answer), quotedBytes)], said[:min(len(said), quotedBytes)]
	blocks := make(map[string][]int, len(answer)/quoteBlock)
	for at := 0; at+quoteBlock <= len(answer); at += quoteBlock {
		block := answer[at : at+quoteBlock]
		if known := blocks[block]; len(known) < 4 { // a text that repeats itself is found by its first places
			blocks[block] = append(known, at)
		}
	}
	tries := 0
	for i := 0; i+quoteBlock <= len(said) && tries < quotedTries; i++ {
		for _, at := range blocks[said[i:i+quoteBlock]] {
			tries++
			from, to := 0, quoteBlock
			for from < 2*quotedRunes && at-from > 0 && i-from > 0 && answer[at-from-1] == said[i-from-1] {
				from++
			}
			for to < 4*quotedRunes && at+to < len(answer) && i+to < len(said) && answer[at+to] == said[i+to] {
				to++
			}
			if passage := said[i-from : i+to]; utf8.RuneCountInString(passage) >= quotedRunes && !strings.Contains(asked, passage) {
				return true
			}
		}
	}
	return false
}
