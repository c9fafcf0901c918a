package groupip

import (
	"fmt"
	"time"
)

// InWords says how long it is until something ends. It rounds up: what ends in 0 s is over.
func InWords(d time.Duration) string {
	const exact = 2 * time.Minute
	if d > exact {
		return fmt.Sprintf("%d min", (d+time.Minute-1)/time.Minute)
	}
	return fmt.Sprintf("%d s", max(1, (d+time.Second-1)/time.Second))
}
