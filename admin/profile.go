package admin

import (
	"context"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"
)

// Lengths of a profile, in seconds: where the caller does not say, and at most.
const (
	usualProfile = 30
	maxProfile   = 60
)

// Profile is the route by which `go tool pprof http://ADDRESS/debug/pprof/profile?seconds=10` sees what takes the processor's
// time: names of functions and numbers, never data. There is none for the heap: a program that can tell of its heap
// notes down allocations all the time, which costs a call without a session a tenth of its speed.
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
	<-ctx.Done() // the time is over, or the caller has left
}
