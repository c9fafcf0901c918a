package perftest

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/roce"
)

// InBand is a run whose sides connect by RDMA-CM (-R) and exchange their messages by SENDs, not by
// TCP. The messages are those of a [conversation], except that keys are binary, and that a key of
// queue pair 0 goes before and behind the connecting of the queue pairs. An InBand does no I/O: its
// caller hands over each message of the client, and then the answers of all receivers.
type InBand struct {
	groupIP   netip.Addr
	client    netip.Addr
	receivers []netip.Addr
	qps       map[roce.QPN]*queuePair // by the client's QPN
	isBegun   bool                    // the client has said its version
	asked     []byte                  // the client's newest message
}

// NewInBand returns a run that begins.
func NewInBand(groupIP, client netip.Addr, receivers []netip.Addr) *InBand {
	return &InBand{groupIP: groupIP, client: client, receivers: receivers, qps: map[roce.QPN]*queuePair{}}
}

// Connected says that a queue pair of the client is connected with a group.
func (b *InBand) Connected(client, group roce.QPN) {
	b.qps[client] = &queuePair{groupQPN: group, source: key{QPN: client}}
}

// ExpectsConnections reports whether the sides have met to connect their queue pairs: the newest
// message is a key that names none.
func (b *InBand) ExpectsConnections() bool {
	k, _, err := parseBinaryKey(b.asked)
	return err == nil && k.QPN == 0
}

// Ask takes a message of the client, and returns it as all receivers get it.
func (b *InBand) Ask(message []byte) ([]byte, error) {
	b.asked = message
	if !b.isBegun {
		if _, err := parseVersion(message); err != nil || len(message) != versionBytes {
			return nil, refuse("%s, which connects with --memory perftest, %v", b.clientName(), errNotAVersion)
		}
		b.isBegun = true
		return versionMessage(), nil
	}
	switch len(message) {
	case sysDataBytes, mtuBytes, reportBytes:
		return message, nil
	}
	k, rest, err := parseBinaryKey(message)
	switch {
	case err != nil:
		return nil, refuse("%s sent something that %v", b.clientName(), err)
	case k.QPN == 0:
		return message, nil
	}
	q := b.qps[k.QPN]
	if q == nil {
		return nil, refuse("%s names queue pair %#x, which is not connected by RDMA-CM, as with -z; run it with -R", b.clientName(), uint32(k.QPN))
	}
	if err := checkBinaryKey(b.clientName(), k); err != nil {
		return nil, err
	}
	q.source = k
	return q.toReceiver(b.groupIP).binary(rest), nil
}

// Answer takes the receivers' answers to the newest message, and returns the answer for the client.
// keys is not nil if the client may WRITE as soon as it has that answer: the group has to be there
// before.
func (b *InBand) Answer(answers [][]byte) (answer []byte, keys *groupip.Keys, err error) {
	for i, a := range answers {
		if len(a) != len(b.asked) {
			return nil, nil, refuse("%s answers %d bytes with %d; run the same perftest on all sides", b.receiverName(i), len(b.asked), len(a))
		}
	}
	switch len(b.asked) {
	case versionBytes:
		for i, a := range answers {
			if _, err := parseVersion(a); err != nil {
				return nil, nil, refuse("%s %v", b.receiverName(i), err)
			}
		}
		return versionMessage(), nil, nil
	case sysDataBytes:
		return smallest(answers), nil, nil
	case mtuBytes:
		return b.smallestMTU(answers)
	case reportBytes:
		return answers[0], nil, nil
	}
	return b.answerKey(answers)
}

// smallestMTU only says what the programs print: the path MTU of a queue pair is that of its REQ.
func (b *InBand) smallestMTU(answers [][]byte) ([]byte, *groupip.Keys, error) {
	var all []mtu
	for i, a := range answers {
		its, err := parseMTU(a)
		if err != nil {
			return nil, nil, refuse("%s %v", b.receiverName(i), err)
		}
		all = append(all, its)
	}
	return slices.Min(all).message(), nil, nil
}

func (b *InBand) answerKey(answers [][]byte) ([]byte, *groupip.Keys, error) {
	asked, _, _ := parseBinaryKey(b.asked)
	q := b.qps[asked.QPN]
	if q == nil { // queue pair 0
		return answers[0], nil, nil
	}
	var said []key
	var rest [2][]byte
	keys := &groupip.Keys{Client: asked.QPN, Memory: q.memory()}
	for i, a := range answers {
		k, its, err := parseBinaryKey(a)
		if err != nil {
			return nil, nil, refuse("%s answered with something that %v", b.receiverName(i), err)
		}
		if err := checkBinaryKey(b.receiverName(i), k); err != nil {
			return nil, nil, err
		}
		if q.receivers != nil && q.receivers[i].region() != k.region() {
			return nil, nil, refuse("%s changed its memory during the run", b.receiverName(i))
		}
		if i == 0 {
			rest = its
		}
		said, keys.Regions = append(said, k), append(keys.Regions, k.region())
	}
	if q.receivers != nil {
		keys = nil
	}
	q.receivers = said
	return q.toClient(b.groupIP).binary(rest), keys, nil
}

func (b *InBand) clientName() string { return "client " + b.client.String() }

func (b *InBand) receiverName(i int) string { return "receiver " + b.receivers[i].String() }

// binaryKeyBytes is the length of a key in a SEND: numbers of 32 bits, big-endian, except for the
// VA, in front of which there are four bytes of padding.
//
//	0 LID  4 outstanding READs  8 QPN  12 PSN  16 R_Key  24 VA  32 GID  48 SRQN  52 index of the GID
//
// Versions from 2024 on have an address of 64 bits more in front of the GID, which is 0 without
// --data_validation.
const (
	binaryKeyBytes = 56
	markerBytes    = 8
)

// parseBinaryKey also returns what a [key] does not have: what is in front of the GID, and the
// index of the GID.
func parseBinaryKey(b []byte) (k key, rest [2][]byte, err error) {
	if len(b) != binaryKeyBytes && len(b) != binaryKeyBytes+markerBytes {
		return key{}, rest, errNotAKey
	}
	number := func(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
	front, back := b[:len(b)-24], b[len(b)-24:]
	if number(front) > 0xFFFF || number(front[4:]) > 0xFFFF || number(front[8:]) > 0xFFFFFF || number(front[12:]) > 0xFFFFFF {
		return key{}, rest, errNotAKey
	}
	return key{
		LID: uint16(number(front)), OutReads: uint16(number(front[4:])), QPN: roce.QPN(number(front[8:])), PSN: roce.PSN(number(front[12:])),
		RKey: number(front[16:]), VA: binary.BigEndian.Uint64(front[24:]), GID: netip.AddrFrom16([16]byte(back)).Unmap(), SRQN: number(back[16:]),
	}, [2][]byte{front[32:], back[20:]}, nil
}

// binary is the inverse of parseBinaryKey.
func (k key) binary(rest [2][]byte) []byte {
	b := make([]byte, 0, binaryKeyBytes+markerBytes)
	for _, n := range []uint32{uint32(k.LID), uint32(k.OutReads), uint32(k.QPN), uint32(k.PSN), k.RKey, 0} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	b = append(binary.BigEndian.AppendUint64(b, k.VA), rest[0]...)
	gid := k.GID.As16()
	b = binary.BigEndian.AppendUint32(append(b, gid[:]...), k.SRQN)
	return append(b, rest[1]...)
}

// checkBinaryKey is checkKey without the GID: packets go by the addresses of the connection.
func checkBinaryKey(side string, k key) error { return checkKey(side, k.GID, k) }
