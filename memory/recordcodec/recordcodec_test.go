package recordcodec_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/recordcodec"
	"remora/wire"
)

// parts is one of each that a record is made of.
type parts struct {
	Yes   byte
	Fixed uint64
	Count uint64
	Text  string
	Hash  wire.Hash
	Raw   []byte
}

const most = 9 // of Count

func (p parts) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{p.Yes}, p.Fixed)
	b = recordcodec.AppendString(binary.AppendUvarint(b, p.Count), p.Text)
	return append(append(b, p.Hash[:]...), p.Raw...)
}

func read(r *recordcodec.Reader) parts {
	p := parts{Yes: r.Byte(), Fixed: r.Uint64(), Count: r.Count(most), Text: r.Text(), Hash: r.Hash()}
	p.Raw = r.Take(2)
	return p
}

var sample = parts{Yes: recordcodec.Bit(true), Fixed: 1 << 40, Count: most, Text: "a\x00b", Hash: wire.Hash{1, 15: 2}, Raw: []byte("xy")}

func TestReadsBack(t *testing.T) {
	b := sample.encode()
	r := recordcodec.Reader{Rest: b}
	if diff := cmp.Diff(sample, read(&r)); diff != "" || r.Bad || len(r.Rest) > 0 {
		t.Errorf("bad %t, %d bytes left: %s", r.Bad, len(r.Rest), diff)
	}
	for n := range b {
		r := recordcodec.Reader{Rest: b[:n]}
		if read(&r); !r.Bad {
			t.Errorf("the first %d of %d bytes read as whole", n, len(b))
		}
	}
}

// A count that can't be right makes the record bad, and nothing is read behind it.
func TestCountIsBounded(t *testing.T) {
	p := sample
	p.Count++
	r := recordcodec.Reader{Rest: p.encode()}
	if got := read(&r); !r.Bad || got.Count != 0 || got.Raw != nil {
		t.Errorf("bad %t: %+v", r.Bad, got)
	}
}

// Whatever stands in a store, reading it neither panics nor reads behind its end.
func FuzzReader(f *testing.F) {
	f.Add(sample.encode())
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := recordcodec.Reader{Rest: b}
		p := read(&r)
		if r.Bad {
			return
		}
		again := recordcodec.Reader{Rest: p.encode()}
		if diff := cmp.Diff(p, read(&again)); diff != "" || again.Bad {
			t.Errorf("bad %t: %s", again.Bad, diff)
		}
	})
}

// TestNothingIsReadBehindAnInvalidValue: a count that is read there would be a number of things to make.
func TestNothingIsReadBehindAnInvalidValue(t *testing.T) {
	r := recordcodec.Reader{Rest: []byte{5, 'a', 3, 7}}
	if text := r.Text(); text != "" || !r.Bad {
		t.Fatalf("read %q", text)
	}
	if n := r.Uvarint(); n != 0 {
		t.Errorf("a number behind it reads as %d", n)
	}
	if n := r.Count(most); n != 0 {
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
