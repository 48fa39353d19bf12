package spool

import (
	"bytes"
	"testing"
)

// FuzzSegment reads a segment of whole frames followed by arbitrary bytes. The first frame may be that of a removed record.
func FuzzSegment(f *testing.F) {
	f.Add([]byte("rec"), []byte{}, false)
	f.Add([]byte{}, appendFrame(nil, []byte("x"))[:8], true)
	f.Add([]byte("rec"), make([]byte, 64), true)
	f.Add([]byte("rec"), []byte{255, 255, 255, 255, 0, 0, 0, 0}, false)
	f.Add([]byte("rec"), append([]byte{0, 0, 0, 1, 9, 9, 9, 9, 'x'}, appendFrame(nil, []byte("behind damage"))...), true)
	f.Fuzz(func(t *testing.T, rec, tail []byte, removed bool) {
		one := frameBytes(len(rec))
		data := append(appendFrame(appendFrame(nil, rec), rec), tail...)
		if removed {
			data[0] = ^data[0]
		}
		var seg segment
		found, err := seg.scan(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		if seg.end < 2*one || seg.end > int64(len(data)) {
			t.Fatalf("the end is %d of %d bytes, whose first %d are whole", seg.end, len(data), 2*one)
		}
		if !removed && (len(found) == 0 || found[0].at != 0 || found[0].length != one) {
			t.Fatalf("the first record is not found: %+v", found)
		}
		if removed && (len(found) == 0 || found[0].at != one) {
			t.Fatalf("the first record was removed, found: %+v", found)
		}
		before := int64(0)
		for _, p := range found {
			if p.at < before || p.length <= 0 {
				t.Fatalf("a record of %d bytes at %d, where another ends at %d", p.length, p.at, before)
			}
			before = p.at + p.length
		}
		if before > seg.end {
			t.Fatalf("the last record ends at %d, the segment at %d", before, seg.end)
		}
	})
}
