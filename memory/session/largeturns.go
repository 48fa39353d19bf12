package session

import (
	"context"
	"fmt"

	"remora/wire"
)

const (
	largeAtOnce = 4
	largeTurn   = 1 << 20 // bytes
)

// LargeTurns lets large turns be written only a few at a time, since writing one takes as much memory again, or several times as
// much.
type LargeTurns chan struct{}

// NewLargeTurns returns a LargeTurns without any turn.
func NewLargeTurns() LargeTurns { return make(LargeTurns, largeAtOnce) }

// Enter waits until a turn may be written. a is nil for no answer. Call done after writing. The error is that ctx has ended.
func (l LargeTurns) Enter(ctx context.Context, r *wire.Request, a *Answer) (done func(), err error) {
	if !isLarge(r, a) {
		return func() {}, nil
	}
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other large turns: %w", ctx.Err())
	}
}

func isLarge(r *wire.Request, a *Answer) bool {
	size := len(r.Body)
	if a != nil {
		for _, items := range a.Reply.Choices {
			for _, it := range items {
				size += len(it.Raw)
			}
		}
	}
	return size >= largeTurn
}
