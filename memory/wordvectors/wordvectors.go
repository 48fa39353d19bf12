// Package wordvectors turns texts into vectors by a table of words and pieces of words: the vector of a text is the sum of
// its words' rows. It needs no model at run time. Tables are text files of one row a line, as GloVe, word2vec and fastText
// publish them.
package wordvectors

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a table.
const (
	maxRows       = 4_000_000
	maxDimensions = 2048
	maxNumbers    = 512 << 20 // of all rows; each takes a byte
	maxWord       = 64        // bytes of a word that is divided into pieces
	maxLine       = 64 << 10  // bytes
)

// continues marks a piece that does not begin a word.
const continues = "##"

// Table is a table in memory. It is safe for concurrent use.
type Table struct {
	rows       map[string]int32
	dimensions int
	numbers    []int8
	scales     []float32 // by row: what a number is multiplied by
	longest    int       // piece, in bytes
}

// Open reads the table in a file.
func Open(path string) (*Table, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := read(f, maxRows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Check reads the first rows of a file, to say whether it is a table.
func Check(path string) error {
	const some = 10
	f, err := open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := read(f, some); err != nil && !errors.Is(err, errRows) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: want a regular file", path) // a pipe would hang the start
	}
	return os.Open(path) //nolint:gosec // the operator names it
}

var errRows = errors.New("it has too many rows")

// read reads a table of at most limit rows. A first line of two numbers, how many rows and dimensions there are, is left out.
func read(r io.Reader, limit int) (*Table, error) {
	t := &Table{rows: map[string]int32{}}
	lines := bufio.NewReaderSize(r, maxLine)
	var row []float32
	for number, more := 1, true; more; number++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("line %d: want at most %d bytes", number, maxLine)
		case errors.Is(err, io.EOF):
			more = false
		case err != nil:
			return nil, err
		}
		line = bytes.TrimRight(line, " \r\n")
		if len(line) == 0 || number == 1 && isHeader(line) {
			continue
		}
		if len(t.scales) >= limit || len(t.numbers)+t.dimensions > maxNumbers {
			return nil, fmt.Errorf("%w: want at most %d, with at most %d numbers in all", errRows, limit, maxNumbers)
		}
		if row, err = t.add(line, row); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(t.scales) == 0 {
		return nil, errors.New("want lines of a word and its numbers, with a space between two, have none")
	}
	return t, nil
}

// isHeader reports whether a line has two whole numbers and nothing else.
func isHeader(line []byte) bool {
	fields := bytes.Fields(line)
	for _, f := range fields {
		if _, err := strconv.Atoi(string(f)); err != nil {
			return false
		}
	}
	return len(fields) == 2
}

// add takes a row, which is a word and its numbers. row is memory to work in.
func (t *Table) add(line []byte, row []float32) ([]float32, error) {
	word, rest, _ := bytes.Cut(line, []byte(" "))
	row = row[:0]
	for field := range bytes.FieldsSeq(rest) {
		x, err := strconv.ParseFloat(string(field), 32)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			if t.dimensions == 0 || len(row) > 0 || !utf8.Valid(line) {
				return row, errors.New("want a word and its numbers, with a space between two")
			}
			continue // a word with a space in it
		}
		row = append(row, float32(x))
	}
	if len(row) > t.dimensions && t.dimensions > 0 {
		row = row[len(row)-t.dimensions:]
	}
	t.dimensions = cmp.Or(t.dimensions, len(row))
	if len(row) != t.dimensions || len(row) < 2 || len(row) > maxDimensions {
		return row, fmt.Errorf("want a row of 2 to %d numbers, as many as in the first row, have %d", maxDimensions, len(row))
	}
	if _, again := t.rows[string(word)]; again || len(word) == 0 || !utf8.Valid(word) {
		return row, nil
	}

	top := float32(0)
	for _, x := range row {
		top = max(top, x, -x)
	}
	scale := top / math.MaxInt8
	for _, x := range row {
		n := int8(0)
		if scale > 0 {
			n = int8(math.Round(float64(x / scale))) // -127 to 127
		}
		t.numbers = append(t.numbers, n)
	}
	t.rows[string(word)] = int32(len(t.scales)) //nolint:gosec // at most maxRows
	t.scales = append(t.scales, scale)
	t.longest = max(t.longest, len(word))
	return row, nil
}

// Vector returns the sum of the rows of a text's words; nil where the table has none of them.
func (t *Table) Vector(text string) []float32 {
	var sum []float32
	add := func(row int32) {
		if sum == nil {
			sum = make([]float32, t.dimensions)
		}
		scale := t.scales[row]
		from := int(row) * t.dimensions
		for i, n := range t.numbers[from : from+t.dimensions] {
			sum[i] += scale * float32(n)
		}
	}
	for word := range strings.FieldsFuncSeq(text, between) {
		word = strings.Trim(word, "'\u2019")
		if row, ok := t.rows[word]; ok {
			add(row)
			continue
		}
		t.pieces(strings.ToLower(word), add)
	}
	return sum
}

// between reports whether a character is part of no word.
func between(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '\'' && r != '\u2019'
}

// pieces divides a word into the longest pieces that the table has, from its beginning on. A word of which some part is in no
// piece has none, unless its script has no spaces between words.
func (t *Table) pieces(word string, add func(row int32)) {
	if row, ok := t.rows[word]; ok {
		add(row)
		return
	}
	first, _ := utf8.DecodeRuneInString(word)
	spaced := !unicode.In(first, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
	if spaced && len(word) > maxWord {
		return
	}
	var found []int32
	for at := 0; at < len(word); {
		row, n := t.longestPiece(word, at, spaced)
		if n == 0 && spaced {
			return
		}
		if n == 0 {
			_, n = utf8.DecodeRuneInString(word[at:])
		} else {
			found = append(found, row)
		}
		at += n
	}
	for _, row := range found {
		add(row)
	}
}

// longestPiece returns the row and the length of the longest piece of a word at some place; a length of 0 is none.
func (t *Table) longestPiece(word string, at int, spaced bool) (row int32, n int) {
	for end := min(len(word), at+t.longest); end > at; end-- {
		if end < len(word) && !utf8.RuneStart(word[end]) {
			continue
		}
		if at > 0 {
			if row, ok := t.rows[continues+word[at:end]]; ok {
				return row, end - at
			}
		}
		if at == 0 || !spaced {
			if row, ok := t.rows[word[at:end]]; ok {
				return row, end - at
			}
		}
	}
	return 0, 0
}
