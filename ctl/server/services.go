package server

import (
	"context"
	"net/http"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
)

func (s *Server) listPerftests(*http.Request) (any, error) { return s.Services.Perftests(), nil }

func (s *Server) perftestUp(r *http.Request) (any, error) {
	return startService(s, r, s.Services.PerftestUp, "perftest up on request", func(up api.Perftest) string { return up.GroupIP })
}

func (s *Server) perftestDown(r *http.Request) (any, error) {
	return s.remove(r, "perftest", r.PathValue("groupIP"), s.Services.PerftestDown)
}

func (s *Server) listCMs(*http.Request) (any, error) { return s.Services.CMs(), nil }

func (s *Server) cmUp(r *http.Request) (any, error) {
	return startService(s, r, s.Services.CMUp, "RDMA-CM up on request", func(up api.CM) string { return up.GroupIP })
}

func (s *Server) cmDown(r *http.Request) (any, error) {
	return s.remove(r, "RDMA-CM", r.PathValue("groupIP"), s.Services.CMDown)
}

// startService starts a service at a group IP.
func startService[T any](s *Server, r *http.Request, start func(context.Context, []byte) (T, error), line string, groupIP func(T) string) (any, error) {
	p := peerOf(r)
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	up, err := withBody(s, r, "the request", "no list of receivers needs; name fewer", start)
	if err != nil {
		return nil, err
	}
	s.Log.Info(line, zap.String("groupIP", groupIP(up)), zap.Stringer("by", p))
	return created{up}, nil
}
