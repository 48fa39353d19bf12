package cache

import (
	"errors"
	"strings"
)

// pageMark is the prefix of List's page tokens, so that the token after the group with the empty name is not empty.
const pageMark = "."

// errBadPage is the error of List for a token that it did not return.
var errBadPage = errors.New("list groups: unknown page token")

// PageToken returns the token of the page that begins after name.
func PageToken(name string) string { return pageMark + name }

// PageStart parses a token. It returns the name after which the page begins; later is false for the first page.
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

// PageLimit returns the page size for a caller's limit.
func PageLimit(limit int) int {
	const byDefault, most = 100, 1000
	if limit <= 0 {
		return byDefault
	}
	return min(limit, most)
}
