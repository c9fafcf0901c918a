package perftest

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	// virtualVA is where the client is told the memory of every queue pair starts.
	virtualVA uint64 = 1 << 32
	// regionBytes is the length of that memory. perftest does not say how long its buffer is; what it reaches is the
	// larger of one message and the cycle buffer, from the VA on, and RC knows no message above 2^31 bytes (IBTA vol 1,
	// 9.7.4.1.4). So this bound refuses nothing that may be; each receiver's NIC guards what is really there.
	regionBytes uint64 = 1 << 31
	// MaxQPs bounds the queue pairs of one run (-q), of which each takes a group.
	MaxQPs = 1024
)

// queuePair is one of the client's, the group it becomes, and its peers at the receivers.
type queuePair struct {
	groupQPN  roce.QPN // what every side has as remote QPN
	source    key
	receivers []key // parallel to Config.Receivers
}

// rkey is what the client is told in place of the receivers' R_Keys. It is never 0 and not the same in the next run.
func (q *queuePair) rkey() uint32 { return uint32(q.groupQPN)<<8 | 0x67 }

// toReceiver is the client's key as a receiver is to see it: the group's GID and QPN, so that its feedback comes to the
// group. The PSN stays: a receiver expects the PSNs that the source sends.
func (q *queuePair) toReceiver(groupIP netip.Addr) key {
	k := q.source
	k.GID, k.QPN = groupIP, q.groupQPN
	return k
}

// toClient is the receivers' keys as one: the group's GID, QPN and memory. The PSN, LID and the rest are the first
// receiver's; nothing depends on them, as receivers send no requests.
func (q *queuePair) toClient(groupIP netip.Addr) key {
	k := q.receivers[0]
	k.GID, k.QPN = groupIP, q.groupQPN
	k.RKey, k.VA = q.rkey(), virtualVA
	return k
}

// group is the group that carries the queue pair's traffic. Every PSN passes unchanged.
func (q *queuePair) group(groupIP netip.Addr, pathMTU mtu) *groupfile.File {
	g := &groupfile.File{
		Name:    groupName(groupIP, q.groupQPN),
		IP:      groupIP,
		QPN:     q.groupQPN,
		PathMTU: pathMTU.bytes(),
		Memory:  []mft.VirtualRegion{{VA: virtualVA, Length: regionBytes, RKey: q.rkey()}},
		Source: groupfile.Member{
			IP: q.source.GID, QPN: q.source.QPN, FirstPSN: q.source.PSN,
			Role: groupfile.Source, RemoteQPN: q.groupQPN,
		},
	}
	for _, k := range q.receivers {
		g.Receivers = append(g.Receivers, groupfile.Member{
			IP: k.GID, QPN: k.QPN, FirstPSN: q.source.PSN, RemoteQPN: q.groupQPN,
			Regions: []mft.Region{{VA: k.VA, Length: regionBytes, RKey: k.RKey}},
		})
	}
	return g
}

// groupName is a word that group files allow, for IPv6 too.
func groupName(groupIP netip.Addr, qpn roce.QPN) string {
	return fmt.Sprintf("perftest-%s-%d", strings.ReplaceAll(groupIP.String(), ":", "-"), qpn)
}
