package server

import (
	"io"
	"net/http"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
)

func (s *Server) listPerftests(*http.Request) (any, error) { return s.Control.Perftests(), nil }

func (s *Server) perftestUp(r *http.Request) (any, error) {
	p := peerOf(r)
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	request, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, api.MaxGroupFileBytes))
	if err != nil {
		return nil, api.Errorf(api.BadRequest, "the request did not arrive whole: %v", err)
	}
	up, err := s.Control.PerftestUp(r.Context(), request)
	if err != nil {
		return nil, err
	}
	s.Log.Info("perftest up on request", zap.String("groupIP", up.GroupIP), zap.Stringer("by", p))
	return created{up}, nil
}

func (s *Server) perftestDown(r *http.Request) (any, error) {
	p, groupIP := peerOf(r), r.PathValue("groupIP")
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	if err := s.Control.PerftestDown(groupIP); err != nil {
		return nil, err
	}
	s.Log.Info("perftest down on request", zap.String("groupIP", groupIP), zap.Stringer("by", p))
	return api.Removed{Name: groupIP}, nil
}
