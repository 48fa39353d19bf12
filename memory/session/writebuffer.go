package session

import (
	"slices"
	"strings"
	"sync"

	"remora/cache"
	"remora/wire"
)

// writeBuffer collects the values that a commit writes, in reused memory: stores copy the values, except those of a large
// request.
type writeBuffer struct {
	puts  []cache.Put
	data  []byte          // the block with the latest puts, in sequence
	names strings.Builder // of the puts
	last  bool            // no other commit uses its memory
}

var writeBuffers sync.Pool // of *writeBuffer

const (
	// maxWriteBuffer is the size in bytes of the largest writeBuffer that is kept for the next commit.
	maxWriteBuffer = 64 << 10
	// maxBlock is the size in bytes of a writeBuffer's blocks, but for one with a value that is larger.
	maxBlock = 256 << 10
	// namesSize is the size of the names of a turn with one new item and one answer, in bytes.
	namesSize = 96
)

func newWriteBuffer() *writeBuffer {
	if w, ok := writeBuffers.Get().(*writeBuffer); ok {
		return w
	}
	return &writeBuffer{puts: make([]cache.Put, 0, 16), data: make([]byte, 0, 4096)}
}

// release lets another commit use the memory. Only names may be used afterwards.
func (w *writeBuffer) release() {
	if w.last || cap(w.data) > maxWriteBuffer || cap(w.puts) > maxWriteBuffer/64 {
		return
	}
	clear(w.puts)
	w.puts, w.data = w.puts[:0], w.data[:0]
	w.names.Reset()
	writeBuffers.Put(w)
}

// grow makes room for an input of a number of new items, and for an answer of one item.
func (w *writeBuffer) grow(items []wire.Item) {
	const puts = 3 // of an item: itself, its place, and where its text was said last
	n := 0
	for i := range items {
		n += min(len(items[i].Raw), compressAbove) + itemBytes + placeBytes
	}
	w.reserve(n)
	w.puts = slices.Grow(w.puts, puts*len(items))
	w.names.Grow(namesSize * max(1, len(items)))
}

// reserve makes room for n more bytes and returns their offset. Written data does not move: copies of it, in growing blocks,
// would be held until all is written.
func (w *writeBuffer) reserve(n int) (from int) {
	if cap(w.data)-len(w.data) < n {
		w.data = make([]byte, 0, max(n, min(2*cap(w.data), maxBlock)))
	}
	return len(w.data)
}

// value returns the part of data from an offset on.
func (w *writeBuffer) value(from int) []byte { return w.data[from:len(w.data):len(w.data)] }

// name makes the name of a value. Names share memory.
func (w *writeBuffer) name(prefix string, rest []byte) string {
	from := w.names.Len()
	w.names.WriteString(prefix)
	w.names.Write(rest)
	return w.names.String()[from:]
}

// put adds a value.
func (w *writeBuffer) put(name string, data []byte) {
	w.puts = append(w.puts, cache.Put{Name: name, Data: data})
}
