package limit

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Values of Refusal.Limit: keys of the configuration, except the last, which is a bound of the program.
const (
	tenantRate       = "limits.tenant.requests_per_minute"
	tenantConcurrent = "limits.tenant.concurrent"
	globalConcurrent = "limits.global.concurrent"
	globalBytes      = "limits.global.body_bytes"
	globalTenants    = "callers with requests under way"
)

// shortly is the Retry-After where no time is known: room comes when another request ends.
const shortly = time.Second

// Refusal is the error for a request that is not admitted. It holds nothing that the caller sent.
type Refusal struct {
	// Limit is the key of the limit that was hit, and Max its value.
	Limit string
	Max   int64
	// Global: it is a limit of the process, not of the tenant.
	Global bool
	// RetryAfter is the time until a request would be admitted, if no other comes.
	RetryAfter time.Duration
}

// Error names the limit.
func (r *Refusal) Error() string { return fmt.Sprintf("limit of %d is reached (%s)", r.Max, r.Limit) }

// Status is the HTTP status: 429 for a limit of the tenant, 503 for one of the process.
func (r *Refusal) Status() int {
	if r.Global {
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// Code is the code of the error envelope.
func (r *Refusal) Code() string {
	if r.Status() == http.StatusTooManyRequests {
		return "rate_limit_exceeded"
	}
	return "overloaded"
}

// Headers are the headers of the answer, with OpenAI's names: Retry-After in whole seconds, the same in milliseconds for SDKs,
// and for a rate its value and when it allows the next request.
func (r *Refusal) Headers() [][2]string {
	lines := [][2]string{
		{"Retry-After", strconv.Itoa(max(int(math.Ceil(r.RetryAfter.Seconds())), 1))},
		{"retry-after-ms", strconv.FormatInt(max(r.RetryAfter.Milliseconds(), 1), 10)},
	}
	if r.Limit == tenantRate {
		lines = append(lines,
			[2]string{"x-ratelimit-limit-requests", strconv.FormatInt(r.Max, 10)},
			[2]string{"x-ratelimit-remaining-requests", "0"},
			[2]string{"x-ratelimit-reset-requests", r.RetryAfter.String()})
	}
	return lines
}
