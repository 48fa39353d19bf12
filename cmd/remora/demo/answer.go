package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// chatAnswer reads an answer of Chat Completions.
func chatAnswer(body []byte) ([]json.RawMessage, error) {
	var a struct {
		Choices []struct {
			Message json.RawMessage `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(body, &a); err != nil || len(a.Choices) != 1 {
		return nil, fmt.Errorf("read answer: not one choice in %s", body)
	}
	return []json.RawMessage{a.Choices[0].Message}, nil
}

// responsesAnswer reads an answer of the Responses API.
func responsesAnswer(body []byte) ([]json.RawMessage, error) {
	var a struct {
		Output []json.RawMessage `json:"output"`
	}
	if err := json.Unmarshal(body, &a); err != nil || len(a.Output) == 0 {
		return nil, fmt.Errorf("read answer: no output in %s", body)
	}
	return a.Output, nil
}

// errCutShort says that a stream ended without its last event.
var errCutShort = errors.New("read answer: the stream ended before its end")

// chatChunk is one event of a streamed answer.
type chatChunk struct {
	Choices []struct {
		Delta struct {
			Content   string `json:"content"`
			ToolCalls []struct {
				Index int `json:"index"`
				toolCall
			} `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
}

// chatStream puts the chunks of a streamed answer together.
func chatStream(body []byte) ([]json.RawMessage, error) {
	var text strings.Builder
	var calls []toolCall
	for data := range events(body) {
		if string(data) == "[DONE]" {
			return []json.RawMessage{chatMessage(text.String(), calls)}, nil
		}
		var chunk chatChunk
		if err := json.Unmarshal(data, &chunk); err != nil {
			return nil, fmt.Errorf("read stream: %w", err)
		}
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Delta.Content)
			for _, c := range choice.Delta.ToolCalls {
				for len(calls) <= c.Index {
					calls = append(calls, toolCall{Type: "function"})
				}
				into := &calls[c.Index]
				into.ID += c.ID
				into.Function.Name += c.Function.Name
				into.Function.Arguments += c.Function.Arguments
			}
		}
	}
	return nil, errCutShort
}

// chatMessage is a streamed answer as SDKs send it back.
func chatMessage(text string, calls []toolCall) json.RawMessage {
	message := map[string]any{"role": "assistant", "content": text}
	if len(calls) > 0 {
		message["tool_calls"] = calls
		if text == "" {
			message["content"] = nil
		}
	}
	return marshal(message)
}

// responsesStream takes the answer from the last event.
func responsesStream(body []byte) ([]json.RawMessage, error) {
	for data := range events(body) {
		var event struct {
			Type     string          `json:"type"`
			Response json.RawMessage `json:"response"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return nil, fmt.Errorf("read stream: %w", err)
		}
		if event.Type == "response.completed" {
			return responsesAnswer(event.Response)
		}
	}
	return nil, errCutShort
}

// events yields the data of each server-sent event.
func events(body []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		lines := bufio.NewScanner(bytes.NewReader(body))
		lines.Buffer(nil, len(body)+1)
		for lines.Scan() {
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok && !yield(data) {
				return
			}
		}
	}
}

// marshal writes what cannot fail to be written.
func marshal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: marshal: %v", err))
	}
	return data
}
