package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The alert rules and the dashboard that are shipped ask for metrics that exist, and the dashboard
// shows all of them.
func TestWhatIsShippedAsksForMetricsThatExist(t *testing.T) {
	described := make(chan *prometheus.Desc, 100)
	collector{}.Describe(described)
	close(described)
	name := regexp.MustCompile(`rocast_[a-z_]+`)
	var exist []string
	for d := range described {
		exist = append(exist, name.FindString(d.String()))
	}
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../packaging/" + file)
		if err != nil {
			t.Fatal(err)
		}
		asked := name.FindAllString(string(text), -1)
		if len(asked) == 0 {
			t.Errorf("%s asks for nothing", file)
		}
		for _, metric := range asked {
			if !slices.Contains(exist, metric) {
				t.Errorf("%s: there is no metric %s", file, metric)
			}
		}
		if strings.HasSuffix(file, ".json") {
			if !json.Valid(text) {
				t.Errorf("%s is not JSON", file)
			}
			for _, metric := range exist {
				if !slices.Contains(asked, metric) {
					t.Errorf("%s does not show %s", file, metric)
				}
			}
		}
	}
}
