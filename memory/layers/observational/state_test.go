package observational

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire"
	"remora/wire/dialects"
)

// told plays one turn on a state and returns the new state and the recalled text.
func told(tb rapid.TB, l *layer.Turn, with func() *Layer, s layer.State, user, assistant string) (layer.State, string) {
	tb.Helper()
	ctx := context.Background()
	appended := layertest.Must(with().AppendItems(ctx, l, s, []wire.Item{wire.NewMessage(dialects.Chat, wire.User, user)}))(tb)
	if appended.State != nil {
		s = appended.State
	}
	recalled := layertest.Must(with().Recall(ctx, l, s, 400))(tb)
	next := layertest.Must(with().Store(ctx, l, s, &layer.Response{Items: []wire.Item{wire.NewMessage(dialects.Chat, wire.Assistant, assistant)}}))(tb)
	return next, strings.Join(recalled.Messages, "|")
}

// A layer that remembers states makes of them what one does that reads each anew.
func TestRememberedStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Observer:  rapid.SampledFrom([]string{observerExtractive, observerCount}).Draw(t, "observer"),
			Inputs:    rapid.SampledFrom([]string{inputsUser, inputsAssistant, inputsConversation, inputsAll}).Draw(t, "inputs"),
			MaxBuffer: 200, MaxObservations: 4, BufferThreshold: 30,
		}
		open := func() *Layer {
			return layertest.Must(New(o))(t)
		}
		one, tu := open(), turn(nil)
		var have, want layer.State
		saved := []layer.State{nil}
		for range rapid.IntRange(1, 12).Draw(t, "turns") {
			user := rapid.SampledFrom([]string{"My name is Ana.", "I live at number 7 \u2028<b>\"é\".", "hm"}).Draw(t, "user") + rapid.String().Draw(t, "rest")
			assistant := rapid.SampledFrom([]string{"The order 4711 was shipped on 2 March.", "Your name is Ana.", strings.Repeat("so ", 70)}).Draw(t, "assistant")
			if rapid.IntRange(0, 3).Draw(t, "branch") == 0 {
				have = rapid.SampledFrom(saved).Draw(t, "from") // the client has gone back
				want = have
			}
			var saw, sees string
			have, saw = told(t, tu, func() *Layer { return one }, have, user, assistant)
			want, sees = told(t, tu, open, want, user, assistant)
			if diff := cmp.Diff(string(want), string(have)); diff != "" || saw != sees {
				t.Fatalf("recalled %q, want %q, and then %s", saw, sees, diff)
			}
			saved = append(saved, have)
		}
	})
}

// Sessions of one resource work on one state at the same time.
func TestSharedState(t *testing.T) {
	l, tu := newLayer(t, Options{Inputs: inputsConversation}), turn(nil)
	s := say(t, l, tu, nil, "The order 1 is paid.", "The order 2 was shipped on 2 March.", "The order 3 was approved.")
	want, _ := told(t, tu, func() *Layer { return newLayer(t, Options{Inputs: inputsConversation}) }, s, "My name is Ana.", "We agreed on Friday.")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if got, _ := told(t, tu, func() *Layer { return l }, s, "My name is Ana.", "We agreed on Friday."); string(got) != string(want) {
					t.Errorf("have %s, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
}

// What is left out of a state that was kept under a larger bound is not left out of what others read.
func TestSharedStateBeyondBound(t *testing.T) {
	s := layer.State(`{"observations":[{"by":"tool","text":"1 is a"},{"by":"user","text":"I am Ann"},{"by":"tool","text":"2 is b"},{"by":"tool","text":"3 is c"}],"buffer":[],"bufferTokens":0,"version":1}`)
	l, tu := newLayer(t, Options{MaxObservations: 4, Inputs: inputsConversation}), turn(nil)
	shared := l.states.Get(s)
	want := slices.Clone(shared.Observations)
	if next := read(t, say(t, l, tu, s, "Well, well.")); len(next.Observations) != 2 {
		t.Errorf("kept %q", next.Observations)
	}
	if diff := cmp.Diff(want, shared.Observations); diff != "" {
		t.Error(diff)
	}
}

// FuzzState: a state that was read and written reads the same.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"observations":[{"by":"user","text":"a","said":"2026-01-01","from":[{"session":"s","item":"i"}]},{"text":"<b>\u2028\ud800"}],"buffer":[{"by":"user","text":"x","session":"s"}],"bufferTokens":1,"version":3,"lost":2}`))
	f.Add([]byte(`{"observations":null,"buffer":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		st := decode(raw)
		next := layertest.Must(layer.Encode(st))(t)
		if diff := cmp.Diff(st, decode(next), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
