package cm

import (
	"flag"
	"testing"

	"github.com/rocast/rocast/internal/testlab"
)

var update = flag.Bool("update", false, "write the table in docs/reference.md")

// -update writes the table.
func TestTheReferenceHasEveryCounter(t *testing.T) {
	rows := [][]string{{"counter", "one for each time that this happened"}}
	for _, text := range counterTexts {
		rows = append(rows, []string{"`" + text.name + "`", text.meaning})
	}
	testlab.Table(t, "../../docs/reference.md", "## Counters of RDMA-CM", *update, rows...)
}
