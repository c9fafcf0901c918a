package house

import (
	"regexp"
	"strings"
	"testing"
)

// avoided are words that a comment does not have, and what it has instead.
var avoided = []struct {
	word    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\bsays whether\b`), "reports whether, as in Go's own packages"},
}

// objectionsToWords returns what a line of a comment has instead of the usual word.
func objectionsToWords(line string) (objections []string) {
	for _, a := range avoided {
		if word := a.word.FindString(line); word != "" {
			objections = append(objections, word+": write "+a.instead)
		}
	}
	return objections
}

// A reader takes two words for two things.
func TestCommentsHaveTheUsualWords(t *testing.T) {
	checked := 0
	prose(t, func(file string, number int, line string) {
		if !strings.HasSuffix(file, ".go") {
			return
		}
		checked++
		for _, o := range objectionsToWords(line) {
			t.Errorf("%s:%d: %s", file, number, o)
		}
	})
	if checked < 5000 {
		t.Errorf("only %d lines of comments were found", checked)
	}
}

func TestObjectionsToWords(t *testing.T) {
	if got := objectionsToWords("// known says whether it is known."); len(got) != 1 {
		t.Errorf("%q", got)
	}
	if got := objectionsToWords("// known reports whether it is known; the note says why."); len(got) != 0 {
		t.Errorf("%q", got)
	}
}
