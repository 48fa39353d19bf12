package cache

import (
	"errors"
	"strings"
)

// pageMark begins every page token of List, so that the token after the group with the empty name is not empty.
const pageMark = "."

// errBadPage is the error of List for a token that it did not make.
var errBadPage = errors.New("list groups: unknown page token")

// PageToken returns the token of the page after a name.
func PageToken(name string) string { return pageMark + name }

// PageStart returns the name after which a page begins; later is false for the first page.
func PageStart(after string) (name string, later bool, err error) {
	if after == "" {
		return "", false, nil
	}
	name, ok := strings.CutPrefix(after, pageMark)
	if !ok {
		return "", false, errBadPage
	}
	return name, true, nil
}

// PageLimit returns the number of names on a page for the limit that a caller asks for.
func PageLimit(limit int) int {
	const byDefault, most = 100, 1000
	if limit <= 0 {
		return byDefault
	}
	return min(limit, most)
}
