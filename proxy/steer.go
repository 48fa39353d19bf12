package proxy

import (
	"errors"
	"io"

	"remora/memory"
	"remora/providers"
	"remora/wire"
	"remora/wire/merge"
)

// steer sets the stream up for layers that judge or run tools. An answer that is compressed, although identity was asked for,
// is sent to the client decoded.
func (st *stream) steer() {
	a, t := st.answer, st.answer.req.turn
	a.steered, st.spoke = true, a.req.s.now()
	st.merger = merge.New(a.req.dialect, merge.Options{Hide: t.steering.Hides, HoldCalls: t.steering.HoldCalls, HoldAll: t.holdsAll()})
	st.rounds.read(a.head.ContentEncoding())
	a.head.Drop("content-encoding")
}

// writeSteered writes an answer that may be made of several rounds.
func (st *stream) writeSteered() error {
	a := st.answer
	for {
		p, err := st.rounds.pieces.Next()
		switch {
		case errors.Is(err, io.EOF):
			st.merger.EOF()
		case errors.Is(err, providers.ErrIdle):
			if err := st.client.fill(); err != nil {
				return err
			}
			st.spoke = a.req.s.now()
			continue
		case errors.Is(err, errIllegible):
			return st.breakOff(err)
		case err != nil:
			return err
		default:
			a.req.trace.FirstByte()
			out := st.merger.Write(p)
			if !a.attempt.hold(len(p)) {
				out = append(out, st.merger.Degrade()...)
			}
			if st.merger.Degraded() {
				return st.overflow(out)
			}
			if err := st.client.write(out); err != nil {
				return err
			}
			st.keepAlive(len(out) == 0)
		}
		if !st.merger.Ended() {
			continue
		}
		if more, err := st.judge(); err != nil || !more {
			return err
		}
	}
}

// overflow handles an answer that is too large: more of it would have to be held back than there is room for, or calls in it
// were not parsed. out is still sent. If rules have to judge the rest, the answer fails; otherwise the rest passes as it comes
// and is not stored.
func (st *stream) overflow(out []byte) error {
	a := st.answer
	if a.isJudged() {
		if err := st.client.write(out); err != nil {
			return err
		}
		return st.breakOff(errHeld())
	}
	out = append(out, st.merger.Finish()...) // before Merged, which it completes
	reply := st.merger.Merged()
	reply.Truncated = reply.Truncated || !reply.Complete
	a.cutShort()
	a.req.trace.answered(a.attempt, a.attempt.status, &reply)
	a.commit(reply, memory.NotAborted)
	return st.finish(out)
}

// keepAlive sends a comment from time to time while everything that arrives is held back.
func (st *stream) keepAlive(quiet bool) {
	every := st.answer.silence()
	if every <= 0 {
		return
	}
	now := st.answer.req.s.now()
	if !quiet {
		st.spoke = now
	} else if now.Sub(st.spoke) >= every {
		st.spoke = now
		_ = st.client.fill() // the next write notices a client that has disconnected
	}
}

// judge lets layers judge a round that has ended. It reports whether another round has begun.
func (st *stream) judge() (bool, error) {
	if st.merger.Illegible() {
		return false, st.breakOff(errUnread("it is no event stream"))
	}
	reply := st.merger.Reply()
	if reply.Unclear != "" {
		return false, st.breakOff(errUnread(reply.Unclear))
	}
	if reply.Truncated { // its last calls have no input here, and one in what the client gets
		return false, st.overflow(nil)
	}
	next, denied := st.rounds.judge(&reply, st.merger.Unjudged())
	if denied != nil {
		return false, st.finish(st.errorEvent(denied))
	}

	if !st.answer.req.turn.withholds(next) {
		seen := callsOf(reply)
		if err := st.client.write(st.merger.Release(func(c wire.Call) bool { return seen[c.ID] && !next.Hidden[c.ID] })); err != nil {
			return false, err
		}
	}
	if st.merger.Unjudged() { // known only now if all was held back
		return false, st.finish(st.errorEvent(st.rounds.deny(severalChoices)))
	}

	if !next.GoesOn {
		end := st.merger.Finish() // before Merged, which it completes
		st.answer.commit(st.merger.Merged(), memory.NotAborted)
		return false, st.finish(end)
	}
	st.merger.Next()
	var head providers.Head
	if err := st.rounds.goOn(true, &head); err != nil {
		return false, st.breakOff(err)
	}
	return true, nil
}

// callsOf returns the ids of the calls that layers have seen. Other calls in the stream, such as incomplete ones, are not
// passed on.
func callsOf(r wire.Reply) map[string]bool {
	seen := make(map[string]bool)
	for _, choice := range r.Choices[:min(1, len(r.Choices))] {
		for _, it := range choice {
			for _, c := range it.Judged() {
				seen[c.ID] = true
			}
		}
	}
	return seen
}

// finish writes the end of the answer, and what upstream sends after it, unless rules would have to judge that.
func (st *stream) finish(end []byte) error {
	if err := st.client.write(end); err != nil {
		return err
	}
	for {
		p, err := st.rounds.pieces.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, providers.ErrIdle):
			continue // the client has the end already, no comment may follow it
		case err == nil:
			err = st.client.write(st.merger.AfterEnd(p))
		}
		if err != nil {
			return err
		}
	}
}

// errorEvent returns an event that makes SDKs raise an error.
func (st *stream) errorEvent(e *Error) []byte {
	var out []byte
	if !st.client.gap.open() {
		out = append(out, "\n\n"...)
	}
	return append(out, st.merger.ErrorEvent(e.fault())...)
}

// breakOff ends a stream with an error event. What the client has got is stored as cut off. If upstream refused a later round,
// the stream then ends normally; after any other error the connection breaks too.
func (st *stream) breakOff(err error) error {
	refused := errors.Is(err, errRefused)
	if !refused && !upstreamFault(err) {
		return err
	}
	e, reply := asError(err), st.merger.Merged()
	event := st.errorEvent(e)
	st.merger = nil // a large commit may wait
	st.answer.commit(reply, memory.AbortedByUpstream)
	if refused {
		st.answer.req.s.logUpstream(st.answer.attempt.out.provider, e)
		return st.client.write(event)
	}
	_ = st.client.write(event) // the stream fails anyway
	return err
}
