package sim

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestScratch(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("N"))
	if n == 0 {
		n = 200
	}
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	r := NewRunner()
	kinds := map[string]int{}
	first := map[string]int{}
	st := map[string]int{}
	var ev uint64
	for i := from; i < from+n; i++ {
		s := Draw(uint64(i))
		res, err := r.Run(s)
		if err != nil {
			t.Fatal(i, err)
		}
		ev += res.Events
		if res.Failure != nil {
			k := res.Failure.Invariant.String()
			if kinds[k] == 0 {
				first[k] = i
			}
			kinds[k]++
			if kinds[k] <= 8 {
				fmt.Println(i, res.Failure)
			}
		} else {
			st[res.Status.String()]++
		}
	}
	fmt.Println(kinds, first, st, "events/run", ev/uint64(n))
}
func TestReplayOne(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("SEED"))
	if err != nil {
		t.Skip()
	}
	s := Draw(uint64(n))
	fmt.Println(s.String())
	res, story, _ := NewRunner().Replay(s, nil)
	for _, l := range story {
		fmt.Println(l)
	}
	fmt.Println(res.Failure, res.Status, res.Took)
}
