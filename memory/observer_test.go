package memory_test

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/observational"
	"remora/memory/pipeline"
)

// sleeper is a model that takes its time, whether or not it is told to stop.
type sleeper struct {
	takes   time.Duration
	listens bool
}

func (s sleeper) Bind(pipeline.Credential) layer.Model { return s }

func (s sleeper) Complete(ctx context.Context, _, _ string, _ int) (string, error) {
	if !s.listens {
		time.Sleep(s.takes)
		return "- Ada likes tea", nil
	}
	select {
	case <-time.After(s.takes):
		return "- Ada likes tea", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// TestSlowObserver, by the clock of the pipeline: an observer that takes longer than a minute changes nothing, delays
// no request, and is logged; one that takes a little less takes effect.
func TestSlowObserver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model sleeper
		after time.Duration // until it is over
		heard bool
	}{
		"slower than 60 s": {sleeper{61 * time.Second, true}, 60 * time.Second, false},
		"and deaf":         {sleeper{61 * time.Second, false}, 60 * time.Second, false},
		"in time":          {sleeper{59 * time.Second, true}, 59 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				impl, err := observational.New(observational.Options{Observer: "model", BufferThreshold: 1, Setup: layer.Setup{HasModel: true}})
				if err != nil {
					t.Fatal(err)
				}
				var log bytes.Buffer
				p, err := pipeline.New([]pipeline.Layer{{
					ID: "o", Kind: "observational_memory", Scope: layer.Thread, Impl: impl, Model: c.model.Bind, Timeouts: observational.Defaults(observational.Options{}).Timeouts,
				}}, pipeline.Options{Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p}})
				began := time.Now()
				l.turn("u:hello", "a:hi")
				if took := time.Since(began); took != 0 {
					t.Errorf("the client waited for %v", took)
				}
				time.Sleep(c.after)
				synctest.Wait()
				r, err := l.store.Read(t.Context(), []cache.Query{{Group: cache.Group{Owner: "tenant", Name: "s:session"}, Names: []string{"lo"}}})
				if err != nil {
					t.Fatal(err)
				}
				want := `{"observations":null,"buffer":[{"by":"user","text":"hello","session":"3f3af1ecebbd1410ab417ec0","item":"07c8ab07e7df1ae5664992113dea4f2d",` + // by the append hook
					`"at":` + strconv.FormatInt(began.UnixMilli(), 10) + `}],"bufferTokens":2,"version":0}`
				if kept := string(r[0].Values[0]); strings.Contains(kept, "likes tea") != c.heard || !c.heard && kept != want {
					t.Errorf("the state is %s", kept)
				}
				if told := strings.Contains(log.String(), "layer=o hook=store class=timeout"); told == c.heard {
					t.Errorf("log: %s", log.String())
				}
				time.Sleep(time.Minute) // a deaf model comes back
			})
		})
	}
}
