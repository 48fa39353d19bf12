package encrypted

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"remora/cache"
)

// ErrUnreadable is wrapped by the error for a value or record that cannot be decrypted: its key is not configured, it is not
// encrypted, or it was changed or moved.
var ErrUnreadable = fmt.Errorf("%w: it cannot be decrypted", cache.ErrUnreadable)

// A sealed value is
//
//	magic (4), length of the key's id (1), the key's id, salt of the data key (16), nonce (12), ciphertext, tag (16)
//
// The data key is HKDF-SHA256(the key's secret, salt, dataInfo). The magic's last byte is the version of this format. Its first
// byte never occurs in UTF-8, and no plaintext record begins with it, which distinguishes plaintext.
const (
	magic     = "\xf5SE\x01"
	saltBytes = 16
	dataInfo  = "remora/cache/seal v1 data"

	// tailBytes is nonce and tag.
	tailBytes = 12 + 16
	// maxOverhead is the largest difference in length between a sealed and a plain value, in bytes.
	maxOverhead = len(magic) + 1 + maxKeyID + saltBytes + tailBytes

	// perDataKey is the number of values that one data key encrypts. Nonces are random: among 2^30, two are equal with a
	// probability of less than 2^-36.
	perDataKey = 1 << 30
	// maxOpened is the number of cached data keys for reading, of 1.5 KB each. Deriving one takes 2 microseconds.
	maxOpened = 256
)

// ring encrypts with the first of its keys and decrypts with all.
type ring struct {
	keys  []rawKey
	limit uint64 // perDataKey, less in tests

	renewing sync.Mutex
	current  atomic.Pointer[dataKey]

	mu     sync.RWMutex
	opened map[dataKeyID]cipher.AEAD
}

// dataKey encrypts a limited number of values of this process.
type dataKey struct {
	head []byte // the beginning of every value that it seals
	aead cipher.AEAD
	used atomic.Uint64
}

type dataKeyID struct {
	key  int // index in ring.keys
	salt [saltBytes]byte
}

func newRing(keys []rawKey) (*ring, error) {
	r := &ring{keys: keys, limit: perDataKey, opened: map[dataKeyID]cipher.AEAD{}}
	k, err := r.newDataKey()
	if err != nil {
		return nil, err
	}
	r.current.Store(k)
	return r, nil
}

func (r *ring) newDataKey() (*dataKey, error) {
	id := dataKeyID{}
	_, _ = rand.Read(id.salt[:]) // never returns an error
	aead, err := r.derive(id)
	if err != nil {
		return nil, err
	}
	name := r.keys[0].id
	head := append([]byte(magic), byte(len(name))) //nolint:gosec // G115: at most maxKeyID
	head = append(append(head, name...), id.salt[:]...)
	return &dataKey{head: head, aead: aead}, nil
}

// derive returns the cipher of a data key, and caches it.
func (r *ring) derive(id dataKeyID) (cipher.AEAD, error) {
	secret, err := hkdf.Key(sha256.New, r.keys[id.key].secret, id.salt[:], dataInfo, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive data key: %w", err)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("derive data key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("derive data key: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.opened) >= maxOpened {
		for old := range r.opened { // any: a used one is derived again
			delete(r.opened, old)
			break
		}
	}
	r.opened[id] = aead
	return aead, nil
}

// writing returns the data key for the next value.
func (r *ring) writing() (*dataKey, error) {
	if k := r.current.Load(); k.used.Add(1) <= r.limit {
		return k, nil
	}
	r.renewing.Lock()
	defer r.renewing.Unlock()
	if k := r.current.Load(); k.used.Add(1) <= r.limit {
		return k, nil
	}
	k, err := r.newDataKey()
	if err != nil {
		return nil, err
	}
	k.used.Store(1)
	r.current.Store(k)
	return k, nil
}

// seal encrypts plain, bound to place, and appends it to dst.
func (r *ring) seal(dst, plain, place []byte) ([]byte, error) {
	k, err := r.writing()
	if err != nil {
		return dst, err
	}
	return k.aead.Seal(append(dst, k.head...), nil, plain, place), nil //nolint:gosec // G407: this AEAD generates its nonce
}

// open decrypts a value that was sealed for place, in place: sealed must no longer be used. Its errors wrap ErrUnreadable.
func (r *ring) open(sealed, place []byte) ([]byte, error) {
	v, err := parse(sealed)
	if err != nil {
		return nil, err
	}
	at := dataKeyID{key: -1, salt: v.salt}
	for i, k := range r.keys {
		if k.id == string(v.id) {
			at.key = i
		}
	}
	if at.key < 0 {
		return nil, fmt.Errorf("%w: it was written with the key %q, which is not in %s.keys", ErrUnreadable, v.id, path)
	}
	r.mu.RLock()
	aead := r.opened[at]
	r.mu.RUnlock()
	if aead == nil {
		if aead, err = r.derive(at); err != nil {
			return nil, err
		}
	}
	plain, err := aead.Open(v.body[:0], nil, v.body, place)
	if err != nil {
		return nil, fmt.Errorf("%w: it was changed or moved, or written with another secret of the key %q", ErrUnreadable, v.id)
	}
	return slices.Clip(plain), nil
}

func isSealed(b []byte) bool { return bytes.HasPrefix(b, []byte(magic)) }

var (
	errPlain  = fmt.Errorf("%w: it is not encrypted, and %s.accept_plaintext is off", ErrUnreadable, path)
	errSealed = fmt.Errorf("%w: it is encrypted, and %s is not configured", ErrUnreadable, path)
	errCut    = fmt.Errorf("%w: it is cut off or damaged", ErrUnreadable)
)

// sealedValue is a parsed sealed value. Its slices share the value's bytes.
type sealedValue struct {
	id   []byte // validated, so it may appear in errors
	salt [saltBytes]byte
	body []byte // nonce, ciphertext, tag
}

func parse(b []byte) (v sealedValue, err error) {
	if !isSealed(b) {
		return v, errPlain
	}
	b = b[len(magic):]
	if len(b) == 0 {
		return v, errCut
	}
	idEnd := 1 + int(b[0])
	if len(b) < idEnd+saltBytes+tailBytes {
		return v, errCut
	}
	v.id, b = b[1:idEnd], b[idEnd:]
	if !validID(string(v.id)) {
		return v, errCut
	}
	v.salt, v.body = [saltBytes]byte(b), b[saltBytes:]
	return v, nil
}
