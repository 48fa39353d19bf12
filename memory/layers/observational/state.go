package observational

import (
	"slices"
	"strings"
	"time"

	"remora/memory/layer"
	"remora/memory/redact"
)

// observation is one statement that is kept, and who made it.
type observation struct {
	By   string `json:"by,omitempty"`   // empty for what the observer itself says
	Name string `json:"name,omitempty"` // of the user, among several
	Text string `json:"text"`
	// Said is the day of the statement, if it is meaningful only with it.
	Said string `json:"said,omitempty"`
	// From are the items that say so: one, or one more for each time that it was said again.
	From layer.Sources `json:"from,omitempty"`
}

// dayFormat has the day of the week: models often get it wrong, and "next Tuesday" depends on it.
const dayFormat = "Mon " + time.DateOnly

// line is the statement as the model reads it. Only the words of users stand by themselves. Those of others are quoted,
// so that what a tool returned is never read as an instruction.
func (o *observation) line() string {
	who := map[string]string{layer.ByUser: "user", layer.ByAssistant: "assistant said", layer.ByTool: "a tool returned"}[o.By]
	if o.By == "" {
		return o.Text
	}
	if o.Name != "" {
		who += " " + o.Name
	}
	if day, err := time.Parse(time.DateOnly, o.Said); err == nil {
		who += " (" + day.Format(dayFormat) + ")"
	}
	if o.By == layer.ByUser {
		return who + ": " + o.Text
	}
	return who + ": " + layer.Quoted(o.Text)
}

// state is the stored state of the layer.
type state struct {
	Observations []observation `json:"observations"`
	layer.Buffer
	Version int `json:"version"`
	// Lost is the number of texts that the bounded buffer has dropped since the last distillation.
	Lost int `json:"lost,omitempty"`
	// Plays are the sessions with a role play, the latest last.
	Plays []string `json:"plays,omitempty"`
	// Topic is the user's last subject, which "it" refers to.
	Topic heard `json:"topic,omitzero"`
}

// heard is the beginning of a message, as words, and its session.
type heard struct {
	Session string `json:"session"`
	Text    string `json:"text"`
}

// whose returns the person that the user mentioned last in a session, or "".
func (st *state) whose(session string) string {
	for _, o := range slices.Backward(st.Observations) {
		if slices.ContainsFunc(o.From, func(s layer.Source) bool { return s.Session == session }) {
			if k := kin().FindString(o.Text); k != "" && o.By == layer.ByUser {
				return k
			}
		}
	}
	return ""
}

// play notes whether a session has a role play. Holders of a copy of the state see no change.
func (st *state) play(session string, plays bool) {
	all := slices.DeleteFunc(slices.Clone(st.Plays), func(s string) bool { return s == session })
	if plays {
		all = append(all, session)
	}
	st.Plays = layer.Last(all, maxPlays)
}

// decode returns the empty state for one that cannot be read.
func decode(b []byte) state {
	st := layer.Decode(b, func(st *state) bool {
		return sound(st.Observations) && st.Tokens >= 0 && st.Version >= 0 && st.Lost >= 0
	})
	return st.clipped()
}

// sound reports whether all observations have a known speaker.
func sound(all []observation) bool {
	return !slices.ContainsFunc(all, func(o observation) bool {
		return o.By != "" && o.By != layer.ByUser && o.By != layer.ByAssistant && o.By != layer.ByTool
	})
}

// clipped clips the list, so that appending to the returned state copies it.
func (st state) clipped() state {
	st.Observations = slices.Clip(st.Observations)
	return st
}

// add ends a distillation: what it found goes after what was known, and the newest are kept. Holders of
// a copy of the state see no change.
func (st *state) add(distilled []observation, limit int) {
	st.Lost = 0
	st.Observations = append(make([]observation, 0, len(st.Observations)+len(distilled)), st.Observations...)
	for _, o := range distilled {
		if o.Text = layer.Line(redact.Text(o.Text), maxLine); o.Text != "" {
			o.Text = strings.Clone(o.Text) // not with all of the text that it was said in
			st.Observations = append(st.Observations, o)
		}
	}
	if slices.ContainsFunc(st.Observations, saidBy(layer.ByUser)) {
		// A long tool loop must not drive out users' statements.
		st.Observations = layer.Limit(st.Observations, max(1, limit/4), saidBy(layer.ByTool))
		st.Observations = layer.Limit(st.Observations, max(1, limit/2), saidBy(layer.ByAssistant))
	}
	st.Observations = layer.Tail(layer.Last(st.Observations, limit), maxObserved, func(o observation) int { return len(o.Text) })
	st.Version++
}

// saidBy matches the statements of one kind of speaker.
func saidBy(speaker string) func(observation) bool {
	return func(o observation) bool { return o.By == speaker }
}
