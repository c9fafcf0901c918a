package server

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/openapi"
)

// described lists the operations of the API's description, as method and path, and the names of all
// parameters of queries.
func described(t *testing.T) (operations, queries []string) {
	t.Helper()
	var document struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	if err := yaml.Unmarshal(openapi.Document, &document); err != nil {
		t.Fatal(err)
	}
	for path, methods := range document.Paths {
		for method, operation := range methods {
			operations = append(operations, strings.ToUpper(method)+" "+path)
			for _, p := range operation.Parameters {
				if p.In == "query" {
					queries = append(queries, p.Name)
				}
			}
		}
	}
	slices.Sort(operations)
	slices.Sort(queries)
	return operations, slices.Compact(queries)
}

// What the server answers to is described, and what is described it answers to.
func TestTheDescriptionHasEveryOperation(t *testing.T) {
	operations, queries := described(t)
	s, _ := newServer(t)
	served := []string{"GET " + api.MetricsPath, "GET " + api.OpenAPIPath}
	for _, resources := range []map[string]map[string]handler{s.resources(), s.branchResources(nil, nil), s.hostResources(nil, nil)} {
		for path, methods := range resources {
			for method := range methods {
				served = append(served, method+" "+path)
			}
		}
	}
	slices.Sort(served)
	served = slices.Compact(served) // hosts and boxes ask for mappings alike
	if !slices.Equal(operations, served) {
		t.Errorf("\ndescribed %v\nserved    %v", operations, served)
	}
	// What the sources of the server read of a query.
	var read []string
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?:Query\(\)|\bq|\bquery)\.Get\("(\w+)"\)|(?:uintIn|neededIn)\(\S+, "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
			read = append(read, found[1]+found[2])
		}
	}
	slices.Sort(read)
	if read = slices.Compact(read); !slices.Equal(read, queries) {
		t.Errorf("parameters\ndescribed %v\nread      %v", queries, read)
	}
}

// A client in another language gets the description from the daemon.
func TestTheDescriptionIsServed(t *testing.T) {
	c := serve(t, peer{})
	status, text := c.call(t, "GET", api.OpenAPIPath, "")
	if status != 200 || text != string(openapi.Document) || !strings.Contains(text, "openapi: 3.0.3\n") {
		t.Errorf("%d, %.100q", status, text)
	}
}
