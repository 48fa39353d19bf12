// Command ask asks through Remora.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

func main() {
	client := openai.NewClient(
		option.WithBaseURL(cmp.Or(os.Getenv("REMORA_URL"), "http://127.0.0.1:8080/v1")),
		option.WithHeader("X-Session-Id", "go"),
	)
	ask := func(text string, options ...option.RequestOption) string {
		answer, err := client.Responses.New(context.Background(), responses.ResponseNewParams{
			Model: "gpt-5-mini", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)},
		}, options...)
		if err != nil {
			log.Fatal(err)
		}
		return answer.OutputText()
	}

	ask("My name is Ada.")
	fmt.Println(ask("What is my name?"))
	// A server of many users names the session with each request.
	fmt.Println(ask("What is my name?", option.WithHeader("X-Session-Id", "go-other")))
}
