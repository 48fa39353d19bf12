package main

import (
	"slices"
	"sync"

	"remora/providers/scripted"
	"remora/wire"
)

// upstream is the strict scripted API, answering as recorded and keeping account of what reaches it.
type upstream struct {
	server *scripted.Server
	meter  *meter
	talks  map[string]*talk // by session, the same ones all the time
}

// talk is one session as the upstream sees it.
type talk struct {
	mu     sync.Mutex
	step   *step
	noted  bool // the step's notes were taken down
	ledger ledger
}

func startUpstream(m *meter, sessions []*session) (*upstream, error) {
	u := &upstream{meter: m, talks: make(map[string]*talk)}
	for _, s := range sessions {
		u.talks[s.name] = &talk{ledger: ledger{led: s.instructions != ""}}
	}
	var err error
	// What was asked is in the ledgers; nothing else of it is kept.
	u.server, err = scripted.Start(scripted.Options{Respond: u.respond, KeepRequests: 1, KeepBytes: 1})
	return u, err
}

// cue says what the session's next request is answered with.
func (t *talk) cue(st *step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step, t.noted = st, false
}

// respond answers a request that the strict checks have passed.
func (u *upstream) respond(p scripted.Prompt) (scripted.Answer, bool) {
	d := wire.Responses
	if p.Path == "chat/completions" {
		d = wire.Chat
	}
	req, err := wire.Parse(d, p.Body)
	if err != nil {
		return scripted.Answer{}, false
	}
	t := u.talks[req.Text("metadata.replay")]
	if t == nil {
		return scripted.Answer{}, false // of a layer's own model
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	usage := t.ledger.enter(u.meter, req)
	a := t.answer(req.Tools())
	a.Usage = usage
	if d == wire.Chat {
		a.Reasoning = "" // the API keeps it to itself there
	}
	return a, true
}

// answer is the recorded one. What the model notes by layers' tools goes beside its own calls, as models do it, or before
// an answer that has none.
func (t *talk) answer(offered []string) scripted.Answer {
	if t.step == nil {
		return scripted.Answer{}
	}
	a := t.step.answer
	if t.noted {
		return a
	}
	t.noted = true
	var notes []scripted.Call
	for _, n := range t.step.notes {
		if slices.Contains(offered, n.Name) {
			notes = append(notes, n)
		}
	}
	t.ledger.notes += len(notes)
	switch {
	case len(notes) == 0:
		return a
	case len(a.Calls) == 0:
		return scripted.Answer{Calls: notes}
	}
	a.Calls = append(slices.Clone(a.Calls), notes...)
	return a
}
