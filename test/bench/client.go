package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// conn is a keep-alive connection of the load generator. It reads answers with fasthttp, which costs little compared with the
// proxies.
type conn struct {
	net    net.Conn
	r      *bufio.Reader
	answer fasthttp.Response
	piece  [16 << 10]byte
}

// reply is the measured part of an answer.
type reply struct {
	status int
	first  time.Time // arrival of its first byte
	memory []byte    // X-Memory; valid until the next receive
}

// dialLimit bounds a dial.
const dialLimit = 30 * time.Second

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, dialLimit)
	if err != nil {
		return nil, err
	}
	return newConn(c), nil
}

func newConn(c net.Conn) *conn { return &conn{net: c, r: bufio.NewReaderSize(endless{c}, 64<<10)} }

// endless makes the end of a connection an error, since it must not look like the end of an answer.
type endless struct{ io.Reader }

func (e endless) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// receive reads one answer. It calls each, if not nil, with the pieces of the body as they arrive.
func (c *conn) receive(into *reply, each func(piece []byte)) error {
	if _, err := c.r.Peek(1); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	into.first = time.Now()

	c.answer.StreamBody = true
	if err := c.answer.Read(c.r); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if c.answer.Header.ContentLength() < -1 {
		return errors.New("read answer: it has neither Content-Length nor Transfer-Encoding")
	}
	into.status = c.answer.StatusCode()
	into.memory = append(into.memory[:0], c.answer.Header.Peek("X-Memory")...)

	for body := c.answer.BodyStream(); ; {
		n, err := body.Read(c.piece[:])
		if each != nil && n > 0 {
			each(c.piece[:n])
		}
		if errors.Is(err, io.EOF) {
			return c.answer.CloseBodyStream()
		}
		if err != nil {
			return fmt.Errorf("read body: %w", err)
		}
	}
}

// exchange sends a request and receives its answer.
func (c *conn) exchange(request []byte, into *reply, each func(piece []byte)) error {
	if _, err := c.net.Write(request); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	return c.receive(into, each)
}

// stampMark precedes the time in nanoseconds at which upstream wrote a piece of a stream.
const stampMark = `"obfuscation":"`

const stampDigits = 19

// stamps finds the write times in a stream, whatever its pieces are, and records their age.
type stamps struct {
	delays []time.Duration
	rest   []byte // unread bytes, which may be the beginning of a mark
}

func (s *stamps) take(piece []byte, now time.Time) {
	s.rest = append(s.rest, piece...)
	unread := s.rest
	for {
		i := bytes.Index(unread, []byte(stampMark))
		if i < 0 || len(unread) < i+len(stampMark)+stampDigits {
			break
		}
		unread = unread[i+len(stampMark):]
		if at, err := strconv.ParseInt(string(unread[:stampDigits]), 10, 64); err == nil {
			s.delays = append(s.delays, time.Duration(now.UnixNano()-at))
		}
		unread = unread[stampDigits:]
	}
	s.rest = s.rest[:copy(s.rest, unread)]
}
