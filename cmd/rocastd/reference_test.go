package main

import (
	"flag"
	"testing"

	"github.com/rocast/rocast/internal/testlab"
)

var update = flag.Bool("update", false, "write the table in docs/reference.md")

// -update writes the table.
func TestTheReferenceHasEveryFeature(t *testing.T) {
	rows := [][]string{{"feature", "Linux", "without it"}}
	for _, f := range features() {
		rows = append(rows, []string{f.Name, f.Since, f.Fallback})
	}
	testlab.Table(t, "../../docs/reference.md", "## Kernel features", *update, rows...)
}
