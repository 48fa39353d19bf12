package chat

import (
	"bytes"
	"slices"
	"strconv"

	"remora/wire"
)

// messages makes other messages of messages.
type messages struct{}

// Keep: a tool_calls list that loses all its elements goes as a whole, since upstream refuses an empty one.
func (messages) Keep(it wire.Item, keep []bool) []byte {
	first, end := firstCall(it), len(keep)
	legacy := false
	if hasLegacyCall(it) {
		end--
		legacy = keep[end]
	}
	calls := keep[first:end]
	list := wire.Member(it.Raw, "tool_calls")
	raw := wire.Edit(it.Raw, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "function_call":
			return p.Value, legacy
		case "tool_calls":
			if !slices.Contains(calls, true) || !wire.SameBytes(p.Value, list) {
				return nil, false
			}
			return wire.Edit(list, func(i int, e wire.Child) ([]byte, bool) { return e.Value, calls[i] }), true
		}
		return p.Value, true
	})
	if first > 0 && !keep[0] {
		return withoutText(raw)
	}
	return raw
}

func (messages) WithoutText(it wire.Item) []byte { return withoutText(it.Raw) }

// withoutText keeps all that upstream sent with the calls of a message: thinking models refuse a call that comes back without
// its reasoning_content, reasoning_details or thought signature.
func withoutText(raw []byte) []byte {
	// Beside calls some upstreams refuse an empty string, and Google, which is known by the extra_content of its calls,
	// null as well.
	google := bytes.Contains(wire.Member(raw, "tool_calls"), []byte(`"extra_content"`))
	return wire.Edit(raw, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "content":
			return []byte("null"), !google
		case "refusal", "audio", "annotations", "images":
			return nil, false
		}
		return p.Value, !emptyMember(p)
	})
}

// emptyMember reports whether a member of a Chat answer stands for nothing and is refused in a request: some upstreams
// write [] or null for no calls, which no client sends.
func emptyMember(p wire.Child) bool {
	switch string(p.Name) {
	case "tool_calls":
		return wire.IsNull(p.Value) || !wire.HasChildren(p.Value)
	case "function_call", "audio":
		return wire.IsNull(p.Value)
	}
	return false
}

// AsInput: answers hold what requests must not: empty lists of calls, empty text beside calls, and sound, which goes back as its
// id where kept says that upstream still has it, and as the text of its transcript otherwise.
func (messages) AsInput(it wire.Item, kept func(wire.Audio) bool) (wire.Item, bool) {
	if it.Kind != wire.Message {
		return it, true
	}
	var audio, content, transcript []byte
	odd := false
	for p := range wire.Children(it.Raw) {
		switch string(p.Name) {
		case "audio":
			audio = p.Value
		case "content":
			content = p.Value
		}
		odd = odd || emptyMember(p)
	}
	sounds := len(audio) > 0 && audio[0] == '{'
	blank := string(content) == `""` && it.HasCalls() // some upstreams refuse it, most accept null
	if !odd && !sounds && !blank {
		return it, saysAny(it)
	}

	if sounds {
		expires, _ := strconv.ParseInt(string(wire.Member(audio, "expires_at")), 10, 64)
		a := wire.Audio{ID: wire.Text(wire.Member(audio, "id")), Expires: expires}
		switch {
		case a.ID != "" && kept(a):
			audio = append(wire.AppendString([]byte(`{"id":`), a.ID), '}')
		default:
			audio, transcript = nil, wire.Member(audio, "transcript")
		}
	}
	if said, ok := wire.Inside(content); ok && len(said) > 0 || len(content) > 0 && content[0] == '[' {
		transcript = nil // the text is there already
	} else if said, _ := wire.Inside(transcript); len(said) == 0 {
		transcript = nil
	}

	raw := wire.Edit(it.Raw, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "audio":
			return audio, len(audio) > 0 && sounds
		case "content":
			if transcript != nil {
				return transcript, true
			} else if blank {
				return []byte("null"), true
			}
		}
		return p.Value, !emptyMember(p)
	})
	if transcript != nil && content == nil {
		raw = append(append(append([]byte(`{"content":`), transcript...), ','), raw[1:]...)
	}
	out := it.Rewritten(raw)
	return out, saysAny(out)
}

// saysAny reports whether an answer has a call, a refusal, sound, images, or content that is more than white space: upstreams refuse
// white space as they refuse no text.
func saysAny(it wire.Item) bool {
	if it.HasCalls() || !it.HasContent() {
		return it.HasCalls()
	}

	var f fields
	for p := range wire.Children(it.Raw) {
		f.note(&p)
	}
	refusal, _ := wire.Inside(f.refusal)
	return !wire.Blank(f.content) || len(refusal) > 0 || len(f.audio) > 0 && f.audio[0] == '{' || wire.HasChildren(f.images)
}

func (messages) WithCallIDs(it wire.Item, ids []string) []byte {
	if it.Kind == wire.ToolResult {
		if ids[0] == "" {
			return it.Raw
		}
		return wire.WithMember(it.Raw, "tool_call_id", wire.AppendString(nil, ids[0]))
	}
	calls := ids[firstCall(it):]
	return wire.EditMember(it.Raw, "tool_calls", func(list []byte) []byte {
		return wire.Edit(list, func(i int, call wire.Child) ([]byte, bool) {
			if i >= len(calls) || calls[i] == "" {
				return call.Value, true
			}
			return wire.WithMember(call.Value, "id", wire.AppendString(nil, calls[i])), true
		})
	})
}
