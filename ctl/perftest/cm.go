package perftest

import (
	"context"
	"net"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/roce"
)

const (
	// queuePair1 is the queue pair that receives connection management messages (GSI).
	queuePair1 roce.QPN = 1
)

// hearCM listens for clients that want to connect by RDMA-CM (-R, -z). Such clients do not use TCP:
// they send datagrams to queue pair 1 of the group IP. The classifier leaves these datagrams to the
// kernel while no group has the group IP. If the box has a software RDMA device of its own, the
// kernel gives the datagrams to that device, and hearCM does not notice the client.
func (s *service) hearCM(ctx context.Context) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.config.GroupIP, uint16(s.limits.cmPort))))
	if err != nil {
		return
	}
	s.tasks.Go(func() {
		<-ctx.Done()
		conn.Close()
	})
	s.tasks.Go(func() { s.readCM(conn) })
}

func (s *service) readCM(conn *net.UDPConn) {
	var datagram [512]byte // a MAD has 256 bytes
	for {
		n, from, err := conn.ReadFromUDPAddrPort(datagram[:])
		if err != nil {
			return
		}
		host := from.Addr().Unmap()
		if qpn, is := isStray(datagram[:n]); is {
			s.stray(host, qpn, time.Now())
		}
		if !isCM(datagram[:n]) {
			continue
		}
		s.reject(host, refuse("%s", connectsByCM))
		if s.options.RefuseCM == nil || !s.config.Allows(host) {
			continue
		}
		if err := s.options.RefuseCM(s.config.GroupIP, host, datagram[:n], connectsByCM); err != nil {
			s.log.Warn("could not refuse a host that asks by RDMA-CM where perftest is served", zap.Stringer("host", host), zap.Error(err))
		}
	}
}

const connectsByCM = "it connects by RDMA-CM (-R or -z); run it without these options, or with -R against a group IP of rocast cm up --memory perftest"

func isCM(datagram []byte) bool {
	var bth roce.BTH
	_, err := bth.Decode(datagram)
	return err == nil && bth.Opcode == roce.OpUDSendOnly && bth.DestQPN == queuePair1
}
