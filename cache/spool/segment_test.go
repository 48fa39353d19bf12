package spool

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzSegment reads a segment of whole frames followed by arbitrary bytes.
func FuzzSegment(f *testing.F) {
	f.Add([]byte("rec"), []byte{}, uint64(0))
	f.Add([]byte{}, appendFrame(nil, []byte("x"))[:8], uint64(8))
	f.Add([]byte("rec"), make([]byte, 64), uint64(11))
	f.Add([]byte("rec"), []byte{255, 255, 255, 255, 0, 0, 0, 0}, uint64(1<<63))
	f.Add([]byte("rec"), append([]byte{0, 0, 0, 1, 9, 9, 9, 9, 'x'}, appendFrame(nil, []byte("behind damage"))...), uint64(22))
	f.Fuzz(func(t *testing.T, rec, tail []byte, mark uint64) {
		data := append(appendFrame(appendFrame(nil, rec), rec), tail...)
		file, size := bytes.NewReader(data), int64(len(data))
		var seg segment
		if err := seg.scan(file, size, int64(mark)); err != nil {
			t.Fatal(err)
		}
		one := frameBytes(len(rec))
		if seg.end < 2*one || seg.end > size || seg.head > seg.end {
			t.Fatalf("head %d, end %d of %d bytes, whose first %d are whole", seg.head, seg.end, size, 2*one)
		}
		if int64(mark) == one && seg.head != one {
			t.Fatalf("mark %d made head %d", mark, seg.head)
		}
		n := 0
		for at := seg.head; at < seg.end; n++ {
			rec, err := readFrame(file, at, seg.end)
			next := at + frameBytes(len(rec))
			if errors.Is(err, errTorn) {
				next, err = nextFrame(file, at, seg.end)
			}
			if errors.Is(err, errTorn) { // the rest is quarantined as one record
				next, err = seg.end, nil
			}
			if err != nil || next <= at {
				t.Fatalf("after %d comes %d, %v", at, next, err)
			}
			at = next
		}
		if n != seg.records {
			t.Fatalf("%d records from the head on, and scan counts %d", n, seg.records)
		}
	})
}
