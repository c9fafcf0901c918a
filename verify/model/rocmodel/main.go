// Command rocmodel searches the worlds of verify/model that are too large for everyday tests.
//
//	go run ./verify/model/rocmodel                          all of them: minutes, some gigabytes
//	go run ./verify/model/rocmodel -world 'quorum.*crash'   the worlds whose names match
//	go run ./verify/model/rocmodel -everyday                the worlds that go test searches
//
// The command prints one line for each world. If a promise is broken, it also prints the shortest
// trace and a story for feedback/testdata, and exits with status 1.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/rocast/rocast/verify/model"
)

func main() {
	pattern := flag.String("world", "", "search only worlds whose names match this `regexp`")
	everyday := flag.Bool("everyday", false, "search the small worlds")
	list := flag.Bool("list", false, "print the names and search nothing")
	flag.Parse()
	wanted, err := regexp.Compile(*pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rocmodel:", err)
		os.Exit(2)
	}
	worlds := model.Thorough()
	if *everyday {
		worlds = model.Everyday()
	}
	broken := false
	for _, w := range worlds {
		switch {
		case !wanted.MatchString(w.String()):
		case *list:
			fmt.Println(w)
		default:
			broken = !search(w) || broken
		}
	}
	if broken {
		os.Exit(1)
	}
}

func search(w model.World) bool {
	start := time.Now()
	r := model.Search(w)
	fmt.Printf("%-100s %10d states %11d moves %6d ends, longest run %3d, %v\n",
		w, r.States, r.Moves, r.Ends, r.Depth, time.Since(start).Round(time.Millisecond))
	if r.Violation == nil {
		return true
	}
	fmt.Printf("\n%s\nas a story:\n\n%s\n", r.Violation.Trace(w), r.Violation.Story(w))
	return false
}
