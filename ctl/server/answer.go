package server

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/rocast/rocast/ctl/api"
)

// handler returns the answer to a request.
type handler func(*http.Request) (any, error)

// created wraps an answer that is sent with status 201.
type created struct{ answer any }

// resource serves the methods that a path has.
func resource(methods map[string]handler) http.Handler {
	allowed := strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle := methods[r.Method]
		if handle == nil {
			w.Header().Set("Allow", allowed)
			write(w, http.StatusMethodNotAllowed, api.ErrorBody{
				Error: api.Errorf(api.BadRequest, "method %s is not allowed for %s; use %s",
					r.Method, r.URL.EscapedPath(), allowed),
			})
			return
		}
		answer, err := handle(r)
		if err != nil {
			writeError(w, err)
			return
		}
		if write, ok := answer.(stream); ok {
			if err := write(w); err != nil {
				writeError(w, err)
			}
			return
		}
		status := http.StatusOK
		if made, ok := answer.(created); ok {
			status, answer = http.StatusCreated, made.answer
		}
		write(w, status, answer)
	})
}

func writeError(w http.ResponseWriter, err error) {
	var e *api.Error
	if !errors.As(err, &e) {
		e = api.Errorf(api.Internal, "%v", err)
	}
	told := *e
	told.Message = oneLine(told.Message)
	write(w, e.Status(), api.ErrorBody{Error: &told})
}

// oneLine makes one sentence of joined errors, which stand on separate lines.
func oneLine(message string) string { return strings.ReplaceAll(message, "\n", "; ") }

func write(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Every answer can be written as JSON, so an error means that the client has disconnected and
	// cannot be told.
	_ = json.NewEncoder(w).Encode(answer)
}
