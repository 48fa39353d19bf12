package tokens

import (
	"strings"
	"testing"
)

// BenchmarkCount is the counter without its memo: text to tokens, in one goroutine.
func BenchmarkCount(b *testing.B) {
	texts := corpora(b)
	texts["run of one letter"] = strings.Repeat("a", 64<<10)
	texts["run of spaces"] = strings.Repeat(" ", 64<<10)
	texts["run of one ideograph"] = strings.Repeat("漢", 64<<10/3)
	texts["base64"] = base64Text(64 << 10)
	for name, text := range texts {
		for _, e := range both {
			b.Run(strings.ReplaceAll(name, " ", "_")+"/"+e.String(), func(b *testing.B) {
				v, data := loaded[e](), []byte(text)
				var m merger
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					v.count(&m, data)
				}
			})
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, e := range both {
		b.Run(e.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := load(e, newClasses()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// base64Text looks random, and is the same each time.
func base64Text(n int) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	b, x := make([]byte, n), uint64(1)
	for i := range b {
		x = mix(x + uint64(i) + 1)
		b[i] = digits[x>>58]
	}
	return string(b)
}
