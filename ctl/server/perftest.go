package server

import (
	"net/http"

	"go.uber.org/zap"
)

func (s *Server) listPerftests(*http.Request) (any, error) { return s.Control.Perftests(), nil }

func (s *Server) perftestUp(r *http.Request) (any, error) {
	p := peerOf(r)
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	up, err := withBody(s, r, "the request", "no list of receivers needs; name fewer", s.Control.PerftestUp)
	if err != nil {
		return nil, err
	}
	s.Log.Info("perftest up on request", zap.String("groupIP", up.GroupIP), zap.Stringer("by", p))
	return created{up}, nil
}

func (s *Server) perftestDown(r *http.Request) (any, error) {
	return s.remove(r, "perftest", r.PathValue("groupIP"), s.Control.PerftestDown)
}
