package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// survivorsFile lists generated mutants that no test can notice, or need not. An entry is a line,
// in one of two forms:
//
//	FILE: LINE  =>  BROKEN LINE     one mutant, as it is printed
//	FILE: func NAME                 all mutants of a function
//
// and, indented below it, the reason. An entry quotes the line, because line numbers move. When the
// line changes, the reason has to be thought over.
const survivorsFile = "survivors.txt"

// survivors are the entries of survivorsFile, each with its reason.
type survivors map[string]string

// readSurvivors reads the list of the tree whose top is root.
func readSurvivors(root string) (survivors, error) {
	text, err := os.ReadFile(filepath.Join(root, "verify/mutants", survivorsFile))
	if err != nil {
		return nil, err
	}
	return parseSurvivors(string(text))
}

func parseSurvivors(text string) (survivors, error) {
	listed := survivors{}
	entry := ""
	for n, line := range strings.Split(text, "\n") {
		reason, indented := strings.CutPrefix(line, "\t")
		switch {
		case line == "":
			entry = "" // a reason that lost its mutant must not become the reason of the one above
		case strings.HasPrefix(line, "#"):
		case indented && entry == "":
			return nil, fmt.Errorf("%s:%d: a reason without a mutant", survivorsFile, n+1)
		case indented:
			listed[entry] = strings.TrimSpace(listed[entry] + " " + reason)
		default:
			if _, twice := listed[line]; twice {
				return nil, fmt.Errorf("%s:%d: listed twice: %s", survivorsFile, n+1, line)
			}
			entry = line
			listed[entry] = ""
		}
	}
	for entry, reason := range listed {
		if reason == "" {
			return nil, fmt.Errorf("%s: no reason is given for %s", survivorsFile, entry)
		}
	}
	return listed, nil
}

// has reports whether a mutant is listed.
func (s survivors) has(e *edit) bool {
	_, one := s[e.entry]
	_, all := s[e.functionEntry()]
	return one || all
}

// functionEntry is the entry that lists all mutants of the function that e is in.
func (e *edit) functionEntry() string { return e.file + ": func " + e.function }
