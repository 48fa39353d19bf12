package sse

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chunked cuts data into random pieces.
func chunked(r *rand.Rand, data []byte) [][]byte {
	var out [][]byte
	for len(data) > 0 {
		n := 1 + r.IntN(min(len(data), 1+r.IntN(64+len(data)/64)))
		out = append(out, bytes.Clone(data[:n]))
		data = data[n:]
	}
	return out
}

func splitEvents(chunks [][]byte) []string {
	e := Splitter{Limit: limit}
	var out []string
	for _, p := range chunks {
		for {
			ev, n, ok := e.Next(p)
			p = p[n:]
			if !ok {
				break
			}
			if ev.Kind != Event {
				continue
			}
			out = append(out, fmt.Sprintf("%s|%s|%v", ev.Name, ev.Data, ev.Dropped))
		}
	}
	return out
}

// naiveEvents is the reference: the whole stream at once, line by line.
func naiveEvents(data []byte) []string {
	s := strings.TrimPrefix(string(data), "\ufeff")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n")
	lines := strings.Split(s, "\n")
	var out, event []string
	name := ""
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if event != nil {
				out = append(out, name+"|"+strings.Join(event, "\n")+"|false")
			}
			event, name = nil, ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			if name = value; len(name) > maxName {
				name = ""
			}
		case "data":
			event = append(event, value)
		}
	}
	return out
}

// limit is the largest event that is kept here.
const limit = 16 << 20

// joined is every byte that the splitter hands out of a stream.
func joined(chunks [][]byte) string {
	var s Splitter
	var out []byte
	for _, p := range chunks {
		for len(p) > 0 {
			b, n, ok := s.Next(p)
			if p = p[n:]; ok {
				out = append(out, b.Raw...)
			}
		}
	}
	return string(append(out, s.Rest()...))
}

func FuzzSSE(f *testing.F) {
	for _, s := range []string{
		"data: a\n\ndata: b\n\n", "event: x\ndata: a\ndata: b\r\n\r\n", ": comment\r\rdata:a\r\r",
		"\ufeffdata: a\n\n", "data\n\n", "id: 1\nretry: 2\n\nevent: y\n\ndata: x\n\n", "data: a\r\n\ndata:  b\n\n\n\n", "data: cut\n",
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		want := naiveEvents(data)
		if d := cmp.Diff(want, splitEvents([][]byte{data})); d != "" {
			t.Fatalf("%q at once:\n%s", data, d)
		}
		if d := cmp.Diff(want, splitEvents(chunked(rand.New(rand.NewPCG(seed, 2)), data))); d != "" {
			t.Fatalf("%q in pieces:\n%s", data, d)
		}
		for _, chunks := range [][][]byte{{data}, chunked(rand.New(rand.NewPCG(seed, 3)), data)} {
			if got := joined(chunks); got != string(data) {
				t.Fatalf("%q passes as %q", data, got)
			}
		}
	})
}

func TestEventsLarge(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 2<<20)
	stream := []byte("data: " + big + "\n\ndata: y\n\n")
	got := splitEvents(chunked(rand.New(rand.NewPCG(1, 1)), stream))
	if len(got) != 2 || got[0] != "|"+big+"|false" || got[1] != "|y|false" {
		t.Fatalf("got %d events", len(got))
	}
	over := strings.Repeat("x", limit)
	f := func(stream string, want ...string) {
		t.Helper()
		b := []byte(stream)
		for name, chunks := range map[string][][]byte{"at once": {b}, "in pieces": {b[:100], b[100 : len(b)/2], b[len(b)/2:]}, "in two": {b[:len(b)-11], b[len(b)-11:]}} {
			if d := cmp.Diff(want, splitEvents(chunks)); d != "" {
				t.Errorf("%.40q %s:\n%s", stream, name, d)
			}
		}
	}
	f("event: e\ndata: "+over+"\n\ndata: y\n\n", "e||true", "|y|false")
	f("event: e\ndata: "+over[:limit/2]+"\ndata: "+over[:limit/2]+"\ndata: z\n\ndata: y\n\n", "e||true", "|y|false")
	f(":"+over+over+"\ndata: y\n\n", "|y|false")
}

// TestEventsLinear: a stream of carriage returns, and one of a single long line in small pieces, take time in
// proportion to their length.
func TestEventsLinear(t *testing.T) {
	t.Parallel()
	const n = 1 << 20
	if got := len(splitEvents([][]byte{bytes.Repeat([]byte("data:\r\r"), n/7)})); got != n/7 {
		t.Fatalf("got %d events", got)
	}
	var chunks [][]byte
	for range n / 8 {
		chunks = append(chunks, []byte("data:xxx"))
	}
	if got := splitEvents(append(chunks, []byte("\n\n"))); len(got) != 1 {
		t.Fatalf("got %d events", len(got))
	}
}
