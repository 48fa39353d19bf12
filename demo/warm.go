package demo

import (
	"context"
	"fmt"

	"remora/providers/scripted"
)

// warmUps are two statements of the same length and of different numbers of tokens.
var warmUps = [2]string{"My list: one and two and three", "My list: 7 1 9 4 4 0 9 8 3 2 6"}

// maxWarmUps bounds how often the proxy is asked whether it counts exactly, which takes it some ten milliseconds.
const maxWarmUps = 500

// warmUp returns when a proxy that was just started counts tokens exactly. Until the model's vocabulary is read it
// estimates them from the length of a text, so that what it prints would depend on the machine's speed. What is said
// here is said in sessions of their own, and belongs to no chapter.
func (p *player) warmUp(ctx context.Context) error {
	for range maxWarmUps {
		var recalled [len(warmUps)]int
		for i, text := range warmUps {
			resource := fmt.Sprintf("warm-up %d", i+1)
			// Each try has a session of its own, since what is told keeps the count that it had when it was first told: in
			// answer to the second of two statements.
			h := habit{session: fmt.Sprintf("%s.%d", resource, len(p.model.Requests())), resource: resource, path: "chat/completions"}
			var t turn
			for range 2 {
				if err := p.ask(ctx, h, text, &t); err != nil {
					return err
				}
			}
			recalled[i] = t.report.recalled
		}
		p.asked = len(p.model.Requests())
		if recalled[0] != recalled[1] {
			return nil
		}
	}
	return fmt.Errorf("warm up: the proxy does not count tokens")
}

func (p *player) ask(ctx context.Context, h habit, text string, t *turn) error {
	if _, err := p.call(ctx, h, userSays(text), t); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return nil
}

// warmModel answers what warmUp says.
func warmModel(next func(scripted.Prompt) (scripted.Answer, bool)) func(scripted.Prompt) (scripted.Answer, bool) {
	return func(p scripted.Prompt) (scripted.Answer, bool) {
		if p.User == warmUps[0] || p.User == warmUps[1] {
			return scripted.Answer{Text: "Yes."}, true
		}
		return next(p)
	}
}
