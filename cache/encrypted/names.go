package encrypted

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"sync"

	"remora/cache"
)

// The stored name of a group is its tag (16 bytes) and the name, encrypted with AES-256-CTR starting at the tag. The tag is the
// beginning of an HMAC-SHA256 over owner and name: a name always has the same stored form, so it can be looked up, and List can
// decrypt it without reading the group. (This is the construction of RFC 5297, SIV.) The stored owner is an HMAC over it (16
// bytes), since owners may hold the ids of resources. The stored name of a value is an HMAC over the group's tag and its name (16
// bytes). Neither is ever decrypted.
const (
	tagBytes = 16

	macInfo    = "remora/cache/seal v1 name tags"
	cipherInfo = "remora/cache/seal v1 names"

	// The first byte of all authenticated data, so that different kinds never have the same tag.
	kindOwner  = 'o'
	kindGroup  = 'g'
	kindName   = 'n'
	kindValue  = 'v'
	kindRecord = 's'
	kindCheck  = 'c'
	kindKey    = 'k'

	// maxScratch is the size of the largest buffer that is reused.
	maxScratch = 64 << 10
)

// names encrypts names.
type names struct {
	block cipher.Block
	idle  sync.Pool // of *scratch
}

// scratch holds the hash and the buffers of one call.
type scratch struct {
	*names
	mac   hash.Hash
	sum   []byte // the last tag
	buf   []byte
	place []byte // of the current group, see locate
	group int    // length of the group's part of place
	tag   [tagBytes]byte

	owner, hidden string // the last owner and its stored form: most calls have the same one
}

func newNames(secret []byte) (*names, error) {
	macKey, err := hkdf.Key(sha256.New, secret, nil, macInfo, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive key of names: %w", err)
	}
	cipherKey, err := hkdf.Key(sha256.New, secret, nil, cipherInfo, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive key of names: %w", err)
	}
	n := &names{}
	if n.block, err = aes.NewCipher(cipherKey); err != nil {
		return nil, fmt.Errorf("derive key of names: %w", err)
	}
	n.idle.New = func() any { return &scratch{names: n, mac: hmac.New(sha256.New, macKey)} }
	return n, nil
}

// scratch returns a scratch from the pool. The caller must call its done.
func (n *names) scratch() *scratch {
	s, _ := n.idle.Get().(*scratch)
	return s
}

func (s *scratch) done() {
	if cap(s.buf) <= maxScratch && cap(s.place) <= maxScratch {
		s.idle.Put(s)
	}
}

// authenticate returns the tag of s.buf.
func (s *scratch) authenticate() []byte {
	s.mac.Reset()
	s.mac.Write(s.buf)
	s.sum = s.mac.Sum(s.sum[:0])
	return s.sum[:tagBytes]
}

func appendSized(dst []byte, part string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(part))), part...)
}

// enter sets the group of the following calls.
func (s *scratch) enter(g cache.Group) {
	s.locate(g)
	s.buf = append(append(s.buf[:0], kindGroup), s.place[1:]...)
	copy(s.tag[:], s.authenticate())
}

// locate sets the group of the following calls of placeOf. It is cheaper than enter, and enough to read values.
func (s *scratch) locate(g cache.Group) {
	s.place = appendSized(appendSized(append(s.place[:0], kindValue), g.Owner), g.Name)
	s.group = len(s.place)
}

// ownerName returns the stored form of an owner.
func (s *scratch) ownerName(owner string) string {
	if s.hidden == "" || s.owner != owner {
		s.buf = append(append(s.buf[:0], kindOwner), owner...)
		s.owner, s.hidden = owner, cache.HalfOf(owner)+string(s.authenticate())
	}
	return s.hidden
}

// stored returns the stored form of the current group, which is g.
func (s *scratch) stored(g cache.Group) cache.Group {
	return cache.Group{Owner: s.ownerName(g.Owner), Name: s.groupName(g.Name)}
}

// groupName returns the stored name of the current group, whose plain name is name.
func (s *scratch) groupName(name string) string {
	s.buf = append(append(s.buf[:0], s.tag[:]...), name...)
	cipher.NewCTR(s.block, s.tag[:]).XORKeyStream(s.buf[tagBytes:], s.buf[tagBytes:])
	return string(s.buf)
}

// readGroupName decrypts a stored name. ok is false if it was not made with this key for this owner.
func (s *scratch) readGroupName(owner, stored string) (name string, ok bool) {
	if len(stored) < tagBytes {
		return "", false
	}
	s.buf = append(s.buf[:0], stored...)
	cipher.NewCTR(s.block, s.buf[:tagBytes]).XORKeyStream(s.buf[tagBytes:], s.buf[tagBytes:])
	name = string(s.buf[tagBytes:])
	s.enter(cache.Group{Owner: owner, Name: name})
	return name, hmac.Equal(s.tag[:], []byte(stored[:tagBytes]))
}

// appendValueName appends the stored name, of tagBytes, of a value of the current group.
func (s *scratch) appendValueName(dst []byte, name string) []byte {
	s.buf = append(append(append(s.buf[:0], kindName), s.tag[:]...), name...)
	return append(dst, s.authenticate()...)
}

// valueNames returns the stored names of values of the current group.
func (s *scratch) valueNames(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	out := slices.Clone(list)
	s.hide(len(out), func(i int) *string { return &out[i] })
	return out
}

// hide replaces n names of the current group's values by stored names, which share one string.
func (s *scratch) hide(n int, name func(i int) *string) {
	all := make([]byte, 0, n*tagBytes)
	for i := range n {
		all = s.appendValueName(all, *name(i))
	}
	stored := string(all)
	for i := range n {
		*name(i) = stored[i*tagBytes : (i+1)*tagBytes]
	}
}

// hideNames replaces all names in a batch for the current group by stored names. It modifies the batch's puts.
func (s *scratch) hideNames(b *cache.Batch) {
	b.Group = s.stored(b.Group)
	b.Deletes = s.valueNames(b.Deletes)
	s.hide(len(b.Puts), func(i int) *string { return &b.Puts[i].Name })
}

// placeOf returns the additional data that binds a value to its name in the current group. It is valid until the next call.
func (s *scratch) placeOf(name string) []byte {
	s.place = append(s.place[:s.group], name...)
	return s.place
}

// fingerprint identifies the names_key without revealing it.
func (s *scratch) fingerprint() []byte {
	s.buf = append(s.buf[:0], kindCheck)
	return append([]byte(nil), s.authenticate()...)
}
