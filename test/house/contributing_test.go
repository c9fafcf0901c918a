package house

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// speak matches every place that knows the policy value that CONTRIBUTING.md takes as its example.
var speak = regexp.MustCompile("Speak(RNR|Off|Policy)|ParseSpeak|\\bSpeak\\b|speakAfter|\"speak\"|\\bspeak: |\\bspeak=|`speak`")

// places returns the files and folders in the first column of the table below a heading.
func places(document, heading string) []string {
	_, section, _ := strings.Cut(document, "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var all []string
	for _, l := range strings.Split(section, "\n") {
		if strings.HasPrefix(l, "| `") {
			for _, m := range quoted.FindAllStringSubmatch(strings.Split(l, "|")[1], -1) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// Whoever adds a policy value follows the table in CONTRIBUTING.md: it names every file that knows
// `speak`, and no other.
func TestPlacesOfAPolicyValue(t *testing.T) {
	listed := places(read(t, "CONTRIBUTING.md"), "How a policy value is added")
	used := map[string]bool{}
	for _, f := range mustFiles(t) {
		if within(f, "test/house") || f == "CONTRIBUTING.md" || !speak.MatchString(read(t, f)) {
			continue
		}
		i := slices.IndexFunc(listed, func(place string) bool { return within(f, place) })
		if i < 0 {
			t.Errorf("%s knows the policy speak and is missing in the table of CONTRIBUTING.md", f)
			continue
		}
		used[listed[i]] = true
	}
	for _, place := range listed {
		if !used[place] {
			t.Errorf("CONTRIBUTING.md names %s as a place of the policy speak, which it is not", place)
		}
	}
}

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

func TestPlaces(t *testing.T) {
	got := places("# x\n## How\n| place | |\n|---|---|\n| `a/b.go`, `c` | `d` |\n| e | |\n## Next\n| `f` | |\n", "How")
	if strings.Join(got, " ") != "a/b.go c" {
		t.Errorf("got %q", got)
	}
}
