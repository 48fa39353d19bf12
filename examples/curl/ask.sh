#!/bin/sh
# The session is a header; any text will do.
url=${REMORA_URL:-http://127.0.0.1:8080/v1}

ask() { # session, words
	answer=$(curl -sS "$url/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" \
		-H "X-Session-Id: $1" -d '{"model":"gpt-5-mini","messages":[{"role":"user","content":"'"$2"'"}]}')
	echo "$answer" | sed -n 's/.*"content": *"\([^"]*\)".*/\1/p'
}

ask curl "My name is Ada." >/dev/null
ask curl "What is my name?"
ask curl-other "What is my name?"
