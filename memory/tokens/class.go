package tokens

import (
	"unicode"
	"unicode/utf8"
)

// class is the character classes in the patterns of the vocabularies, as a set of bits. A character without any is
// punctuation, a symbol, a control character or unassigned.
type class uint8

const (
	lower    class = 1 << iota // Ll
	upper                      // Lu, Lt
	caseless                   // Lm, Lo
	mark                       // M
	number                     // N
	space                      // \s
	newline                    // \r or \n; they are space too
	end                        // no character: the text ends here

	letter = lower | upper | caseless // \p{L}
)

const (
	pageSize  = 256
	pageCount = (unicode.MaxRune + 1) / pageSize
)

// classes holds the class of every character, in pages, most of them shared. The tables of package unicode are up to
// ten times as slow, which would dominate counting Chinese.
type classes struct {
	ascii [utf8.RuneSelf]class
	page  [pageCount]uint8
	pages [][pageSize]class
}

// newClasses reads the tables of package unicode. It takes about a millisecond.
func newClasses() *classes {
	var flat [unicode.MaxRune + 1]class
	for _, t := range []struct {
		table *unicode.RangeTable
		class class
	}{
		{unicode.Ll, lower},
		{unicode.Lu, upper},
		{unicode.Lt, upper},
		{unicode.Lm, caseless},
		{unicode.Lo, caseless},
		{unicode.M, mark},
		{unicode.N, number},
		{unicode.White_Space, space},
	} {
		for _, r := range t.table.R16 {
			for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
				flat[c] |= t.class
			}
		}
		for _, r := range t.table.R32 {
			for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
				flat[c] |= t.class
			}
		}
	}
	flat['\r'] |= newline
	flat['\n'] |= newline

	c := new(classes)
	copy(c.ascii[:], flat[:])
	known := make(map[[pageSize]class]uint8)
	for i := range c.page {
		p := [pageSize]class(flat[i*pageSize:])
		n, ok := known[p]
		if !ok {
			n = uint8(len(c.pages)) //nolint:gosec // there are about 150 different pages, and TestClasses compares all
			known[p] = n
			c.pages = append(c.pages, p)
		}
		c.page[i] = n
	}
	return c
}

// at returns the class of the character at b[i], and its size in bytes; end and 0 where b ends.
func (c *classes) at(b []byte, i int) (class, int) {
	if i < len(b) && b[i] < utf8.RuneSelf {
		return c.ascii[b[i]], 1
	}
	return c.wide(b, i)
}

// wide is at for non-ASCII characters, apart from it so that at can be inlined.
func (c *classes) wide(b []byte, i int) (class, int) {
	if i >= len(b) {
		return end, 0
	}
	r, size := utf8.DecodeRune(b[i:])
	return c.pages[c.page[r/pageSize]][r%pageSize], size
}

// run returns where the characters of the classes in set end, from b[i] on.
func (c *classes) run(b []byte, i int, set class) int {
	for {
		k, size := c.at(b, i)
		if k&set == 0 || k == end {
			return i
		}
		i += size
	}
}
