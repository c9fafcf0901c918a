package yamldoc

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// Error describes a mistake in a line of a document and how to correct it.
type Error struct {
	Line    int
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// Errorf returns an error about a line.
func Errorf(line int, format string, args ...any) error {
	return &Error{Line: line, Message: fmt.Sprintf(format, args...)}
}

// Line returns the line that err is about, or 0.
func Line(err error) int {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Line
	}
	return 0
}

var parserError = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(?s:(.*))$`)

// syntaxError converts an error of the YAML parser. The parser gives no line number for the first
// line, and for some mistakes it gives the number of the line before.
func syntaxError(err error) error {
	found := parserError.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(found[1])
	return Errorf(max(1, line), "not YAML: %.*s; mend it on this line or the next", maxQuotedRunes, found[2])
}
