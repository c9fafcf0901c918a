package feedback

import (
	"os"
	"strings"
	"testing"
)

// TestEveryStoryIsTold: whoever reads docs/merging.md finds each story beside the rule it shows.
func TestEveryStoryIsTold(t *testing.T) {
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
