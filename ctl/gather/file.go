package gather

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// file is a group file, as a program writes it.
type file struct {
	Name    string     `json:"name"`
	IP      netip.Addr `json:"ip"`
	QPN     roce.QPN   `json:"qpn"`
	MTU     int        `json:"mtu"`
	Hosts   string     `json:"hosts"`
	Secret  string     `json:"hosts-secret,omitempty"`
	Memory  []region   `json:"memory"`
	Members []member   `json:"members"`
}

type member struct {
	IP      netip.Addr `json:"ip"`
	QPN     roce.QPN   `json:"qpn"`
	PSN     roce.PSN   `json:"psn"`
	SendPSN *roce.PSN  `json:"sendPSN,omitempty"`
	Role    string     `json:"role"`
	Confirm bool       `json:"confirm,omitempty"`
	Regions []region   `json:"regions,omitempty"`
}

type region struct {
	VA     uint64 `json:"va"`
	Length uint64 `json:"length"`
	RKey   uint32 `json:"rkey"`
}

// File returns the group file of a party that is closed, with the member first before the others.
// rkey is the R_Key of the first region to which the source WRITEs; the next regions have the next
// R_Keys. All regions begin at VA 0.
func (p *Party) File(first *Host, ip netip.Addr, qpn roce.QPN, rkey uint32) ([]byte, error) {
	var memory []mft.VirtualRegion
	mtu := p.Hosts[0].MTU
	for _, h := range p.Hosts {
		mtu = min(mtu, h.MTU)
		for i, r := range h.Regions {
			if i == len(memory) {
				memory = append(memory, mft.VirtualRegion{Length: r.Length, RKey: rkey + uint32(i)})
			}
			memory[i].Length = min(memory[i].Length, r.Length)
		}
	}
	f := file{Name: p.Name, IP: ip, QPN: qpn, MTU: mtu, Hosts: groupfile.HostsEnd.String(),
		Secret: groupfile.SecretOf(p.Hosts[0].Secret).String(), Memory: []region{}}
	for _, r := range memory {
		f.Memory = append(f.Memory, region(r))
	}
	hosts := slices.DeleteFunc(slices.Clone(p.Hosts), func(h *Host) bool { return h == first })
	for _, h := range append([]*Host{first}, hosts...) {
		m, err := h.Member(memory)
		if err != nil {
			return nil, err
		}
		f.Members = append(f.Members, written(&m))
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("write the group file: %w", err)
	}
	if at := slices.IndexFunc(p.Hosts, func(h *Host) bool { return len(h.policy) > 0 }); at >= 0 {
		text = fmt.Appendf(text[:len(text)-1], "%s}", p.Hosts[at].policy.Fields())
	}
	return text, nil
}

func written(m *groupfile.Member) member {
	w := member{IP: m.IP, QPN: m.QPN, PSN: m.FirstPSN, Role: m.Role.String(), Confirm: m.Confirm}
	if m.Role == groupfile.Both {
		w.SendPSN = &m.SendPSN
	}
	for _, r := range m.Regions {
		w.Regions = append(w.Regions, region(r))
	}
	return w
}
