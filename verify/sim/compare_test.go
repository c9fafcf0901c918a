package sim

import (
	"strings"
	"testing"
)

// The table has a row for each policy and loss rate. Without loss nothing is resent, and loss costs
// goodput.
func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var out strings.Builder
	if err := Compare(&out, 1); err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")[2:]
	if len(rows) != len(compared)*len(lossRates) {
		t.Fatalf("%d rows:\n%s", len(rows), &out)
	}
	for _, row := range rows {
		calm := strings.Contains(row, "| 0 |")
		if whole := strings.Contains(row, "| 1.000 | 0 | 0.0 | 0.0 | 0.0 | 0.0 |"); calm != whole {
			t.Error(row)
		}
	}
}
