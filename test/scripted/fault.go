package scripted

import (
	"fmt"
	"math"
	"slices"
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
	numbers := map[string]struct {
		to          *int
		least, most int
	}{
		"status": {&f.status, 200, 599}, "stall-after": {&f.stallAfter, 0, math.MaxInt32}, "cut-after": {&f.cutAfter, 0, math.MaxInt32},
		"chunk": {&f.chunk, 1, math.MaxInt32}, "piece": {&f.piece, 1, math.MaxInt32}, "big": {&f.bigKiB, 1, maxBig},
	}
	for element := range strings.SplitSeq(strings.ReplaceAll(spec, ";", ","), ",") {
		element = strings.TrimSpace(element)
		key, value, has := strings.Cut(element, "=")
		flag, number := flags[key], numbers[key]
		n, err := strconv.Atoi(value)
		switch {
		case element == "":
		case flag != nil && !has:
			*flag = true
		case number.to != nil && err == nil && n >= number.least && n <= number.most:
			*number.to = n
		case key == "retry-after" && has:
			f.retryAfter = value
		case key == "kind" && slices.Contains(Kinds(), Kind(value)):
			f.kind = Kind(value)
		default:
			return noFault(), fmt.Errorf("parse fault %q: unknown name or impossible value", element)
		}
	}
	return f, nil
}
