package afxdp

import (
	"bytes"
	"testing"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

var addressings = []mft.Addressing{mft.ByGroupIP, mft.ByVirtualQPN, mft.BySwitchIP}

// Every addressing delivers, also while packets are lost.
func TestAddressingsDeliver(t *testing.T) {
	for _, a := range addressings {
		t.Run(a.String(), func(t *testing.T) {
			l := newLab(t, labOptions{Options: bed.Options{Hosts: 4, Seed: 11, LossPerMillion: 10_000}})
			g := l.addGroup(t, groupOptions{addressing: a, memory: 1 << 20})
			g.holds(t, g.write(t, 1<<18))
			if c := l.Hosts[0].RNIC.Counters(); c.Get(rnic.FramesRetransmitted) == 0 {
				t.Error("no packet was resent, so no loss was repaired")
			}
		})
	}
}

// Hosts have ordinary RC connections while a group transfers. These connections have the QPN of the
// group, and their PSNs are in its window. If the group took their packets or ACKs, their QPs would
// end, and their data could reach the receivers of the group.
//
// Hosts 0 to 3 are the members of the group, and host 4 is a stranger. In virtual-qpn the group has
// the address of host 1.
func TestBystanders(t *testing.T) {
	const source, groupAddress, receiver, stranger = 0, 1, 2, 4
	for _, a := range addressings {
		for name, b := range map[string][2]end{
			"the source's host and a stranger whose QP has the group's number": {
				{host: source, qpn: 0x51}, {host: stranger, qpn: groupQPN},
			},
			"the source's host and a receiver's other QP, which has the group's number": {
				{host: source, qpn: 0x51}, {host: receiver, qpn: groupQPN},
			},
			"the source's host and another QP of the host whose address the group has": {
				{host: source, qpn: 0x51}, {host: groupAddress, qpn: 0x61},
			},
			"a stranger and a QP of the source's host that has the group's number": {
				{host: stranger, qpn: 0x51}, {host: source, qpn: groupQPN},
			},
			"a stranger and a QP of a receiver's host that has the group's number": {
				{host: stranger, qpn: 0x51}, {host: receiver, qpn: groupQPN},
			},
		} {
			t.Run(a.String()+"/"+name, func(t *testing.T) {
				l := newLab(t, labOptions{
					Options: bed.Options{Hosts: 5, Seed: 12, LossPerMillion: 5_000}, strangers: 1,
				})
				const messages, messageBytes = 16, 16 << 10
				g := l.addGroup(t, groupOptions{addressing: a, memory: messages * messageBytes})
				for _, r := range g.receivers {
					// A SEND of a bystander that reaches this receiver completes the work request.
					// group.holds checks that none has completed.
					check(t, r.qp.PostRecv(0, make([]byte, messageBytes)))
				}
				c := l.connectBystanders(t, b, messages*messageBytes)
				data := bed.Random(messages*messageBytes, 3)
				for i := range messages {
					part := data[i*messageBytes : (i+1)*messageBytes]
					g.post(t, i*messageBytes, part)
					c.exchange(t, i, part)
					g.succeeds(t)
				}
				g.holds(t, data)
				c.hold(t, data)
			})
		}
	}
}

// end is one end of an ordinary connection.
type end struct {
	host   int
	qpn    roce.QPN
	qp     *endpoint.QP
	rnic   *endpoint.Endpoint
	region rnic.Region // written to by WRITEs
	sent   []byte      // what the SENDs of the other end have brought
}

// connection is an RC connection of two hosts without any group.
type connection struct{ ends [2]*end }

// connectBystanders connects two ends. Their PSNs begin where the PSNs of the group begin. A QP
// that gets no ACKs fails after 7 timeouts of 268 ms.
func (l *lab) connectBystanders(t *testing.T, b [2]end, memory int) connection {
	t.Helper()
	o := groupOptions{pathMTU: 1024, rnic: func(c *rnic.Config) { c.Timeout, c.RetryCount = 16, 6 }}
	for i := range b {
		e := &b[i]
		e.rnic = l.Hosts[e.host].RNIC
		e.region = rnic.Region{VA: 0x5000, RKey: uint32(0xB0 + i), Access: rnic.RemoteWrite, Bytes: make([]byte, memory)}
		e.sent = make([]byte, memory)
		check(t, e.rnic.Register(e.region))
		e.qp = open(t, e.rnic, o, e.qpn, sourcePSN)
	}
	for i := range b {
		other := &b[1-i]
		dial(t, b[i].qp, endpoint.Peer{IP: l.Hosts[other.host].IP, QPN: other.qpn, PSN: sourcePSN})
	}
	return connection{[2]*end{&b[0], &b[1]}}
}

// exchange has both ends WRITE the i-th part of the data and SEND it.
func (c connection) exchange(t *testing.T, i int, part []byte) {
	t.Helper()
	off := i * len(part)
	for _, e := range c.ends {
		check(t, e.qp.PostRecv(0, e.sent[off:off+len(part)]))
	}
	for k, e := range c.ends {
		to := c.ends[1-k].region
		check(t, e.qp.PostWrite(0, part, rnic.Remote{VA: to.VA + uint64(off), RKey: to.RKey}))
		check(t, e.qp.PostSend(0, part))
	}
	const completions = 3 // of the WRITE, the SEND and the receive
	for k, e := range c.ends {
		for range completions {
			if done, err := wait(t, e.qp); err != nil || done.Status != rnic.Success {
				counters := e.rnic.Counters()
				t.Fatalf("part %d, end %d on host %d: %v %v\n%v", i, k, e.host, done, err, counters.ByName())
			}
		}
	}
}

// hold checks that both ends have what the other end wrote and sent.
func (c connection) hold(t *testing.T, data []byte) {
	t.Helper()
	for _, e := range c.ends {
		e.rnic.Freeze(func() {
			if !bytes.Equal(e.region.Bytes, data) || !bytes.Equal(e.sent, data) {
				t.Errorf("the bystander on host %d lacks data", e.host)
			}
		})
	}
}
