package scripted

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"unicode"
)

const (
	defaultDimensions = 32
	maxDimensions     = 4096
	maxInputs         = 2048
)

// serveEmbeddings answers with unit vectors that depend only on the input: for a text, on its words or their meanings
// (Options.Meanings).
func serveEmbeddings(k *sink, body []byte) error {
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
		v := vectorOf(in, dimensions, k.s.o.Meanings)
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

// vectorOf returns the vector of a text, which is the sum of those of its words, or that of a list of tokens.
func vectorOf(input []byte, dimensions int, meanings map[string]string) []float32 {
	var text string
	if json.Unmarshal(input, &text) != nil {
		return vector(input, dimensions)
	}
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	sum := make([]float64, dimensions)
	for _, w := range words {
		if meaning, ok := meanings[w]; ok {
			w = meaning
		}
		if w == "" {
			continue
		}
		for i, x := range vector([]byte(w), dimensions) {
			sum[i] += float64(x)
		}
	}
	if v := unit(sum); v != nil {
		return v
	}
	return vector(input, dimensions)
}

// vector returns a pseudorandom point of the unit sphere, from xorshift seeded with the input's hash.
func vector(input []byte, dimensions int) []float32 {
	sum := sha256.Sum256(input)
	state := binary.LittleEndian.Uint64(sum[:]) | 1
	v := make([]float64, dimensions)
	for i := range v {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		v[i] = float64(state>>11)/(1<<53)*2 - 1
	}
	return unit(v)
}

// unit returns a vector with the length 1, nil for the zero vector.
func unit(v []float64) []float32 {
	norm := 0.0
	for _, x := range v {
		norm += x * x
	}
	if norm == 0 {
		return nil
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x / math.Sqrt(norm))
	}
	return out
}

// base64Vector returns the base64 form: little-endian 32-bit floats.
func base64Vector(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}
