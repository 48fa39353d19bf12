package providers

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/valyala/fasthttp"
)

// ErrTooLarge is wrapped by the error of a [Fetch] whose answer has more bytes than were asked for.
var ErrTooLarge = errors.New("the answer is too large")

// Fetch sends a request of the proxy's own to a provider, which prepares it, and returns the status of the answer and its
// body, of at most limit bytes. The status is 0 where no answer came; it may come with an error about the body. Fetch ends
// with ctx, whose cause is the error then.
func Fetch(ctx context.Context, c *Client, to *Provider, req *fasthttp.Request, limit int) (status int, body []byte, err error) {
	if ctx.Err() != nil {
		return 0, nil, context.Cause(ctx)
	}
	req.Header.SetUserAgent("remora") // unless the provider has one
	if err := to.Prepare(req); err != nil {
		return 0, nil, err
	}
	content := req.Body()
	if len(content) > 0 {
		req.Header.SetContentLength(len(content))
	}
	req.Header.Set(fasthttp.HeaderAcceptEncoding, "identity")

	var x Exchange // not pooled: Abort may come late
	defer x.Close()
	defer context.AfterFunc(ctx, x.Abort)()
	var head Head
	if err = c.Send(&x, to.Address(), req.Header.AppendBytes(nil), content, &head); err == nil { //nolint:contextcheck // Abort ends its dial
		status = head.Status()
		body, err = readAll(&x, limit)
	}
	if errors.Is(err, ErrAborted) && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return status, body, err
}

// readAll reads the rest of a body of at most limit bytes.
func readAll(x *Exchange, limit int) (all []byte, err error) {
	for {
		piece, err := x.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if all = append(all, piece...); len(all) > limit {
			return nil, fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, limit)
		}
	}
}
