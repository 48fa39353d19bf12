package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"remora/memory/layer"
)

// TestReasonsThatMayBeLogged: of what a hook says is wrong, the log holds what the layer has declared safe, and no more.
func TestReasonsThatMayBeLogged(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string // in the log; empty for no reason
	}{
		{"declared", layer.Safe(fmt.Errorf("the server refuses: status %d", 500)), `reason="the server refuses: status 500"`},
		{"declared within what is not", fmt.Errorf("secret: %w", layer.Safe(errors.New("refused"))), "reason=refused"},
		{"long", layer.Safe(errors.New(strings.Repeat("x", 201))), "reason=" + strings.Repeat("x", 200) + "\n"},
		{"not declared", errors.New("secret"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			r := start(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, at("a", 1, &fake{
				recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) { return layer.Recalled{}, c.err },
			}))
			r.Recall(t.Context(), 0)
			text := log.String()
			if !strings.Contains(text, c.want) || !strings.Contains(text, "class=error") || strings.Contains(text, "secret") ||
				(c.want == "") == strings.Contains(text, "reason") {
				t.Errorf("want %q, have %s", c.want, text)
			}
		})
	}
}
