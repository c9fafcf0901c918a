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
	// virtualVA is the start of the memory of every queue pair, as the client sees it.
	virtualVA uint64 = 1 << 32
	// regionBytes is the length of that memory. perftest does not tell the length of its buffer.
	// perftest accesses the bytes from the VA on, up to the larger one of one message and the cycle
	// buffer, and an RC message has at most 2^31 bytes (IBTA vol 1, 9.7.4.1.4). So this length
	// refuses no valid access; the NIC of each receiver protects the memory that really exists.
	regionBytes uint64 = 1 << 31
	// MaxQPs bounds the queue pairs of one run (-q). Each queue pair needs one group.
	MaxQPs = 1024
)

// queuePair is one queue pair of the client, with its group and its peers at the receivers.
type queuePair struct {
	groupQPN  roce.QPN // the remote QPN that every side uses
	source    key
	receivers []key // parallel to Config.Receivers
}

// rkey is the R_Key that the client receives in place of the receivers' R_Keys. It is never 0, and
// it differs from the R_Key of the next run.
func (q *queuePair) rkey() uint32 { return uint32(q.groupQPN)<<8 | 0x67 }

// memory is where the client may WRITE.
func (q *queuePair) memory() mft.VirtualRegion {
	return mft.VirtualRegion{VA: virtualVA, Length: regionBytes, RKey: q.rkey()}
}

// region is where the WRITEs of the client end up at the side whose key this is.
func (k key) region() mft.Region { return mft.Region{VA: k.VA, Length: regionBytes, RKey: k.RKey} }

// toReceiver returns the client's key for a receiver. The key has the GID and QPN of the group, so
// that the receiver's feedback reaches the group. The PSN is unchanged, because a receiver expects
// the PSNs that the source sends.
func (q *queuePair) toReceiver(groupIP netip.Addr) key {
	k := q.source
	k.GID, k.QPN = groupIP, q.groupQPN
	return k
}

// toClient merges the receivers' keys into one key with the GID, QPN and memory of the group. The
// PSN, the LID and the other fields are those of the first receiver. Nothing depends on these
// fields, because receivers send no requests.
func (q *queuePair) toClient(groupIP netip.Addr) key {
	k := q.receivers[0]
	k.GID, k.QPN = groupIP, q.groupQPN
	k.RKey, k.VA = q.rkey(), virtualVA
	return k
}

// group returns the group that carries the traffic of the queue pair. The group changes no PSN.
func (q *queuePair) group(config *Config, pathMTU mtu) *groupfile.File {
	groupIP := config.GroupIP
	g := &groupfile.File{
		Name:    groupName(groupIP, q.groupQPN),
		IP:      groupIP,
		QPN:     q.groupQPN,
		PathMTU: pathMTU.bytes(),

		Policy:        config.PolicyFor(pathMTU.bytes()),
		DegradedBelow: groupfile.DegradedBelow, DegradedAfter: groupfile.DegradedAfter,

		Memory: []mft.VirtualRegion{q.memory()},
		Source: groupfile.Member{
			IP: q.source.GID, QPN: q.source.QPN, FirstPSN: q.source.PSN,
			Role: groupfile.Source, RemoteQPN: q.groupQPN,
		},
	}
	for _, k := range q.receivers {
		g.Receivers = append(g.Receivers, groupfile.Member{
			IP: k.GID, QPN: k.QPN, FirstPSN: q.source.PSN, RemoteQPN: q.groupQPN,
			Regions: []mft.Region{k.region()},
		})
	}
	return g
}

// groupName returns a name that group files allow, for IPv6 addresses too.
func groupName(groupIP netip.Addr, qpn roce.QPN) string {
	return fmt.Sprintf("perftest-%s-%d", strings.ReplaceAll(groupIP.String(), ":", "-"), qpn)
}
