package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"remora/memory/layer"
	"remora/wire"
)

// TestReasonsOfRefusals: the log says what is wrong with a result.
func TestReasonsOfRefusals(t *testing.T) {
	recall := func(rec layer.Recalled) *fake {
		return &fake{recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) { return rec, nil }}
	}
	for reason, l := range map[string]*fake{
		"want 100 tokens, have more than 4 times as many":     recall(layer.Recalled{Messages: []string{strings.Repeat("word ", 1000)}}),
		"want at most 256 messages of 1048576 bytes together": recall(layer.Recalled{Messages: []string{strings.Repeat("x", 2<<20)}}),
		"want a state of at most 1048576 bytes of JSON":       recall(layer.Recalled{State: layer.State("{not JSON")}),
		"no result within 1ms": {recall: func(c ctx, _ *layer.Turn, _ layer.State, _ int) (layer.Recalled, error) {
			<-c.Done()
			return layer.Recalled{}, c.Err()
		}},
		"want at most 256 new items": {append: func(ctx, layer.State, []wire.Item) (layer.Appended, error) {
			return layer.Appended{Items: slices.Repeat([]wire.Item{user("x")}, 300)}, nil
		}},
		"want some of the given items, in their order": {project: func(ctx, layer.State, []wire.Item) ([]wire.Item, error) {
			return []wire.Item{user("x")}, nil
		}},
	} {
		var log bytes.Buffer
		of := at("a", 1, l)
		of.Budget, of.Timeouts.Recall = layer.AtMost(100), time.Millisecond
		r := start(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, of)
		r.Recall(t.Context(), 0)
		r.Project(t.Context(), r.Append(t.Context(), []wire.Item{user("hi")}), nothingBeside, 0, math.MaxInt)
		if !strings.Contains(log.String(), reason) {
			t.Errorf("want %q, have %s", reason, log.String())
		}
	}
}

// TestALayerThatIsDownIsLoggedNowAndThen: one line in ten seconds for each hook and class, and how many were left out.
func TestALayerThatIsDownIsLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		down := &fake{recall: func(ctx, *layer.Turn, layer.State, int) (layer.Recalled, error) {
			return layer.Recalled{}, layer.Safe(errors.New("down"))
		}}
		o := Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now}
		r := start(t, o, at("a", 1, down), at("b", 2, down))
		for range 25 {
			r.Recall(t.Context(), 0)
			time.Sleep(time.Second)
		}
		for _, want := range []struct {
			line string
			n    int
		}{{"layer=a", 3}, {"layer=b", 3}, {"unlogged=0", 2}, {"unlogged=9", 4}} {
			if n := strings.Count(log.String(), want.line); n != want.n {
				t.Errorf("%q is logged %d times, want %d: %s", want.line, n, want.n, log.String())
			}
		}
	})
}

// TestReasonsThatMayBeLogged: of what a hook says is wrong, the log holds what the layer has declared safe, and no more.
func TestReasonsThatMayBeLogged(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string // in the log; empty for no reason
	}{
		{"declared", layer.Safe(fmt.Errorf("the server refuses: status %d", 500)), `reason="the server refuses: status 500"`},
		{"declared within what is not", fmt.Errorf("secret: %w", layer.Safe(errors.New("refused"))), "reason=refused"},
		{"long", layer.Safe(errors.New(strings.Repeat("x", 201))), "reason=" + strings.Repeat("x", 200) + " unlogged"},
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
