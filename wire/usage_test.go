package wire_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
)

func TestParseUsage(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		want wire.Usage
	}{
		"chat": {
			`{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}`,
			wire.Usage{Input: 10, Output: 5, Cached: 4, Reasoning: 2, CacheKnown: true},
		},
		"responses": {
			`{"input_tokens":10,"output_tokens":5,"input_tokens_details":{"cached_tokens":4},"output_tokens_details":{"reasoning_tokens":2},"total_tokens":15}`,
			wire.Usage{Input: 10, Output: 5, Cached: 4, Reasoning: 2, CacheKnown: true},
		},
		"nothing cached":       {`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":0}}`, wire.Usage{Input: 10, CacheKnown: true}},
		"no details":           {`{"prompt_tokens":1e1,"prompt_tokens_details":null}`, wire.Usage{Input: 10}},
		"wrong types":          {`{"prompt_tokens":"x","completion_tokens":5,"prompt_tokens_details":[1]}`, wire.Usage{Output: 5}},
		"negative and endless": {`{"prompt_tokens":-4,"completion_tokens":1e300}`, wire.Usage{}},
		"negative in both":     {`{"prompt_tokens":-4,"input_tokens":-4}`, wire.Usage{}},
		"cached is null":       {`{"input_tokens":10,"input_tokens_details":{"cached_tokens":null}}`, wire.Usage{Input: 10}},
		"both names":           {`{"prompt_tokens":10,"input_tokens":0,"prompt_tokens_details":{"cached_tokens":4},"input_tokens_details":{"cached_tokens":0}}`, wire.Usage{Input: 10, Cached: 4, CacheKnown: true}},
		"DeepSeek's names":     {`{"prompt_tokens":10,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}`, wire.Usage{Input: 10, Cached: 4, CacheKnown: true}},
		"Moonshot's name":      {`{"prompt_tokens":10,"cached_tokens":4}`, wire.Usage{Input: 10, Cached: 4, CacheKnown: true}},
		"Anthropic's names":    {`{"prompt_tokens":10,"cache_read_input_tokens":0,"cache_creation_input_tokens":6}`, wire.Usage{Input: 10, CacheKnown: true}},
		"null":                 {`null`, wire.Usage{}},
		"none":                 {``, wire.Usage{}},
		"broken":               {`{"prompt_tokens":10`, wire.Usage{}},
		"too long":             {`{"prompt_tokens":10` + strings.Repeat(" ", 64<<10) + `}`, wire.Usage{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, wire.ParseUsage([]byte(c.raw))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseUsage(f *testing.F) {
	f.Add([]byte(`{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}`))
	f.Add([]byte(`{"input_tokens":1e999,"output_tokens":-0,"output_tokens_details":7}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		u := wire.ParseUsage(raw)
		for _, n := range []int64{u.Input, u.Cached, u.Output, u.Reasoning} {
			if n < 0 || n > 1e12 {
				t.Errorf("%q: %+v", raw, u)
			}
		}
	})
}
