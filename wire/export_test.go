package wire

// What tests of this package's insides need. They stand outside of it, as the dialects that they try import it.

const (
	MaxDepth            = maxDepth
	MaxElements         = maxElements
	MaxMembers          = maxMembers
	MaxFolded           = maxFolded
	MaxGlance           = maxGlance
	MaxCanonicalMembers = maxCanonicalMembers
)

// A MemberAt is a member of a body's top level.
type MemberAt struct {
	Name, Value []byte
	End         int // of the value
}

// Members are the members of the body.
func (r *Request) Members() []MemberAt {
	var all []MemberAt
	for _, m := range r.members {
		all = append(all, MemberAt{m.name, r.of(m.value), m.value.end})
	}
	return all
}

func (r *Request) MemberIndex(name string) int { return r.memberIndex(name) }

func (r *Request) Decode() { r.decode() }

func (f *Folder) HasBegun() bool { return f.begun }

// Hashing returns the bytes that are hashed of items, in a buffer of its own.
func Hashing() func(it Item) []byte {
	var h Hasher
	return func(it Item) []byte {
		h.item(it)
		return h.b
	}
}

// Canonical appends the canonical spelling of JSON. all keeps the members that clients drop.
func Canonical(all bool, out, raw []byte) ([]byte, bool) {
	return (&canonicalizer{all: all}).append(out, raw)
}
