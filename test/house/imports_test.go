package house

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/rocast/rocast/"

// rooms are the packages from the top of the house to its bottom; a package may
// import only what stands below its own line. Longer prefixes decide.
var rooms = []struct {
	prefix string
	floor  int
	why    string
}{
	{"cmd", 6, "commands are the top"},
	{"test", 6, "stories use everything"},
	{"internal/testlab", 2, "the lab of tests: namespaces, hosts, lossy links"},
	{"demo", 6, "the demonstration uses everything"},
	{"bench", 5, "measures the product"},
	{"verify", 5, "runs the product's code to prove it"},
	{"internal/captures", 0, "recorded frames"},
	{"internal/rnic", 1, "an endpoint knows the wire only"},
	{"ctl", 4, "control knows the data path, not who calls it"},
	{"dataplane/afxdp", 3, "the only door to bpf and xsk"},
	{"dataplane", 3, ""},
	{"dataplane/xsk", 0, "rings know nothing of RoCE"},
	{"bpf", 0, "the classifier knows no group"},
	{"mft", 2, ""},
	{"feedback", 1, ""},
	{"roce", 0, "the wire imports nothing of ours"},
}

// pure packages do no I/O, read no clock, start no goroutine and log nothing.
var pure = []string{"roce", "mft", "feedback"}

var impure = map[string]bool{
	"net": true, "os": true, "log": true, "log/slog": true, "context": true, "syscall": true,
	"golang.org/x/sys/unix": true, "go.uber.org/zap": true,
}

func floor(pkg string) (int, string, bool) {
	best, n := -1, -1
	for i, r := range rooms {
		if (pkg == r.prefix || strings.HasPrefix(pkg, r.prefix+"/")) && len(r.prefix) > n {
			best, n = i, len(r.prefix)
		}
	}
	if best < 0 {
		return 0, "", false
	}
	return rooms[best].floor, rooms[best].why, true
}

// TestImportsPointDown is the layout as a rule: see ARCHITECTURE.md.
func TestImportsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}
{{end}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	edges := 0
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		from, to, _ := strings.Cut(s.Text(), " ")
		pkg := strings.TrimPrefix(from, module)
		for _, p := range pure {
			if pkg == p && impure[to] {
				t.Errorf("%s imports %s: it is to stay free of I/O, clocks and goroutines", pkg, to)
			}
		}
		ours, isOurs := strings.CutPrefix(to, module)
		if !isOurs {
			continue
		}
		edges++
		a, _, okA := floor(pkg)
		b, why, okB := floor(ours)
		switch {
		case !okA || !okB:
			t.Errorf("%s -> %s: no room is named for one of them; add it here and to ARCHITECTURE.md", pkg, ours)
		case strings.Split(pkg, "/")[0] == strings.Split(ours, "/")[0]:
			// Inside a room the compiler's ban on cycles is enough.
		case b >= a:
			t.Errorf("%s imports %s, which stands no lower (%s)", pkg, ours, why)
		case ours == "bpf" && pkg != "dataplane/afxdp" && !strings.HasPrefix(pkg, "cmd/"):
			t.Errorf("%s imports bpf: only the code that opens ports may", pkg)
		}
	}
	if edges == 0 {
		t.Fatal("found no imports at all")
	}
}
