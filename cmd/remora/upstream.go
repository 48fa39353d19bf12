package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"remora/test/scripted"
)

func newUpstreamCommand(p console) *cobra.Command {
	var listen, kind string
	cmd := &cobra.Command{
		Use:   "upstream",
		Short: "Serve a scripted API, to try a proxy without a key",
		Long: "Serves Chat Completions and Responses as strictly as OpenAI, until it is stopped. No model\n" +
			"answers. \"What is my name?\" gets \"Your name is Ada.\" if \"My name is Ada.\" is in what the upstream was\n" +
			"sent, and \"I do not know your name.\" if it is not; likewise for other facts (my lucky number, where do I\n" +
			"live). Any other message gets \"You said: ...\", or is a script of steps with ;; between them:\n\n" +
			"  SAY text             what the answer says\n" +
			"  SEE                  one line for each message that the upstream was sent\n" +
			"  REASON text          reasoning before the next step\n" +
			"  CALL name {json}     a tool call, or several with | between them\n" +
			"  LOOP n name {json}   n answers of one call each\n\n" +
			"With --kind it refuses requests as another server does, with its errors: " + kindNames() + ".\n" +
			"A request header \"X-Script: kind=NAME\" does so for one request.\n\n" +
			"It accepts any key, and writes nothing to disk. Models, files, embeddings and conversations are served as far\n" +
			"as a proxy needs them; any other path gets 404, with the list of paths.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kind := scripted.Kind(kind); !slices.Contains(scripted.Kinds(), kind) {
				return fmt.Errorf("--kind %q: must be one of %s", kind, kindNames())
			}
			up, err := scripted.Start(scripted.Options{Listen: listen, Kind: scripted.Kind(kind), KeepRequests: 1})
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(p.stdout, "scripted upstream listens on %s/v1\n"+
				"in another terminal:   go run ./cmd/remora --upstream %s\n"+
				"and in a third, twice: curl http://127.0.0.1:8080/v1/chat/completions -H \"Authorization: Bearer any\" -H \"Content-Type: application/json\""+
				" -H \"X-Session-Id: first\" -d '{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"My name is Ada.\"}]}'\n"+
				"... with \"What is my name?\" the second time\n", up.URL(), up.URL())
			<-cmd.Context().Done()
			return up.Close()
		},
	}

	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9090", "serve on `ADDR`")
	cmd.Flags().StringVar(&kind, "kind", string(scripted.KindOpenAI), "refuse requests as the server `NAME` does")
	return cmd
}

func kindNames() string {
	names := make([]string, 0, len(scripted.Kinds()))
	for _, k := range scripted.Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}
