package scripted

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"remora/test/scripted/script"
	"remora/test/scripted/wsecho"
)

// serve is the life of one request: read and record it, answer it, say how it ended.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.handlers.Done()
	rec := &Recorded{Method: r.Method, Target: r.RequestURI, Host: r.Host, Header: r.Header.Clone()}
	tee, _ := r.Context().Value(connKey{}).(*teeConn)
	body, readErr := io.ReadAll(http.MaxBytesReader(w, r.Body, s.o.MaxBody))
	rec.Body = body
	if tee != nil {
		rec.RawHeader = tee.takeHead(r.Method)
	}
	k := &sink{s: s, w: w, r: r, rec: rec, f: noFault(), released: s.released()}
	s.rec.add(rec)
	err := s.answerHTTP(k, body, readErr)
	if tee != nil {
		tee.nextHead()
	}
	switch {
	case err == nil || errors.Is(err, errStop):
		s.rec.end(rec, Served)
	case errors.Is(err, errBroken):
		s.rec.end(rec, Broken)
		if errors.Is(err, errReset) {
			lingerZero(tee)
		}
		panic(http.ErrAbortHandler)
	default:
		s.rec.end(rec, ClientGone)
		panic(http.ErrAbortHandler)
	}
}

// lingerZero makes the close that follows a reset.
func lingerZero(tee *teeConn) {
	if tee == nil {
		return
	}
	if tcp, ok := tee.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
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
	if f.stallBefore >= 0 {
		if err := k.wait(f.stallBefore); err != nil {
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

// route finds the endpoint. What is none is echoed: a transparent proxy has to carry that too.
func (s *Server) route(k *sink, body []byte) error {
	endpoint, ok := strings.CutPrefix(k.r.URL.Path, "/api/v1/")
	if !ok {
		endpoint, ok = strings.CutPrefix(k.r.URL.Path, "/v1/")
	}
	if !ok {
		return s.echo(k, body)
	}
	if wsecho.IsUpgrade(k.r) && (endpoint == "responses" || endpoint == "realtime") {
		return s.webSocket(k)
	}
	handler := map[string]func(*sink, []byte) error{
		"POST chat/completions": s.chat,
		"POST responses":        s.responses,
		"POST embeddings":       s.embeddings,
		"POST conversations":    s.createConversation,
		"GET models":            s.models,
		"GET files":             s.files,
		"POST files":            s.uploadFile,
	}[k.r.Method+" "+endpoint]
	if handler == nil {
		return s.routeByID(k, endpoint, body)
	}
	plain, e := s.decoded(k.r, body)
	if e != nil {
		return k.fail(e)
	}
	return handler(k, plain)
}

// routeByID serves the endpoints with an id in their path.
func (s *Server) routeByID(k *sink, endpoint string, body []byte) error {
	collection, rest, _ := strings.Cut(endpoint, "/")
	id, sub, _ := strings.Cut(rest, "/")
	if path, ok := strings.CutPrefix(endpoint, "chat/completions/"); ok {
		return s.storedChat(k, path)
	}
	switch {
	case id == "":
	case collection == "models" && k.r.Method == http.MethodGet:
		// OpenRouter's model names have a slash.
		return k.json(http.StatusOK, model(rest))
	case collection == "responses" && (sub == "" || sub == "input_items"):
		return s.storedResponse(k, id, sub)
	case collection == "conversations" && (sub == "" || sub == "items"):
		return s.conversation(k, id, sub, body)
	}
	return s.echo(k, body)
}

// decoded undoes a content coding of the request, within the body limit.
func (s *Server) decoded(r *http.Request, body []byte) ([]byte, *apiError) {
	var (
		src io.Reader
		err error
	)
	switch coding := r.Header.Get("Content-Encoding"); coding {
	case "", "identity":
		return body, nil
	case "gzip":
		src, err = gzip.NewReader(bytes.NewReader(body))
	case "zstd":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1)); err == nil {
			defer d.Close()
			src = d
		}
	default:
		return nil, &apiError{status: http.StatusUnsupportedMediaType, message: "Unsupported content encoding: " + coding}
	}
	if err != nil {
		return nil, unparseable()
	}
	out, err := io.ReadAll(io.LimitReader(src, s.o.MaxBody+1))
	if err != nil {
		return nil, unparseable()
	}
	if int64(len(out)) > s.o.MaxBody {
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, message: "Request body too large."}
	}
	return out, nil
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

// decode reads a body into a request struct and answers as the API does when it cannot.
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

// maxBreakpoints and maxCacheKey are the limits of Anthropic and of OpenAI.
const (
	maxBreakpoints = 4
	maxCacheKey    = 64 // characters
)

// caching has the members of a request about the prompt cache.
type caching struct {
	Key   *string `json:"prompt_cache_key"`
	Tools []struct {
		Mark raw `json:"cache_control"`
	} `json:"tools"`
	Messages []struct {
		Content raw `json:"content"`
	} `json:"messages"`
}

// checkCaching judges that, as the APIs do that know it.
func checkCaching(body []byte) *apiError {
	if !bytes.Contains(body, []byte("cache_")) {
		return nil // nearly all of them
	}
	var c caching
	_ = json.Unmarshal(body, &c) // what has another type is for others to judge
	if c.Key != nil && len(*c.Key) > maxCacheKey {
		return badHistory(fmt.Sprintf("Invalid 'prompt_cache_key': string too long. Expected a string with maximum length %d, "+
			"but got a string with length %d instead.", maxCacheKey, len(*c.Key)), "prompt_cache_key", "string_above_max_length")
	}
	marks := 0
	for _, tool := range c.Tools {
		if !isNull(tool.Mark) {
			marks++
		}
	}
	for i, m := range c.Messages {
		var parts []struct {
			Type string `json:"type"`
			Text string `json:"text"`
			Mark raw    `json:"cache_control"`
		}
		_ = json.Unmarshal(m.Content, &parts) // a string, or null
		for j, p := range parts {
			if isNull(p.Mark) {
				continue
			}
			if p.Type == "text" && strings.TrimSpace(p.Text) == "" {
				return badHistory(fmt.Sprintf("messages.%d.content.%d.text: cache_control cannot be set for empty text blocks", i, j), "", "")
			}
			marks++
		}
	}
	if marks > maxBreakpoints {
		return badHistory(fmt.Sprintf("A maximum of %d blocks with cache_control may be provided. Found %d.", maxBreakpoints, marks), "", "")
	}
	return nil
}

// status answers with a status that a fault asked for.
func (k *sink) status(code int) error {
	e := &apiError{status: code, message: "Scripted status " + strconv.Itoa(code) + ".", kind: "server_error"}
	switch {
	case code < http.StatusBadRequest:
		k.header(code, "application/json")
		return nil
	case code == http.StatusUnauthorized:
		e.message, e.kind, e.code = "Incorrect API key provided.", "invalid_request_error", "invalid_api_key"
	case code == http.StatusTooManyRequests:
		e.message, e.kind, e.code = "Rate limit reached for requests.", "requests", "rate_limit_exceeded"
	case code == http.StatusInternalServerError:
		e = serverError()
	case code < http.StatusInternalServerError:
		e.kind = "invalid_request_error"
	}
	return k.json(code, e.body(k.s.o.Flavor))
}

// identity is the source of all ids of an answer: a hash of the model's input, in hexadecimal.
type identity string

// maxSeen bounds the table of repeated requests. Beyond it counting starts again, so ids may repeat.
const maxSeen = 1 << 17

// identify hashes a request. A repetition of an earlier request gets another identity, the same one on every server
// that saw the same repetitions.
func (s *Server) identify(kind, model string, history []byte) identity {
	h := sha256.New()
	for _, part := range [...][]byte{[]byte(kind + s.o.Organization), []byte(model), history} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	var key [16]byte
	sum := h.Sum(nil)
	copy(key[:], sum)
	s.mu.Lock()
	if len(s.seen) >= maxSeen {
		clear(s.seen)
	}
	n := s.seen[key]
	s.seen[key] = n + 1
	s.mu.Unlock()
	again := sha256.Sum256(binary.BigEndian.AppendUint64(sum, uint64(n))) //nolint:gosec // a count
	return identity(hex.EncodeToString(again[:]))
}

func (id identity) chat() string { return "chatcmpl-" + string(id[:29]) }

func (id identity) response() string { return "resp_" + string(id[:48]) }

// item returns the id of the n-th item of an answer.
func (id identity) item(prefix string, n int) string {
	return fmt.Sprintf("%s_%s%04x", prefix, id[:44], n)
}

// call returns a tool call's id, which tells the round that the call belongs to.
func (id identity) call(round, choice, n int) string {
	return fmt.Sprintf("call_%s%05x%02x%02x", id[:15], round, choice, n)
}

// roundOf reads the round out of a call id; false for ids that this server did not make.
func roundOf(callID string) (int, bool) {
	digits, ok := strings.CutPrefix(callID, "call_")
	if !ok || len(digits) != 24 {
		return 0, false
	}
	for _, c := range []byte(digits) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return 0, false
		}
	}
	round, err := strconv.ParseUint(digits[15:20], 16, 32)
	return int(round), err == nil
}

