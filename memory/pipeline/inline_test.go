package pipeline

import (
	"context"
	"errors"
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/view"
)

// inlineFake is a layer whose hooks wait for nothing.
type inlineFake struct{ *fake }

func (inlineFake) Inline() bool { return true }

// No timer is set for the hooks of a prompt layer. What it does wrong stays as far
// from the request as with any other layer.
func TestPromptLayersRunInPlace(t *testing.T) {
	for _, c := range []struct {
		name  string
		gone  bool // the request has ended
		model ModelSource
		store func(context.Context) (layer.State, error)
		class Class
		state string
	}{
		{"in place", false, nil, func(c context.Context) (layer.State, error) {
			if _, limited := c.Deadline(); limited {
				return nil, errors.New("a timer was set")
			}
			return layer.State(`1`), nil
		}, ClassNone, `1`},
		{"with a model it may wait", false, noModel{}.Bind, func(c context.Context) (layer.State, error) {
			if _, limited := c.Deadline(); !limited {
				return nil, errors.New("without a time")
			}
			return layer.State(`1`), nil
		}, ClassNone, `1`},
		{"error", false, nil, func(context.Context) (layer.State, error) { return nil, errors.New("no") }, ClassError, ``},
		{"panic", false, nil, func(context.Context) (layer.State, error) { panic("no") }, ClassPanic, ``},
		{"request gone", true, nil, func(context.Context) (layer.State, error) { return layer.State(`1`), nil }, ClassCancelled, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := Layer{ID: "a", Scope: layer.Thread, Model: c.model, Impl: inlineFake{&fake{
				store: func(ctx context.Context, _ *layer.Turn, _ layer.State, _ *layer.Response) (layer.State, error) {
					return c.store(ctx)
				},
			}}}
			p := layertest.Must(New([]Layer{l}, Options{}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := layertest.Must(p.Begin(ctx, "t", layer.Turn{Thread: "s"}, nil, Credential{}))(t)
			if c.gone {
				cancel()
			}
			r.Store(ctx, &layer.Response{})
			r.Settle(ctx, &layer.Response{}, nil)
			got := ""
			for _, ch := range r.Changes() {
				got = string(ch.State)
			}
			if rep := r.Report()[0]; rep.Class != c.class || got != c.state {
				t.Errorf("class %q, state %q; want %q, %q", rep.Class, got, c.class, c.state)
			}
		})
	}
}

type noModel struct{}

func (noModel) Bind(Credential) layer.Model { return nil }

// quietFake is a layer that knows when it has nothing to say.
type quietFake struct {
	*fake

	quiet func() bool
}

func (f quietFake) Quiet(*layer.Turn, layer.State) bool { return f.quiet() }

// A quiet layer is not asked, and nothing of it need be pinned. One that panics is asked.
func TestQuietLayersAreNotAsked(t *testing.T) {
	for _, c := range []struct {
		name  string
		quiet func() bool
		asked bool
	}{
		{"quiet", func() bool { return true }, false},
		{"not quiet", func() bool { return false }, true},
		{"panic", func() bool { panic("no") }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := false
			p, err := New([]Layer{{ID: "a", Scope: layer.Thread, Impl: quietFake{&fake{
				recall: func(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
					asked = true
					return layer.Recalled{Messages: []string{"said"}}, nil
				},
			}, c.quiet}}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := layertest.Must(p.Begin(t.Context(), "t", layer.Turn{Thread: "s"}, nil, Credential{}))(t)
			if said := r.Recall(t.Context(), 0); asked != c.asked || len(said) > 0 != c.asked {
				t.Errorf("asked %t, said %v", asked, said)
			}
			if got := view.NothingToPin(r.Said()); got == c.asked {
				t.Errorf("nothing to pin: %t", got)
			}
		})
	}
}
