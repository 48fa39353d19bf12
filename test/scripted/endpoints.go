package scripted

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"remora/test/scripted/wsecho"
)

// vendorHeaders sets the headers that a real answer has beside its content. They follow from the request.
func (k *sink) vendorHeaders() {
	if k.id == "" {
		k.id = k.s.identify(k.r.Method, k.r.RequestURI, k.rec.Body)
	}
	h := k.w.Header()
	if k.s.o.Flavor == OpenRouter {
		h.Set("X-Generation-Id", "gen-"+string(k.id[:20]))
		return
	}
	h["x-request-id"] = []string{"req_" + string(k.id[:32])}
	h["openai-processing-ms"] = []string{strconv.Itoa(10 + k.id.created()%90)}
	h["openai-organization"] = []string{"org-scripted"}
	h["openai-version"] = []string{"2020-10-01"}
	h["x-ratelimit-limit-requests"] = []string{"10000"}
	h["x-ratelimit-remaining-requests"] = []string{"9999"}
	h["x-ratelimit-reset-requests"] = []string{"6ms"}
	h["x-ratelimit-limit-tokens"] = []string{"2000000"}
	h["x-ratelimit-remaining-tokens"] = []string{"1999000"}
	h["x-ratelimit-reset-tokens"] = []string{"30ms"}
}

// echo answers with the request as it arrived: spelling and order of the header where they are known.
func (s *Server) echo(k *sink, body []byte) error {
	var headers []raw
	if lines := bytes.Split(k.rec.RawHeader, []byte("\r\n")); len(lines) > 3 {
		for _, line := range lines[1 : len(lines)-2] {
			name, value, _ := bytes.Cut(line, []byte(":"))
			headers = append(headers, obj("name", string(name), "value", string(bytes.TrimSpace(value))))
		}
	} else {
		names := make([]string, 0, len(k.rec.Header))
		for name := range k.rec.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			for _, value := range k.rec.Header[name] {
				headers = append(headers, obj("name", name, "value", value))
			}
		}
	}
	key, text := "body", string(body)
	if !utf8.Valid(body) {
		key, text = "body_base64", base64.StdEncoding.EncodeToString(body)
	}
	return k.json(http.StatusOK, obj(
		"object", "echo", "method", k.r.Method, "path", k.r.RequestURI, "host", k.r.Host,
		"headers", arr(headers...), key, text,
	))
}

func model(id string) raw {
	return obj("id", id, "object", "model", "created", 1_750_000_000, "owned_by", "scripted")
}

func (s *Server) models(k *sink, _ []byte) error {
	list := []raw{model("gpt-5"), model("gpt-4.1"), model("gpt-4.1-mini"), model("text-embedding-3-small")}
	return k.json(http.StatusOK, obj("object", "list", "data", arr(list...)))
}

func (s *Server) files(k *sink, _ []byte) error {
	return k.json(http.StatusOK, obj("object", "list", "data", arr(), "has_more", false))
}

// uploadFile accepts anything and keeps nothing but its digest, as the file's id.
func (s *Server) uploadFile(k *sink, body []byte) error {
	sum := sha256.Sum256(body)
	return k.json(http.StatusOK, obj(
		"object", "file", "id", "file-"+hex.EncodeToString(sum[:12]), "purpose", "user_data",
		"filename", "upload", "bytes", len(body), "created_at", 1_750_000_000, "status", "processed",
	))
}

const (
	defaultDimensions = 32
	maxDimensions     = 4096
	maxInputs         = 2048
)

