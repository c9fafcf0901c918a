package server

import (
	"context"
	"net/http"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// treeWithin bounds how long a viewer waits for the boxes behind this one. A box that has not
// answered then is in the tree with that as the reason.
const treeWithin = 2 * time.Second

// Viewers answers questions of a page that shows the groups, for everybody who reaches it: nothing
// that it answers has R_Keys or quotes the config, and nothing changes anything.
func (s *Server) Viewers() http.Handler {
	mux := http.NewServeMux()
	for path, ask := range map[string]handler{
		api.TrafficPath:             s.traffic,
		api.TrafficPath + "/{name}": s.groupTraffic,
		api.TreesPath + "/{name}":   s.treeSoon,
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

func (s *Server) treeSoon(r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), treeWithin)
	defer cancel()
	return s.Control.Tree(ctx, r.PathValue("name"))
}
