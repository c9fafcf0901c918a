package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// sendWithin bounds how long a client of a capture may take nothing that it is sent.
const sendWithin = 10 * time.Second

// errStops is why a capture ends when the daemon does.
var errStops = errors.New("rocastd stops")

// stream writes an answer by itself, of any length. An error that it returns before it has written
// anything is the answer.
type stream func(w http.ResponseWriter) error

// capture answers with one JSON document on each line, as things happen.
func (s *Server) capture(r *http.Request) (any, error) {
	p := peerOf(r)
	if !p.secretsToo {
		return nil, api.Errorf(api.Forbidden, "a capture shows payload and R_Keys; run as root, on the box itself")
	}
	query := r.URL.Query()
	q := api.CaptureQuery{Group: query.Get("group")}
	if q.Group == "" && query.Has("group") {
		return nil, api.Errorf(api.BadRequest, "group is empty; write the name of a group, or leave group out for all of them")
	}
	if kinds := query.Get("kind"); kinds != "" {
		q.Kinds = strings.Split(kinds, ",")
	}
	sample, err := uintIn(query, "sample", api.SampleMost)
	if err != nil {
		return nil, err
	}
	snap, err := uintIn(query, "snap", api.SnapMost)
	if err != nil {
		return nil, err
	}
	q.Sample, q.Snap = int(sample), int(snap)
	return stream(func(w http.ResponseWriter) error {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(s.stopping, func() { cancel(errStops) })()
		l := newLines(w)
		err := s.Control.Capture(ctx, q, l.line)
		if l.begun {
			return nil // the client has all that there is, or has left
		}
		return err
	}), nil
}

// lines writes the lines of a stream.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	out     *bufio.Writer
	begun   bool
}

func newLines(w http.ResponseWriter) *lines {
	return &lines{w: w, control: http.NewResponseController(w), out: bufio.NewWriterSize(w, 1<<16)}
}

// line writes a line. What belongs together is sent when its last line is written.
func (l *lines) line(line api.CaptureLine) error {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		// The server's limits are for requests that are answered at once.
		if err := l.control.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
	if err := l.control.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil {
		return err
	}
	if err := json.NewEncoder(l.out).Encode(line); err != nil {
		return err
	}
	if line.Progress == nil {
		return nil
	}
	if err := l.out.Flush(); err != nil {
		return err
	}
	return l.control.Flush()
}
