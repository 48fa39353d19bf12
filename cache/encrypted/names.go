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
	"sync"

	"remora/cache"
)

// The stored name of a group is its tag (16) and the name, encrypted by AES-256-CTR that starts at the tag. The tag is
// the beginning of an HMAC-SHA256 over owner and name, so that one name always has one stored form, which can be looked
// up, and List can turn it back without reading the group. (This is the construction of RFC 5297, SIV.) The stored name
// of a value is an HMAC over the group's tag and its name (16), which is never turned back.
const (
	tagBytes = 16

	macInfo    = "remora/cache/seal v1 name tags"
	cipherInfo = "remora/cache/seal v1 names"

	// What the first byte of everything authenticated says: no two kinds are ever taken for each other.
	kindGroup  = 'g'
	kindName   = 'n'
	kindValue  = 'v'
	kindRecord = 's'
	kindCheck  = 'c'
	kindKey    = 'k'

	// maxScratch is how large a buffer may be that is kept for the next call.
	maxScratch = 64 << 10
)

// names hides names.
type names struct {
	block cipher.Block
	idle  sync.Pool // of *scratch
}

// scratch has the hash and the buffers of one call at a time.
type scratch struct {
	*names
	mac   hash.Hash
	sum   []byte // the last tag
	buf   []byte
	place []byte // of the group at hand, see locate
	group int    // how much of place is the group's
	tag   [tagBytes]byte
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

// scratch takes a scratch from the pool. Its done must be called.
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

// enter makes g the group that all that follows is about.
func (s *scratch) enter(g cache.Group) {
	s.locate(g)
	s.buf = append(append(s.buf[:0], kindGroup), s.place[1:]...)
	copy(s.tag[:], s.authenticate())
}

// locate makes g the group that placeOf is about, and is all that reading its values takes.
func (s *scratch) locate(g cache.Group) {
	s.place = appendSized(appendSized(append(s.place[:0], kindValue), g.Owner), g.Name)
	s.group = len(s.place)
}

// groupName is the stored name of the group entered, which is called name.
func (s *scratch) groupName(name string) string {
	s.buf = append(append(s.buf[:0], s.tag[:]...), name...)
	cipher.NewCTR(s.block, s.tag[:]).XORKeyStream(s.buf[tagBytes:], s.buf[tagBytes:])
	return string(s.buf)
}

// readGroupName decrypts a stored name. ok is false if this key did not make it for this owner.
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

// appendValueName appends the stored name, of tagBytes, of a value of the group entered.
func (s *scratch) appendValueName(dst []byte, name string) []byte {
	s.buf = append(append(append(s.buf[:0], kindName), s.tag[:]...), name...)
	return append(dst, s.authenticate()...)
}

// valueNames returns the stored names of values of the group entered, which share one string.
func (s *scratch) valueNames(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	all := make([]byte, 0, len(list)*tagBytes)
	for _, name := range list {
		all = s.appendValueName(all, name)
	}
	stored := string(all)
	out := make([]string, len(list))
	for i := range out {
		out[i] = stored[i*tagBytes : (i+1)*tagBytes]
	}
	return out
}

// hideNames gives a batch for the group entered the stored names of everything. The batch's puts must be its own.
func (s *scratch) hideNames(b *cache.Batch) {
	b.Group.Name = s.groupName(b.Group.Name)
	b.Deletes = s.valueNames(b.Deletes)
	all := make([]byte, 0, len(b.Puts)*tagBytes)
	for _, p := range b.Puts {
		all = s.appendValueName(all, p.Name)
	}
	stored := string(all)
	for i := range b.Puts {
		b.Puts[i].Name = stored[i*tagBytes : (i+1)*tagBytes]
	}
}

// placeOf is the additional data that binds a value to its name in the group entered. It is valid until the next call.
func (s *scratch) placeOf(name string) []byte {
	s.place = append(s.place[:s.group], name...)
	return s.place
}

// fingerprint identifies the names_key without revealing it.
func (s *scratch) fingerprint() []byte {
	s.buf = append(s.buf[:0], kindCheck)
	return append([]byte(nil), s.authenticate()...)
}
