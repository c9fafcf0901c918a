package server

import (
	"io"
	"net"
	"testing"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/internal/testlab"
)

// With readGroup everybody can connect. A user who may not change anything cannot take the
// connections of others.
func TestAUserWhoOnlyReadsHasSoManyConnections(t *testing.T) {
	s, _ := newServer(t)
	s.Bounds = bounds.New(zap.NewNop())
	who := make(chan peer, 1)
	s.access = func(net.Conn) peer { return <-who }
	at := s.onSocket(t)
	connect := func(p peer) net.Conn {
		t.Helper()
		who <- p
		conn, err := net.Dial("unix", at.socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// answered asks something. A connection that was closed has no answer.
	answered := func(conn net.Conn) bool {
		_, _ = io.WriteString(conn, "GET "+api.VersionPath+" HTTP/1.0\r\n\r\n")
		text, _ := io.ReadAll(conn)
		return len(text) > 0
	}
	reader, other := peer{uid: 1000}, peer{uid: 1001, stranger: true}
	var open []net.Conn
	for range mostOfAUser {
		open = append(open, connect(reader))
	}
	if answered(connect(reader)) || s.Bounds.Counts()[bounds.UserConnections] != 1 {
		t.Errorf("one more is served; %v", s.Bounds.Counts())
	}
	if !answered(connect(other)) || !answered(connect(peer{uid: 1000, change: true})) {
		t.Error("another user is not served")
	}
	if !answered(open[0]) {
		t.Error("one of those that are open is not served")
	}
	testlab.Eventually(t, testlab.Patience, "another one of the reader's is served when one has ended", func() bool { return answered(connect(reader)) }, nil)
	for range 2 * mostOfAUser {
		if !answered(connect(peer{uid: 1000, change: true})) {
			t.Fatal("a user who may change groups is not served")
		}
	}
}
