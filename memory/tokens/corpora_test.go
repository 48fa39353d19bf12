package tokens

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// corpora are texts of this repository by kind; those in testdata are written for it.
func corpora(tb testing.TB) map[string]string {
	tb.Helper()
	all := make(map[string]string)
	for name, pattern := range map[string]string{
		"english": "../../*.md",
		"code":    "../../wire/*.go",
		"chinese": "testdata/chinese.txt",
		"mixed":   "testdata/mixed.txt",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			tb.Fatal(pattern, err)
		}
		var b strings.Builder
		for _, p := range paths {
			data, err := os.ReadFile(p)
			if err != nil {
				tb.Fatal(err)
			}
			b.Write(data)
		}
		all[name] = b.String()
	}
	return all
}
