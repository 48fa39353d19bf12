package memory

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"remora/memory/layer"
	"remora/memory/session"
)

// failedStatus is the lowest status of a failed call.
const failedStatus = 300

// conclude runs the layers' store hooks before the commit, for at most store.commit_wait. It returns the work for afterwards, nil if
// there is none. awaited: the work gives a parent session the results of its child, and the client, who sees that the child's work has
// ended, may ask the parent next.
func (l *turnLayers) conclude(base context.Context, a *Answer) (after func(context.Context), awaited bool) {
	l.rounds.take(l.states.values.prefix, a)
	if l.guard || l.run.Empty() { // no layer learns, and no execution ends
		return nil, false
	}

	ctx := withTimeout(base, l.m.o.CommitWait)
	defer ctx.end()
	resp := l.rounds.response()
	answered := l.success(a)
	settles := answered && l.run.Settles(l.evictions.items)
	if answered {
		l.run.Store(ctx, resp)             //nolint:contextcheck // ctx is made of base
		l.evictions.hand(ctx, &l.layerRun) //nolint:contextcheck // likewise
	}

	// A failed or cut call ends no run: clients retry or continue it. A denied call ends the run.
	end := layer.Outcome{Result: layer.Answered, Execution: l.run.Turn().Execution, Thread: l.call.Scope.Session}
	done := resp.Done && answered || l.rounds.denied
	if l.rounds.denied {
		end.Result = layer.Denied
	}
	if said := l.run.Completed(); said != "" && answered {
		end.Result, done = said, true
	}
	settles = settles || end.Result.Ends() && l.run.Concludes()
	later := settles || l.run.CompletesLater()
	if done && !later {
		l.run.Complete(ctx, end) //nolint:contextcheck // likewise
	}
	gives := end.Result.Ends() && l.call.Scope.Parent != ""
	if !settles && !gives && (!done || !later) {
		return nil, false
	}

	return func(ctx context.Context) {
		if settles {
			defer l.run.Settle(ctx, resp, l.evictions.items)()
		}
		l.end(ctx, end, done && later)
	}, gives
}

// success reports whether the model gave a complete answer that no layer denied.
func (l *turnLayers) success(a *Answer) bool {
	r := &a.Reply
	return !l.rounds.denied && a.Aborted == NotAborted && a.HTTPStatus < failedStatus && r.Error == nil && !r.Truncated && len(r.Choices) > 0
}

// describe adds the layers' results to the turn's record.
func (l *turnLayers) describe(e *session.Entry, a *Answer) {
	l.rounds.carry(e, l.call.Request, a.Reply.ID)
	l.note(e)
}

// flushFirst writes the states that others have changed concurrently, while no client waits, and then does the remaining work.
func (l *turnLayers) flushFirst(after func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		if _, deleted := l.flushLate(ctx); !deleted && after != nil {
			after(ctx)
		}
	}
}

// afterOutage is flushFirst for a spooled turn, after its replay. It gives up after settleLimit, or when this process ends: then
// layers get the evicted items again. The session's own values are written with the turn: see waitingTurn.
func (l *turnLayers) afterOutage(after func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		if err := l.m.spool.outwait(ctx, l.group); err != nil {
			l.m.spool.seen.put(l.ID, nil)
			l.m.o.Log.Error("what layers learned in a turn is lost: the store was down", "turn", l.ID, "error", err.Error())
			return
		}
		l.states.doubt()
		l.flushFirst(after)(ctx)
	}
}

const (
	// maxSettling is the maximum number of turns that settle concurrently in this process. Further turns skip it: their layers
	// get neither the answer nor the end of an execution or a child.
	maxSettling = 256
	// settleLimit limits the time of one turn's layers after the answer, in addition to the limits of their hooks.
	settleLimit = 2 * time.Minute
	// unsettledEvery is how often turns that skip it are logged.
	unsettledEvery = time.Minute
)

// settling is work of turns after the client is served.
type settling struct {
	life  context.Context //nolint:containedctx // its end cancels the work
	log   *slog.Logger
	now   func() time.Time
	slots chan struct{}
	work  sync.WaitGroup

	mu      sync.Mutex
	skipped int       // turns that skipped it since the last line of the log
	silent  time.Time // until when no further line is logged
}

func newSettling(life context.Context, log *slog.Logger, now func() time.Time) *settling {
	return &settling{life: life, log: log, now: now, slots: make(chan struct{}, maxSettling)}
}

// begin begins work of a turn, unless too many do; base is the context of its request, without cancellation.
func (s *settling) begin(base context.Context, work func(context.Context)) bool {
	select {
	case s.slots <- struct{}{}:
	default:
		s.skip()
		return false
	}
	s.work.Go(func() {
		defer func() { <-s.slots }()
		ctx, cancel := context.WithTimeout(base, settleLimit)
		defer cancel()
		defer context.AfterFunc(s.life, cancel)() //nolint:contextcheck // the end of the process cuts the work off
		work(ctx)
	})
	return true
}

// skip logs that layers do not learn from turns. A burst of slow commits can make it thousands.
func (s *settling) skip() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped++
	now := s.now()
	if now.Before(s.silent) {
		return
	}
	s.log.Warn("too many turns are settling; layers do not learn from some", "turns", s.skipped, "limit", maxSettling)
	s.skipped, s.silent = 0, now.Add(unsettledEvery)
}
