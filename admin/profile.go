package admin

import (
	"context"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"
)

// Default and maximum duration of a profile, in seconds.
const (
	usualProfile = 30
	maxProfile   = 60
)

// Profile returns the route of CPU profiles, for `go tool pprof http://ADDRESS/debug/pprof/profile?seconds=10`. They contain
// names of functions and numbers, never data. There is no heap profile: the runtime would have to sample all allocations, which
// costs a tenth of the throughput of requests without a session.
func Profile() Route {
	return Route{Pattern: "GET /debug/pprof/profile", Handler: http.HandlerFunc(profile)}
}

func profile(w http.ResponseWriter, r *http.Request) {
	seconds := usualProfile
	if text := r.FormValue("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxProfile {
			say(w, http.StatusBadRequest, "seconds: want a number from 1 to "+strconv.Itoa(maxProfile))
			return
		}
		seconds = n
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := pprof.StartCPUProfile(w); err != nil {
		say(w, http.StatusConflict, "another profile is being made")
		return
	}
	defer pprof.StopCPUProfile()
	ctx, end := context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	defer end()
	<-ctx.Done() // the duration is over, or the caller has disconnected
}
