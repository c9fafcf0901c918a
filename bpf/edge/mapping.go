package edge

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/rocast/rocast/roce"
)

// Bounds of an edge. They are those of edge.c.
const (
	MappingsMax = 4096
	RegionsMax  = len(edgeRocastMapping{}.Range)
)

// Key is what names the packets of a shared leg.
type Key struct {
	From, To netip.Addr // To is a multicast address
	QPN      roce.QPN
}

func (k Key) String() string { return fmt.Sprintf("%v to %v, QPN %#x", k.From, k.To, uint32(k.QPN)) }

// Mapping says what becomes of the packets of a leg at this host.
type Mapping struct {
	Key
	Host    netip.Addr
	MAC     roce.MAC
	HostQPN roce.QPN
	AddPSN  uint32   // modulo 2^24
	Regions []Region // none: VA and R_Key of a WRITE stay
	// Owner is a number for whoever put the mapping. The program does not read it.
	Owner uint32
}

// Region is where a range of the leg's memory lies at this host.
type Region struct {
	VA, Length uint64 // as in the leg's packets, as RKey
	RKey       uint32
	AddVA      uint64 // modulo 2^64
	ToRKey     uint32
}

const numberMask = 1<<24 - 1

// objection says why a mapping cannot be.
func (m *Mapping) objection() error {
	switch {
	case !m.From.IsValid() || !m.To.IsValid() || !m.Host.IsValid():
		return fmt.Errorf("the mapping of %v lacks an address", m.Key)
	case m.From.Is4() != m.To.Is4() || m.From.Is4() != m.Host.Is4():
		return fmt.Errorf("the mapping of %v to %v has addresses of both families", m.Key, m.Host)
	case !m.To.IsMulticast() || m.Host.IsMulticast():
		return fmt.Errorf("the mapping of %v to %v is not from a multicast address to a host's", m.Key, m.Host)
	case m.QPN > numberMask || m.HostQPN > numberMask:
		return fmt.Errorf("the mapping of %v to QPN %#x has a QPN of more than 24 bits", m.Key, uint32(m.HostQPN))
	case len(m.Regions) > RegionsMax:
		return fmt.Errorf("the mapping of %v has %d regions, %d are the most", m.Key, len(m.Regions), RegionsMax)
	}
	return nil
}

// value is the mapping as the program reads it.
func (m *Mapping) value() edgeRocastMapping {
	edit := roce.NewEdit(
		roce.Flow{Src: m.From, Dst: m.To, DestQPN: m.QPN}, roce.Flow{Src: m.From, Dst: m.Host, DestQPN: m.HostQPN}, nil)
	v := edgeRocastMapping{
		Mac: m.MAC, Checksum: checksum(m.To, m.Host), Dst: words(m.Host), Qpn: uint32(m.HostQPN), AddPsn: m.AddPSN & numberMask,
		Crc: edit.CRC, CrcPastReth: edit.CRCWith(new(roce.Target)), Ranges: uint32(len(m.Regions)), Owner: m.Owner,
	}
	for i, r := range m.Regions {
		to := &v.Range[i]
		to.Va, to.Length, to.AddVa, to.Rkey, to.ToRkey = r.VA, r.Length, r.AddVA, r.RKey, r.ToRKey
		to.Crc = roce.NewTarget(r.VA, r.RKey, r.VA+r.AddVA, r.ToRKey).CRC
	}
	return v
}

// mapping is the mapping that the program reads.
func mapping(k edgeRocastLeg, v edgeRocastMapping) Mapping {
	ipv6 := k.Dst.Ipv6 != 0
	m := Mapping{
		Key:  Key{From: address(k.Src, ipv6), To: address(k.Dst.Ip, ipv6), QPN: roce.QPN(k.Qpn)},
		Host: address(v.Dst, ipv6), MAC: v.Mac, HostQPN: roce.QPN(v.Qpn), AddPSN: v.AddPsn, Owner: v.Owner,
	}
	for _, r := range v.Range[:min(v.Ranges, uint32(RegionsMax))] {
		m.Regions = append(m.Regions, Region{VA: r.Va, Length: r.Length, RKey: r.Rkey, AddVA: r.AddVa, ToRKey: r.ToRkey})
	}
	return m
}

func (k Key) key() edgeRocastLeg {
	return edgeRocastLeg{Src: words(k.From), Dst: addressKey(k.To), Qpn: uint32(k.QPN)}
}

func addressKey(a netip.Addr) edgeRocastAddress {
	k := edgeRocastAddress{Ip: words(a)}
	if a.Is6() {
		k.Ipv6 = 1
	}
	return k
}

// words are the words of an address as they stand on the wire, in memory; IPv4 as ::ffff:a.b.c.d.
func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

func address(w [4]uint32, ipv6 bool) netip.Addr {
	var b [16]byte
	for i, word := range w {
		binary.NativeEndian.PutUint32(b[4*i:], word)
	}
	if ipv6 {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom16(b).Unmap()
}

// checksum is what is added to the complement of the checksum of an IPv4 header in which one
// address takes the place of another (RFC 1624).
func checksum(was, is netip.Addr) uint16 {
	if !was.Is4() {
		return 0
	}
	w, i := was.As4(), is.As4()
	var sum uint32
	for at := 0; at < len(w); at += 2 {
		sum += uint32(^binary.BigEndian.Uint16(w[at:])) + uint32(binary.BigEndian.Uint16(i[at:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xFFFF
	}
	return uint16(sum)
}
