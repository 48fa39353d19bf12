package wire

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"remora/wire/sse"
)

// Clients do not read every answer alike. Some collect a call of Responses from its first event and the arguments after it,
// some from the finished item, some from the list at the end; some ignore the case of member names, and of duplicates some take
// the first and some the last. If rules judge calls, every client must read the calls that they saw. A judged answer that can
// be read in two ways is unclear, and must not pass.

// NewJudgedFolder returns a Folder for an answer that is judged before the client gets it. It also finds out whether all
// clients read the same calls in it: see Reply.Unclear.
func NewJudgedFolder(d Dialect) *Folder {
	f := NewFolder(d)
	f.judged = &readings{Ambiguities: d.Codec().Ambiguities(), calls: d.Rules().Calls}
	return f
}

// Unclear returns why clients may read other calls in the answer so far than Reply has, "" if they do not. It is always ""
// without judging.
func (f *Folder) Unclear() string {
	if f.judged == nil {
		return ""
	}
	return f.judged.odd
}

// Unclear returns why clients may read other calls in a whole answer than FoldBody, "" if they do not.
func Unclear(d Dialect, body []byte) string {
	if spelledOnce(d.Rules().Calls, Top, body) {
		return ""
	}
	return oddNames
}

const oddData = "the data of an event are not a JSON object"

const oddNames = "a member is spelled in another case, stands twice or beside one that excludes it, lists something else than objects, or is no index"

// spelledOnce reports whether the members that calls depend on have the API's spelling and occur once each, without one that
// excludes them. A choice whose index is not accepted is not read, but some clients show it.
func spelledOnce(calls map[Place]map[string]Place, at Place, raw []byte) bool {
	var seen []string
	var entered []Place
	elements := 0
	for p := range Children(raw) {
		if p.Name == nil {
			if elements++; elements > MaxIndex || p.Value[0] != '{' || !spelledOnce(calls, at, p.Value) {
				return false
			}
			continue
		}

		name := string(p.Name)
		to, known := calls[at][name]
		if !known {
			for other := range calls[at] {
				if strings.EqualFold(name, other) {
					return false
				}
			}
			continue
		}
		if slices.Contains(seen, name) {
			return false
		}
		seen = append(seen, name)
		if IsNull(p.Value) || to == Leaf {
			continue
		}
		if slices.Contains(entered, to) {
			return false
		}
		entered = append(entered, to)
		switch to {
		case CallInput:
		case Number:
			if _, ok := Index(p.Value, 0); !ok {
				return false
			}
		default:
			if !spelledOnce(calls, to, p.Value) {
				return false
			}
		}
	}
	return true
}

// readings is the judgement of one stream.
type readings struct {
	Ambiguities
	calls map[Place]map[string]Place // see Rules
	odd   string                     // why the answer is unclear
}

// event takes in an event.
func (r *readings) event(ev *sse.Block, e Effect) {
	var why string
	switch data := bytes.TrimSpace(ev.Data); {
	case len(data) == 0 || sse.IsDone(data):
	case !IsObject(data):
		why = oddData
	case !spelledOnce(r.calls, Top, data):
		why = oddNames
	default:
		why = r.Event(ev, e)
	}
	r.odd = cmp.Or(r.odd, why)
}

// unclear returns the reason why clients may read other calls than those of the choices, "" if they do not.
func (r *readings) unclear(choices [][]Item) string {
	if r.odd != "" {
		return r.odd
	}
	return r.Unclear(choices)
}

// SameInput reports whether two inputs of a call are the same text or the same JSON.
func SameInput(a, b string) bool {
	if a == b {
		return true
	}
	var c canonicalizer
	x, okX := c.append(nil, []byte(a))
	y, okY := c.append(nil, []byte(b))
	return okX && okY && bytes.Equal(x, y)
}
