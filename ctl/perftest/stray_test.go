package perftest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/roce"
)

// endings notes the queue pairs that are ended.
type endings []string

func (e *endings) end(_, host netip.Addr, isSource bool, qpn roce.QPN, first roce.PSN) error {
	*e = append(*e, fmt.Sprintf("%v source=%t %#x %#x", host, isSource, uint32(qpn), uint32(first)))
	return nil
}

// What hosts still send on the queue pairs of a run that has ended is answered: each side with the
// PSN that it knows, and not more often than it repeats. Nothing else is.
func TestStrayPackets(t *testing.T) {
	var ends endings
	s := &service{options: Options{EndQueuePair: ends.end}, log: zap.NewNop()}
	a, b, c, other := netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.77.0.3"), netip.MustParseAddr("10.77.0.4")
	q := &queuePair{groupQPN: 0x200, source: key{GID: a, QPN: 0x11, PSN: 1}, receivers: []key{{GID: b, QPN: 0x12, PSN: 2}, {GID: c, QPN: 0x13, PSN: 3}}}
	s.over([]*queuePair{q, {groupQPN: 0x201, source: key{GID: a, QPN: 0x14}}}) // the second one had no answer yet
	now := time.Now()
	for range 2 {
		for range 2 { // the second time at once
			for _, host := range []netip.Addr{a, b, c, other} {
				for qpn := roce.QPN(0x200); qpn < 0x203; qpn++ {
					s.stray(host, qpn, now)
				}
			}
		}
		now = now.Add(strayPause)
	}
	once := []string{"10.77.0.1 source=true 0x11 0x2", "10.77.0.2 source=false 0x12 0x2", "10.77.0.3 source=false 0x13 0x3"}
	if want := append(once, once...); !slices.Equal(ends, want) {
		t.Errorf("%q, want %q", ends, want)
	}
	s.over(nil)
	s.stray(a, 0x200, now.Add(time.Hour))
	if len(ends) != 7 {
		t.Errorf("a client without queue pairs was refused, and nobody answers for the run before: %q", ends)
	}
	s.over([]*queuePair{{groupQPN: 0x202}})
	s.stray(a, 0x200, now.Add(2*time.Hour))
	if len(ends) != 7 {
		t.Errorf("the next run has ended, and %q of the one before", ends[7:])
	}
}

// Requests of RC are strays; responses and datagrams are not.
func TestIsStray(t *testing.T) {
	for opcode, want := range map[roce.Opcode]bool{
		roce.OpWriteFirst: true, roce.OpSendOnly: true, roce.OpReadRequest: true, roce.OpAck: false, roce.OpUDSendOnly: false,
	} {
		bth := roce.BTH{Opcode: opcode, PKey: roce.DefaultPKey, DestQPN: 0x123}
		if qpn, is := isStray(bth.Append(nil)); is != want || is && qpn != 0x123 {
			t.Errorf("%v: %t, %#x", opcode, is, uint32(qpn))
		}
	}
	if _, is := isStray([]byte("short")); is {
		t.Error("a short datagram")
	}
}
