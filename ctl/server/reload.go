package server

import "net/http"

// status adds what the daemon knows of its config to what control knows of the box.
func (s *Server) status(*http.Request) (any, error) {
	status := s.Control.Status()
	config := s.Reloader.State()
	status.Config = &config
	return status, nil
}

func (s *Server) reload(r *http.Request) (any, error) {
	p := peerOf(r)
	if err := p.mayChange(); err != nil {
		return nil, err
	}
	return s.Reloader.Reload(p.String())
}
