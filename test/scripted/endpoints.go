package scripted

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

func model(id string) raw {
	return obj("id", id, "object", "model", "created", 1_750_000_000, "owned_by", "scripted")
}

func serveModels(k *sink, _ []byte) error {
	list := []raw{model("gpt-5"), model("gpt-4.1"), model("gpt-4.1-mini"), model("text-embedding-3-small")}
	return k.json(http.StatusOK, obj("object", "list", "data", arr(list...)))
}

func serveFiles(k *sink, _ []byte) error {
	return k.json(http.StatusOK, obj("object", "list", "data", arr(), "has_more", false))
}

// serveUpload accepts anything and stores nothing. The file's id is its digest.
func serveUpload(k *sink, body []byte) error {
	sum := sha256.Sum256(body)
	return k.json(http.StatusOK, obj(
		"object", "file", "id", "file-"+hex.EncodeToString(sum[:12]), "purpose", "user_data",
		"filename", "upload", "bytes", len(body), "created_at", 1_750_000_000, "status", "processed",
	))
}

// serveEcho answers with the request as it arrived.
func serveEcho(k *sink, body []byte) error {
	var headers []raw
	_, fields, _ := bytes.Cut(k.rec.RawHeader, []byte("\r\n"))
	for field := range bytes.SplitSeq(fields, []byte("\r\n")) {
		if name, value, ok := bytes.Cut(field, []byte(":")); ok {
			headers = append(headers, obj("name", string(name), "value", string(bytes.TrimSpace(value))))
		}
	}
	return k.json(http.StatusOK, obj(
		"object", "echo", "method", k.r.Method, "path", k.r.RequestURI, "host", k.r.Host,
		"headers", arr(headers...), "body", string(body),
	))
}
