package complete

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
)

// Bounds of an answer with embeddings.
const (
	maxDimensions    = 4096
	maxEmbedding     = 64 << 20
	bytesOfDimension = 32 // as text: more than any float64 has
)

// Embed returns the embeddings of some texts, one for each, all of the same number of dimensions, at most 4096. These may be
// others than Options.Dimensions, where a server does not know the parameter.
func (m *Model) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	s, size := m.source, 0
	for _, t := range texts {
		size += len(t)
	}
	if size > maxPrompt {
		return nil, fmt.Errorf("ask %s: %w", s.Provider(), ErrPrompt)
	}
	body, err := json.Marshal(struct {
		Model      string   `json:"model"`
		Input      []string `json:"input"`
		Format     string   `json:"encoding_format"`
		Dimensions int      `json:"dimensions,omitempty"`
	}{s.model, texts, "float", s.dimensions})
	if err != nil {
		panic(fmt.Sprintf("BUG: encode texts: %v", err)) // strings and numbers
	}
	limit := min(maxEmbedding, (len(texts)+1)*maxDimensions*bytesOfDimension)
	answer, err := m.post(ctx, operationEmbeddings, body, limit)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", s.Provider(), err)
	}
	vectors, err := embeddings(answer, len(texts))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", s.Provider(), err)
	}
	return vectors, nil
}

// Refused reports whether an error is a refusal of the caller, where the provider may well serve another.
func (*Model) Refused(err error) bool {
	s, ok := errors.AsType[*StatusError](err)
	return ok && (s.Code == http.StatusUnauthorized || s.Code == http.StatusPaymentRequired || s.Code == http.StatusForbidden)
}

// embeddings reads an answer, in the order of the texts that were asked about.
func embeddings(answer []byte, want int) ([][]float32, error) {
	var r struct {
		Data []struct {
			Index     int             `json:"index"`
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if json.Unmarshal(answer, &r) != nil || len(r.Data) != want {
		return nil, fmt.Errorf("%w: it does not have an embedding for each text", ErrAnswer)
	}
	vectors, dimensions := make([][]float32, want), 0
	for i, d := range r.Data {
		at := d.Index
		if at < 0 || at >= want || vectors[at] != nil {
			at = i // some servers number all with 0
		}
		v, ok := numbers(d.Embedding)
		if !ok || len(v) == 0 || len(v) > maxDimensions || vectors[at] != nil || i > 0 && len(v) != dimensions {
			return nil, fmt.Errorf("%w: want embeddings of 1 to %d numbers, all of one length", ErrAnswer, maxDimensions)
		}
		vectors[at], dimensions = v, len(v)
	}
	return vectors, nil
}

// numbers reads an embedding: a list of numbers, or their bytes in base64, which some servers always send.
func numbers(raw json.RawMessage) ([]float32, bool) {
	var list []float32
	if json.Unmarshal(raw, &list) == nil {
		return list, true
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil, false
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data)%4 != 0 {
		return nil, false
	}
	list = make([]float32, len(data)/4)
	for i := range list {
		list[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return list, true
}
