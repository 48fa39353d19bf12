package child

import (
	"bytes"
	"regexp"
	"sync"
)

// listensAt finds the origin in the line that a proxy greets with.
var listensAt = regexp.MustCompile(`listens on (http://[^/\s]+)/v1`)

// keep is how much of the text is kept, in bytes.
const keep = 4 << 10

// reader takes what a proxy writes to stderr: where it listens, and the end of it, which tells why it ended. It is safe
// for concurrent use.
type reader struct {
	url chan string // gets the first origin that is named

	mu    sync.Mutex
	found bool
	text  []byte
}

func newReader() *reader { return &reader{url: make(chan string, 1)} }

// Write implements io.Writer.
func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, p...)
	if at := listensAt.FindSubmatch(r.text); at != nil && !r.found {
		r.found = true
		r.url <- string(at[1])
	}
	if over := len(r.text) - keep; over > 0 {
		r.text = append(r.text[:0], r.text[over:]...)
	}
	return len(p), nil
}

// String is the end of what was written.
func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(bytes.TrimSpace(r.text))
}

// last is the last line after the greeting, empty where there is none.
func (r *reader) last() string {
	text := []byte(r.String())
	line := text[bytes.LastIndexByte(text, '\n')+1:]
	if bytes.HasPrefix(line, []byte("try: ")) || listensAt.Match(line) {
		return ""
	}
	return string(line)
}
