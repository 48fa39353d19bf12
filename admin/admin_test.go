package admin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"testing"

	"remora/admin"
)

const token = "0123456789abcdef-token"

func TestWhoMayCallWhat(t *testing.T) {
	for name, c := range map[string]struct {
		listen, token   string
		host, bearer    string
		path            string
		notReady        error
		status          int
		has, hasNot     string
		method, fetched string
	}{
		"health is for everybody":                  {listen: ":9090", token: token, path: "/healthz", status: 200, has: "ok"},
		"ready":                                    {listen: ":9090", token: token, path: "/readyz", status: 200, has: "ok"},
		"not ready, without the reason":            {listen: ":9090", token: token, path: "/readyz", notReady: errors.New("spool full"), status: 503, hasNot: "spool"},
		"not ready, the reason with the token":     {listen: ":9090", token: token, bearer: "Bearer " + token, path: "/readyz", notReady: errors.New("spool full"), status: 503, has: "spool full"},
		"a route needs the token":                  {listen: ":9090", token: token, path: "/metrics", status: 401, hasNot: "secret"},
		"a wrong token":                            {listen: ":9090", token: token, bearer: "Bearer " + token + "x", path: "/metrics", status: 401, hasNot: "secret"},
		"an empty token":                           {listen: ":9090", token: token, bearer: "Bearer ", path: "/metrics", status: 401},
		"another scheme":                           {listen: ":9090", token: token, bearer: "Basic " + token, path: "/metrics", status: 401},
		"the token":                                {listen: ":9090", token: token, bearer: "bearer " + token, path: "/metrics", status: 200, has: "secret"},
		"the token is asked for on loopback too":   {listen: "127.0.0.1:9090", token: token, host: "127.0.0.1:9090", path: "/metrics", status: 401},
		"loopback without a token":                 {listen: "127.0.0.1:9090", host: "localhost:9090", path: "/metrics", status: 200, has: "secret"},
		"loopback without a token, IPv6":           {listen: "[::1]:9090", host: "[::1]", path: "/metrics", status: 200, has: "secret"},
		"loopback under a foreign name":            {listen: "127.0.0.1:9090", host: "evil.example:9090", path: "/metrics", status: 403, hasNot: "secret"},
		"not valid, and closed nevertheless":       {listen: ":9090", host: "localhost:9090", path: "/metrics", status: 403, hasNot: "secret"},
		"a browser's page of another origin posts": {listen: "127.0.0.1:9090", host: "localhost:9090", path: "/act", method: "POST", fetched: "cross-site", status: 403},
		"a program posts":                          {listen: "127.0.0.1:9090", host: "localhost:9090", path: "/act", method: "POST", status: 200},
		"a handler panics":                         {listen: "127.0.0.1:9090", host: "localhost:9090", path: "/panic", status: 500, hasNot: "content"},
		"unknown":                                  {listen: ":9090", token: token, bearer: "Bearer " + token, path: "/", status: 404},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := admin.New(admin.Options{
				Listen: c.listen, Token: c.token, Log: slog.New(slog.NewJSONHandler(&log, nil)),
				Ready: func() error { return c.notReady },
			},
				admin.Route{Pattern: "GET /metrics", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") })},
				admin.Route{Pattern: "POST /act", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})},
				admin.Route{Pattern: "GET /panic", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("content") })},
			)
			method := c.method
			if method == "" {
				method = "GET"
			}
			r := httptest.NewRequest(method, c.path, nil)
			if c.host != "" {
				r.Host = c.host
			}
			if c.bearer != "" {
				r.Header.Set("Authorization", c.bearer)
			}
			if c.fetched != "" {
				r.Header.Set("Sec-Fetch-Site", c.fetched)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if !strings.Contains(w.Body.String(), c.has) {
				t.Errorf("answer %q does not have %q", w.Body, c.has)
			}
			if c.hasNot != "" && strings.Contains(w.Body.String()+log.String(), c.hasNot) {
				t.Errorf("answer %q or log %q has %q", w.Body, &log, c.hasNot)
			}
		})
	}
}

func TestBodiesAreBounded(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	s := admin.New(admin.Options{Listen: "127.0.0.1:0"},
		admin.Route{Pattern: "POST /small", Handler: read}, admin.Route{Pattern: "POST /large", Handler: read, MaxBody: 2 << 20})
	for path, want := range map[string]int{"/small": 413, "/large": 200} {
		r := httptest.NewRequest("POST", path, bytes.NewReader(make([]byte, 1<<20+1)))
		r.Host = "localhost"
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct{ listen, token, want string }{
		"off":                  {"", "", ""},
		"loopback":             {"127.0.0.1:9090", "", ""},
		"localhost":            {"localhost:9090", "", ""},
		"all without a token":  {":9090", "", "server.admin_token: want a token"},
		"all of a name":        {"admin.example:9090", "", "server.admin_token: want a token"},
		"all with a token":     {":9090", token, ""},
		"a token to be tried":  {":9090", "short", "server.admin_token: want 16"},
		"a whole header":       {":9090", "Bearer 0123456789abcdef", "server.admin_token: want the token alone"},
		"unspecified, IPv6":    {"[::]:9090", "", "server.admin_token: want a token"},
		"loopback beyond .0.1": {"127.1.2.3:9090", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Options{Listen: c.listen, Token: c.token}.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("have %v, want %q", err, c.want)
			}
			if err != nil && c.token != "" && strings.Contains(err.Error(), c.token) {
				t.Errorf("%v shows the token", err)
			}
		})
	}
}

func TestServesUntilShutdown(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := admin.New(admin.Options{Listen: ln.Addr().String()})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	resp, err := http.Get("http://" + ln.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestProfile(t *testing.T) {
	s := admin.New(admin.Options{Listen: "127.0.0.1:0"}, admin.Profile())
	ask := func(ctx context.Context, query string, w http.ResponseWriter) {
		r := httptest.NewRequestWithContext(ctx, "GET", "/debug/pprof/profile"+query, nil)
		r.Host = "localhost"
		s.Handler().ServeHTTP(w, r)
	}
	for query, status := range map[string]int{"": 200, "?seconds=60": 200, "?seconds=0": 400, "?seconds=61": 400, "?seconds=1e1": 400} {
		gone, leave := context.WithCancel(t.Context())
		leave() // a client that disconnects ends the profile
		w := httptest.NewRecorder()
		ask(gone, query, w)
		if gzipped := strings.HasPrefix(w.Body.String(), "\x1f\x8b"); w.Code != status || gzipped != (status == 200) {
			t.Errorf("%s: status %d, %.40q, want %d", query, w.Code, w.Body, status)
		}
	}
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	second := httptest.NewRecorder()
	ask(t.Context(), "", second)
	if second.Code != http.StatusConflict {
		t.Errorf("a second one: status %d, %s", second.Code, second.Body)
	}
}
