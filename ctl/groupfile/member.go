package groupfile

import (
	"fmt"
	"math"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// member is a Member with the additional data that its checks need.
type member struct {
	Member
	value   yamldoc.Value
	regions []yamldoc.Value // parallel to Member.Regions
	sendPSN int             // the line of the key sendPSN; 0: the key is absent
	behind  int             // the same for the key receivers
}

// KeyRelayQPN is the key of Member.RelayQPN. Boxes of older releases do not know it.
const KeyRelayQPN = "relayQPN"

func (p *parser) readMembers(v yamldoc.Value) error {
	return v.Each("member", func(item yamldoc.Value) error {
		m, err := readMember(item)
		p.members = append(p.members, m)
		return err
	})
}

func readMember(v yamldoc.Value) (member, error) {
	m := member{value: v, Member: Member{Line: v.Line()}}
	return m, v.Fields(
		yamldoc.Field{Key: "ip", Set: yamldoc.Into(&m.IP, Unicast), Needed: "ip: ADDRESS, the host's"},
		yamldoc.Field{Key: "qpn", Set: yamldoc.Into(&m.QPN, hostQPN), Needed: "qpn: N, the number of the host's QP"},
		yamldoc.Field{Key: "psn", Set: yamldoc.Into(&m.FirstPSN, psn), Needed: "psn: N, the first PSN a source's " +
			"QP sends or a receiver's expects"},
		yamldoc.Field{Key: "sendPSN", Set: m.readSendPSN},
		yamldoc.Field{Key: "role", Set: yamldoc.Into(&m.Role, choice(parseRole))},
		yamldoc.Field{Key: "remoteQPN", Set: yamldoc.Into(&m.RemoteQPN, remoteQPN)},
		yamldoc.Field{Key: "remoteIP", Set: yamldoc.Into(&m.RemoteIP, Unicast)},
		yamldoc.Field{Key: "receivers", Set: m.readBehind},
		yamldoc.Field{Key: KeyRelayQPN, Set: yamldoc.Into(&m.RelayQPN, remoteQPN)},
		yamldoc.Field{Key: "relayShares", Set: yamldoc.Into(&m.RelayShares, yamldoc.Value.Bool)},
		yamldoc.Field{Key: "via", Set: yamldoc.Into(&m.Via, yamldoc.Value.Text)},
		yamldoc.Field{Key: "confirm", Set: yamldoc.Into(&m.Confirm, yamldoc.Value.Bool)},
		yamldoc.Field{Key: "regions", Set: m.readRegions},
	)
}

func (m *member) readSendPSN(v yamldoc.Value) error {
	m.sendPSN = v.Line()
	return yamldoc.Into(&m.SendPSN, psn)(v)
}

func (m *member) readBehind(v yamldoc.Value) error {
	m.behind = v.Line()
	return yamldoc.Into(&m.Behind, func(v yamldoc.Value) (uint16, error) {
		n, err := v.UintFrom(1, math.MaxUint16)
		return uint16(n), err
	})(v)
}

func (m *member) readRegions(v yamldoc.Value) error {
	return v.EachOrOne("region", func(item yamldoc.Value) error {
		var r mft.Region
		err := readRange(item, (*mft.VirtualRegion)(&r), "length: BYTES")
		m.Regions = append(m.Regions, r)
		m.regions = append(m.regions, item)
		return err
	})
}

// checkRole refuses keys that do not fit the member's role.
func (m *member) checkRole(groupQPN roce.QPN) error {
	switch {
	case m.Role != Receiver && m.RemoteQPN != groupQPN && !m.RemoteIP.IsValid():
		return m.value.Errorf("is %s and has remoteQPN %d; it sends to the group's qpn %d, so remove it",
			inWords[m.Role], m.RemoteQPN, groupQPN)
	case m.Role == Source && m.behind > 0:
		return yamldoc.Errorf(m.behind, "%v is the source, and a quorum counts receivers only; remove receivers, or "+
			"write role: both", m.value)
	case m.Role == Source && m.Via != "":
		return m.value.Errorf("is the source and has via %q, but a group is created on the box where its source is; "+
			"remove via, or create the group on the other box", m.Via)
	case m.Via != "" && m.RemoteIP.IsValid():
		return m.value.Errorf("has remoteIP, which makes it the other end of a link, and via %q; remove one of them", m.Via)
	case m.Confirm && m.Role == Source:
		return m.value.Errorf("is the source and has confirm, but its own program waits for the others; remove confirm")
	case m.Confirm && m.RemoteIP.IsValid():
		return m.value.Errorf("has remoteIP, which makes it another box, and confirm, which a program does; remove one of them")
	case m.Role == Source && len(m.Regions) > 0:
		return m.value.Errorf("is the source and has regions; a source is not written to, so remove them, or write " +
			"role: both")
	case m.Role == Source && m.sendPSN > 0:
		return yamldoc.Errorf(m.sendPSN, "%v is the source, whose psn is the first it sends; remove sendPSN, or "+
			"write role: both", m.value)
	case m.Role == Receiver && m.sendPSN > 0:
		return yamldoc.Errorf(m.sendPSN, "%v is a receiver, which sends nothing; remove sendPSN, or write role: both",
			m.value)
	case m.Role == Both && m.sendPSN == 0:
		return m.value.Errorf("has role both and no sendPSN; add sendPSN: N, the first PSN that its QP sends")
	}
	return nil
}

// inWords names each role in a sentence.
var inWords = map[Role]string{Receiver: "a receiver", Source: "the source", Both: "both"}

func parseRole(word string) (Role, error) {
	for i, name := range roleNames {
		if word == name {
			return Role(i), nil
		}
	}
	return 0, fmt.Errorf("role %q is not one of %q", word, roleNames)
}
