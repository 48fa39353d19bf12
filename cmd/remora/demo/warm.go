package demo

import (
	"context"
	"fmt"
	"slices"

	"remora/test/scripted"
	"remora/wire/dialects"
)

// warmUps are two statements of equal length and different numbers of tokens.
var warmUps = [2]string{"My list: one and two and three", "My list: 7 1 9 4 4 0 9 8 3 2 6"}

// warmUpEnds is sent in a second session, to recall the statement of the first.
const warmUpEnds = "Well?"

// maxWarmUps bounds the tries, which take about ten milliseconds each.
const maxWarmUps = 500

// warmUp waits until a new proxy counts tokens exactly. Until it has read the model's vocabulary, it estimates them from the
// length of a text, and the printed counts would depend on the machine's speed. Its sessions belong to no chapter.
func (p *player) warmUp(ctx context.Context) error {
	const silent = 50 // tries without a block after which the configuration does not recall across sessions
	for try := range maxWarmUps {
		var recalled [len(warmUps)]int
		for i, text := range warmUps {
			resource := fmt.Sprintf("warm-up %d", i+1)
			// Each try has new sessions, since a block keeps the token count of its first recall. The second session recalls
			// facts of the first.
			var t turn
			for j, said := range []string{text, warmUpEnds} {
				session := fmt.Sprintf("%s.%d.%d", resource, len(p.model.Requests()), j)
				h := habit{session: session, resource: resource, dialect: dialects.Chat}
				if _, err := p.call(ctx, h, userSays(h, said), &t); err != nil {
					return fmt.Errorf("warm up: %w", err)
				}
			}
			recalled[i] = t.report.recalled
		}
		p.asked = len(p.model.Requests())
		if recalled[0] != recalled[1] || recalled[1] == 0 && try == silent {
			return nil
		}
	}
	return fmt.Errorf("warm up: the proxy does not count tokens")
}

// warmModel returns a model that answers the messages of warmUp.
func warmModel(next func(scripted.Prompt) (scripted.Answer, bool)) func(scripted.Prompt) (scripted.Answer, bool) {
	return func(p scripted.Prompt) (scripted.Answer, bool) {
		if slices.Contains(warmUps[:], p.User) || p.User == warmUpEnds {
			return scripted.Answer{Text: "Yes."}, true
		}
		return next(p)
	}
}
