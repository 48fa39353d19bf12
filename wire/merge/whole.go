package merge

import (
	"bytes"
	"slices"

	"remora/wire"
)

// Answer is one upstream answer that was not streamed.
type Answer struct {
	Body []byte
	// Withheld: the client gets nothing of it, since it was judged unfit. Its usage counts.
	Withheld bool
	// Hidden reports whether the client does not see a call of it, nil for none.
	Hidden func(wire.Call) bool
}

// Whole makes one body of several answers, by the rules of a Merger: the identity of the first one that reaches the
// client, joined texts, everything else of the last one, whose end the client sees; hidden calls are left out, and usage is
// continued (see ContinueUsage). A single body with nothing hidden is returned unchanged, and so is the last one if it is an error.
func Whole(d wire.Dialect, answers []Answer) []byte {
	if len(answers) == 1 && !answers[0].Withheld && answers[0].Hidden == nil {
		return answers[0].Body
	}
	var w Bodies
	for _, a := range answers {
		if usage := wire.Member(a.Body, "usage"); a.Withheld {
			w.prior = ContinueUsage(w.prior, usage)
		} else {
			if len(w.bodies) > 0 {
				w.prior = ContinueUsage(w.prior, w.usage)
			}
			w.usage = usage
			w.bodies, w.hidden = append(w.bodies, a.Body), append(w.hidden, a.Hidden)
		}
	}
	if len(w.bodies) == 0 {
		return nil
	}
	if !wire.IsObject(bytes.TrimSpace(w.Last())) {
		return w.Last()
	}
	return codecOf(d).Bodies(&w)
}

// Bodies are the answers that [Codec.Bodies] makes one of.
type Bodies struct {
	bodies [][]byte
	hidden []func(wire.Call) bool // by body
	usage  []byte                 // of the last body
	prior  []byte                 // of all others
}

// All returns the bodies that the client gets something of, at least one.
func (w *Bodies) All() [][]byte { return w.bodies }

// Last returns the last of them.
func (w *Bodies) Last() []byte { return w.bodies[len(w.bodies)-1] }

// Hides reports whether the client does not see a call, by the index of its body.
func (w *Bodies) Hides(body int, c wire.Call) bool {
	return w.hidden[body] != nil && w.hidden[body](c)
}

// Edit rewrites the last body: its usage, the members called identity as the first one has them, and all others as more does. It is
// returned as it came where nothing changes but the space around it.
func (w *Bodies) Edit(more func(p wire.Child) []byte, identity ...string) []byte {
	last := bytes.TrimSpace(w.Last())
	edited := wire.Edit(last, func(_ int, p wire.Child) ([]byte, bool) {
		name := string(p.Name)
		if name == "usage" {
			return ContinueUsage(w.prior, p.Value), true
		}
		if !slices.Contains(identity, name) {
			return more(p), true
		}
		if first := wire.Member(w.bodies[0], name); first != nil && !Empty(first) {
			return first, true
		}
		return p.Value, true
	})
	if bytes.Equal(last, edited) {
		return w.Last()
	}
	return edited
}
