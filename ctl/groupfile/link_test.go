package groupfile

import (
	"net/netip"
	"strings"
	"testing"
)

// The member of a link has the peer that the file says, the others have the group's.
func TestALinkHasItsOwnPeer(t *testing.T) {
	f, err := Parse([]byte(read(t, "link.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	if s := f.Source; s.RemoteIP != netip.MustParseAddr("10.9.0.2") || s.RemoteQPN != 501 || s.Weight() != 1 {
		t.Errorf("source %+v", s)
	}
	if r := f.Receivers[0]; r.RemoteIP.IsValid() || r.RemoteQPN != 1 || r.Weight() != 1 {
		t.Errorf("receiver on a host %+v", r)
	}
	if r := f.Receivers[1]; r.RemoteIP != netip.MustParseAddr("10.9.1.2") || r.RemoteQPN != 601 || r.Weight() != 3 {
		t.Errorf("receiver behind a box %+v", r)
	}
}

// A quorum counts a member as the number of its receivers. A member with role both counts for none
// while it sends, and any of them may.
func TestAQuorumCountsReceiversBehindMembers(t *testing.T) {
	link := read(t, "link.yaml")
	both := strings.NewReplacer(
		"psn: 1000, role: source", "psn: 1000, role: both, sendPSN: 9, regions: {va: 0x10000, length: 4096, rkey: 0x77}, receivers: 2",
		"psn: 7,", "psn: 7, role: both, sendPSN: 8,").Replace(link)
	for _, c := range []struct{ text, quorum, want string }{
		{link, "4", ""},
		{link, "5", "line 6: ack waits for 5 receivers and the group has 4; write a smaller quorum or all"},
		{both, "3", ""}, // of 2 + 1 + 3, if the three send
		{both, "4", "line 6: ack waits for 4 receivers and the group has 3; write a smaller quorum or all"},
	} {
		_, err := Parse([]byte(strings.Replace(c.text, "quorum 4", "quorum "+c.quorum, 1)))
		if got := text(err); got != c.want {
			t.Errorf("quorum %s\ngot  %s\nwant %s", c.quorum, got, c.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A member with role both may name another QPN than the group's if it has a peer of its own.
func TestBothEndsOfALinkMaySend(t *testing.T) {
	link := strings.NewReplacer("quorum 4", "all", "psn: 7,", "psn: 7, role: both, sendPSN: 8,").Replace(read(t, "link.yaml"))
	f, err := Parse([]byte(link))
	if err != nil || f.Receivers[1].Role != Both || f.Receivers[1].RemoteQPN != 601 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestRemoteIPWithSwitchIP(t *testing.T) {
	link := strings.Replace(read(t, "link.yaml"), "ip: 10.77.0.100", "addressing: switch-ip\nip: 10.9.1.2", 1)
	if _, err := Parse([]byte(link)); err != nil {
		t.Errorf("the box's own address is the group's and a member's: %v", err)
	}
}

// With virtual-qpn the peer of every QP is a host.
func TestNoRemoteIPWithVirtualQPN(t *testing.T) {
	link := strings.Replace(read(t, "link.yaml"), "ip: 10.77.0.100", "addressing: virtual-qpn\nip: 10.77.0.2", 1)
	const want = "line 10: member 1 has a remoteIP, but with addressing virtual-qpn the peers of all QPs are hosts, and a box " +
		"behind this one could not have their addresses; use addressing: group-ip, or remove remoteIP"
	if _, err := Parse([]byte(link)); text(err) != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

// The peer of a QP stays. The receivers behind a member may become fewer; they may become more only
// if every receiver has to acknowledge everything.
func TestAnUpdateOfALink(t *testing.T) {
	link := read(t, "link.yaml")
	all := strings.Replace(link, "ack: quorum 4", "ack: all", 1)
	for _, c := range []struct{ name, running, old, new, want string }{
		{"nothing", link, "", "", ""},
		{"fewer", strings.Replace(link, "quorum 4", "quorum 3", 1), "receivers: 3", "receivers: 2", ""},
		{"one, written out", strings.Replace(link, "quorum 4", "quorum 3", 1), "psn: 5", "psn: 5, receivers: 1", ""},
		{"more", link, "receivers: 3", "receivers: 4", "line 11: the member at 10.9.1.3 with remote QPN 601 has receivers 4 and the running group has 3; the new ones lack what the old ones have acknowledged, so a quorum cannot count them: write 3 or fewer"},
		{"more, all have to acknowledge", all, "receivers: 3", "receivers: 4", ""},
		{"another peer", link, "10.9.1.2", "10.9.1.1", "line 11: the member at 10.9.1.3 has remote QPN 601 and remoteIP 10.9.1.1, but in the running group remote QPN 601 and remoteIP 10.9.1.2; keep them, or remove the group and create it again"},
		{"the group's peer", link, "remoteIP: 10.9.1.2, ", "", "line 11: the member at 10.9.1.3 has remote QPN 601 and no remoteIP, but in the running group remote QPN 601 and remoteIP 10.9.1.2; keep them, or remove the group and create it again"},
		{"the source's peer", link, "10.9.0.2", "10.9.0.3", "line 9: the member at 10.9.0.1 has remote QPN 501 and remoteIP 10.9.0.3, but in the running group remote QPN 501 and remoteIP 10.9.0.2; keep them, or remove the group and create it again"},
		{"the source's remote QPN", link, "501", "502", "line 9: the member at 10.9.0.1 has remote QPN 502 and remoteIP 10.9.0.2, but in the running group remote QPN 501 and remoteIP 10.9.0.2; keep them, or remove the group and create it again"},
		{"a member joins", link, "remoteQPN: 601", "remoteQPN: 602", ""}, // and the one with 601 leaves
	} {
		running, err := Parse([]byte(c.running))
		if err != nil {
			t.Fatal(c.name, err)
		}
		next, err := Parse([]byte(strings.Replace(c.running, c.old, c.new, 1)))
		if err != nil {
			t.Fatal(c.name, err)
		}
		if got := text(next.CheckUpdate(running)); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}
