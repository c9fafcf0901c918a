package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"

	"github.com/rocast/rocast/ctl/api"
)

// Capture yields the lines of a capture as they come, until ctx or the capture ends; the last line
// says why the capture ended. An error is yielded last. Only root may capture.
func (c *Client) Capture(ctx context.Context, q api.CaptureQuery) iter.Seq2[api.CaptureLine, error] {
	return func(yield func(api.CaptureLine, error) bool) {
		err := c.capture(ctx, q, func(line api.CaptureLine) bool { return yield(line, nil) })
		if err != nil && ctx.Err() == nil {
			yield(api.CaptureLine{}, err)
		}
	}
}

// capture returns nil when yield has returned false, or after the last line.
func (c *Client) capture(ctx context.Context, q api.CaptureQuery, yield func(api.CaptureLine) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	path := api.CapturePath + "?" + q.Values().Encode()
	endless := *c
	endless.http = &http.Client{Transport: c.http.Transport}
	response, err := endless.begin(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		text, err := c.whole(response, http.MethodGet, path)
		if err != nil {
			return err
		}
		return refusal(response.StatusCode, text)
	}
	defer response.Body.Close()
	for lines := json.NewDecoder(response.Body); ; {
		var line api.CaptureLine
		if err := lines.Decode(&line); err != nil {
			if errors.Is(err, io.EOF) { // between two lines, too: the last one says that it is the last
				err = io.ErrUnexpectedEOF
			}
			return c.unanswered(http.MethodGet, path, err)
		}
		if !yield(line) || line.Progress != nil && line.Progress.Ended != "" {
			return nil
		}
	}
}

// Trace returns what would happen with a frame that came by a port now, and changes nothing. Only
// root may trace.
func (c *Client) Trace(ctx context.Context, request api.TraceRequest) (trace api.Trace, err error) {
	return trace, c.post(ctx, api.TracePath, request, &trace)
}
