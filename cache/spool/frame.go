package spool

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"
)

// frameHead is the length of a frame's header in bytes: the record's length and its checksum.
const frameHead = 8

// errTorn is returned if there is no whole frame at the expected place.
var errTorn = errors.New("record is cut off or damaged")

func frameBytes(rec int) int64 { return frameHead + int64(rec) }

// checksum covers the length too, so that a run of zeros is not a record.
func checksum(length, rec []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(length, table), table, rec)
}

// appendFrame appends rec as a frame.
func appendFrame(dst, rec []byte) []byte {
	length := binary.BigEndian.AppendUint32(nil, uint32(len(rec))) //nolint:gosec // G115: Append checks maxRecord
	dst = slices.Grow(dst, frameHead+len(rec))
	dst = append(dst, length...)
	dst = binary.BigEndian.AppendUint32(dst, checksum(length, rec))
	return append(dst, rec...)
}

// readFrame reads the frame at offset of a file that ends at end. It returns errTorn if there is no whole one.
func readFrame(r io.ReaderAt, offset, end int64) ([]byte, error) {
	if end-offset < frameHead {
		return nil, errTorn
	}
	var head [frameHead]byte
	if _, err := r.ReadAt(head[:], offset); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:4]))
	if n > maxRecord || n > end-offset-frameHead {
		return nil, errTorn
	}
	rec := make([]byte, n)
	if _, err := r.ReadAt(rec, offset+frameHead); err != nil && n > 0 {
		return nil, err
	}
	if checksum(head[:4], rec) != binary.BigEndian.Uint32(head[4:]) {
		return nil, errTorn
	}
	return rec, nil
}

// isTorn reports whether the incomplete frame at offset is an interrupted write: its end is missing, or the file has
// grown and nothing was written there yet.
func isTorn(r io.ReaderAt, offset, end int64) (bool, error) {
	rest := end - offset
	if rest < frameHead {
		return true, nil
	}
	var head [frameHead]byte
	if _, err := r.ReadAt(head[:], offset); err != nil {
		return false, err
	}
	n := int64(binary.BigEndian.Uint32(head[:4]))
	return head == [frameHead]byte{} || n <= maxRecord && n > rest-frameHead, nil
}

const (
	// searchBytes bounds the search for the next frame after a damaged one whose length is not usable.
	searchBytes = 4 << 20
	// searchWork bounds the bytes read to verify possible frames; each try counts as searchTry more.
	searchWork = 64 << 20
	searchTry  = 4 << 10
)

// nextFrame returns the offset of the first whole frame after a damaged one. It returns errTorn if there is none: then the write
// was interrupted, and nothing was acknowledged.
func nextFrame(r io.ReaderAt, offset, end int64) (int64, error) {
	if end-offset <= frameHead {
		return 0, errTorn
	}
	window := make([]byte, min(searchBytes, end-offset))
	if _, err := r.ReadAt(window, offset); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	// Records are never empty, and zeros on the disk must not look like empty records.
	length := func(i int64) int64 { return int64(binary.BigEndian.Uint32(window[i:])) }
	if at := offset + frameHead + length(0); at < end {
		if rec, err := readFrame(r, at, end); !errors.Is(err, errTorn) && (err != nil || len(rec) > 0) {
			return at, err
		}
	}
	work := int64(searchWork)
	for i := int64(1); i+frameHead < int64(len(window)) && work > 0; i++ {
		n := length(i)
		if n == 0 || n > end-offset-i-frameHead {
			continue
		}
		work -= searchTry + n
		if _, err := readFrame(r, offset+i, end); !errors.Is(err, errTorn) {
			return offset + i, err
		}
	}
	return 0, errTorn
}
