package metrics

import (
	"flag"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rocast/rocast/internal/testlab"
)

var update = flag.Bool("update", false, "write the table in docs/reference.md")

// -update writes the table. What the collector describes has labels; the rest is in a scrape.
func TestTheReferenceHasEveryMetric(t *testing.T) {
	rows := map[string][]string{}
	answer := httptest.NewRecorder()
	Handler(source{}, func() bool { return true }).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if text, ok := strings.CutPrefix(line, "# HELP rocast_"); ok {
			name, help, _ := strings.Cut(strings.TrimSpace(text), " ")
			rows[name] = []string{"`rocast_" + name + "`", "", help}
		}
	}
	all := make(chan *prometheus.Desc, 999)
	collector{}.Describe(all)
	close(all)
	form := regexp.MustCompile(`^Desc\{fqName: "rocast_(\w+)", help: "(.*?)",.* constLabels: \{\}, variableLabels: \{(.*)\}\}$`)
	for d := range all {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatal(d)
		}
		rows[m[1]] = []string{"`rocast_" + m[1] + "`", strings.ReplaceAll(m[3], ",", ", "), m[2]}
	}
	table := [][]string{{"metric", "labels", "meaning"}}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		table = append(table, rows[name])
	}
	testlab.Table(t, "../../docs/reference.md", "## Metrics", *update, table...)
}
