package sim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestFull(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("SEED"))
	if err != nil {
		t.Skip()
	}
	s := Draw(uint64(n))
	max, _ := strconv.Atoi(os.Getenv("MAX"))
	if max == 0 {
		max = 400
	}
	r := NewRunner()
	rec := &recorder{w: &r.w}
	r.w.recorder = rec
	rec.all = func(l string) {
		if max > 0 && (os.Getenv("GREP") == "" || strings.Contains(l, os.Getenv("GREP"))) {
			fmt.Println(l)
			max--
		}
	}
	res, _ := r.Run(s)
	fmt.Println(res.Failure)
}
