package tokens

import "strings"

// prefixes are the models that do not use the default encoding, in lower case and without a provider's prefix. A row
// holds for the name itself and for what follows it behind one of `-:`, so that gpt-4-turbo is one and gpt-4o is not.
// Rows with the default spell out what would otherwise be read from silence.
var prefixes = [...]struct {
	name     string
	encoding Encoding
}{
	{"gpt-5", O200kBase},
	{"gpt-4.5", O200kBase},
	{"gpt-4.1", O200kBase},
	{"gpt-4o", O200kBase},
	{"chatgpt-4o", O200kBase},
	{"gpt-oss", O200kBase},
	{"codex", O200kBase},
	{"o1", O200kBase},
	{"o3", O200kBase},
	{"o4", O200kBase},

	{"gpt-4", Cl100kBase},
	{"gpt-3.5", Cl100kBase},
	{"gpt-35", Cl100kBase}, // as Azure spells it
	{"text-embedding-3", Cl100kBase},
	{"text-embedding-ada-002", Cl100kBase},
	{"davinci-002", Cl100kBase},
	{"babbage-002", Cl100kBase},
}

// EncodingOf returns the encoding of a model, named as clients do: with a provider before a slash ("openai/gpt-4o"), as a
// fine-tuned model ("ft:gpt-3.5-turbo:org::id"), with a date or a size behind. Models that are not OpenAI's, and those
// that do not exist yet, have O200kBase; for the former the count is an estimate.
func EncodingOf(model string) Encoding {
	model = model[strings.LastIndexByte(model, '/')+1:]
	model = strings.TrimPrefix(model, "ft:")
	for _, p := range prefixes {
		n := len(p.name)
		if len(model) < n || !strings.EqualFold(model[:n], p.name) {
			continue
		}
		if len(model) == n || model[n] == '-' || model[n] == ':' {
			return p.encoding
		}
	}
	return O200kBase
}
