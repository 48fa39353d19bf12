package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// goContext is the argument of a scenario of openai-go.
type goContext struct {
	ctx    context.Context
	client openai.Client
}

// goScenarios are the scenarios for openai-go. Their results are JSON values: what the SDK read, and its accumulated results.
var goScenarios = map[string]func(goContext) (any, error){
	"go.chat": func(c goContext) (any, error) {
		p := chatAsk("Hello there, <friend> & ✓")
		p.Messages = append([]openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be terse.")}, p.Messages...)
		p.Temperature = openai.Float(0.1)
		p.SetExtraFields(map[string]any{"x_unknown": json.RawMessage(`{"z":1.0,"a":[1e3]}`)})
		return raw(c.client.Chat.Completions.New(c.ctx, p))
	},
	"go.chatStream": func(c goContext) (any, error) {
		p := chatAsk("SAY one two three four five six seven eight")
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		return rawEvents(c.client.Chat.Completions.NewStreaming(c.ctx, p))
	},
	"go.choices": func(c goContext) (any, error) {
		p := chatAsk("SAY pick")
		p.N = openai.Int(2)
		return raw(c.client.Chat.Completions.New(c.ctx, p))
	},
	"go.refusal": func(c goContext) (any, error) {
		return raw(c.client.Chat.Completions.New(c.ctx, chatAsk("REFUSE not that")))
	},
	"go.reasoning": func(c goContext) (any, error) {
		return rawEvents(c.client.Chat.Completions.NewStreaming(c.ctx, chatAsk("REASON think about it ;; SAY so")))
	},
	"go.parallel":       func(c goContext) (any, error) { return chatLoop(c, parallelCalls, false) },
	"go.parallelStream": func(c goContext) (any, error) { return chatLoop(c, parallelCalls, true) },
	"go.loop100":        func(c goContext) (any, error) { return chatLoop(c, loop100, false) },
	"go.loop100Stream":  func(c goContext) (any, error) { return chatLoop(c, loop100, true) },
	"go.responses": func(c goContext) (any, error) {
		p := responsesAsk("Hello <there> ✓")
		p.Instructions = openai.String("Be terse.")
		return raw(c.client.Responses.New(c.ctx, p))
	},
	"go.responsesStream": func(c goContext) (any, error) {
		return rawEvents(c.client.Responses.NewStreaming(c.ctx, responsesAsk("REASON hm ;; SAY one two three four five six")))
	},
	"go.responsesReplay":   func(c goContext) (any, error) { return responsesReplay(c, "REASON hm ;; "+parallelCalls) },
	"go.responsesLoop100":  func(c goContext) (any, error) { return responsesReplay(c, loop100) },
	"go.responsesPrevious": func(c goContext) (any, error) { return responsesDelta(c, false) },
	"go.conversation":      func(c goContext) (any, error) { return responsesDelta(c, true) },
	"go.embeddings": func(c goContext) (any, error) {
		return raw(c.client.Embeddings.New(c.ctx, openai.EmbeddingNewParams{
			Model: openai.EmbeddingModelTextEmbedding3Small,
			Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}},
		}))
	},
	"go.models": func(c goContext) (any, error) { return raw(c.client.Models.List(c.ctx)) },
	"go.badRequest": func(c goContext) (any, error) {
		p := chatAsk("SAY x")
		p.N = openai.Int(0)
		return raw(c.client.Chat.Completions.New(c.ctx, p))
	},
	"go.rateLimited": func(c goContext) (any, error) {
		return raw(c.client.Chat.Completions.New(c.ctx, chatAsk("SAY x"), option.WithHeader("X-Script", "status=429;retry-after=2")))
	},
	"go.serverError": func(c goContext) (any, error) {
		return raw(c.client.Chat.Completions.New(c.ctx, chatAsk("SAY x"), option.WithMaxRetries(2),
			option.WithHeader("X-Script", "status=500;retry-after=0.01")))
	},
	"go.serverErrorOnce": func(c goContext) (any, error) {
		first := true
		return raw(c.client.Chat.Completions.New(c.ctx, chatAsk("SAY x"), option.WithMaxRetries(2),
			option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
				if r.Header.Del("X-Script"); first {
					r.Header.Set("X-Script", "status=503;retry-after=0.01")
				}
				first = false
				return next(r)
			})))
	},
	"go.html": func(c goContext) (any, error) {
		return raw(c.client.Chat.Completions.New(c.ctx, chatAsk("SAY x"), option.WithHeader("X-Script", "html")))
	},
	"go.errorInStream": func(c goContext) (any, error) {
		return rawEvents(c.client.Chat.Completions.NewStreaming(c.ctx, chatAsk("SAY one two three four five six seven"),
			option.WithHeader("X-Script", "error-in-stream")))
	},
	"go.cut": func(c goContext) (any, error) {
		return rawEvents(c.client.Chat.Completions.NewStreaming(c.ctx, chatAsk("SAY one two three four five six seven"),
			option.WithHeader("X-Script", "cut-after=3")))
	},
}

