// Package procedural implements the layer procedural_memory: when a user's message asks for a task, the model gets the
// operator's procedure for it. Procedures are chosen by words (package memory/index); no model is needed.
package procedural

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"remora/memory/index"
	"remora/memory/layer"
	"remora/wire"
)

// Bounds of the configuration and the input.
const (
	defaultMatch  = 0.8
	defaultLasts  = 3 // messages of the user
	limitLasts    = 1000
	defaultTokens = 1500
	limitTokens   = 32_000
	maxProcedures = 200
	maxPhrases    = 50
	maxPhrase     = 500      // bytes
	maxName       = 100      // bytes
	maxSteps      = 32 << 10 // bytes
	maxMessage    = 4 << 10  // bytes; the beginning of a longer message says what it is about
)

// Options are the layer's own keys.
type Options struct {
	Procedures []Procedure `mapstructure:"procedures"`
	// MinMatch is the share of a phrase's words that a message must contain; default 0.8.
	MinMatch float64 `mapstructure:"min_match"`
	// Lasts is the number of user messages for which a procedure is shown, including the one that matched; default 3.
	Lasts int `mapstructure:"lasts"`
	// MaxTokens is the maximum size of the block; default 1500. A longer procedure is not shown.
	MaxTokens int `mapstructure:"max_tokens"`
}

// Procedure is one procedure.
type Procedure struct {
	// Name is shown to the model, and unique.
	Name string `mapstructure:"name"`
	// When has phrases of users; a message must contain the words of one.
	When []string `mapstructure:"when"`
	// Steps is the text for the model.
	Steps string `mapstructure:"steps"`
}

// Defaults returns the layer's slot, scope and budget. Which procedure applies is known of a session.
func Defaults(o Options) layer.Defaults {
	tokens := cmp.Or(o.MaxTokens, defaultTokens)
	return layer.Defaults{ID: "procedural-memory", Slot: 250, Scope: layer.Thread, Budget: layer.AtMost(float64(tokens)), Placement: layer.AutoLive}
}

// Layer is the layer. It is safe for concurrent use.
type Layer struct {
	o          Options
	procedures []procedure
}

// procedure is a Procedure with the words of its phrases, as the index sees them.
type procedure struct {
	Procedure
	phrases []index.WordSet
}

// New checks the options. Errors name their key.
func New(o Options) (*Layer, error) {
	errs := []error{
		layer.Share("min_match", &o.MinMatch, defaultMatch),
		layer.Bounded("lasts", &o.Lasts, defaultLasts, limitLasts),
		layer.Bounded("max_tokens", &o.MaxTokens, defaultTokens, limitTokens),
	}
	if len(o.Procedures) == 0 || len(o.Procedures) > maxProcedures {
		errs = append(errs, fmt.Errorf("procedures: want 1 to %d of them", maxProcedures))
	}

	l := &Layer{o: o}
	names := map[string]bool{}
	for i, p := range o.Procedures {
		at := fmt.Sprintf("procedures[%d]", i)
		errs = append(errs,
			line(at+".name", &p.Name, maxName),
			layer.Text(at+".steps", &p.Steps, maxSteps))
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("%s.name: want another name than a procedure before it has", at))
		}
		names[p.Name] = true
		if len(p.When) == 0 || len(p.When) > maxPhrases {
			errs = append(errs, fmt.Errorf("%s.when: want 1 to %d phrases that users say", at, maxPhrases))
		}

		known := procedure{Procedure: p}
		for j, phrase := range p.When {
			key := fmt.Sprintf("%s.when[%d]", at, j)
			words := index.Words(phrase)
			if err := line(key, &phrase, maxPhrase); err != nil {
				errs = append(errs, err)
			} else if len(words) == 0 {
				errs = append(errs, fmt.Errorf("%s: want words that say what is asked for, such as: return shoes", key))
			}
			known.phrases = append(known.phrases, words)
		}
		l.procedures = append(l.procedures, known)
	}
	return l, errors.Join(errs...)
}

// line is layer.Text for a text of one line.
func line(key string, have *string, limit int) error {
	if err := layer.Text(key, have, limit); err != nil {
		return err
	}
	if strings.ContainsAny(*have, "\r\n") {
		return fmt.Errorf("%s: want a single line", key)
	}
	return nil
}

// state has the name of the current procedure, and the number of remaining user messages.
type state struct {
	Procedure string `json:"procedure"`
	Left      int    `json:"left"`
}

// read decodes a state. An unreadable one is empty.
func read(s layer.State) state {
	return layer.Decode(s, func(st *state) bool { return st.Left > 0 })
}

// AppendItems chooses a procedure for each user message. The items do not change.
func (l *Layer) AppendItems(_ context.Context, t *layer.Turn, s layer.State, items []wire.Item) (layer.Appended, error) {
	before := read(s)
	now := before
	for _, it := range items {
		if it.Role != wire.User {
			continue
		}
		if now.Left--; now.Left <= 0 {
			now = state{}
		}
		if p := l.match(layer.Head(it.Text(), maxMessage)); p != nil {
			now = state{Procedure: p.Name, Left: l.o.Lasts}
			t.Note("procedure", p.Name)
		}
	}
	if now == before {
		return layer.Appended{Items: items}, nil
	}
	next, err := layer.Encode(now)
	return layer.Appended{Items: items, State: next}, err
}

// match returns the procedure with the best matching phrase, nil if none matches enough. Ties go to the longer phrase, then to
// the first procedure in the configuration.
func (l *Layer) match(message string) *procedure {
	said := index.Words(message)
	var best *procedure
	share, length := 0.0, 0
	for i := range l.procedures {
		for _, phrase := range l.procedures[i].phrases {
			found := float64(phrase.In(said)) / float64(len(phrase))
			if found >= l.o.MinMatch && (found > share || found == share && len(phrase) > length) {
				best, share, length = &l.procedures[i], found, len(phrase)
			}
		}
	}
	return best
}

// Recall returns the current procedure. One that does not fit is left out completely: half of it may mislead.
func (l *Layer) Recall(_ context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	st := read(s)
	at := slices.IndexFunc(l.procedures, func(p procedure) bool { return p.Name == st.Procedure })
	if st.Procedure == "" || at < 0 {
		return layer.Recalled{}, nil
	}
	p := &l.procedures[at]
	block := layer.Block("procedure", "How this is done here: "+p.Name+"\n"+p.Steps)
	if !layer.Fits(t.Count, block, min(budget, l.o.MaxTokens)) {
		return layer.Recalled{NoRoom: true}, nil
	}
	return layer.OneBlock(block), nil
}
