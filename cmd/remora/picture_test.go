package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
)

var updatePicture = flag.Bool("update-picture", false, "write docs/first.svg anew")

// TestPicture compares the picture in README with the output of its two curl commands. To update it:
//
//	go test ./cmd/remora -run TestPicture -update-picture
func TestPicture(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "OPENAI_API_KEY=sk-test", providerAt(up)}
	server, url, err := startProxy(dir, env, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.kill)

	var lines []shown
	ask := func(words string) {
		request := fmt.Sprintf(`{"model":"gpt-5-mini","messages":[{"role":"user","content":%q}]}`, words)
		lines = append(lines,
			shown{"$ curl http://127.0.0.1:8080/v1/chat/completions \\", typed},
			shown{"    -H \"Authorization: Bearer $OPENAI_API_KEY\" -H \"X-Session-Id: first\" \\", typed},
			shown{"    -d '" + request + "'", typed})
		out := sh(t, dir, env, `curl -s `+url+`/v1/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" `+
			`-H "Content-Type: application/json" -H "X-Session-Id: first" -d '`+request+`'`)
		var answer struct {
			Choices []struct {
				Message struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Choices) != 1 {
			t.Fatalf("%s: %v\n%s", words, err, out)
		}
		lines = append(lines, shown{answer.Choices[0].Message.Content, printed}, shown{"", typed})
	}
	ask("My name is Ada.")
	ask("What is my name?")
	lines = append(lines, shown{"# The second request holds nothing but the question. Remora put the first one before it.", said})

	const file = "../../docs/first.svg"
	want := picture(lines)
	if *updatePicture {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != want {
		t.Errorf("docs/first.svg is not what the curls print (%v): run this test with -update-picture", err)
	}
}

// shown is a line on a terminal.
type shown struct{ text, colour string }

// Colours of a terminal's lines.
const (
	typed   = "#c9d1d9"
	printed = "#7ee787"
	said    = "#8b949e"
)

// picture draws a terminal as SVG.
func picture(lines []shown) string {
	const (
		lineHeight = 22
		charWidth  = 8.45
		margin     = 24
	)
	widest := 0
	for _, l := range lines {
		widest = max(widest, len(l.text))
	}
	width, height := int(charWidth*float64(widest))+2*margin, lineHeight*len(lines)+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">`+"\n", width, height)
	fmt.Fprintf(&b, `<title>Two curls of one session: "My name is Ada.", then "What is my name?"</title>`+"\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">`+"\n")
	for i, l := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", margin, margin+lineHeight*i+14, l.colour, html.EscapeString(l.text))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}
