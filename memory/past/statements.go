package past

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"remora/memory/index"
	"remora/memory/layer"
	"remora/memory/redact"
	"remora/memory/session"
	"remora/wire"
)

// add puts a message into an index, in parts if it is long.
func add(ix *index.Index, e *Embeddings, name string, it session.Said) {
	role := index.RoleUser
	if it.Role == wire.Assistant {
		role = index.RoleAssistant
	}
	text := withoutTold(it.Text)
	if text == "" {
		return
	}
	if len(text) > maxPart {
		text = redact.Text(text) // before it is divided: the label of a secret may be in another part
	}
	speaker := role
	if own, _, ok := strings.Cut(text, ": "); ok && isName(own) {
		speaker = own
	} else if layer.IsSpeaker(it.Name) {
		speaker, text = it.Name, it.Name+": "+text
	}
	id := sessionNumber(name) + "-" + strconv.FormatUint(it.Seq, 10)
	parts := partsOf(text)
	if len(parts) > maxParts { // people say what they want above what they paste, or below it
		parts = slices.Concat(parts[:maxParts-lastParts], parts[len(parts)-lastParts:])
	}
	for _, part := range parts {
		ix.Add(index.Turn{ID: id, Session: name, Role: role, Speaker: speaker, Time: it.Time, Text: part, Content: it.Content})
		if e != nil && e.Table != nil {
			ix.SetVectors(ix.Len()-1, []index.Vector{index.Quantise(e.Table(part))})
		}
	}
}

// toldTags are the tags of blocks with recalled text. A message that quotes such a block does not state it. The test lists the tags
// that are missing here, and why.
const toldTags = "recalled observations episodes conversation_memory conversation_summary remembered_facts names_seen_earlier " +
	"who_and_what_earlier working_memory tool_memory task_state active_plan referenced_files memory_update"

var toldBlocks = sync.OnceValue(func() []*regexp.Regexp {
	var all []*regexp.Regexp
	for tag := range strings.FieldsSeq(toldTags) {
		all = append(all, regexp.MustCompile(`(?s)<`+tag+`(?: [^<>\n]*)?>\n.*?\n</`+tag+`>`))
	}
	return all
})

// withoutTold returns a text without quoted blocks, so that recalled text is not recalled again.
func withoutTold(text string) string {
	if !strings.Contains(text, "</") {
		return text
	}
	rest := text
	for _, block := range toldBlocks() {
		rest = block.ReplaceAllString(rest, "\n")
	}
	if rest == text {
		return text
	}
	return strings.TrimSpace(rest)
}

// sessionNumber names a session within its resource, in six digits: vocabularies have tokens for three.
func sessionNumber(name string) string {
	const digits = 1_000_000
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%06d", binary.BigEndian.Uint64(sum[:])%digits)
}

// isName reports whether the text before a colon can be a speaker's name, as in transcripts of several people.
func isName(s string) bool {
	const longest = 40 // bytes
	words := strings.Fields(s)
	if len(s) > longest || len(words) == 0 || len(words) > 3 || layer.IsLabel(s) {
		return false
	}
	for _, w := range words {
		r, _ := utf8.DecodeRuneInString(w)
		if !unicode.IsUpper(r) && !nameWithoutCase(w) || strings.ContainsAny(w, ".,;!?()[]{}<>/\"'`*#") {
			return false
		}
	}
	return true
}

// nameWithoutCase reports whether a word of a script without capitals can be a name: letters alone, few, and in Chinese and
// Japanese none that sentences are made with.
func nameWithoutCase(w string) bool {
	const longest, longestHan = 12, 4 // letters
	letters, han := 0, 0
	for _, r := range w {
		switch {
		case unicode.IsMark(r):
		case !unicode.In(r, unicode.Lo, unicode.Lm), strings.ContainsRune("的是了我你您他她它们在有和不就也都这那吗呢吧", r):
			return false
		default:
			letters++
			if unicode.Is(unicode.Han, r) {
				han++
			}
		}
	}
	return letters > 0 && letters <= longest && (han < letters || han <= longestHan)
}

// partsOf divides a long text where a paragraph, a line or a sentence ends.
func partsOf(text string) []string {
	var parts []string
	for len(text) > maxPart {
		at := 0
		for _, end := range []string{"\n\n", "\n", ". ", "\u3002", " "} {
			if at = strings.LastIndex(text[:maxPart], end); at > maxPart/3 {
				at += len(end)
				break
			}
		}
		if at <= maxPart/3 {
			at = len(layer.Head(text, maxPart))
		}
		parts, text = append(parts, text[:at]), text[at:]
	}
	return append(parts, text)
}
