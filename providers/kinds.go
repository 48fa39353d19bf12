package providers

import (
	"fmt"
	"strings"
)

// Kind is a family of upstreams that are addressed alike.
type Kind struct {
	// Name is the value of "kind" in the configuration.
	Name string
	// BaseURL is where the family lives; empty where the operator has to say.
	BaseURL string
	// BodySessionWins: a session_id in the body goes before the X-Session-Id header.
	BodySessionWins bool
	// JoinsSystem: several system messages of the proxy's are joined to one. Many of these servers render a chat
	// template, which takes a single system message.
	JoinsSystem bool
}

// Kinds lists every kind. To add an OpenAI-shaped provider, add a row and a block in config.yaml.
func Kinds() []Kind {
	return []Kind{
		{Name: "openai", BaseURL: "https://api.openai.com/v1"},
		// OpenRouter also routes by the session that it finds, so both sides have to name the same one.
		{Name: "openrouter", BaseURL: "https://openrouter.ai/api/v1", BodySessionWins: true},
		// Anything else that speaks the same paths: vLLM, llama.cpp, Ollama, LiteLLM, a private gateway.
		{Name: "compatible", JoinsSystem: true},
	}
}

func kindOf(name string) (Kind, error) {
	kinds := Kinds()
	names := make([]string, len(kinds))
	for i, k := range kinds {
		if k.Name == name {
			return k, nil
		}
		names[i] = k.Name
	}
	return Kind{}, fmt.Errorf("must be one of %s, is %q", strings.Join(names, ", "), name)
}
