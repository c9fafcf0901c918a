package feedback

import (
	"os"
	"strings"
	"testing"
)

// TestEveryStoryIsNamed: docs/merging.md names each story beside the rule that it shows.
func TestEveryStoryIsNamed(t *testing.T) {
	text, err := os.ReadFile("../docs/merging.md")
	if err != nil {
		t.Fatal(err)
	}
	stories, err := os.ReadDir("testdata/stories")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stories {
		if !strings.Contains(string(text), "`"+s.Name()+"`") {
			t.Errorf("no rule names story %s", s.Name())
		}
	}
}
