package scripted_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"remora/test/scripted"
)

// BenchmarkServer measures the upstream itself in a test that drives it: client and server together.
func BenchmarkServer(b *testing.B) {
	long := `{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":"`+strings.Repeat("x", 600)+`"},`, 400) +
		`{"role":"user","content":"SAY hi"}]}`
	for name, c := range map[string][2]string{
		"chat":        {chatPath, chatBody("SAY hi", "")},
		"chat/stream": {chatPath, chatBody("SAY one two three four five six seven eight nine", `,"stream":true`)},
		"chat/256KB":  {chatPath, long},
		"responses":   {responsesPath, responsesBody("SAY hi", `,"store":false`)},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := scripted.Start(scripted.Options{KeepRequests: 16})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			defer http.DefaultClient.CloseIdleConnections()
			b.SetBytes(int64(len(c[1])))
			b.ReportAllocs()
			for b.Loop() {
				resp, err := http.Post(s.URL()+c[0], "application/json", strings.NewReader(c[1]))
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); err != nil || n == 0 || resp.StatusCode != 200 {
					b.Fatal(n, err, resp.Status)
				}
				_ = resp.Body.Close()
			}
		})
	}
}
