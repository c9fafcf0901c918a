package dataplane

import "testing"

// A group that is given back soon is armed later each time, up to a bound, and at once again after
// it was carried for long. That nothing was carried counts only when it has happened often.
func TestGivenBack(t *testing.T) {
	f := fanState{calm: 3}
	give := func(carried uint64, need, inVain int) {
		t.Helper()
		if f.givenBack(carried); f.need != need || f.inVain != inVain || f.calm != 0 {
			t.Errorf("given back after %d: armed after %d plain packets, in vain %d times, %d counted; want %d and %d",
				carried, f.need, f.inVain, f.calm, need, inVain)
		}
	}
	give(4*16+1, 16, 0)
	give(4*16, 32, 0)
	give(1, 64, 0)
	give(4*64, 128, 0)
	for n := range inVainMax {
		give(0, 128, n+1)
	}
	give(0, 256, inVainMax)
	give(4*256+1, 16, 0)
	for need := 32; need <= 4096; need *= 2 {
		give(1, need, 0)
	}
	give(1, 4096, 0)
}
