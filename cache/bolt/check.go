package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// The layout of a page, which bbolt writes in the byte order of the machine:
//
//	header   id (8), flags (2), count (2), overflow (4): the number of further pages that belong to it
//	branch   count times: position (4), key size (4), page (8)
//	leaf     count times: flags (4), position (4), key size (4), value size (4)
//	free     count times: page (8)
//
// A position counts from the start of its element; the value is behind the key.
const (
	pageHeader  = 16
	pageElement = 16
	branchPage  = 0x01
	leafPage    = 0x02
	freePage    = 0x10
	bucketFlag  = 0x01 // of a leaf's element: the value is a bucket

	bucketHeader = 16 // of a bucket's value: the root page (8), a sequence (8)

	// metaFreePage is the offset of the number of the first page of the free list on the page that describes the file.
	metaFreePage = 48
	// maxChecked is the size in bytes up to which a file is checked, so that a start takes seconds.
	maxChecked = 4 << 30
	// maxTreeDepth is far more than a tree of the largest file has.
	maxTreeDepth = 64
)

// pageCheck reads the pages of a file, each once.
type pageCheck struct {
	file    io.ReaderAt
	size    int64                    // of a page, in bytes
	used    []bool                   // by page: in a tree or in the free list
	buffers [maxTreeDepth + 1][]byte // by depth of the page that is in it
}

