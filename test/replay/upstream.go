package main

import (
	"slices"
	"strings"
	"sync"

	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
)

// upstream is the strict scripted API, answering as recorded and keeping account of what reaches it.
type upstream struct {
	server *scripted.Server
	meter  *meter
	texts  *texts
	talks  map[string]*talk // by session, the same ones all the time
}

// talk is one session as the upstream sees it.
type talk struct {
	mu      sync.Mutex
	step    *step
	history []string // what the client has said and heard, an item each
	noted   bool     // the step's notes were taken down
	cold    bool     // the prompt cache has expired before the step
	ledger  ledger
}

func startUpstream(l *lab, d wire.Dialect) (*upstream, error) {
	u := &upstream{meter: l.meter, texts: l.texts, talks: make(map[string]*talk)}
	for _, s := range l.sessions {
		of, err := l.newLedger(s, d)
		if err != nil {
			return nil, err
		}
		u.talks[s.name] = &talk{ledger: of}
	}
	var err error
	// What was asked is in the ledgers; nothing else of it is kept.
	u.server, err = scripted.Start(scripted.Options{Respond: u.respond, KeepRequests: 1, KeepBytes: 1})
	return u, err
}

// cue sets the answer to the session's next request, and the client's history.
func (t *talk) cue(st *step, history []string, cold bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step, t.history, t.cold, t.noted = st, history, cold, false
}

// respond answers a request that the strict checks have passed.
func (u *upstream) respond(p scripted.Prompt) (scripted.Answer, bool) {
	d := dialects.Responses
	if p.Path == "chat/completions" {
		d = dialects.Chat
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
	usage := t.ledger.enter(u.meter, req, t.cold)
	t.cold = false
	a, own := t.answer(req.Tools())
	if own && t.step != nil {
		prompt := strings.Join(u.texts.ofAll(req.Items()), "\n")
		t.ledger.needs.add(needsOf(&t.step.answer, t.history, prompt))
	}
	a.Usage = usage
	if d == dialects.Chat {
		a.Reasoning = "" // the API keeps it to itself there
	}
	return a, true
}

// answer is the recorded one. What the model notes by layers' tools goes beside its own calls, as models do it, or before
// an answer that has none: then own is false.
func (t *talk) answer(offered []string) (a scripted.Answer, own bool) {
	if t.step == nil {
		return scripted.Answer{}, false
	}
	a = t.step.answer
	if t.noted {
		return a, true
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
		return a, true
	case len(a.Calls) == 0:
		return scripted.Answer{Calls: notes}, false
	}
	a.Calls = append(slices.Clone(a.Calls), notes...)
	return a, true
}
