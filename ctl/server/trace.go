package server

import (
	"context"
	"net/http"

	"github.com/rocast/rocast/ctl/api"
)

// trace says what would happen with a frame. The answer has the R_Keys of the copies.
func (s *Server) trace(r *http.Request) (any, error) {
	if !peerOf(r).secretsToo {
		return nil, api.Errorf(api.Forbidden, "a trace shows R_Keys; run as root, on the box itself")
	}
	return withBody(s, r, "the request", "no frame needs; trace one frame", func(_ context.Context, body []byte) (api.Trace, error) {
		return s.Control.Trace(body)
	})
}
