package layer

import (
	"regexp"
	"strings"
	"sync"
)

// Words returns the words of a list, which spaces separate, as a set.
func Words(list string) map[string]bool {
	all := make(map[string]bool)
	for w := range strings.FieldsSeq(list) {
		all[w] = true
	}
	return all
}

// Lazily compiles an expression when it is first needed: compiling all of them takes milliseconds.
func Lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
