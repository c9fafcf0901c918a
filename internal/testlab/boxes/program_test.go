package boxes

import (
	"strings"
	"testing"
)

// Where no test needs the program, RemoveProgram does not build it first. The build fails here,
// because no directory can be made: its error shows when it was tried.
func TestRemoveProgramBuildsNothing(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/null/removed")
	RemoveProgram()
	t.Setenv("TMPDIR", "/dev/null/wanted")
	if _, err := Program(); err == nil || !strings.Contains(err.Error(), "wanted") {
		t.Errorf("the program was built before it was wanted: %v", err)
	}
}
