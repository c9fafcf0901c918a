package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Only a test that fails once and passes alone is forgiven by scripts/gotest, where it is asked to.
func TestAFailedTestIsTriedAgain(t *testing.T) {
	script, err := filepath.Abs("../../scripts/gotest")
	if err != nil {
		t.Fatal(err)
	}
	const once = `if _, err := os.Stat("seen"); err != nil { os.WriteFile("seen", nil, 0o600); t.Fatal("first") }; `
	for name, c := range map[string]struct {
		body, other string
		once        bool // gotest is not asked to try again
		passes      bool
	}{
		"passes alone":                        {body: once, passes: true},
		"is not asked to":                     {body: once, once: true},
		"fails alone":                         {body: `t.Fatal(os.Args[0])`},
		"has a data race":                     {body: `os.Stdout.WriteString("\nWARNING: DATA RACE\n"); ` + once},
		"panics":                              {body: `if _, err := os.Stat("seen"); err != nil { os.WriteFile("seen", nil, 0o600); panic("first") }`},
		"does not compile":                    {body: `os.Nothing()`},
		"ends before its test":                {body: `if _, err := os.Stat("seen"); err != nil { os.WriteFile("seen", nil, 0o600); os.Exit(3) }`},
		"ends after a failure":                {body: once, other: `os.Exit(1)`},
		"a result is behind what was printed": {body: once, other: `os.Stdout.WriteString("100 %"); t.Fail()`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":    "module tried\n",
				"a_test.go": "package tried\nimport (\"os\"; \"testing\")\nfunc TestTried(t *testing.T) { " + c.body + " }\nfunc TestOther(t *testing.T) { " + c.other + " }\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			again := "AGAIN=1"
			if c.once {
				again = "AGAIN=" // whoever runs this test may have asked for it
			}
			command := exec.Command(script, "-short", "./...")
			command.Dir, command.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false", again)
			output, err := command.CombinedOutput()
			if (err == nil) != c.passes {
				t.Errorf("gotest ends with %v:\n%s", err, output)
			}
			if listed := strings.Contains(string(output), "a defect to be found:\n  tried ^(TestTried)$"); listed != c.passes {
				t.Errorf("the test is listed: %v:\n%s", listed, output)
			}
		})
	}
}