const (
	goChatModel      = "gpt-4.1"
	goResponsesModel = "gpt-5"
	parallelCalls    = `SAY looking ;; CALL lookup {"q":"a | b"} | weather {"city":"Zürich"} ;; SAY found both`
	loop100          = `LOOP 100 step {"i":{{i}}} ;; SAY finished`
)

// runGo runs all scenarios of openai-go, or those in only.
func runGo(t *testing.T, baseURL string, session bool, only ...string) map[string]record {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	records := make(map[string]record)
	// In order: if two scenarios send the same request, upstream's ids depend on their order.
	scenarios := scenariosOf(only)
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		var r record
		options := []option.RequestOption{
			option.WithBaseURL(baseURL), option.WithAPIKey(credential), option.WithMaxRetries(0),
			option.WithHTTPClient(&http.Client{Transport: transport}), option.WithMiddleware(r.watch),
		}
		if session {
			options = append(options, option.WithHeader("X-Session-Id", name))
		}
		result, err := scenarios[name](goContext{ctx: t.Context(), client: openai.NewClient(options...)})
		r.Result = plain(t, result)
		if err != nil {
			r.Result = plain(t, map[string]any{"result": result, "thrown": describe(err)})
		}
		records[name] = r
	}
	return records
}

// watch records each HTTP answer.
func (r *record) watch(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(req)
	entry := try{Method: req.Method, Path: req.URL.RequestURI(), Headers: map[string]string{}}
	if err == nil {
		entry.Status = res.StatusCode
		for name := range res.Header {
			switch value := res.Header.Get(name); strings.ToLower(name) {
			case "connection", "keep-alive", "date", "transfer-encoding", "content-length":
			case "x-session-id", "x-turn-id", "x-memory", "server-timing":
				if entry.Own == nil {
					entry.Own = map[string]string{}
				}
				entry.Own[strings.ToLower(name)] = value
			default:
				entry.Headers[strings.ToLower(name)] = value
			}
		}
	}
	r.Tries = append(r.Tries, entry)
	return res, err
}

// plain converts v to JSON values, to compare it with the output of the scenarios for node.
func plain(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// describe returns the public part of an error, without the port of this run.
func describe(err error) any {
	d := map[string]any{
		"type":    fmt.Sprintf("%T", err),
		"message": regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(err.Error(), "HOST"),
	}
	if api, ok := errors.AsType[*openai.Error](err); ok {
		d["status"], d["code"], d["param"], d["kind"], d["raw"] = api.StatusCode, api.Code, api.Param, api.Type, api.RawJSON()
	}
	return d
}

// raw returns the bytes of an answer that the SDK read.
func raw[T interface{ RawJSON() string }](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v.RawJSON(), nil
}

func rawEvents[T interface{ RawJSON() string }](stream *ssestream.Stream[T]) (any, error) {
	defer func() { _ = stream.Close() }() // its error is the stream's
	events := []string{}
	for stream.Next() {
		e := stream.Current()
		events = append(events, e.RawJSON())
	}
	return events, stream.Err()
}

func chatAsk(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: goChatModel, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

func responsesAsk(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: goResponsesModel, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)},
	}
}

func toolNames() []string { return []string{"lookup", "weather", "step"} }

func says(tool, arguments string) string { return tool + " says ok to " + arguments }

func chatTools() []openai.ChatCompletionToolUnionParam {
	var tools []openai.ChatCompletionToolUnionParam
	for _, name := range toolNames() {
		tools = append(tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: name, Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{}},
		}))
	}
	return tools
}

