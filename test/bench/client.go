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
)

// conn is a keep-alive connection of the load generator. It parses just enough of HTTP/1.1 to find the first byte and the end
// of an answer, so that it costs little compared with the proxies.
type conn struct {
	net net.Conn
	r   *bufio.Reader
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
	return &conn{net: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}

// receive reads one answer. It calls each, if not nil, with the pieces of the body as they arrive.
func (c *conn) receive(into *reply, each func(piece []byte)) error {
	into.memory = into.memory[:0]
	if _, err := c.r.Peek(1); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	into.first = time.Now()
	line, err := c.line()
	if err != nil {
		return err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return fmt.Errorf("read answer: status line %.40q", line)
	}
	if into.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	length, err := c.headers(into)
	switch {
	case err != nil:
		return err
	case length >= 0:
		return c.body(length, each)
	default:
		return c.chunks(each)
	}
}

// headers returns the length of the body, -1 for a chunked body.
func (c *conn) headers(into *reply) (length int, err error) {
	const unknown = -2
	length = unknown
	for {
		line, err := c.line()
		if err != nil {
			return 0, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return 0, fmt.Errorf("read content length %.20q", value)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = -1
		case bytes.EqualFold(name, []byte("X-Memory")):
			into.memory = append(into.memory, value...)
		}
	}
	if length == unknown {
		return 0, errors.New("read answer: it has neither Content-Length nor Transfer-Encoding")
	}
	return length, nil
}

func (c *conn) chunks(each func([]byte)) error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(size), 16, 31)
		if err != nil {
			return fmt.Errorf("read size of chunk: %w", err)
		}
		if err := c.body(int(n), each); err != nil {
			return err
		}
		if line, err = c.line(); err != nil || len(line) > 0 {
			return errors.Join(err, fmt.Errorf("read end of chunk: %.20q", line))
		}
		if n == 0 {
			return nil
		}
	}
}

func (c *conn) body(n int, each func([]byte)) error {
	for n > 0 {
		if _, err := c.r.Peek(1); err != nil {
			return fmt.Errorf("read body: %w", err)
		}
		piece, _ := c.r.Peek(min(n, c.r.Buffered())) // all of it is buffered
		if each != nil {
			each(piece)
		}
		n -= len(piece)
		_, _ = c.r.Discard(len(piece)) // likewise
	}
	return nil
}

func (c *conn) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return bytes.TrimRight(line, "\r\n"), nil
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
