package server

import (
	"net/http"

	"github.com/rocast/rocast/ctl/api"
)

// Viewers answers questions of a page that shows the groups, for everybody who reaches it: nothing
// that it answers has R_Keys or quotes the config, and nothing changes anything.
func (s *Server) Viewers() http.Handler {
	mux := http.NewServeMux()
	for path, ask := range map[string]handler{
		api.TrafficPath:             s.traffic,
		api.TrafficPath + "/{name}": s.groupTraffic,
		api.TreesPath + "/{name}":   s.tree,
	} {
		mux.Handle(path, resource(map[string]handler{http.MethodGet: ask}))
	}
	return mux
}

func (s *Server) traffic(*http.Request) (any, error) { return s.Control.Traffic(), nil }

func (s *Server) groupTraffic(r *http.Request) (any, error) {
	return s.Control.GroupTraffic(r.PathValue("name"))
}

func (s *Server) tree(r *http.Request) (any, error) {
	return s.Control.Tree(r.Context(), r.PathValue("name"))
}
