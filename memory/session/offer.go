package session

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"hash/maphash"
	"slices"

	"remora/memory/lru"
	"remora/wire"
)

// offer holds the members of a request besides its items that distinguish kinds of requests.
type offer struct {
	Client uint64 // the kind of client: its dialect and the names of its tools
	Tools  uint64 // number of tools
	Model  uint64 // hash of the model's name
	Format byte   // of the answer: one of the format constants
}

// Formats of an answer.
const (
	formatText byte = iota
	formatObject
	formatSchema
	formatOther
	formatCall    // a call of the tool that the request names: the answer itself, for a program that wants data
	formatAnyCall // a call: maybe the answer itself
)

// otherFormat reports whether two requests want answers of different formats. Agents demand calls in some of their requests only.
func (o offer) otherFormat(than offer) bool {
	if o.Format == formatAnyCall {
		o.Format = formatText
	}
	if than.Format == formatAnyCall {
		than.Format = formatText
	}
	return o.Format != than.Format
}

// offers computes offers. Agents send the same tens of kilobytes of tool definitions with every request, so the result is
// cached by their bytes.
type offers struct {
	seed  maphash.Seed
	tools lru.Cache[uint64, offer]
}

// maxOffers is the number of cached lists of tools.
const maxOffers = 2048

func (o *offers) of(req *wire.Request) offer {
	out := o.toolsOf(req)
	out.Model = textHash(req.Model())

	switch req.Format() {
	case "", "text":
	case "json_object":
		out.Format = formatObject
	case "json_schema":
		out.Format = formatSchema
	default:
		out.Format = formatOther
	}
	choice := req.Member("tool_choice")
	switch cmp.Or(wire.Text(choice), wire.Text(wire.Member(choice, "type"))) {
	case "function", "custom":
		out.Format = formatCall
	case "required", "any":
		out.Format = formatAnyCall
	}
	if wire.Text(wire.Member(req.Member("function_call"), "name")) != "" {
		out.Format = formatCall
	}
	return out
}

// demandsCall reports whether the answer must be a call.
func (o offer) demandsCall() bool { return o.Format == formatCall || o.Format == formatAnyCall }

// demandsData reports whether the answer must be data for a program.
func (o offer) demandsData() bool { return o.Format != formatText && o.Format != formatAnyCall }

// toolsOf is the part of an offer that depends on its tools.
func (o *offers) toolsOf(req *wire.Request) offer {
	tools, functions := req.Member("tools"), req.Member("functions")
	var h maphash.Hash
	h.SetSeed(o.seed)
	_ = h.WriteByte(req.Dialect.Code())
	_, _ = h.Write(tools)
	_ = h.WriteByte(0)
	_, _ = h.Write(functions)
	key := h.Sum64()
	if known, ok := o.tools.Find(key); ok {
		return known
	}

	names := req.Tools()
	slices.Sort(names)
	sum := fnv.New64a()
	for _, name := range names {
		_, _ = sum.Write(binary.AppendUvarint(nil, uint64(len(name))))
		_, _ = sum.Write([]byte(name))
	}
	out := offer{Client: sum.Sum64() ^ uint64(req.Dialect.Code()), Tools: uint64(len(names))}
	if len(names) == 0 {
		out.Client = uint64(req.Dialect.Code())
	}
	o.tools.Put(key, out, maxOffers)
	return out
}
