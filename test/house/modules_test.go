package house

import (
	"regexp"
	"testing"
)

var required = regexp.MustCompile(`(?m)^\s+(\S+) (v\S+)`)

// What is measured is what ships: where both modules need another one, they need the same version
// of it.
func TestBothModulesNeedTheSameVersions(t *testing.T) {
	product := map[string]string{}
	for _, m := range required.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		product[m[1]] = m[2]
	}
	shared := 0
	for _, m := range required.FindAllStringSubmatch(read(t, "bench/go.mod"), -1) {
		version, needed := product[m[1]]
		if !needed {
			continue
		}
		if shared++; version != m[2] {
			t.Errorf("bench needs %s %s, and the product %s: go -C bench get %[1]s@%[3]s", m[1], m[2], version)
		}
	}
	if shared < 4 {
		t.Errorf("found only %d modules that both need", shared)
	}
}
