package cm

import (
	"slices"
	"testing"
	"time"

	wire "github.com/rocast/rocast/roce/cm"
)

const udService = 0x0111_0000 + 7174

// asksForUD is a run whose source asks for UD in place of connecting its queue pairs.
func asksForUD(t *testing.T, service uint64) *theatre {
	t.Helper()
	th := newTheatre(t, "b", "c")
	a := th.host("a")
	playPerftest(a, 1)
	step := a.step
	a.step = func(*actor) {
		if len(a.heard) < 5 {
			step(a)
			return
		}
		a.step = func(*actor) {}
		req := &wire.SIDRREQ{RequestID: 5, ServiceID: service}
		header := wire.IPHeader{Src: a.ip, Dst: groupIP}
		header.Put((*[92]byte)(req.PrivateData[:]))
		th.queue = append(th.queue, func() { th.step(Heard{a.ip, wire.MAD{Message: req}}) })
	}
	return th
}

// A run of UD ends at all hosts. The receivers' programs wait until they are asked for UD, and so
// they are, as soon as they listen, also if a question is lost.
func TestARunOfUD(t *testing.T) {
	for lose := range 80 {
		th := asksForUD(t, udService)
		th.host("c").deafToUD = 3
		th.lose = lose
		patience := time.Second // the source is told that there is no UD; nothing waits for anything
		if lose > 0 {
			patience = 20 * time.Second
		}
		th.run(patience)
		for name, most := range map[string]int{"b": 2, "c": 5} {
			host := th.host(name)
			if host.over != "its receive failed" || len(host.askedUD) < most-1 || len(host.askedUD) > most || host.askedUD[0] != "10.77.0.100 to "+host.ip.String()+", service 0x1111c06" {
				t.Errorf("%d is lost: the program at %s is %q, asked %q", lose, name, host.over, host.askedUD)
			}
		}
		if reasons := th.reasons(); !slices.Contains(reasons, errDatagrams.Error()) {
			t.Errorf("%d is lost: the reasons are %q", lose, reasons)
		}
		th.isOver("a run of UD")
	}
}

// A receiver that never listens does not keep the run.
func TestARunOfUDWithADeafReceiver(t *testing.T) {
	th := asksForUD(t, udService)
	th.host("c").deafToUD = 1000
	th.run(5 * time.Second)
	if host := th.host("b"); host.over != "its receive failed" || len(host.askedUD) != 1 || len(th.host("c").askedUD) != 30 {
		t.Errorf("the program at b is %q, asked %q; c was asked %d times", host.over, host.askedUD, len(th.host("c").askedUD))
	}
	th.isOver("a deaf receiver")
}

// Who asks for another service, or from another host, or at another time, ends nobody's run.
func TestUDBesideARun(t *testing.T) {
	th := asksForUD(t, udService+1)
	th.run(time.Second)
	req := wire.MAD{Message: &wire.SIDRREQ{RequestID: 6, ServiceID: udService}}
	th.step(Heard{hostIPs["d"], req})
	th.step(Heard{hostIPs["b"], wire.MAD{Message: &wire.SIDRREP{}}})
	if th.m.run == nil || th.m.run.datagrams != nil || th.m.counts[OtherKind] != 2 || th.m.counts[Unexpected] != 1 {
		t.Errorf("run %+v, counts %v", th.m.run, th.m.counts)
	}
	th = transfer(t)
	th.step(Heard{hostIPs["a"], req})
	if th.m.run == nil || th.m.run.datagrams != nil {
		t.Errorf("run %+v", th.m.run)
	}
}
