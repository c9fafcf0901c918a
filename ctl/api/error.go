package api

import (
	"fmt"
	"net/http"
)

// Kind sorts errors for programs.
type Kind string

const (
	BadFile     Kind = "bad-file"    // a group file is refused; Line says where
	BadRequest  Kind = "bad-request" // the request makes no sense
	Forbidden   Kind = "forbidden"   // the caller may not do this
	NotFound    Kind = "not-found"   // there is no such thing
	Exists      Kind = "exists"      // there is one already
	TooLarge    Kind = "too-large"   // the body is longer than allowed
	Internal    Kind = "internal"    // the daemon or the kernel failed
	Usage       Kind = "usage"       // only of the command line: wrong arguments
	Unreachable Kind = "unreachable" // only of the client: no daemon answers
)

var statuses = map[Kind]int{
	BadFile: http.StatusBadRequest, BadRequest: http.StatusBadRequest, Forbidden: http.StatusForbidden,
	NotFound: http.StatusNotFound, Exists: http.StatusConflict, TooLarge: http.StatusRequestEntityTooLarge,
	Internal: http.StatusInternalServerError,
}

// Error is a sentence that names the thing and the mend.
type Error struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"` // of the group file
}

// Errorf makes an Error.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return e.Message
}

// Status is the HTTP status that goes with the error.
func (e *Error) Status() int {
	if status, ok := statuses[e.Kind]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// ErrorBody is how an Error goes over the wire.
type ErrorBody struct {
	Error *Error `json:"error"`
}
