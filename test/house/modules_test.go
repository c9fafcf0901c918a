package house

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// make and the scripts find the modules in go.work: nothing tests or reads one that it lacks.
func TestGoWorkNamesEveryModule(t *testing.T) {
	var want []string
	for _, name := range mustFiles(t) {
		if path.Base(name) == "go.mod" {
			want = append(want, path.Dir(name))
		}
	}
	used := regexp.MustCompile(`(?m)^\t(?:\./)?(\S+)$`)
	var got []string
	for _, m := range used.FindAllStringSubmatch(read(t, "go.work"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("go.work names %v, and there are %v", got, want)
	}
}

// Proofs, measurements and labs that are more than tests are no part of the product's module: who
// reads that needs none of them.
func TestProofsAndLabsHaveTheirModules(t *testing.T) {
	modules := map[string]bool{}
	for _, name := range mustFiles(t) {
		modules[path.Dir(name)] = modules[path.Dir(name)] || path.Base(name) == "go.mod"
	}
	for _, s := range mustSources(t) {
		if !belongs(s.path, []string{"bench", "test", "verify"}) || s.isTest() || path.Base(s.path) == "doc.go" {
			continue
		}
		folder := s.folder()
		for folder != "." && !modules[folder] {
			folder = path.Dir(folder)
		}
		if folder == "." {
			t.Errorf("%s is no test and does not ship: give its folder a go.mod, and add that to go.work", s.path)
		}
	}
}

// What is tested and measured is what ships: make build knows go.mod alone, and everything else the
// versions that all modules of go.work agree on. A dependency of another module may not move them.
func TestWorkspaceHasTheVersionsOfTheProduct(t *testing.T) {
	versions := func(workspace string) []string {
		list := exec.Command("go", "list", "-deps", "-test", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{with .Replace}} => {{.Path}} {{.Version}}{{end}}{{end}}", "./...")
		list.Dir, list.Env = root, append(os.Environ(), "GOWORK="+workspace)
		text, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
		slices.Sort(lines)
		return slices.Compact(lines)
	}
	product, all := versions("off"), versions("")
	if len(product) < 20 {
		t.Fatalf("found only %d modules that the product needs", len(product))
	}
	if diff := cmp.Diff(product, all); diff != "" {
		t.Errorf("go.work chooses other versions than go.mod:\n%s", diff)
	}
}
