package recordcodec_test

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/recordcodec"
	"remora/wire"
)

// parts is one of each that a record is made of.
type parts struct {
	Yes   bool
	Byte  byte
	Fixed uint64
	Count uint64
	Text  string
	Hash  wire.Hash
	Raw   []byte
	List  []uint64
}

const most = 9 // of Count and the elements of List

func (p *parts) fields(c *recordcodec.Codec) {
	c.Bool(&p.Yes)
	c.Byte(&p.Byte)
	c.Uint64(&p.Fixed)
	c.Count(&p.Count, most)
	c.Text(&p.Text)
	c.Hash(&p.Hash)
	c.Bytes(&p.Raw)
	for i := range recordcodec.Len(c, &p.List, most) {
		c.Uvarint(&p.List[i])
	}
}

func (p parts) encode() []byte {
	c := recordcodec.NewWriter(0)
	p.fields(&c)
	return c.Data
}

func read(b []byte) (parts, recordcodec.Codec) {
	c := recordcodec.NewReader(b)
	var p parts
	p.fields(&c)
	return p, c
}

var sample = parts{Yes: true, Byte: 7, Fixed: 1 << 40, Count: most, Text: "a\x00b", Hash: wire.Hash{1, 15: 2}, Raw: []byte("xy"), List: []uint64{1, 300}}

func TestReadsBack(t *testing.T) {
	b := sample.encode()
	p, c := read(b)
	if diff := cmp.Diff(sample, p); diff != "" || c.Bad || len(c.Data) > 0 {
		t.Errorf("bad %t, %d bytes left: %s", c.Bad, len(c.Data), diff)
	}
	for n := range b {
		if _, c := read(b[:n]); !c.Bad {
			t.Errorf("the first %d of %d bytes read as whole", n, len(b))
		}
	}
}

// TestBytesOfParts pins the form of each part: stores have records of it.
func TestBytesOfParts(t *testing.T) {
	const want = "01" + "07" + "0000010000000000" + "09" + "03610062" + "01000000000000000000000000000002" + "027879" + "0201ac02"
	if got := hex.EncodeToString(sample.encode()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A count that can't be right makes the record bad, and nothing is read behind it.
func TestCountIsBounded(t *testing.T) {
	p := sample
	p.Count++
	if got, c := read(p.encode()); !c.Bad || got.Count != 0 || got.Raw != nil {
		t.Errorf("bad %t: %+v", c.Bad, got)
	}
	p = sample
	p.List = make([]uint64, most+1)
	if got, c := read(p.encode()); !c.Bad || got.List != nil {
		t.Errorf("bad %t: %+v", c.Bad, got)
	}
}

// TestListIsNotLongerThanItsRecord: what is not there takes no memory.
func TestListIsNotLongerThanItsRecord(t *testing.T) {
	c := recordcodec.NewReader([]byte{3, 1, 1})
	var list []uint64
	if recordcodec.Len(&c, &list, most); list != nil || !c.Bad {
		t.Errorf("bad %t: %d elements", c.Bad, len(list))
	}
}

// Whatever stands in a store, reading it neither panics nor reads behind its end.
func FuzzCodec(f *testing.F) {
	f.Add(sample.encode())
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, c := read(b)
		if c.Bad {
			return
		}
		if again, c := read(p.encode()); c.Bad || !cmp.Equal(p, again) {
			t.Errorf("bad %t: %s", c.Bad, cmp.Diff(p, again))
		}
	})
}

// TestNothingIsReadBehindAnInvalidValue: a count that is read there would be a number of things to make.
func TestNothingIsReadBehindAnInvalidValue(t *testing.T) {
	c := recordcodec.NewReader([]byte{5, 'a', 3, 7})
	var text string
	if c.Text(&text); text != "" || !c.Bad {
		t.Fatalf("read %q", text)
	}
	n := uint64(1)
	if c.Uvarint(&n); n != 0 {
		t.Errorf("a number behind it reads as %d", n)
	}
	if c.Count(&n, most); n != 0 {
		t.Errorf("a count behind it reads as %d", n)
	}
}

// TestCompressedValuesHoldLittleMemory: a store that keeps values as they are needs about as much memory as they have bytes.
func TestCompressedValuesHoldLittleMemory(t *testing.T) {
	noise := make([]byte, 64<<10)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for name, value := range map[string][]byte{
		"nothing": {}, "words": bytes.Repeat([]byte("the window keeps what a model needs "), 2000), "noise": noise,
	} {
		got := recordcodec.Compress([]byte("head"), value)
		if most := len(got)/3*4 + 64; cap(got) > most {
			t.Errorf("%s: %d bytes take %d, want at most %d", name, len(got), cap(got), most)
		}
		rest, ok := bytes.CutPrefix(got, []byte("head"))
		back, err := recordcodec.Decompress(rest)
		if !ok || err != nil || !bytes.Equal(back, value) {
			t.Errorf("%s: head %t, %v, %d bytes back, want %d", name, ok, err, len(back), len(value))
		}
	}
}
