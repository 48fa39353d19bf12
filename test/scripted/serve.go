package scripted

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"remora/test/scripted/script"
)

// serve reads and records a request, answers it, and records how it ended.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.running.Done()
	rec := &Recorded{Method: r.Method, Target: r.RequestURI, Host: r.Host, Header: r.Header.Clone()}
	tee, _ := r.Context().Value(connKey{}).(*teeConn)
	body, readErr := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	rec.Body = body
	if tee != nil {
		rec.RawHeader = tee.takeHead(r.Method)
	}
	k := &sink{s: s, w: w, r: r, rec: rec, f: noFault(), released: s.released()}
	s.record(rec)
	err := s.answerHTTP(k, body, readErr)
	if tee != nil {
		tee.nextHead()
	}
	end := ClientGone
	switch {
	case err == nil || errors.Is(err, errStop):
		end = Served
	case errors.Is(err, errBroken):
		end = Broken
	}
	s.recordEnd(rec, end)
	if end != Served {
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) answerHTTP(k *sink, body []byte, readErr error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(readErr, &tooLarge):
		return k.fail(&apiError{status: http.StatusRequestEntityTooLarge, message: "Request body too large."})
	case readErr != nil:
		return errGone
	}
	f, err := s.takeFault(k.r.Header.Get("X-Script"))
	if err != nil {
		return k.fail(badRequest(err.Error(), "x-script", ""))
	}
	k.f = f
	if f.stallBefore {
		if err := k.stall(); err != nil {
			return err
		}
	}
	if f.html {
		return k.whole(http.StatusBadGateway, "text/html", []byte("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n"+
			"<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n</body>\r\n</html>\r\n"))
	}
	if f.status > 0 {
		return k.status(f.status)
	}
	return s.route(k, body)
}

// endpoints are the paths below /v1/ and /api/v1/ without an id.
var endpoints = map[string]func(*sink, []byte) error{ //nolint:gochecknoglobals // a table
	"POST chat/completions": serveChat,
	"POST responses":        serveResponses,
	"POST embeddings":       serveEmbeddings,
	"POST conversations":    serveNewConversation,
	"GET models":            serveModels,
	"GET files":             serveFiles,
	"POST files":            serveUpload,
}

// route calls the endpoint of a request.
func (s *Server) route(k *sink, body []byte) error {
	endpoint, ok := strings.CutPrefix(k.r.URL.Path, "/api/v1/")
	if !ok {
		endpoint, ok = strings.CutPrefix(k.r.URL.Path, "/v1/")
	}
	if !ok {
		return s.unknown(k, body)
	}
	serve := endpoints[k.r.Method+" "+endpoint]
	if serve == nil {
		return s.routeByID(k, endpoint, body)
	}
	return serve(k, body)
}

// routeByID serves the endpoints with an id in their path.
func (s *Server) routeByID(k *sink, endpoint string, body []byte) error {
	collection, rest, _ := strings.Cut(endpoint, "/")
	id, sub, _ := strings.Cut(rest, "/")
	if path, ok := strings.CutPrefix(endpoint, "chat/completions/"); ok {
		return serveStoredChat(k, path)
	}
	switch {
	case id == "":
	case collection == "models" && k.r.Method == http.MethodGet:
		// OpenRouter's model names have a slash.
		return k.json(http.StatusOK, model(rest))
	case collection == "responses" && (sub == "" || sub == "input_items"):
		return serveStoredResponse(k, id, sub)
	case collection == "conversations" && (sub == "" || sub == "items"):
		return serveConversation(k, id, sub)
	}
	return s.unknown(k, body)
}

// unknown answers a request for an unknown path.
func (s *Server) unknown(k *sink, body []byte) error {
	if s.o.Echo {
		return serveEcho(k, body)
	}
	return k.fail(&apiError{
		status: http.StatusNotFound, code: "unknown_url",
		message: fmt.Sprintf("Unknown request URL: %s %s. Please check the URL for typos. Below /v1/ this server has %s; "+
			"stored chat/completions, responses and conversations by their id; and models by their name.",
			k.r.Method, k.r.URL.Path, strings.Join(slices.Sorted(maps.Keys(endpoints)), ", ")),
	})
}

func unparseable() *apiError {
	return badRequest("We could not parse the JSON body of your request. (HINT: This likely means you aren't using "+
		"your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON. If "+
		"you have trouble figuring out how to fix this, please contact us through our help center at help.openai.com.)", "", "")
}

func serverError() *apiError {
	return &apiError{
		status: http.StatusInternalServerError, kind: "server_error",
		message: "The server had an error while processing your request. Sorry about that!",
	}
}

// decode parses a body into a request struct. Its error is that of the API.
func decode(body []byte, into any) *apiError {
	err := json.Unmarshal(body, into)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && mismatch.Field != "" {
		return badRequest(fmt.Sprintf("Invalid type for '%s': got %s instead.", mismatch.Field, mismatch.Value),
			mismatch.Field, "invalid_type")
	}
	if err != nil {
		return unparseable()
	}
	return nil
}

// looksBack reports whether the answer needs Prompt.Seen, which is costly for long histories.
func (s *Server) looksBack(p Prompt) bool {
	return s.o.Respond != nil || script.Is(p.User) && strings.Contains(p.User, "SEE")
}

// answer calls Options.Respond or plays the script.
func (s *Server) answer(p Prompt, f fault) Answer {
	var (
		a  Answer
		ok bool
	)
	if s.o.Respond != nil {
		a, ok = s.o.Respond(p)
	}
	if !ok {
		a = script.Play(p)
	}
	if f.bigKiB > 0 {
		a.Text += bigText(f.bigKiB << 10)
	}
	return a
}

// kindFor returns the kind of server for a model.
func (s *Server) kindFor(model string, f fault) Kind {
	switch {
	case f.kind != "":
		return f.kind
	case s.o.KindOf != nil:
		return s.o.KindOf(model)
	default:
		return s.o.Kind
	}
}
