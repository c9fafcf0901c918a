package house

import (
	"regexp"
	"strings"
	"testing"
)

// storyWord matches the words that the player of stories knows.
var storyWord = regexp.MustCompile(`case "([a-z-]+)":`)

func TestStoryGrammarIsComplete(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## Stories\n")
	section, _, _ = strings.Cut(section, "\n## ")
	words := storyWord.FindAllStringSubmatch(read(t, "feedback/story_test.go"), -1)
	if len(words) < 20 {
		t.Errorf("found only %d words in feedback/story_test.go", len(words))
	}
	for _, m := range words {
		if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(section) {
			t.Errorf("CONTRIBUTING.md does not explain the word %s of stories", m[1])
		}
	}
}
