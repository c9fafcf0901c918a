package rnic

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/rocast/rocast/roce"
)

// One frame is taken. Each row changes one thing in it, so that it is refused and counted under
// that reason.
func TestEveryWrongFrameIsRefusedAndCounted(t *testing.T) {
	for name, c := range map[string]struct {
		forge  forge
		counts Counter
	}{
		"good":         {forge{}, RequestsExecuted},
		"pkey 7fff":    {forge{bth: roce.BTH{PKey: 0x7FFF}}, RequestsExecuted},
		"mig req":      {forge{bth: roce.BTH{MigReq: true}}, RequestsExecuted},
		"FECN":         {forge{bth: roce.BTH{FECN: true}}, RequestsExecuted},
		"CE":           {addressed(func(ip *roce.IPUDP, _ *roce.MAC) { ip.TrafficClass = 0xBB }), RequestsExecuted},
		"TTL 3":        {addressed(func(ip *roce.IPUDP, _ *roce.MAC) { ip.HopLimit = 3 }), RequestsExecuted},
		"source port":  {addressed(func(ip *roce.IPUDP, _ *roce.MAC) { ip.SrcPort = 4791 }), RequestsExecuted},
		"checksum":     {forge{damage: putUDPChecksum}, RequestsExecuted},
		"MAC":          {addressed(func(_ *roce.IPUDP, dst *roce.MAC) { dst[5]++ }), RejectDstMAC},
		"dst IP":       {addressed(func(ip *roce.IPUDP, _ *roce.MAC) { ip.Dst = ip.Dst.Next() }), RejectDstIP},
		"src IP":       {addressed(func(ip *roce.IPUDP, _ *roce.MAC) { ip.Src = ip.Src.Next() }), RejectSrcIP},
		"QPN":          {forge{bth: roce.BTH{DestQPN: storySelf.QPN + 1}}, RejectQPN},
		"pkey":         {forge{bth: roce.BTH{PKey: 0x1234}}, RejectPKey},
		"TVer":         {forge{bth: roce.BTH{TVer: 1}, damage: func(*roce.View, []byte) {}}, RejectTVer},
		"opcode":       {forge{bth: roce.BTH{Opcode: 0x1F}, damage: func(*roce.View, []byte) {}}, RejectOpcode},
		"UD":           {forge{bth: roce.BTH{Opcode: roce.OpUDSendOnly}}, RejectOpcode},
		"response":     {forge{bth: roce.BTH{Opcode: roce.OpReadRespOnly}}, RejectResponse},
		"CNP":          {forge{bth: roce.BTH{Opcode: roce.OpCNP}}, CNPsReceived},
		"ICRC":         {damaged(func(v *roce.View, b []byte) { b[v.ICRC]++ }), RejectICRC},
		"payload":      {damaged(func(v *roce.View, b []byte) { b[v.Payload]++ }), RejectICRC},
		"PSN":          {damaged(func(v *roce.View, b []byte) { v.SetPSN(b, storyPSN+1) }), RejectICRC},
		"IP checksum":  {damaged(func(v *roce.View, b []byte) { b[v.L3+8]++ }), RejectIPChecksum},
		"UDP checksum": {damaged(func(v *roce.View, b []byte) { b[v.UDP+6]++ }), RejectUDPChecksum},
		"cut short":    {damaged(func(v *roce.View, b []byte) { b[v.L3+3]++ }), RejectMalformed},
		"not UDP":      {damaged(func(v *roce.View, b []byte) { b[v.L3+9]++ }), RejectMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			q, region := storyQP(t)
			if c.forge.bth.Opcode == 0 {
				c.forge.bth.Opcode = roce.OpWriteOnly
			}
			c.forge.bth.PSN = storyPSN
			c.forge.body = validBody(c.forge.bth.Opcode, region)
			reply := q.Receive(0, c.forge.frame(t), nil)
			if reply != nil {
				t.Error("answered")
			}
			if got := q.Counters().Get(c.counts); got != 1 {
				t.Errorf("%s is %d; counted: %v", c.counts, got, q.Counters().ByName())
			}
			refused := c.counts <= RejectResponse
			if touched := region.Bytes[0] != 0 || q.resp.psn != storyPSN; refused && touched {
				t.Error("a refused frame moved state")
			}
			if q.Counters().Rejected() > 0 != refused {
				t.Errorf("%d rejected", q.Counters().Rejected())
			}
		})
	}
}

func addressed(change func(*roce.IPUDP, *roce.MAC)) forge { return forge{addresses: change} }

func damaged(change func(*roce.View, []byte)) forge { return forge{damage: change} }

// putUDPChecksum gives the datagram the checksum that RoCEv2 senders leave out (RFC 768).
func putUDPChecksum(v *roce.View, frame []byte) {
	sum := uint32(17 + v.ICRC + 4 - v.UDP)
	for i := v.L3 + 12; i < v.ICRC+4; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(frame[i:]))
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	binary.BigEndian.PutUint16(frame[v.UDP+6:], ^uint16(sum))
}

// validBody is a WRITE of eight bytes for an opcode with a RETH, and zeros of the right length for
// any other opcode.
func validBody(op roce.Opcode, region Region) []byte {
	if op != roce.OpWriteOnly {
		return make([]byte, op.ExtBytes())
	}
	reth := roce.RETH{VA: region.VA, RKey: region.RKey, DMABytes: 8}
	return append(reth.Append(nil), 1, 2, 3, 4, 5, 6, 7, 8)
}

// storyQP is a connected queue pair with one region.
func storyQP(t testing.TB) (*QP, Region) {
	t.Helper()
	region := Region{VA: 0x10000, RKey: 7, Access: RemoteWrite, Bytes: make([]byte, 1<<16)}
	c := Defaults()
	c.MAC, c.IP, c.QPN, c.SendPSN = storySelf.MAC, storySelf.IP, storySelf.QPN, storySelf.PSN
	return connected(t, c, storyPeer, region), region
}

func connected(t testing.TB, c Config, peer Peer, region Region) *QP {
	t.Helper()
	memory := &Memory{}
	if err := memory.Register(region); err != nil {
		t.Fatal(err)
	}
	q, err := NewQP(c, memory)
	if err == nil {
		err = q.Connect(peer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestFramesBeforeConnectAreRefused(t *testing.T) {
	c := Defaults()
	c.MAC, c.IP, c.QPN = storySelf.MAC, storySelf.IP, storySelf.QPN
	q, err := NewQP(c, &Memory{})
	if err != nil {
		t.Fatal(err)
	}
	f := forge{bth: roce.BTH{Opcode: roce.OpSendOnly}}
	if q.Receive(0, f.frame(t), nil) != nil || q.Counters().Get(RejectState) != 1 {
		t.Error(q.Counters().ByName())
	}
	if err := q.PostSend(0, nil); err != ErrNotConnected {
		t.Error(err)
	}
}

func TestIPv6(t *testing.T) {
	a, b := pair(t, func(c *Config) { c.UDPSrcPort = 0xC123 },
		netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"))
	data := make([]byte, 3000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if err := a.qp.PostWrite(1, data, b.remote()); err != nil {
		t.Fatal(err)
	}
	exchange(a, b)
	if c, ok := a.qp.Poll(); !ok || c.Status != Success || string(b.memory[:3000]) != string(data) {
		t.Error(c, ok, b.qp.Counters().ByName())
	}
}
