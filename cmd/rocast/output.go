package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rocast/rocast/ctl/api"
)

// print writes the answer as JSON if --json is set, and calls human otherwise.
func (a *app) print(answer any, human func(w io.Writer)) error {
	if a.json {
		return a.printJSON(answer)
	}
	return a.show(human)
}

// show writes tables and sentences for people.
func (a *app) show(human func(w io.Writer)) error {
	var text strings.Builder
	human(&text)
	_, err := io.WriteString(a.stdout, layout(text.String(), a.width()))
	return err
}

func (a *app) printJSON(answer any) error {
	encoder := json.NewEncoder(a.stdout)
	if !a.watching { // else each document is a line
		encoder.SetIndent("", "  ")
	}
	encoder.SetEscapeHTML(false)
	return encoder.Encode(answer)
}

// fail writes the error and returns the exit status for it.
func (a *app) fail(err error) int {
	var e *api.Error
	if !errors.As(err, &e) {
		e = api.Errorf(api.Usage, "%v", err)
	}
	// Wrong arguments can end the parsing before the parser reaches --json.
	if a.json || slices.Contains(a.args, "--json") {
		_ = a.printJSON(api.ErrorBody{Error: e})
	} else {
		fmt.Fprintln(a.stderr, "rocast:", err)
	}
	switch e.Kind {
	case api.Usage:
		return exitUsage
	case api.Unreachable:
		return exitUnreachable
	}
	return exitRefused
}

// row writes one line of a table, for layout. An empty cell is written as a dash.
func row(w io.Writer, cells ...any) {
	text := make([]string, len(cells))
	for i, cell := range cells {
		if text[i] = fmt.Sprint(cell); text[i] == "" {
			text[i] = "-"
		}
	}
	fmt.Fprintln(w, strings.Join(text, "\t"))
}

// counters writes a table of counters, sorted by name.
func counters(w io.Writer, counts api.Counters) {
	row(w, "COUNTER", "COUNT")
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		row(w, name, counts[name])
	}
}
