package tokens

import "strings"

// older are the models that use cl100kBase, in lower case and without a provider's prefix. A name also stands for those that
// continue it with - or :, so that gpt-4-turbo is one of them and gpt-4o is not.
var older = [...]string{
	"gpt-4",
	"gpt-3.5",
	"gpt-35", // as Azure spells it
	"text-embedding-3",
	"text-embedding-ada-002",
	"davinci-002",
	"babbage-002",
}

// encodingOf returns the encoding of a model, named as clients do: with a provider before a slash ("openai/gpt-4o"), as a
// fine-tuned model ("ft:gpt-3.5-turbo:org::id"), with a date or a size appended. Models that are not OpenAI's, and those
// that do not exist yet, have o200kBase; for the former the count is an estimate.
func encodingOf(model string) encoding {
	model = model[strings.LastIndexByte(model, '/')+1:]
	model = strings.TrimPrefix(model, "ft:")
	for _, name := range older {
		n := len(name)
		if len(model) < n || !strings.EqualFold(model[:n], name) {
			continue
		}
		if len(model) == n || model[n] == '-' || model[n] == ':' {
			return cl100kBase
		}
	}
	return o200kBase
}
