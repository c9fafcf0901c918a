package metrics

import (
	"fmt"
	"net/http"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// Paths of the listener, beside api.MetricsPath.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// readyWithin bounds an answer about readiness: a change of a group may hold control's lock.
const readyWithin = 5 * time.Second

// Box is what the listener answers about. A ctl.Controller is a Box.
type Box interface {
	Source
	// Alive returns an error if a forwarding thread is stuck. It waits for nothing.
	Alive() error
	Status() api.Status
}

// Routes returns the handler of the metrics listener: /metrics with the given handler, /healthz and
// /readyz. The answers to the latter two are plain text; 200 means yes, 503 no. A box that is ready
// also names what is not, as a group that goes on without a receiver.
func Routes(box Box, scrape http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+api.MetricsPath, scrape)
	mux.HandleFunc("GET "+HealthPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := box.Alive(); err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		answer(w, http.StatusOK, "ok\n")
	})
	ready := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := box.Status()
		if !s.Ready {
			answer(w, http.StatusServiceUnavailable, problems(&s))
			return
		}
		answer(w, http.StatusOK, "ready\n"+problems(&s))
	})
	mux.Handle("GET "+ReadyPath, http.TimeoutHandler(ready, readyWithin, "control has not answered in time\n"))
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client has left if that fails
}

// problems writes a line for each problem. Of a box that is not ready it writes only those because
// of which it is not.
func problems(s *api.Status) (lines string) {
	for _, p := range s.Problems {
		if !s.Ready && !p.Blocks {
			continue
		}
		what := p.Of
		if p.Name != "" {
			what += " " + p.Name
		}
		lines += fmt.Sprintf("%s is %s: %s\n", what, p.State, p.Reason)
	}
	if s.More > 0 {
		lines += fmt.Sprintf("and up to %d more\n", s.More)
	}
	return lines
}
