package proxy

import (
	"bytes"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestLargeBodiesTakeLittleMoreThanTheirBytes: the buffer of a body stays until its answer is stored.
func TestLargeBodiesTakeLittleMoreThanTheirBytes(t *testing.T) {
	for _, size := range []int{1 << 20, 2<<20 + 1, 5 << 20, 60_000_000} {
		most := size + size/4 + maxPooled
		for _, length := range []int{-1, size} {
			buf := make([]byte, 0, perRead)
			for len(buf) < size {
				if len(buf) == cap(buf) {
					buf = grow(buf, length)
				}
				buf = buf[:min(cap(buf), size)]
			}
			if cap(buf) > most {
				t.Errorf("a body of %d bytes, length %d, takes %d", size, length, cap(buf))
			}
		}

		enc, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		packed := enc.EncodeAll(bytes.Repeat([]byte("x"), size), nil)
		held := 0
		plain, err := decode([]byte("zstd"), packed, 3*size, func(n int) bool { held += n; return true })
		if err != nil || len(plain) != size || cap(plain) > most || held != cap(plain) {
			t.Errorf("a body of %d bytes is decoded to %d that take %d, and %d are counted: %v", size, len(plain), cap(plain), held, err)
		}
	}
}
