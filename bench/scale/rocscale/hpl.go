package main

import (
	"fmt"

	"github.com/rocast/rocast/bench/scale"
	"github.com/rocast/rocast/feedback"
)

const hplText = "Cepheus, figure 11, and Gleam, figures 10 and 11: the panel broadcast of HPL on four hosts at one switch of 100 Gb/s. " +
	"HPL's *ring* passes on the whole panel. Times in us."

const hplAfter = "Both papers state 67 % less time for communication in the panel broadcast. The whole of HPL took 12 % less there with this broadcast, and 4 to 10 % less " +
	"with row swaps by multicast. Neither is shown here: nothing computes in a simulation, and row swaps need the program itself. Gleam's figure 15 has HPL's time with loss: see the sections about loss."

// hpl is the broadcast of a panel as HPL does it, on the four hosts of the testbeds of Cepheus and
// Gleam.
func (s *session) hpl() error {
	x := section{
		name: "hpl", title: "The panel broadcast of HPL", text: hplText, after: hplAfter,
		columns: []string{"panel", "group", "ring", "less"},
	}
	c := s.config(scale.OneSwitch(4), 100*giga)
	for _, bytes := range []int64{64 * kilo, mega, 16 * mega} {
		_, g, err := s.multicastTo(c, feedback.Policy{}, 0, []int{1, 2, 3}, bytes)
		if err != nil {
			return err
		}
		_, r, err := s.relayTo(c, &wholeChain, 0, []int{1, 2, 3}, bytes)
		if err != nil {
			return err
		}
		x.rows = append(x.rows, []string{fmt.Sprintf("%d KiB", bytes/kilo), fmt.Sprintf("%.1f", micros(seconds(g))), fmt.Sprintf("%.1f", micros(seconds(r))),
			fmt.Sprintf("%.0f %%", 100-100*seconds(g)/seconds(r))})
	}
	s.sections = append(s.sections, x)
	return nil
}