// created is a time stamp, in seconds, that follows from the request as everything else does.
func (id identity) created() int {
	n, _ := strconv.ParseUint(string(id[:5]), 16, 32)
	return 1_750_000_000 + int(n)
}

// obfuscation is padding of varying length, as deltas have it against guessing from packet sizes.
func (id identity) obfuscation(n int) string {
	return string(id[:4+n*7%13])
}

// usage is in tokens, a token being four bytes where the answer does not say otherwise.
type usage struct{ input, cached, output, reasoning int }

func usageOf(history int, a Answer) usage {
	n := len(a.Text) + len(a.Refusal)
	for _, c := range a.Calls {
		n += len(c.Name) + len(c.Arguments)
	}
	u := usage{input: history/4 + 1, reasoning: len(a.Reasoning) / 4}
	if a.Usage != (script.Usage{}) {
		u.input, u.cached = a.Usage.Prompt, a.Usage.Cached
	}
	u.output = n/4 + 1 + u.reasoning
	return u
}

// looksBack reports whether the answer needs Prompt.Seen, which is costly for long histories.
func (s *Server) looksBack(p Prompt) bool {
	return s.o.Respond != nil || script.Is(p.User) && strings.Contains(p.User, "SEE")
}

// answer asks Options.Respond or plays the script.
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
