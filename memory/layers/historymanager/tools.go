package historymanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"remora/memory/layer"
	"remora/memory/redact"
)

// Tools are remember and forget, by which the model keeps what no summary has.
func (l *Layer) Tools() []layer.Tool {
	return []layer.Tool{
		{
			Name:        "remember",
			Description: "Keep something for later conversations, in one or two sentences that can be understood by themselves.",
			Parameters: []byte(`{"type":"object","properties":{` +
				`"content":{"type":"string","description":"What to keep."},` +
				`"type":{"type":"string","enum":["fact","instruction","tool_result","custom"]}},` +
				`"required":["content","type"],"additionalProperties":false}`),
			Run: l.runRemember,
		},
		{
			Name:        "forget",
			Description: "Delete what is remembered of a type, of this conversation, or of a type and of this conversation. It cannot be undone.",
			Parameters: []byte(`{"type":"object","properties":{` +
				`"type":{"type":"string","enum":["summary","fact","instruction","tool_result","custom"]},` +
				`"this_conversation":{"type":"boolean","description":"Only what was learnt here."}},` +
				`"additionalProperties":false}`),
			Run: l.runForget,
		},
	}
}

func (l *Layer) runRemember(ctx context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
	var in struct {
		Content string `json:"content"`
		Type    Type   `json:"type"`
	}
	if json.Unmarshal(arguments, &in) != nil || clean(in.Content, maxContent) == "" || in.Type == Summary {
		return "", nil, errors.New("want content, and a type other than summary")
	}
	e := l.entry(t, in.Type, clean(redact.Text(in.Content), maxContent))
	if !e.sound() {
		return "", nil, errors.New("want type fact, instruction, tool_result or custom")
	}
	st := decode(s)
	if err := l.backend(t, &st.Memories).Store(ctx, e); err != nil {
		return "", nil, fmt.Errorf("long-term memory: store: %w", err)
	}
	next, err := st.encode()
	return "Remembered.", next, err
}

func (l *Layer) runForget(ctx context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
	var in struct {
		Type Type `json:"type"`
		This bool `json:"this_conversation"`
	}
	if json.Unmarshal(arguments, &in) != nil || in.Type == "" && !in.This {
		return "", nil, errors.New("want type, this_conversation or both")
	}
	f := l.filters(t)
	f.Types, f.After = nil, time.Time{} // what is told at this time does not matter
	if in.Type != "" {
		f.Types = []Type{in.Type}
	}
	if in.This {
		f.Conversation = identifier(t.Thread)
	}
	st := decode(s)
	n, err := l.backend(t, &st.Memories).Forget(ctx, f)
	if err != nil {
		return "", nil, fmt.Errorf("long-term memory: forget: %w", err)
	}
	if in.This && (in.Type == "" || in.Type == Summary) {
		st.take(f.Conversation)
	}
	next, err := st.encode()
	return fmt.Sprintf("Forgot %d.", n), next, err
}
