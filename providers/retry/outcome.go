package retry

import (
	"bytes"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"remora/providers"
)

// Outcome is the result of one call: an error, or the head of the answer.
type Outcome struct {
	// Err is the error of [providers.Client.Send], nil if an answer came.
	Err error
	// Head is that of the answer; it is not looked at after an error.
	Head *providers.Head
}

// cause is why a call may be tried again: a status, 0 for a connection that could not be made, or never.
func (o *Outcome) cause() int {
	switch {
	case errors.Is(o.Err, providers.ErrUnreachable):
		return 0
	case o.Err != nil:
		return never // bytes have gone out, and what upstream did with them is unknown
	default:
		return o.Head.Status()
	}
}

const never = -1

// verdict is a call's effect on the health of its provider.
type verdict uint8

const (
	unknown verdict = iota
	healthy
	failed
)

func (o *Outcome) verdict() verdict {
	switch {
	case errors.Is(o.Err, providers.ErrAborted):
		return unknown
	case errors.Is(o.Err, providers.ErrUnreachable), errors.Is(o.Err, providers.ErrClosed),
		errors.Is(o.Err, providers.ErrTimeout), errors.Is(o.Err, providers.ErrMalformed), errors.Is(o.Err, providers.ErrLargeHead):
		return failed
	case o.Err != nil:
		return unknown // not about upstream
	case o.Head.Status() >= http.StatusInternalServerError:
		return failed
	default:
		return healthy // a refusal, and also one for sending too much, is an answer
	}
}

// advice is an answer's advice on retries.
type advice struct {
	wait time.Duration // 0 if it does not say
	stop bool          // it says not to
}

// farthest is longer than any caller waits. Longer times are cut to it.
const farthest = 24 * time.Hour

// adviceOf reads the headers that OpenAI and those like it send with 429 and 503. Names are compared by hand, since the
// header keeps the spelling that upstream chose.
func adviceOf(h *providers.Head, now time.Time) advice {
	var a advice
	var after, afterMS string
	var limits [3]struct{ reset, remaining string } // in all, of requests, of tokens
	for key, value := range h.All() {
		if len(value) > 64 || len(key) > 32 {
			continue
		}
		switch name := string(bytes.ToLower(key)); name {
		case "retry-after":
			after = string(value)
		case "retry-after-ms":
			afterMS = string(value)
		case "x-should-retry":
			a.stop = string(value) == "false"
		default:
			rest, ok := strings.CutPrefix(name, "x-ratelimit-")
			if !ok {
				continue
			}
			kind, of, _ := strings.Cut(rest, "-")
			i, known := map[string]int{"": 0, "requests": 1, "tokens": 2}[of]
			switch {
			case !known:
			case kind == "reset":
				limits[i].reset = string(value)
			case kind == "remaining":
				limits[i].remaining = string(value)
			}
		}
	}
	if d, ok := seconds(afterMS, time.Millisecond); ok {
		a.wait = d
		return a
	}
	if d, ok := retryAfter(after, now); ok {
		a.wait = d
		return a
	}
	for _, l := range limits {
		// A limit of which something is left is not the one that was hit.
		if l.remaining == "" || l.remaining == "0" {
			a.wait = max(a.wait, untilReset(l.reset, now))
		}
	}
	return a
}

// retryAfter reads seconds, with decimals as some send them, or a date.
func retryAfter(s string, now time.Time) (time.Duration, bool) {
	if d, ok := seconds(s, time.Second); ok {
		return d, true
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), farthest), true
}

// seconds reads a decimal number of units.
func seconds(s string, unit time.Duration) (time.Duration, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || f < 0 {
		return 0, false
	}
	return time.Duration(min(f*float64(unit), float64(farthest))), true
}

// untilReset reads when a limit is lifted. OpenAI writes a duration (6m0s), others seconds, and others the moment in
// seconds or milliseconds since 1970. 0 means that it can't be told.
func untilReset(s string, now time.Time) time.Duration {
	const epochSeconds, epochMillis = 1e9, 1e12
	if f, err := strconv.ParseFloat(s, 64); err == nil && f >= epochSeconds && f < math.MaxInt64/1e3 {
		if f < epochMillis {
			f *= 1e3
		}
		return min(max(time.UnixMilli(int64(f)).Sub(now), 0), farthest)
	}
	if d, ok := seconds(s, time.Second); ok {
		return d
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return min(max(d, 0), farthest)
}
