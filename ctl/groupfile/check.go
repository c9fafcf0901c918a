package groupfile

import (
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// check runs the checks that need more than one value of the file.
func (p *parser) check() error {
	for _, step := range []func() error{p.checkPolicy, p.checkFamilies, p.checkRoles, p.checkQPs, p.checkRemoteIPs, p.checkRelay, p.checkAddressing, p.pairRegions} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkEffects refuses keys that were written and do not go with others. A text that was accepted
// before may have them.
func (f *File) checkEffects() error {
	if line := f.Lines["degraded-below"]; line != 0 && f.DegradedAfter == 0 {
		return yamldoc.Errorf(line, "degraded-below has no effect with degraded-after: 0, with which the group never "+
			"counts as degraded for its rate; remove one of them")
	}
	if line := f.Lines["hosts-secret"]; line != 0 && f.HostsSecret != (Secret{}) && f.Hosts == HostsNothing {
		return yamldoc.Errorf(line, "hosts-secret has no effect without hosts: true, with which programs on hosts may join; "+
			"add that, or remove hosts-secret")
	}
	if f.Policy.Repair == feedback.RepairOff {
		return f.CheckNoRepair()
	}
	return nil
}

func (p *parser) checkPolicy() error { return CheckPolicy(&p.Policy, p.Lines, p.PathMTU) }

func (p *parser) checkFamilies() error {
	family := func(a netip.Addr) string {
		if a.Is4() {
			return "IPv4"
		}
		return "IPv6"
	}
	want := family(p.IP)
	for _, m := range p.members {
		if got := family(m.IP); got != want {
			return m.value.Errorf("is %s and the group's ip is %s; a frame has one of them, so write all addresses "+
				"in the same family", got, want)
		}
		if m.RemoteIP.IsValid() && family(m.RemoteIP) != want {
			return m.value.Errorf("has an %s remoteIP and the group's ip is %s; a frame has one of them, so write all "+
				"addresses in the same family", family(m.RemoteIP), want)
		}
	}
	return nil
}

// checkRoles finds the receivers and the first source: the member with role source, or else the
// first member with role both.
func (p *parser) checkRoles() error {
	for i := range p.members {
		m := &p.members[i]
		if m.RemoteQPN == 0 {
			m.RemoteQPN = p.QPN
		}
		if m.Role == Source && p.hasSource() {
			return m.value.Errorf("is a second source, the first is on line %d; a group has one", p.Source.Line)
		}
		if err := m.checkRole(p.QPN); err != nil {
			return err
		}
		if m.Role != Source {
			if len(p.Receivers) == mft.MaxPaths {
				return m.value.Errorf("is one more than the %d receivers that a group can have; make another group",
					mft.MaxPaths)
			}
			p.Receivers = append(p.Receivers, m.Member)
			continue
		}
		p.Source = m.Member
	}
	return p.checkCast()
}

func (p *parser) hasSource() bool { return p.Source.Line > 0 }

// checkCast refuses a file without a possible source, or with too few receivers. If no member has
// role source, it makes the first member with role both the source.
func (p *parser) checkCast() error {
	listeners, sending := 0, 0
	for i := range p.Receivers {
		weight := p.Receivers[i].Weight()
		if listeners += weight; isBoth(p.Receivers[i]) {
			sending = max(sending, weight)
		}
	}
	if i := slices.IndexFunc(p.Receivers, isBoth); i >= 0 {
		listeners -= sending // a member with role both does not receive while it sends
		if !p.hasSource() {
			p.Source = p.Receivers[i]
			p.Source.FirstPSN = p.Source.SendPSN
		}
	}
	switch quorum := int(p.Policy.Ack); {
	case !p.hasSource():
		return yamldoc.Errorf(p.Lines["members"], "members has no source; give one of them role: source, or role: both")
	case listeners == 0:
		return yamldoc.Errorf(p.Lines["members"], "members has no receiver besides the source; add one")
	case quorum > listeners:
		return yamldoc.Errorf(p.Lines["ack"], "ack waits for %d receivers and the group has %d; write a smaller "+
			"quorum or all", quorum, listeners)
	}
	return nil
}

func isBoth(m Member) bool { return m.Role == Both }

// checkQPs refuses members that the data path could not tell apart.
func (p *parser) checkQPs() error {
	type qp struct {
		ip  netip.Addr
		qpn roce.QPN
	}
	own, remote := map[qp]int{}, map[qp]int{}
	for _, m := range p.members {
		if line, taken := own[qp{m.IP, m.QPN}]; taken {
			return m.value.Errorf("is QP %d of %v, as is the member on line %d; keep one of them", m.QPN, m.IP, line)
		}
		own[qp{m.IP, m.QPN}] = m.Line
		if m.Role == Source {
			continue
		}
		if line, taken := remote[qp{m.IP, m.RemoteQPN}]; taken {
			return m.value.Errorf("and the member on line %d are both at %v with remote QPN %d, so their feedback "+
				"cannot be told apart; "+
				"change the remoteQPN of one", line, m.IP, m.RemoteQPN)
		}
		remote[qp{m.IP, m.RemoteQPN}] = m.Line
		if m.Role == Both && p.Source.Role == Source && m.IP == p.Source.IP {
			return m.value.Errorf("has role both and is on the host of the source (line %d), so their data cannot "+
				"be told apart; "+
				"give it role: receiver, or remove the source", p.Source.Line)
		}
	}
	return nil
}

// checkRemoteIPs refuses peer addresses that the box cannot have.
func (p *parser) checkRemoteIPs() error {
	lines := map[netip.Addr]int{}
	for _, m := range p.members {
		lines[m.IP] = m.Line
	}
	for _, m := range p.members {
		switch line := lines[m.RemoteIP]; {
		case !m.RemoteIP.IsValid():
		case p.Addressing == mft.ByVirtualQPN:
			return m.value.Errorf("has a remoteIP, but with addressing virtual-qpn the peers of all QPs are hosts, and a " +
				"box behind this one could not have their addresses; use addressing: group-ip, or remove remoteIP")
		case p.Addressing == mft.ByGroupIP && m.RemoteIP == p.IP:
			return m.value.Errorf("has the group's own ip as remoteIP, which is the default; remove remoteIP")
		case line > 0:
			return m.value.Errorf("has remoteIP %v, which is the ip of the member on line %d; write an address of this box",
				m.RemoteIP, line)
		}
	}
	return nil
}

// checkRelay refuses a file of which this box would pass on the frames of some members, or for
// nobody.
func (p *parser) checkRelay() error {
	passes := p.IsRelayed()
	for _, m := range p.members {
		switch relayed := m.RelayQPN != 0; {
		case m.RelayShares && !relayed:
			return m.value.Errorf("has relayShares and no relayQPN; remove it")
		case relayed && !p.Source.RemoteIP.IsValid():
			return m.value.Errorf("has relayQPN, which boxes write where the source is another box; remove it")
		case relayed != passes && m.Role != Source, relayed && m.Role != Receiver:
			return m.value.Errorf("has or lacks relayQPN: all members have it, or none, and these are receivers")
		}
	}
	return nil
}

// checkAddressing checks the group's ip against the members' IPs.
func (p *parser) checkAddressing() error {
	if p.Addressing != mft.ByVirtualQPN {
		for _, m := range p.members {
			if m.IP == p.IP {
				return m.value.Errorf("has the group's own ip %v; give the group an address that no host has (or "+
					"addressing: virtual-qpn)", p.IP)
			}
		}
		return nil
	}
	for _, m := range p.members { // such a member counts as no receiver below
		if m.Role == Both {
			return m.value.Errorf("has role both, but with addressing virtual-qpn the group is found by the " +
				"address of its only source; " +
				"use addressing: group-ip, or give it role: receiver")
		}
	}
	at := func(m member) bool { return m.Role == Receiver && m.IP == p.IP }
	if !slices.ContainsFunc(p.members, at) {
		return yamldoc.Errorf(p.Lines["ip"], "ip %v is not a receiver's address, but with addressing virtual-qpn "+
			"the source reaches the group by "+
			"the address of a receiver; write one of those", p.IP)
	}
	for _, m := range p.members {
		if m.Role == Receiver && m.IP == p.Source.IP {
			return m.value.Errorf("is on the source's host, and with addressing virtual-qpn copies keep the " +
				"source's address, " +
				"and a host drops frames that come from its own address; use addressing: group-ip")
		}
		if m.Role == Receiver && m.IP == p.IP && m.RemoteQPN == p.Source.QPN {
			return m.value.Errorf("has the source's own QP (qpn %d) as its remote QP, and with addressing virtual-qpn "+
				"its ACKs would reach the source as answers of all receivers whenever rocastd does not run; "+
				"give it another remoteQPN", m.RemoteQPN)
		}
	}
	return nil
}
