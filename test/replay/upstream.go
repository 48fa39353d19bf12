package main

import (
	"slices"
	"strings"
	"sync"

	"remora/memory/tokens"
	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
)

// upstream is the strict scripted API. It gives the recorded answers, and counts the tokens of requests.
type upstream struct {
	server *scripted.Server
	meter  *tokens.Counter
	texts  *texts
	talks  map[string]*talk // by session; never modified
}

// talk is upstream's side of one session.
type talk struct {
	mu      sync.Mutex
	step    *step
	history []string // texts of the client's items
	noted   bool     // the step's notes were made
	cold    bool     // the prompt cache expired before the step
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
	// The ledgers have all results, so keep no requests.
	u.server, err = scripted.Start(scripted.Options{Respond: u.respond, KeepRequests: 1})
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
		return scripted.Answer{}, false // a layer's call of its model
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	usage := t.ledger.enter(u.meter, req, t.cold)
	t.cold = false
	a, own := t.answer(req.Tools())
	if own && t.step != nil {
		var prompt strings.Builder
		for _, it := range req.Items() {
			prompt.WriteString(u.texts.of(d, it.Raw) + "\n")
		}
		t.ledger.needs.add(needsOf(&t.step.answer, t.history, prompt.String()))
	}
	a.Usage = usage
	if d == dialects.Chat {
		a.Reasoning = "" // Chat does not return it
	}
	return a, true
}

// answer returns the recorded answer with the model's notes, which are calls of layers' tools. If the recorded answer has no
// calls, the notes come first as a separate answer, and own is false.
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
