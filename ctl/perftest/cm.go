package perftest

import (
	"context"
	"net"
	"net/netip"

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
	var datagram [roce.BTHBytes]byte
	for {
		n, from, err := conn.ReadFromUDPAddrPort(datagram[:])
		if err != nil {
			return
		}
		if isCM(datagram[:n]) { // a client repeats its REQ about fifteen times
			s.reject(from.Addr().Unmap(), refuse("it connects by RDMA-CM (-R or -z); run it without these "+
				"options, or with -R against a group IP of rocast cm up --memory perftest"))
		}
	}
}

func isCM(datagram []byte) bool {
	var bth roce.BTH
	_, err := bth.Decode(datagram)
	return err == nil && bth.Opcode == roce.OpUDSendOnly && bth.DestQPN == queuePair1
}
