// Package complete asks a provider's model for one piece of text, for layers that have a model observe, summarise or
// judge, or for the embeddings of some texts. It speaks Chat Completions, not streamed and at temperature 0, and Embeddings, over
// the connections that requests use too.
package complete

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"remora/providers"
	"remora/secret"
	"remora/wire"
)

// Errors of [Model.Complete] wrap one of these, a [StatusError], one of package providers (ErrUnreachable, ErrTimeout,
// ErrClosed, ErrMalformed, ErrLargeHead), or the error of the context. None quotes the prompt, the answer or a credential.
var (
	// ErrPrompt: the prompt is larger than 4 MiB. Nothing was sent.
	ErrPrompt = errors.New("the prompt is too large")
	// ErrAnswer: the answer has no text, or more than 1 MiB.
	ErrAnswer = errors.New("the model's answer is unusable")
)

// StatusError is an answer with a status other than 200.
type StatusError struct {
	// Code is the HTTP status.
	Code int
}

// Refused reports whether the provider refuses the prompt itself, as content filters do, and would refuse it again.
func (e *StatusError) Refused() bool {
	switch e.Code {
	case fasthttp.StatusBadRequest, fasthttp.StatusRequestEntityTooLarge, fasthttp.StatusUnprocessableEntity:
		return true
	default:
		return false
	}
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the model's provider answers with status %d", e.Code)
}

const (
	maxPrompt = 4 << 20
	maxAnswer = 1 << 20
)

// Options name a model: the key "model" of a layer.
type Options struct {
	// Provider is a name from the list of providers. Empty means the one that the model's name belongs to.
	Provider string `mapstructure:"provider"`
	// Model is the model's name as that provider knows it.
	Model string `mapstructure:"model"`
	// Dimensions is how many numbers of an embedding the model is asked for; 0 is all that it has.
	Dimensions int `mapstructure:"-"`
	// Observe may be nil.
	Observe Observe `mapstructure:"-"`
}

// Observe is called before each request, with "chat" or "embeddings"; what it returns is called after it. The status is 0 where no
// answer came.
type Observe func(ctx context.Context, operation string) func(status int, u wire.Usage, err error)

// The operations of requests, as OpenTelemetry names them.
const (
	operationChat       = "chat"
	operationEmbeddings = "embeddings"
)

// Source is a model as configured. Bind gives it the credential of a caller. It is safe for concurrent use.
type Source struct {
	client   *providers.Client
	provider *providers.Provider
	model    string
	// dimensions and observe are as in Options.
	dimensions int
	observe    Observe
	// plain: the model has refused temperature or max_tokens, as reasoning models do.
	plain atomic.Bool
}

// New finds the provider of a model. Its errors begin with the key that is wrong, as "provider: ...".
func New(client *providers.Client, set *providers.Set, o Options) (*Source, error) {
	if o.Model == "" || !utf8.ValidString(o.Model) {
		return nil, errors.New("model: want the name of a model")
	}
	s := &Source{client: client, model: o.Model, dimensions: o.Dimensions, observe: o.Observe}
	if o.Provider == "" {
		if s.provider = set.Pick(o.Model); s.provider == nil {
			return nil, errors.New("provider: want a name, since no provider takes this model by itself")
		}
		return s, nil
	}
	if s.provider = set.Named(o.Provider); s.provider != nil {
		return s, nil
	}
	var names []string
	for _, p := range set.All() {
		names = append(names, p.Name())
	}
	return nil, fmt.Errorf("provider: want one of %s, have %q", strings.Join(names, ", "), o.Provider)
}

// Provider is the name of the provider that is asked.
func (s *Source) Provider() string { return s.provider.Name() }

// Bind returns the model with the credential of a caller, for as long as the caller's request lasts. The credential is used
// only if the provider has no key of its own; the zero Credential is none.
func (s *Source) Bind(c secret.Credential) *Model { return &Model{source: s, credential: c} }

// Model is a model with a caller's credential. It is safe for concurrent use.
type Model struct {
	source     *Source
	credential secret.Credential
}

// Complete returns the model's answer to the message user, with the system prompt system, which may be empty. maxTokens bounds
// the answer, reasoning included; 0 leaves it to the model. An answer that was cut ends with its last whole line or sentence.
func (m *Model) Complete(ctx context.Context, system, user string, maxTokens int) (string, error) {
	s := m.source
	if len(system)+len(user) > maxPrompt {
		return "", fmt.Errorf("ask %s: %w", s.Provider(), ErrPrompt)
	}
	plain := s.plain.Load()
	text, err := m.ask(ctx, s.body(system, user, maxTokens, plain))
	if errors.Is(err, errParameter) && !plain {
		if text, err = m.ask(ctx, s.body(system, user, maxTokens, true)); err == nil {
			s.plain.Store(true)
		}
	}
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", s.Provider(), err)
	}
	return text, nil
}

