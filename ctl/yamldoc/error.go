package yamldoc

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// Error says what is wrong on which line of a document and how to mend it.
type Error struct {
	Line    int
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// Errorf is an error about a line.
func Errorf(line int, format string, args ...any) error {
	return &Error{Line: line, Message: fmt.Sprintf(format, args...)}
}

// Line returns the line err is about, 0 if it is about none.
func Line(err error) int {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Line
	}
	return 0
}

var parserError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(?s:(.*))$`)

// syntaxError puts what the YAML parser says into our form. The parser leaves the first line out, and for some mistakes
// it names the line before.
func syntaxError(err error) error {
	found := parserError.FindStringSubmatch(err.Error())
	if found == nil {
		return Errorf(1, "not YAML: %v", err)
	}
	line, _ := strconv.Atoi(found[1])
	return Errorf(max(1, line), "not YAML: %.*s; mend it on this line or the next", maxQuotedRunes, found[2])
}