// checkPages returns an ErrDamaged if the pages of the file do not fit together, as in a copy that cp made while the file was
// written. bbolt does not look: writing to a page whose first key differs from the one in its parent spreads the damage to healthy
// pages, and a tree that leads back to itself ends the process, since a stack overflow is no panic.
func checkPages(file io.ReaderAt, pageSize int, tx *bolt.Tx) error {
	if tx.Size() > maxChecked {
		return nil
	}
	// First from the beginning to the end, so that no disk has to seek: a tree has its pages anywhere.
	ahead := make([]byte, 1<<20)
	for at := int64(0); at < tx.Size(); at += int64(len(ahead)) {
		if _, err := file.ReadAt(ahead[:min(int64(len(ahead)), tx.Size()-at)], at); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	size := int64(pageSize)
	c := pageCheck{file: file, size: size, used: make([]bool, tx.Size()/size)}
	meta := make([]byte, metaFreePage+8)
	if _, err := file.ReadAt(meta, int64(tx.ID()%2)*size); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := c.freeList(binary.NativeEndian.Uint64(meta[metaFreePage:])); err != nil {
		return err
	}
	return c.tree(uint64(tx.Cursor().Bucket().Root()), nil, nil, 0)
}

// read returns a page with those that belong to it, until the next page of this depth.
func (c *pageCheck) read(id uint64, depth int) ([]byte, error) {
	if depth > maxTreeDepth {
		return nil, damagedPage(id)
	}
	if err := c.use(id, 1); err != nil {
		return nil, err
	}
	page, err := c.readAt(id, 1, depth)
	if err != nil {
		return nil, err
	}
	if binary.NativeEndian.Uint64(page) != id {
		return nil, damagedPage(id)
	}
	more := uint64(binary.NativeEndian.Uint32(page[12:]))
	if more == 0 {
		return page, nil
	}
	if err := c.use(id+1, more); err != nil {
		return nil, err
	}
	return c.readAt(id, 1+more, depth)
}

func (c *pageCheck) readAt(id, n uint64, depth int) ([]byte, error) {
	size := int(n) * int(c.size) //nolint:gosec // G115: pages of the file
	page := slices.Grow(c.buffers[depth][:0], size)[:size]
	c.buffers[depth] = page
	if _, err := c.file.ReadAt(page, int64(id)*c.size); err != nil { //nolint:gosec // G115: as above
		return nil, fmt.Errorf("%w (page %d): %w", ErrDamaged, id, err)
	}
	return page, nil
}

// use records that n pages from id belong to one place. The first two describe the file.
func (c *pageCheck) use(id, n uint64) error {
	for ; n > 0; id, n = id+1, n-1 {
		if id < 2 || id >= uint64(len(c.used)) || c.used[id] {
			return damagedPage(id)
		}
		c.used[id] = true
	}
	return nil
}

func damagedPage(id uint64) error { return fmt.Errorf("%w (page %d)", ErrDamaged, id) }

// freeList marks the pages that are free: a tree has none of them.
func (c *pageCheck) freeList(id uint64) error {
	page, err := c.read(id, 0)
	if err != nil {
		return err
	}
	list := page[pageHeader:]
	kind, count := kindAndCount(page)
	if count == 0xFFFF { // the first entry is the count
		count, list = binary.NativeEndian.Uint64(list), list[8:]
	}
	if kind != freePage || count > uint64(len(list)/8) {
		return damagedPage(id)
	}
	for i := range count {
		if err := c.use(binary.NativeEndian.Uint64(list[i*8:]), 1); err != nil {
			return err
		}
	}
	return nil
}

func kindAndCount(page []byte) (kind uint16, count uint64) {
	return binary.NativeEndian.Uint16(page[8:]), uint64(binary.NativeEndian.Uint16(page[10:]))
}

// tree checks the page id and those below it. Its first key is first and all are smaller than end, unless these are nil.
func (c *pageCheck) tree(id uint64, first, end []byte, depth int) error {
	page, err := c.read(id, depth)
	if err != nil {
		return err
	}
	return c.elements(id, page, first, end, depth)
}

// elements checks what is on a page, or in the value of a bucket that is too small for a page of its own.
func (c *pageCheck) elements(id uint64, page, first, end []byte, depth int) error {
	if len(page) < pageHeader {
		return damagedPage(id)
	}
	kind, n := kindAndCount(page)
	count := int(n) //nolint:gosec // G115: two bytes
	if kind != branchPage && kind != leafPage || len(page) < pageHeader+count*pageElement || count == 0 && (first != nil || kind == branchPage) {
		return damagedPage(id)
	}
	var last []byte
	for i := range count {
		e, ok := readElement(page, kind, i)
		if !ok || i == 0 && first != nil && !bytes.Equal(e.key, first) || i > 0 && bytes.Compare(last, e.key) >= 0 || end != nil && bytes.Compare(e.key, end) >= 0 {
			return damagedPage(id)
		}
		last = e.key
	}
	for i := range count {
		e, _ := readElement(page, kind, i)
		err := error(nil)
		switch {
		case kind == branchPage:
			before := end
			if i+1 < count {
				next, _ := readElement(page, kind, i+1)
				before = next.key
			}
			err = c.tree(e.child, e.key, before, depth+1)
		case e.isBucket:
			err = c.bucket(id, e.value, depth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// element is one of a page: of a branch with the page below it, of a leaf with a value.
type element struct {
	key, value []byte
	child      uint64
	isBucket   bool
}

// readElement returns false for an element that reaches beyond the page.
func readElement(page []byte, kind uint16, i int) (e element, ok bool) {
	b := page[pageHeader+i*pageElement:]
	if len(b) < pageElement {
		return element{}, false
	}
	number := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(b[i*4:])) }
	from, key, value := number(0), number(1), uint64(0)
	if kind == leafPage {
		e.isBucket = number(0)&bucketFlag != 0
		from, key, value = number(1), number(2), number(3)
	} else {
		e.child = binary.NativeEndian.Uint64(b[8:])
	}
	if key == 0 || from+key+value > uint64(len(b)) {
		return element{}, false
	}
	e.key, e.value = b[from:from+key], b[from+key:from+key+value]
	return e, true
}

// bucket checks the value of a bucket on page id. Without a root page it holds the content of a page.
func (c *pageCheck) bucket(id uint64, value []byte, depth int) error {
	switch {
	case len(value) < bucketHeader || depth == maxTreeDepth:
		return damagedPage(id)
	case binary.NativeEndian.Uint64(value) != 0:
		return c.tree(binary.NativeEndian.Uint64(value), nil, nil, depth+1)
	default:
		return c.elements(id, value[bucketHeader:], nil, nil, depth+1)
	}
}
