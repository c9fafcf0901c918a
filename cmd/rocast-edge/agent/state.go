package agent

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/bpf/edge"
)

// State is what an agent does, for people.
type State struct {
	Partners []PartnerState `json:"partners"`
}

// PartnerState is a box that is asked for one IP.
type PartnerState struct {
	Box       netip.AddrPort `json:"box"`
	IP        netip.Addr     `json:"ip"`
	Interface string         `json:"interface,omitempty"`
	Attach    string         `json:"attach,omitempty"`
	Heard     time.Time      `json:"heard"` // the last answer; the start, if there was none
	Answered  bool           `json:"answered"`
	Problem   string         `json:"problem,omitempty"`
	Mappings  []MappingState `json:"mappings"`
}

// MappingState is a mapping.
type MappingState struct {
	Group string     `json:"group,omitempty"` // absent: the box has not answered since the start
	From  netip.Addr `json:"from"`
	To    netip.Addr `json:"to"`
	QPN   uint32     `json:"qpn"`
	Host  uint32     `json:"hostQPN"`
}

// State returns what the agent does now. It may be called from any goroutine.
func (a *Agent) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state()
}

func (a *Agent) state() (s State) {
	for _, p := range a.partners {
		one := PartnerState{Box: p.box, IP: p.ip, Heard: p.heard, Answered: p.answered, Problem: p.problem, Mappings: []MappingState{}}
		if p.port != nil && !p.port.closed {
			one.Interface, one.Attach = p.port.name, string(p.port.program.Mode())
		}
		for key, m := range p.mappings {
			one.Mappings = append(one.Mappings, MappingState{p.groups[key], key.From, key.To, uint32(key.QPN), uint32(m.HostQPN)})
		}
		slices.SortFunc(one.Mappings, func(a, b MappingState) int {
			if c := a.To.Compare(b.To); c != 0 {
				return c
			}
			return int(a.QPN) - int(b.QPN)
		})
		s.Partners = append(s.Partners, one)
	}
	return s
}

// Look is the state of the programs that are pinned below pins, by interface.
func Look(pins string) (map[string]edge.State, error) {
	names, err := edge.Pinned(pins)
	states := map[string]edge.State{}
	for _, name := range names {
		if states[name], err = edge.Look(name, pins); err != nil {
			return nil, err
		}
	}
	return states, err
}

// Remove detaches the programs of all interfaces. The host is as it was before the first start.
func Remove(pins string) (names []string, err error) {
	if names, err = edge.Pinned(pins); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := edge.Detach(name, pins); err != nil {
			return nil, err
		}
	}
	return names, nil
}
