package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rocast/rocast/ctl/api"
)

// listed is how many counters or sentences a finding names one by one.
const listed = 8

// join writes words behind each other, and counts those beyond listed.
func join(words []string, between string) string {
	if more := len(words) - listed; more > 0 {
		words = append(slices.Clone(words[:listed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, between)
}

// list writes the counters that are not 0, by name: rx-dropped 3, rx-ring-full 1.
func list(counters api.Counters) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if n := counters[name]; n > 0 {
			words = append(words, fmt.Sprintf("%s %d", name, n))
		}
	}
	return join(words, ", ")
}

// plural writes a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
