package cm

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// A host that asks where no proxy answers hears at once that nobody does. What asks for nothing is
// not answered.
func TestRefuse(t *testing.T) {
	l := newLab(t)
	from, to := l.r[0].ip, l.a
	refuse := func(datagram []byte, says string) {
		t.Helper()
		if err := l.host.Do(func() error { return Refuse(from, to.ip, datagram, says) }); err != nil {
			t.Fatal(err)
		}
	}
	asks := func(m wire.Message) []byte {
		mad := wire.MAD{Header: wire.Header{TID: 77}, Message: m}
		return mad.Append(nil, 1)
	}
	hears := func() Heard {
		t.Helper()
		to.raw.SetReadDeadline(time.Now().Add(testlab.Patience))
		event, err, lost := to.receive()
		heard, isMAD := event.(Heard)
		if err != nil || lost != nil || !isMAD || heard.From != from || heard.MAD.TID != 77 {
			t.Fatalf("%+v, %v, %v", event, err, lost)
		}
		return heard
	}
	req := testREQ(netip.MustParseAddr("10.77.0.1"), 5, 6, 7, 8)
	refuse(asks(&wire.RTU{}), "not heard")
	refuse(asks(req)[:roce.BTHBytes+roce.DETHBytes+wire.MADBytes-1], "not heard")
	refuse(asks(req), "run it without -R")
	rej, ok := hears().MAD.Message.(*wire.REJ)
	if !ok || rej.Pair.Remote != 5 || rej.Reason != wire.InvalidServiceID || strings.TrimRight(string(rej.PrivateData[:]), "\x00") != "run it without -R" {
		t.Errorf("%+v", rej)
	}
	refuse(asks(&wire.SIDRREQ{RequestID: 9, ServiceID: 10}), "")
	if rep, ok := hears().MAD.Message.(*wire.SIDRREP); !ok || *rep != (wire.SIDRREP{RequestID: 9, ServiceID: 10, Status: wire.ServiceUnsupported}) {
		t.Errorf("%+v", rep)
	}
}