// embeddings answers with unit vectors that follow from the input alone: of a text, from its words and, where the script names
// some, from what they mean.
func (s *Server) embeddings(k *sink, body []byte) error {
	var req struct {
		Model          string `json:"model"`
		Input          raw    `json:"input"`
		Dimensions     *int   `json:"dimensions"`
		EncodingFormat string `json:"encoding_format"`
	}
	if e := decode(body, &req); e != nil {
		return k.fail(e)
	}
	inputs := embeddingInputs(req.Input)
	if len(inputs) == 0 || len(inputs) > maxInputs {
		return k.fail(badRequest("'$.input' is invalid. Please check the API reference: "+
			"https://platform.openai.com/docs/api-reference.", "", ""))
	}
	dimensions := defaultDimensions
	if req.Dimensions != nil {
		dimensions = *req.Dimensions
	}
	if dimensions < 1 || dimensions > maxDimensions {
		return k.fail(badRequest("Invalid 'dimensions': must be from 1 to 4096.", "dimensions", "invalid_value"))
	}
	var (
		list  []raw
		bytes int
	)
	for i, in := range inputs {
		v := s.vectorOf(in, dimensions)
		var value any = v
		if req.EncodingFormat == "base64" {
			value = base64Vector(v)
		}
		bytes += len(in)
		list = append(list, obj("object", "embedding", "index", i, "embedding", value))
	}
	return k.json(http.StatusOK, obj("object", "list", "data", arr(list...), "model", req.Model,
		"usage", obj("prompt_tokens", bytes/4+1, "total_tokens", bytes/4+1)))
}

// embeddingInputs splits input: a string, a list of strings, a list of tokens or a list of such lists.
func embeddingInputs(input raw) []raw {
	var elements []raw
	if json.Unmarshal(input, &elements) != nil {
		if isNull(input) || input[0] != '"' {
			return nil
		}
		return []raw{input}
	}
	if len(elements) > 0 && elements[0][0] != '"' && elements[0][0] != '[' {
		return []raw{input}
	}
	return elements
}

// vector draws a point of the unit sphere from a generator (xorshift) seeded with the input's hash.
func vector(input []byte, dimensions int) []float32 {
	sum := sha256.Sum256(input)
	state := binary.LittleEndian.Uint64(sum[:]) | 1
	v := make([]float64, dimensions)
	var norm float64
	for i := range v {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		v[i] = float64(state>>11)/(1<<53)*2 - 1
		norm += v[i] * v[i]
	}
	norm = math.Sqrt(norm)
	out := make([]float32, dimensions)
	for i := range v {
		out[i] = float32(v[i] / norm)
	}
	return out
}

// vectorOf is the vector of a text, the sum of those of its words; of a list of tokens the list's own.
func (s *Server) vectorOf(input []byte, dimensions int) []float32 {
	var text string
	if json.Unmarshal(input, &text) != nil {
		return vector(input, dimensions)
	}
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(words) == 0 {
		return vector(input, dimensions)
	}
	sum := make([]float32, dimensions)
	for _, w := range words {
		if meaning, ok := s.o.Meanings[w]; ok {
			w = meaning
		}
		if w == "" {
			continue
		}
		for i, x := range vector([]byte(w), dimensions) {
			sum[i] += x
		}
	}
	norm := float32(0)
	for _, x := range sum {
		norm += x * x
	}
	if norm == 0 {
		return vector(input, dimensions)
	}
	for i := range sum {
		sum[i] /= float32(math.Sqrt(float64(norm)))
	}
	return sum
}

// base64Vector is the packed form: little-endian 32-bit floats.
func base64Vector(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// webSocket upgrades the connection and echoes until it is closed.
func (s *Server) webSocket(k *sink) error {
	conn, rw, err := http.NewResponseController(k.w).Hijack()
	if err != nil {
		return errGone
	}
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	closed := s.closed
	s.hijacked[conn] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.hijacked, conn)
		s.mu.Unlock()
	}()
	if closed {
		return errGone
	}
	s.rec.update(k.rec, func(r *Recorded) { r.Status = http.StatusSwitchingProtocols })
	err = wsecho.Serve(conn, rw, k.r)
	if errors.Is(err, wsecho.ErrHandshake) {
		_, err = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	}
	if err != nil {
		return errGone
	}
	return nil
}
