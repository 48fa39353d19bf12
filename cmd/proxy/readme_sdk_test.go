package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"remora/cmd/proxy/proxytest"
)

// TestReadmeGo runs the piece of Go in README.md, which is askLikeReadme word for word.
func TestReadmeGo(t *testing.T) {
	source, err := os.ReadFile("readme_sdk_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "func askLikeReadme(url string) {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	body = strings.ReplaceAll("\n"+body+"\n", "\n\t", "\n")[1:]
	body = strings.Replace(body, `url+"`, `"http://127.0.0.1:8080`, 1)
	if diff := cmp.Diff(body, readmeBlocks(t, "go")[0]); diff != "" {
		t.Errorf("README.md has another piece of Go (+):\n%s", diff)
	}

	up := startUpstream(t)
	d := &desk{t: t, dir: t.TempDir()}
	d.proxy = proxytest.Start(t, d.dir, d.configFor("memory:", up.URL()))
	d.say("chat/completions", chat("user: My name is Ada."), "X-Session-Id: first", "Authorization: Bearer anything")
	t.Setenv("OPENAI_API_KEY", "anything")
	askLikeReadme(d.proxy.URL)
	all := up.Requests()
	if last := string(all[len(all)-1].Body); !strings.Contains(last, "Ada") || !strings.Contains(last, "What is my name?") {
		t.Errorf("upstream got %s", last)
	}
}

func askLikeReadme(url string) {
	client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithHeader("X-Session-Id", "first"))
	answer, err := client.Responses.New(context.Background(), responses.ResponseNewParams{
		Model: "gpt-5-mini", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("What is my name?")},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.OutputText())
}
