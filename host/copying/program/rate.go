package program

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// rate is a flag: bytes a second.
type rate int64

// leastRate bounds the pause between two messages: some 10 s for one of 1 MiB. With a rate of 1 the
// copy would say nothing for days, and look as if it had ended.
const leastRate = 100e3

func (r *rate) Set(text string) error {
	number := strings.TrimRight(text, "kMG")
	factor, known := map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[text[len(number):]]
	n, err := strconv.ParseFloat(number, 64)
	if n *= factor; err != nil || !known || !(n >= 0) || n > math.MaxInt64/2 {
		return errors.New("write bytes a second, such as 800k, 50M or 1.5G")
	}
	if n > 0 && n < leastRate {
		return errors.New("write 100k or more: the source sends 1 MiB at a time")
	}
	*r = rate(n)
	return nil
}

func (r *rate) String() string { return strconv.FormatInt(int64(*r), 10) }
func (r *rate) Type() string   { return "bytes" }
