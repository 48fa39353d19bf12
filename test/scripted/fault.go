package scripted

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// fault is a parsed X-Script header. Counters are -1 if the fault is off.
type fault struct {
	status        int    // 0: the regular status
	retryAfter    string // empty: no header
	html          bool
	stallBefore   bool
	stallAfter    int
	cutAfter      int
	errorInStream bool
	noDone        bool
	comments      bool
	chunk         int // 0: unsplit
	gzip          bool
	length        bool
	close         bool
	bigKiB        int
	piece         int  // 0: a few words
	kind          Kind // empty: the server's
}

const maxBig = 64 << 10 // KiB

func noFault() fault { return fault{stallAfter: -1, cutAfter: -1} }

// parseFault parses X-Script. Its error names the wrong element.
func parseFault(spec string) (fault, error) {
	f := noFault()
	flags := map[string]*bool{
		"html": &f.html, "stall-before": &f.stallBefore, "error-in-stream": &f.errorInStream, "no-done": &f.noDone,
		"comments": &f.comments, "gzip": &f.gzip, "length": &f.length, "close": &f.close,
	}
	for element := range strings.SplitSeq(strings.ReplaceAll(spec, ";", ","), ",") {
		element = strings.TrimSpace(element)
		if element == "" {
			continue
		}
		key, value, has := strings.Cut(element, "=")
		switch flag := flags[key]; {
		case flag != nil && !has:
			*flag = true
		case !has || !f.setValue(key, value):
			return noFault(), fmt.Errorf("parse fault %q: unknown name or impossible value", element)
		}
	}
	return f, nil
}

func (f *fault) setValue(key, value string) bool {
	switch key {
	case "kind":
		f.kind = Kind(value)
		return f.kind.known()
	case "retry-after":
		f.retryAfter = value
		return true
	case "status":
		return setInt(&f.status, value, 200, 599)
	case "stall-after":
		return setInt(&f.stallAfter, value, 0, math.MaxInt32)
	case "cut-after":
		return setInt(&f.cutAfter, value, 0, math.MaxInt32)
	case "chunk":
		return setInt(&f.chunk, value, 1, math.MaxInt32)
	case "big":
		return setInt(&f.bigKiB, value, 1, maxBig)
	case "piece":
		return setInt(&f.piece, value, 1, math.MaxInt32)
	}
	return false
}

func setInt(to *int, value string, least, most int) bool {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return false
	}
	*to = n
	return true
}
