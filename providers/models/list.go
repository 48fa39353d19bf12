package models

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
)

// Limits of a list of models.
const (
	maxList    = 8 << 20 // bytes; OpenRouter's has more than one million
	maxModels  = 10_000
	maxName    = 256 // bytes
	maxContext = 1_000_000_000
)

var errList = errors.New("the answer is no list of models")

// entry is a model in a list, with the fields in which servers give the length of its context:
//
//   - context_length: OpenRouter (of the best host), Together, Fireworks; top_provider.context_length: OpenRouter (of
//     the host that a request goes to by itself)
//   - max_model_len: vLLM, SGLang
//   - context_window: Groq; max_context_length: Mistral, LM Studio, with loaded_context_length for what is in use
//   - max_input_tokens: Anthropic
//   - meta.n_ctx: llama.cpp. Its n_ctx_train is what the model was trained for, not what the server gives it.
type entry struct {
	ID   string `json:"id"`
	Name string `json:"name"`

	ContextLength       float64 `json:"context_length"`
	MaxModelLen         float64 `json:"max_model_len"`
	ContextWindow       float64 `json:"context_window"`
	MaxContextLength    float64 `json:"max_context_length"`
	LoadedContextLength float64 `json:"loaded_context_length"`
	MaxInputTokens      float64 `json:"max_input_tokens"`
	TopProvider         struct {
		ContextLength float64 `json:"context_length"`
	} `json:"top_provider"`
	Meta struct {
		NCtx float64 `json:"n_ctx"`
	} `json:"meta"`
}

// length returns the smallest length in the entry, 0 if it has none.
func (e *entry) length() (n int) {
	for _, claimed := range []float64{
		e.ContextLength, e.MaxModelLen, e.ContextWindow, e.MaxContextLength, e.LoadedContextLength, e.MaxInputTokens,
		e.TopProvider.ContextLength, e.Meta.NCtx,
	} {
		if claimed >= 1 && claimed <= maxContext && (n == 0 || int(claimed) < n) {
			n = int(claimed)
		}
	}
	return n
}

// parse reads a list of models: an object with "data" or "models", or a bare list. Members of the wrong type count as absent,
// and models without a length are left out.
func parse(list []byte) (map[string]int, error) {
	var object struct {
		Data   json.RawMessage `json:"data"`
		Models json.RawMessage `json:"models"`
	}
	found := make(map[string]int)
	if first := bytes.TrimLeft(list, " \t\r\n"); len(first) > 0 && first[0] == '[' {
		return found, gather(first, found)
	}
	if json.Unmarshal(list, &object) != nil || object.Data == nil && object.Models == nil {
		return nil, errList
	}
	for _, entries := range [...]json.RawMessage{object.Data, object.Models} {
		if entries == nil {
			continue
		}
		if err := gather(entries, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// gather reads the entries of a list one by one.
func gather(list []byte, found map[string]int) error {
	d := json.NewDecoder(bytes.NewReader(list))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return errList
	}
	for d.More() {
		var e entry
		// A value of another type is skipped, and the rest of the entry read.
		if err := d.Decode(&e); err != nil && !isTypeError(err) {
			return errList
		}
		name, n := cmp.Or(e.ID, e.Name), e.length()
		if name == "" || len(name) > maxName || n == 0 {
			continue
		}
		known, again := found[name]
		if !again && len(found) >= maxModels {
			continue
		}
		if again {
			n = min(n, known)
		}
		found[name] = n
	}
	if _, err := d.Token(); err != nil {
		return errList
	}
	return nil
}

func isTypeError(err error) bool {
	_, ok := errors.AsType[*json.UnmarshalTypeError](err)
	return ok
}
