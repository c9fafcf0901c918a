package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Kind classifies errors for programs.
type Kind string

const (
	BadFile     Kind = "bad-file"    // the group file, or the config, is refused; Line is the line of the mistake
	BadRequest  Kind = "bad-request" // the request is invalid
	Forbidden   Kind = "forbidden"   // the caller may not do this
	NotFound    Kind = "not-found"   // the named object does not exist
	Exists      Kind = "exists"      // an object with this name or address already exists
	Stale       Kind = "stale"       // a later version of the request came before, or the host or its program is not in the group any more
	TooLarge    Kind = "too-large"   // the body is longer than allowed
	Unavailable Kind = "unavailable" // something that the daemon needs does not answer
	Internal    Kind = "internal"    // the daemon or the kernel failed
	Usage       Kind = "usage"       // only from the command line: wrong arguments
	Unreachable Kind = "unreachable" // only from the client: no daemon answers
)

var statuses = map[Kind]int{
	BadFile: http.StatusBadRequest, BadRequest: http.StatusBadRequest, Forbidden: http.StatusForbidden,
	NotFound: http.StatusNotFound, Exists: http.StatusConflict, Stale: http.StatusConflict, TooLarge: http.StatusRequestEntityTooLarge,
	Unavailable: http.StatusServiceUnavailable, Internal: http.StatusInternalServerError,
}

// Error is a sentence that names the failing thing and the correction.
type Error struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"` // line in the file; 0: none
}

// Errorf returns an Error with a formatted message.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return e.Message
}

// Status returns the HTTP status of the error.
func (e *Error) Status() int {
	if status, ok := statuses[e.Kind]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// IsAddress reports whether the host of a request is an address or localhost. A web site that lets
// its own name lead to a listener (DNS rebinding) has another one.
func IsAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// ErrorBody is the JSON form of an Error.
type ErrorBody struct {
	Error *Error `json:"error"`
}
