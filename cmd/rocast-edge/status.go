package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/rocast/rocast/cmd/rocast-edge/agent"
)

// write keeps the state for rocast-edge status. What cannot be written is missing there, and
// nowhere else.
func (at *paths) write(s agent.State) {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return
	}
	if os.MkdirAll(filepath.Dir(at.state), 0o755) != nil {
		return
	}
	next := at.state + ".new"
	if os.WriteFile(next, text, 0o644) == nil {
		_ = os.Rename(next, at.state)
	}
}

func (at *paths) status(out io.Writer) error {
	states, err := agent.Look(at.pins)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(states)) {
		s := states[name]
		attached := string(s.Mode)
		if !s.Attached {
			attached = "not attached"
		}
		fmt.Fprintf(w, "%s\t%s\t%d mappings\t%d mapped\t%d without mapping\t%d refused\n",
			name, attached, len(s.Mappings), s.Counters.Mapped, s.Counters.NoMapping, s.Counters.Refused())
	}
	if len(states) == 0 {
		fmt.Fprintln(w, "no program is attached")
	}
	if err := w.Flush(); err != nil { // what follows has other columns
		return err
	}
	text, err := os.ReadFile(at.state)
	var run agent.State
	switch {
	case errors.Is(err, os.ErrNotExist):
		fmt.Fprintln(w, "rocast-edge run has not been started")
		return w.Flush()
	case err == nil:
		err = json.Unmarshal(text, &run)
	}
	if err != nil {
		return fmt.Errorf("read the state of rocast-edge run: %w", err)
	}
	for _, p := range run.Partners {
		ip := "-" // not known yet
		if p.IP.IsValid() {
			ip = p.IP.String()
		}
		fmt.Fprintf(w, "box %v\t%s\t%s\t%s\n", p.Box, ip, cmp.Or(p.Interface, "-"), heard(&p))
		for _, m := range p.Mappings {
			fmt.Fprintf(w, "  %s\t%v to %v\tQPN %#x\tto QPN %#x\n", m.Group, m.From, m.To, m.QPN, m.Host)
		}
	}
	return w.Flush()
}

func heard(p *agent.PartnerState) string {
	ago := time.Since(p.Heard).Round(time.Second)
	switch {
	case p.Problem != "" && p.Answered:
		return fmt.Sprintf("answered %v ago: %s", ago, p.Problem)
	case p.Problem != "":
		return p.Problem
	case !p.Answered:
		return "has not answered yet"
	}
	return fmt.Sprintf("answered %v ago", ago)
}
