package scripted

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"unicode/utf8"

	"remora/test/scripted/wsecho"
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

// serveWebSocket upgrades the connection and echoes until it is closed.
func serveWebSocket(k *sink) error {
	conn, rw, err := http.NewResponseController(k.w).Hijack()
	if err != nil {
		return errGone
	}
	defer func() { _ = conn.Close() }()
	forget, open := k.s.adopt(conn)
	defer forget()
	if !open {
		return errGone
	}
	k.s.rec.update(k.rec, func(r *Recorded) { r.Status = http.StatusSwitchingProtocols })
	err = wsecho.Serve(conn, rw, k.r)
	if errors.Is(err, wsecho.ErrHandshake) {
		_, err = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	}
	if err != nil {
		return errGone
	}
	return nil
}

// serveEcho answers with the request as it arrived, with the header's bytes if they are known.
func serveEcho(k *sink, body []byte) error {
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
