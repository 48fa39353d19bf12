package layer_test

import (
	"testing"

	"remora/memory/layer"
)

func TestBounded(t *testing.T) {
	for _, c := range []struct {
		have, want int
		err        string
	}{
		{0, 7, ""},
		{1, 1, ""},
		{9, 9, ""},
		{10, 10, "max_facts: want 1 to 9, or 0 for 7"},
		{-1, -1, "max_facts: want 1 to 9, or 0 for 7"},
	} {
		n, text := c.have, ""
		if err := layer.Bounded("max_facts", &n, 7, 9); err != nil {
			text = err.Error()
		}
		if n != c.want || text != c.err {
			t.Errorf("%d: got %d, %q, want %d, %q", c.have, n, text, c.want, c.err)
		}
	}
}

func TestEncode(t *testing.T) {
	if got, err := layer.Encode(map[string]string{"said": "<b> & 'c'"}); err != nil || string(got) != `{"said":"<b> & 'c'"}` {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := layer.Encode(func() {}); err == nil || got != nil {
		t.Errorf("a function: got %s, %v", got, err)
	}
}
