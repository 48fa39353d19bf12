// Package greeting reads what a proxy that was started by another program says of itself.
package greeting

import (
	"bytes"
	"regexp"
	"sync"
)

// listensAt finds the origin in the line that a proxy greets with.
var listensAt = regexp.MustCompile(`listens on (http://[^/\s]+)/v1`)

// keep is how much of the text is kept, in bytes.
const keep = 4 << 10

// Reader takes what a proxy writes to stderr: where it listens, and the end of it, which tells why it ended. It is safe
// for concurrent use.
type Reader struct {
	// URL gets the first origin that is named.
	URL chan string

	mu    sync.Mutex
	found bool
	text  []byte
}

// New makes a Reader.
func New() *Reader { return &Reader{URL: make(chan string, 1)} }

// Write implements io.Writer.
func (r *Reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, p...)
	if at := listensAt.FindSubmatch(r.text); at != nil && !r.found {
		r.found = true
		r.URL <- string(at[1])
	}
	if over := len(r.text) - keep; over > 0 {
		r.text = append(r.text[:0], r.text[over:]...)
	}
	return len(p), nil
}

// String is the end of what was written.
func (r *Reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(bytes.TrimSpace(r.text))
}

// Last is the last line after the greeting, empty where there is none.
func (r *Reader) Last() string {
	text := []byte(r.String())
	line := text[bytes.LastIndexByte(text, '\n')+1:]
	if bytes.HasPrefix(line, []byte("try: ")) || listensAt.Match(line) {
		return ""
	}
	return string(line)
}
