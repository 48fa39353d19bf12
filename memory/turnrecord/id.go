package turnrecord

import (
	"math/rand/v2"
	"strings"
	"time"
)

// crockford spells turn ids so that they sort as they were made and hold nothing that is easily misread.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// idSize is the length of an id: 26 characters of 5 bits, of which the first two bits of all are 0.
const idSize = 26

// Began is when a turn began, by its id; false for what is no id.
func Began(id string) (time.Time, bool) {
	if len(id) != idSize {
		return time.Time{}, false
	}
	var ms int64
	for i := range id {
		digit := strings.IndexByte(crockford, id[i])
		if digit < 0 {
			return time.Time{}, false
		}
		if i < 10 {
			ms = ms<<5 | int64(digit)
		}
	}
	return time.UnixMilli(ms), ms < 1<<48
}

// BeganAt is when a turn began, in milliseconds; 0 for what is no id.
func BeganAt(id string) uint64 {
	at, _ := Began(id)
	return uint64(max(0, at.UnixMilli()))
}

// NewID makes a turn's id, a ULID: 48 bits of the time in milliseconds and 80 random ones (https://github.com/ulid/spec).
func NewID(now time.Time) string {
	high := uint64(now.UnixMilli())<<16 | rand.Uint64()>>48 //nolint:gosec // unique, not secret
	low := rand.Uint64()                                    //nolint:gosec // unique, not secret
	var id [idSize]byte
	for i := idSize - 1; i >= 0; i-- {
		id[i] = crockford[low&31]
		high, low = high>>5, high<<59|low>>5
	}
	return string(id[:])
}