// chatLoop plays an agent on Chat Completions.
func chatLoop(c goContext, script string, stream bool) (any, error) {
	p := chatAsk(script)
	p.Tools = chatTools()
	var turns []any
	for {
		m, turn, err := chatTurn(c, p, stream)
		if err != nil {
			return turns, err
		}
		turns = append(turns, turn)
		if p.Messages = append(p.Messages, m.ToParam()); len(m.ToolCalls) == 0 {
			return turns, nil
		}
		for _, call := range m.ToolCalls {
			p.Messages = append(p.Messages, openai.ToolMessage(says(call.Function.Name, call.Function.Arguments), call.ID))
		}
	}
}

func chatTurn(c goContext, p openai.ChatCompletionNewParams, stream bool) (openai.ChatCompletionMessage, any, error) {
	if !stream {
		whole, err := c.client.Chat.Completions.New(c.ctx, p)
		if err != nil {
			return openai.ChatCompletionMessage{}, nil, err
		}
		return whole.Choices[0].Message, whole.RawJSON(), nil
	}
	s := c.client.Chat.Completions.NewStreaming(c.ctx, p)
	defer func() { _ = s.Close() }() // its error is the stream's
	var sum openai.ChatCompletionAccumulator
	var events []string
	for s.Next() {
		chunk := s.Current()
		if events = append(events, chunk.RawJSON()); !sum.AddChunk(chunk) {
			return openai.ChatCompletionMessage{}, events, errors.New("the accumulator refused a chunk")
		}
	}
	if s.Err() != nil || len(sum.Choices) == 0 {
		return openai.ChatCompletionMessage{}, events, errors.Join(s.Err(), errors.New("no whole answer"))
	}
	return sum.Choices[0].Message, events, nil
}

func responsesTools() []responses.ToolUnionParam {
	var tools []responses.ToolUnionParam
	for _, name := range toolNames() {
		tools = append(tools, responses.ToolParamOfFunction(name, map[string]any{"type": "object", "properties": map[string]any{}}, false))
	}
	return tools
}

// results returns the outputs for an answer's calls.
func results(r *responses.Response) []responses.ResponseInputItemUnionParam {
	var out []responses.ResponseInputItemUnionParam
	for _, item := range r.Output {
		if item.Type == "function_call" {
			call := item.AsFunctionCall()
			answer := responses.ResponseInputItemParamOfFunctionCallOutput(says(call.Name, call.Arguments))
			answer.OfFunctionCallOutput.CallID = openai.String(call.CallID)
			out = append(out, answer)
		}
	}
	return out
}

// responsesReplay plays an agent that resends everything.
func responsesReplay(c goContext, script string) (any, error) {
	p := responses.ResponseNewParams{Model: goResponsesModel, Tools: responsesTools(), Store: openai.Bool(false)}
	p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	p.Input.OfInputItemList = responses.ResponseInputParam{
		responses.ResponseInputItemParamOfMessage(script, responses.EasyInputMessageRoleUser),
	}
	var turns []any
	for {
		r, err := c.client.Responses.New(c.ctx, p)
		if err != nil {
			return turns, err
		}
		turns = append(turns, r.RawJSON())
		answers := results(r)
		if len(answers) == 0 {
			return turns, nil
		}
		for _, item := range r.Output {
			p.Input.OfInputItemList = append(p.Input.OfInputItemList,
				param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(item.RawJSON())))
		}
		p.Input.OfInputItemList = append(p.Input.OfInputItemList, answers...)
	}
}

// responsesDelta plays an agent whose history is stored upstream, with a conversation or previous_response_id.
func responsesDelta(c goContext, conversation bool) (any, error) {
	p := responsesAsk("REASON hm ;; " + parallelCalls)
	p.Tools = responsesTools()
	var turns []any
	if conversation {
		conv, err := c.client.Conversations.New(c.ctx, conversations.ConversationNewParams{})
		if err != nil {
			return nil, err
		}
		turns = append(turns, conv.RawJSON())
		p.Conversation.OfString = openai.String(conv.ID)
	}
	for {
		r, err := c.client.Responses.New(c.ctx, p)
		if err != nil {
			return turns, err
		}
		turns = append(turns, r.RawJSON())
		answers := results(r)
		if len(answers) == 0 {
			return turns, nil
		}
		if p.Input = (responses.ResponseNewParamsInputUnion{OfInputItemList: answers}); !conversation {
			p.PreviousResponseID = openai.String(r.ID)
		}
	}
}
