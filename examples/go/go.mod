module ask

go 1.26

require github.com/openai/openai-go/v3 v3.95.0
