package server

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// maxWaiting bounds how many requests wait for an event at a time.
const maxWaiting = 256

// listEvents answers with the events after a cursor. With wait= it waits for one, but not longer
// than the server lives.
func (s *Server) listEvents(r *http.Request) (any, error) {
	q := r.URL.Query()
	at := api.Cursor{Run: q.Get("run")}
	wait, err := uintIn(q, "wait", uint64(api.MaxEventWait/time.Second))
	if err == nil {
		at.Seq, err = uintIn(q, "seq", 1<<63)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(wait)*time.Second)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	if wait > 0 {
		select {
		case s.waiting <- struct{}{}:
			defer func() { <-s.waiting }()
		default:
			return nil, api.Errorf(api.Unavailable, "%d programs wait for events already; let some of them end", maxWaiting)
		}
	}
	return s.Control.Events(ctx, at, q.Get("group")), nil
}

// uintIn reads a decimal number of a query; absent: 0.
func uintIn(q url.Values, key string, most uint64) (uint64, error) {
	if !q.Has(key) {
		return 0, nil
	}
	return neededIn(q, key, most)
}

// neededIn is uintIn for a number that must be there.
func neededIn(q url.Values, key string, most uint64) (uint64, error) {
	text := q.Get(key)
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err == nil && text[0] == '0' && text != "0":
		return 0, api.Errorf(api.BadRequest, "%s is %q, which has a leading zero; write a whole number up to %d without one", key, text, most)
	case err != nil || n > most:
		return 0, api.Errorf(api.BadRequest, "%s is %q; write a whole number up to %d", key, text, most)
	}
	return n, nil
}
