package proxy

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/wire"
	"remora/wire/merge"
)

// rounds are the model calls that one answer to the client is made of, where layers run tools or judge.
type rounds struct {
	answer *answer
	pieces pieces // of the answer that is being read
}

// read begins to read an answer piece by piece.
func (r *rounds) read(encoding []byte) {
	r.pieces = pieces{encoding: bytes.Clone(encoding), next: r.answer.attempt.next}
}

// goOn begins the next round: it sends the view with what has come of it, and reads the head of the answer. What upstream refuses is
// sent again once: with less of the history if it is longer than the model's context, else in another shape.
func (r *rounds) goOn(stream bool, head *providers.Head) error {
	a := r.answer.attempt
	if err := a.goOn(head); err != nil {
		return err
	}
	if head.Status() >= fasthttp.StatusMultipleChoices {
		if !a.tooLong || !a.req.turn.shaper.Shorten(a.out.lesson(aboutContext).tokens) {
			return r.refused(head, stream)
		}
		a.corrected = true
		a.req.trace.answered(a, head.Status(), &wire.Reply{})
		return r.goOn(stream, head)
	}

	encoding := head.ContentEncoding()
	if stream {
		if same, err := r.answer.isStream(head); err != nil {
			return err
		} else if !same {
			return errUnread("it is no event stream, as its beginning was")
		}
		if !decodable(encoding) {
			return errUnread(unknownEncoding)
		}
		if isPlain(encoding) { // a decoder does not survive a report of silence
			a.upstream.Silence = r.answer.silence() // Close has forgotten it
		}
	}
	r.read(encoding)
	return nil
}

// judge counts an answer of the model towards the client's, closes the span of its call, and lets layers judge it. unseen: the
// answer has calls that they would not see. Of an answer that is denied nothing is kept.
func (r *rounds) judge(reply *wire.Reply, unseen bool) (memory.Next, *Error) {
	a, turn := r.answer, r.answer.req.turn
	a.req.trace.answered(a.attempt, a.attempt.status, reply)
	a.modelCalls++
	a.usage = merge.SumUsage(a.usage, reply.Usage)
	if unseen || turn.unjudged(*reply) {
		return memory.Next{}, r.deny(severalChoices)
	}

	step := a.req.trace.Step("review")
	next := turn.judge.Review(a.req.trace.Context(), *reply)
	step.End(nil)
	if next.Denied {
		return memory.Next{}, r.deny(next.Reason)
	}
	return next, nil
}

// deny ends the turn without its answer.
func (r *rounds) deny(reason string) *Error {
	r.answer.commit(wire.Reply{}, memory.NotAborted)
	return errDenied(reason)
}

// errRefused: upstream refused a later round, and the client gets that refusal.
var errRefused = errors.New("upstream refuses to go on")

// refused handles a later round that upstream answers with an error. If the answer is not streamed, the client gets that
// answer with its headers, such as rate limits. Of a stream the head was sent already, so only the error event shows it.
func (r *rounds) refused(head *providers.Head, stream bool) (err error) {
	a := r.answer.attempt
	if stream {
		a.req.trace.answered(a, head.Status(), &wire.Reply{})
		return &Error{
			Status: fasthttp.StatusBadGateway, Code: codeUpstream,
			Message: fmt.Sprintf("upstream answered %d when the model was to go on", head.Status()), Err: errRefused,
		}
	}

	a.status = head.Status()
	if a.refusal == nil {
		if a.refusal, err = a.readRefusal(); err != nil {
			return err
		}
	}
	r.answer.answerWith(head)
	return errRefused
}

// judgeWhole lets layers judge an answer that is not streamed, and returns the body for the client. An answer that cannot be
// parsed passes unchanged, with its head, unless rules have to judge it.
func (r *rounds) judgeWhole(body []byte) ([]byte, error) {
	a := r.answer
	var head providers.Head // of the later rounds
	came, encoding := body, a.head.ContentEncoding()
	var first []byte
	var answers []merge.Answer
	for {
		plain, reply, err := r.legible(encoding, came)
		if err != nil {
			return r.illegible(came, &head, len(answers) > 0, err)
		}
		if len(answers) == 0 {
			first = plain
		}
		next, denied := r.judge(&reply, false)
		if denied != nil {
			return nil, denied
		}
		answer := merge.Answer{Body: plain, Withheld: a.req.turn.withholds(next)}
		if len(next.Hidden) > 0 {
			answer.Hidden = func(c wire.Call) bool { return next.Hidden[c.ID] }
		}
		answers = append(answers, answer)
		if !next.GoesOn {
			break
		}

		if err := r.goOn(false, &head); err != nil {
			return nil, err
		}
		if came, err = a.attempt.readAll(); err != nil {
			return r.illegible(came, &head, true, err)
		}
		encoding = r.pieces.encoding
	}

	out := merge.WithoutTools(a.req.dialect, merge.Whole(a.req.dialect, answers), a.req.turn.steering.Hides)
	if len(answers) == 1 && wire.SameBytes(out, first) {
		return body, nil
	}
	a.head.Drop("content-encoding")
	return out, nil
}

// legible decodes and parses a whole answer. Its error is errUnread.
func (r *rounds) legible(encoding, body []byte) (plain []byte, reply wire.Reply, err error) {
	plain, err = decode(encoding, body, foldLimit, r.answer.attempt.hold)
	if errors.Is(err, errNoRoom) {
		return nil, wire.Reply{}, err
	}
	if err != nil {
		return nil, wire.Reply{}, errUnread(unknownEncoding)
	}
	d := r.answer.req.dialect
	if reply, err = wire.FoldBody(d, plain); err != nil {
		return nil, wire.Reply{}, errUnread(whereWrong(err))
	}
	plain = wire.WithoutBOM(plain)
	if r.answer.isJudged() {
		if why := wire.Unclear(d, plain); why != "" {
			return nil, wire.Reply{}, errUnread(why)
		}
	}
	return plain, reply, nil
}

// illegible handles an answer that layers cannot read, for the reason err: it is passed on, unless rules have to judge it.
// The answer of a later round replaces the earlier ones, head included.
func (r *rounds) illegible(came []byte, head *providers.Head, later bool, err error) ([]byte, error) {
	large := isLarge(err)
	if r.answer.isJudged() || !large && !errors.Is(err, errIllegible) {
		return nil, err
	}
	if later {
		r.answer.answerWith(head)
		r.answer.report()
	}
	if large {
		return came, err
	}
	return came, nil
}
