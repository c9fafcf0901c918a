package groupfile

import (
	"errors"
	"fmt"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/mft"
)

// member is a Member as it was read, with what its checks need.
type member struct {
	Member
	value   yamldoc.Value
	regions []yamldoc.Value // parallel to Member.Regions
}

func (p *parser) readMembers(v yamldoc.Value) error {
	p.membersLine = v.Line()
	return v.Each("member", func(item yamldoc.Value) error {
		m, err := readMember(item)
		p.members = append(p.members, m)
		return err
	})
}

func readMember(v yamldoc.Value) (member, error) {
	m := member{value: v, Member: Member{Line: v.Line()}}
	return m, v.Fields(
		yamldoc.Field{Key: "ip", Set: yamldoc.Into(&m.IP, unicast), Needed: "ip: ADDRESS, the host's"},
		yamldoc.Field{Key: "qpn", Set: yamldoc.Into(&m.QPN, hostQPN), Needed: "qpn: N, the number of the host's QP"},
		yamldoc.Field{Key: "psn", Set: yamldoc.Into(&m.FirstPSN, psn), Needed: "psn: N, the first PSN a source's QP sends or a receiver's expects"},
		yamldoc.Field{Key: "role", Set: yamldoc.Into(&m.Role, choice(parseRole))},
		yamldoc.Field{Key: "remoteQPN", Set: yamldoc.Into(&m.RemoteQPN, remoteQPN)},
		yamldoc.Field{Key: "regions", Set: m.readRegions},
	)
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

func parseRole(word string) (Role, error) {
	for i, name := range roleNames {
		if word == name {
			return Role(i), nil
		}
	}
	if word == "both" {
		return 0, errors.New(`role "both" needs the source switch, which this version does not have; write "source" or "receiver"`)
	}
	return 0, fmt.Errorf("role %q is not one of %q", word, roleNames)
}
