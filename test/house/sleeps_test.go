package house

import (
	"regexp"
	"strings"
	"testing"
)

// sleeping is a statement that only lets time pass. A loop that looks at something between two
// sleeps has a condition, and a case of a select is a deadline.
var sleeping = regexp.MustCompile(`^\s*(time\.Sleep\(|<-time\.After\()`)

// uncommentedSleeps returns the lines of a test's text in which real time passes, and no comment
// says why: on the line itself, or above it.
func uncommentedSleeps(text string) (numbers []int) {
	if strings.Contains(text, "\t\"testing/synctest\"\n") {
		return nil // the time is that of the test's own clock
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		above := i > 0 && strings.HasPrefix(strings.TrimSpace(lines[i-1]), "//")
		if sleeping.MatchString(line) && !above && !strings.Contains(line, "//") {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// A test waits for an event. Where time is a load, or what a story is about, a comment says so.
func TestSleepsSayWhatTheyAreFor(t *testing.T) {
	for _, file := range mustFiles(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, n := range uncommentedSleeps(read(t, file)) {
			t.Errorf("%s:%d: the test sleeps; let it wait for an event, use testing/synctest, or say why in a comment", file, n)
		}
	}
}

func TestUncommentedSleeps(t *testing.T) {
	const sleep = "\ttime.Sleep(time.Second)\n"
	for text, want := range map[string]int{
		"\n" + sleep: 1, "\n\t<-time.After(d)\n": 1, "\tx()\n" + sleep + sleep: 2,
		"\ttime.Sleep(d) // a load\n": 0, "\t// a load\n" + sleep: 0, "\t\"testing/synctest\"\n" + sleep: 0,
		"\tfor ; !done(); time.Sleep(d) {\n": 0, "\tcase <-time.After(d):\n": 0,
	} {
		if got := uncommentedSleeps(text); len(got) != want {
			t.Errorf("%q: lines %v", text, got)
		}
	}
}