// errParameter marks the refusal of a parameter that a plain request does without.
var errParameter = errors.New("it refuses temperature or max_tokens")

// body is that of a request. A plain one leaves out members that reasoning models refuse.
func (s *Source) body(system, user string, maxTokens int, plain bool) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	r := struct {
		Model       string    `json:"model"`
		Messages    []message `json:"messages"`
		Stream      bool      `json:"stream"`
		Temperature *int      `json:"temperature,omitempty"`
		MaxTokens   int       `json:"max_tokens,omitempty"`
		MaxAll      int       `json:"max_completion_tokens,omitempty"`
	}{Model: s.model}
	if system != "" {
		r.Messages = append(r.Messages, message{"system", system})
	}
	r.Messages = append(r.Messages, message{"user", user})
	if plain {
		r.MaxAll = max(0, maxTokens)
	} else {
		r.Temperature, r.MaxTokens = new(int), max(0, maxTokens)
	}
	body, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode a prompt: %v", err)) // strings and numbers
	}
	return body
}

// ask sends one request for a completion.
func (m *Model) ask(ctx context.Context, body []byte) (string, error) {
	answer, err := m.post(ctx, operationChat, body, maxAnswer)
	if err != nil {
		return "", err
	}
	return content(answer)
}

// post sends one request and returns the body of its answer, of at most limit bytes.
func (m *Model) post(ctx context.Context, operation string, body []byte, limit int) ([]byte, error) {
	s, path := m.source, "/v1/chat/completions"
	if operation == operationEmbeddings {
		path = "/v1/embeddings"
	}
	var req fasthttp.Request
	h := &req.Header
	h.DisableNormalizing()
	h.SetMethod(fasthttp.MethodPost)
	h.SetRequestURI(path)
	h.SetContentType("application/json")
	if c := m.credential; c.Value != "" && c.Provider == s.Provider() { // a provider with a key of its own drops it
		if !providers.CarriesCredential(c.Header) || strings.ContainsAny(c.Value.Reveal(), "\r\n\x00") {
			return nil, errors.New("the caller's credential: want a header for keys, and one line")
		}
		h.Set(c.Header, c.Value.Reveal())
	}
	req.SetBodyRaw(body)

	observed := func(int, wire.Usage, error) {}
	if s.observe != nil {
		observed = s.observe(ctx, operation)
	}
	status, answer, err := providers.Fetch(ctx, s.client, s.provider, &req, limit)
	observed(status, wire.ParseUsage(wire.Member(answer, "usage")), err)
	switch {
	case status == fasthttp.StatusBadRequest && namesParameter(string(answer)):
		return nil, fmt.Errorf("%w: %w", &StatusError{Code: status}, errParameter)
	case status != fasthttp.StatusOK && status != 0:
		return nil, &StatusError{Code: status}
	case errors.Is(err, providers.ErrTooLarge):
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return answer, err
}

// namesParameter reports whether an error is about a parameter that can be left out.
func namesParameter(refusal string) bool {
	return strings.Contains(refusal, "temperature") || strings.Contains(refusal, "max_tokens")
}

// noText is the error of an answer without text, as of a content filter, or of a model that has used its limit up for reasoning.
type noText struct {
	error

	atLimit bool // another limit of the answer's length may leave room for a text
}

func (e noText) Refused() bool { return !e.atLimit }
func (e noText) Unwrap() error { return e.error }

// content is the text of a Chat Completions answer. If the answer was cut, it is the text as far as it is whole.
func content(answer []byte) (string, error) {
	var r struct {
		Choices []struct {
			FinishReason string `json:"finish_reason"`
			Message      struct {
				Content json.RawMessage `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if json.Unmarshal(answer, &r) != nil || len(r.Choices) == 0 {
		return "", fmt.Errorf("%w: it is not a chat completion", ErrAnswer)
	}

	first := r.Choices[0]
	text := textOf(first.Message.Content)
	tooLong := first.FinishReason == "length"
	switch {
	case strings.TrimSpace(text) == "" && tooLong:
		return "", noText{fmt.Errorf("%w: it has no text within the limit of its length", ErrAnswer), true}
	case strings.TrimSpace(text) == "":
		return "", noText{fmt.Errorf("%w: it has no text", ErrAnswer), false}
	case tooLong || first.FinishReason == "content_filter":
		return whole(text), nil
	}
	return text, nil
}

// textOf is the text in the content of a message, which is a string or a list of parts.
func textOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// wholeText matches a text to the end of its last line or sentence.
var wholeText = regexp.MustCompile(`(?s)^.*\S(?:\n|[.!?]\s|[。！？])`)

// whole returns a cut text to the end of its last whole line or sentence: half of a fact can be the opposite of it. Where it has
// neither, it is returned as it is, since a number or a verdict comes first.
func whole(text string) string {
	if found := wholeText.FindString(text); found != "" {
		return strings.TrimRightFunc(found, unicode.IsSpace)
	}
	return text
}
