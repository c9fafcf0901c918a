package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/logs"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/internal/testlab"
)

const g1 = `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
memory: {va: 0x10000, rkey: 0x77}
members:
  - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}
  - {ip: 10.77.0.2, qpn: 18, psn: 5, regions: [{va: 0x7f0000000000, length: 4096, rkey: 0x1234}]}
`

// twins are the test doubles of a server's Controller, and the Controller's state directory.
type twins struct {
	sw        *ctltest.Switch
	hops      *ctltest.Hops
	addresses *ctltest.Addresses
	dir       string
}

// newServer returns a server over a Controller on test doubles.
func newServer(t testing.TB) (*Server, twins) {
	t.Helper()
	w := twins{ctltest.NewSwitch("eth1", "eth2"), ctltest.NewHops(), ctltest.NewAddresses(), t.TempDir()}
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.1": ctltest.Hop(1, "eth1", 1500, 1), "10.77.0.2": ctltest.Hop(2, "eth2", 1500, 2)})
	state, err := store.Open(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	level, err := logs.New(logs.JSON, "info", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	control := ctl.New(ctl.Parts{Switch: w.sw, NextHops: w.hops, Addresses: w.addresses, Store: state, Log: zap.NewNop()})
	return New(Config{
		Reloader: &reloader{},
		Control:  control, Services: control.Services,
		Features: func() []api.Feature { return []api.Feature{{Name: "f", Since: "5.4", Status: api.Available}} },
		Metrics:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "rocast_groups 0") }),
		Log:      zap.NewNop(), Level: level,
	}), w
}

// reloader stands for the config's.
type reloader struct{ by []string }

func (r *reloader) Reload(by string) (api.Reloaded, error) {
	if r.by = append(r.by, by); len(r.by) > 1 {
		return api.Reloaded{}, api.Errorf(api.BadFile, "f: mode changes only at a restart")
	}
	return api.Reloaded{Changed: []string{"ports"}, Added: []string{"eth3"}, Removed: []string{}}, nil
}

func (r *reloader) State() api.ConfigState {
	return api.ConfigState{File: "/f", Stale: true, Reason: "r"}
}

// serve runs a server on a socket, for a peer with the rights p.
func serve(t *testing.T, p peer) caller {
	t.Helper()
	s, _ := newServer(t)
	s.access = func(net.Conn) peer { return p }
	return s.onSocket(t)
}

// shortDir is a directory for sockets. Those of t.TempDir have the test's name in them, and are too
// long for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// onSocket runs the server on a socket until the test ends.
func (s *Server) onSocket(t *testing.T) caller {
	t.Helper()
	return s.onSocketAt(t, filepath.Join(shortDir(t), "run", "rocast.sock"))
}

func (s *Server) onSocketAt(t *testing.T, path string) caller {
	t.Helper()
	l, err := Listen(path, s.Group, len(s.Readers) > 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return caller{client.New(path), path}
}

type caller struct {
	*client.Client
	socket string
}

var root = peer{change: true, secretsToo: true}

func (c caller) transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", c.socket)
	}}
}

// call sends any method, path and body, which the client cannot do.
func (c caller) call(t *testing.T, method, path, body string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequest(method, "http://rocastd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.transport().RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestAGroupsLifeOverTheSocket(t *testing.T) {
	c, ctx := serve(t, root), context.Background()
	g, err := c.CreateGroup(ctx, []byte(g1))
	if err != nil || g.Name != "g1" || g.State != api.Ready || *g.Memory[0].RKey != 0x77 {
		t.Fatalf("created %+v, %v", g, err)
	}
	list, err := c.Groups(ctx)
	if err != nil || len(list.Groups) != 1 || list.Groups[0].MemberCount != 2 {
		t.Errorf("listed %+v, %v", list, err)
	}
	if g, err = c.Group(ctx, "g1"); err != nil || len(g.Members) != 2 || *g.Members[1].Regions[0].RKey != 0x1234 {
		t.Errorf("shown %+v, %v", g, err)
	}
	text := strings.Replace(g1, "10.77.0.2", "10.77.0.3", 1)
	if g, err = c.UpdateGroup(ctx, "g1", []byte(text)); err != nil || g.Members[1].IP != "10.77.0.3" || *g.Members[1].Regions[0].RKey != 0x1234 {
		t.Errorf("updated %+v, %v", g, err)
	}
	if removed, err := c.RemoveGroup(ctx, "g1"); err != nil || removed.Name != "g1" {
		t.Errorf("removed %+v, %v", removed, err)
	}
	if list, err = c.Groups(ctx); err != nil || len(list.Groups) != 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
}

func TestWhatElseThereIsToRead(t *testing.T) {
	c, ctx := serve(t, root), context.Background()
	if ports, err := c.Ports(ctx); err != nil || len(ports.Ports) != 2 || ports.Ports[1].Name != "eth2" || ports.Ports[1].MAC != "02:00:00:00:0b:02" {
		t.Errorf("ports %+v, %v", ports, err)
	}
	if stats, err := c.Stats(ctx); err != nil || len(stats.Counters) == 0 {
		t.Errorf("stats %+v, %v", stats, err)
	}
	if features, err := c.Features(ctx); err != nil || len(features.Features) != 1 {
		t.Errorf("features %+v, %v", features, err)
	}
	if version, err := c.Version(ctx); err != nil || version.Go == "" {
		t.Errorf("version %+v, %v", version, err)
	}
	if status, answer := c.call(t, "GET", "/metrics", ""); status != 200 || answer != "rocast_groups 0\n" {
		t.Errorf("metrics %d %s", status, answer)
	}
}

func TestErrorsAreSentencesInJSON(t *testing.T) {
	c := serve(t, root)
	for _, e := range []struct {
		method, path, body string
		status             int
		want               api.Error
	}{
		{"POST", "/v1/groups", strings.Replace(g1, "psn: 5", "psn: x", 1), 400,
			api.Error{Kind: api.BadFile, Line: 8, Message: "member 2: psn is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes"}},
		{"POST", "/v1/groups", strings.Repeat("#", api.MaxGroupFileBytes+1), 413,
			api.Error{Kind: api.TooLarge, Message: "the group file is longer than 1048576 bytes, which no group needs; split the group"}},
		{"POST", "/v1/perftest", strings.Repeat("#", api.MaxGroupFileBytes+1), 413,
			api.Error{Kind: api.TooLarge, Message: "the request is longer than 1048576 bytes, which no list of receivers needs; name fewer"}},
		{"POST", "/v1/perftest", `{"groupIP": "127.0.0.210", "receivers": ["10.77.0.8", "10.77.0.9"]}`, 400,
			api.Error{Kind: api.BadRequest, Message: "perftest on 127.0.0.210: 10.77.0.8 is not reached: no route to 10.77.0.8; 10.77.0.9 is not reached: no route to 10.77.0.9"}},
		{"DELETE", "/v1/perftest/fe80::1%25e%0a", "", 404, api.Error{Kind: api.NotFound, Message: "perftest on fe80::1 is not up; rocast perftest ls lists what is up"}},
		{"GET", "/v1/groups/none", "", 404, api.Error{Kind: api.NotFound, Message: `there is no group "none"; rocast group ls lists the groups`}},
		{"DELETE", "/v1/groups/none", "", 404, api.Error{Kind: api.NotFound, Message: `there is no group "none"; rocast group ls lists the groups`}},
		{"PUT", "/v1/groups", "", 405, api.Error{Kind: api.BadRequest, Message: "method PUT is not allowed for /v1/groups; use GET, POST"}},
		{"GET", "/v2/groups", "", 404, api.Error{Kind: api.NotFound, Message: "there is no /v2/groups; the paths of the API begin with /v1/groups, /v1/ports and so on"}},
		{"PUT", "/v1/groups/g1/%0a", "", 404, api.Error{Kind: api.NotFound, Message: "there is no /v1/groups/g1/%0a; the paths of the API begin with /v1/groups, /v1/ports and so on"}},
		{"POST", "/v1/groups/%0a", "", 405, api.Error{Kind: api.BadRequest, Message: "method POST is not allowed for /v1/groups/%0a; use DELETE, GET, PUT"}},
		{"POST", "/metrics", "", 404, api.Error{Kind: api.NotFound, Message: "there is no /metrics; the paths of the API begin with /v1/groups, /v1/ports and so on"}},
	} {
		status, answer := c.call(t, e.method, e.path, e.body)
		var got api.ErrorBody
		if err := json.Unmarshal([]byte(answer), &got); err != nil || got.Error == nil {
			t.Errorf("%s %s: %s", e.method, e.path, answer)
			continue
		}
		if status != e.status || *got.Error != e.want {
			t.Errorf("%s %s\ngot  %d %+v\nwant %d %+v", e.method, e.path, status, *got.Error, e.status, e.want)
		}
	}
}

func TestThePeerDecidesWhatIsShownAndDone(t *testing.T) {
	for _, c := range []struct {
		name            string
		peer            peer
		changes, secret bool
	}{
		{"root", root, true, true},
		{"a member of the socket's group", peer{uid: 1000, change: true}, true, false},
		{"anyone", peer{uid: 1000}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, ctx := serve(t, c.peer), context.Background()
			_, err := client.CreateGroup(ctx, []byte(g1))
			if c.changes != (err == nil) {
				t.Fatalf("create: %v", err)
			}
			if !c.changes {
				want := api.Error{Kind: api.Forbidden, Message: "user 1000 may only read; run as root, or join the group that socketGroup in rocastd.yaml names"}
				if e := (*api.Error)(nil); !errors.As(err, &e) || *e != want {
					t.Errorf("create: %v", err)
				}
				if _, err := client.UpdateGroup(ctx, "g1", []byte(g1)); err == nil || !strings.Contains(err.Error(), "may only read") {
					t.Errorf("update: %v", err)
				}
				if _, err := client.RemoveGroup(ctx, "g1"); err == nil || !strings.Contains(err.Error(), "may only read") {
					t.Errorf("remove: %v", err)
				}
				return
			}
			for _, path := range []string{"/v1/groups", "/v1/groups/g1"} {
				_, answer := client.call(t, "GET", path, "")
				if got := strings.Contains(answer, "rkey"); got != (c.secret && path == "/v1/groups/g1") {
					t.Errorf("GET %s: rkeys shown %v: %s", path, got, answer)
				}
			}
		})
	}
}

// An error about a bad file quotes the file, and an R_Key may stand in a wrong place there. So the
// log has only the line of a bad file, but the whole text of every other refusal.
func TestARefusedFileIsNotQuotedInTheLog(t *testing.T) {
	s, _ := newServer(t)
	core, logs := observer.New(zap.DebugLevel)
	s.Log = zap.New(core)
	c, ctx := s.onSocket(t), t.Context()
	if _, err := c.CreateGroup(ctx, []byte(strings.Replace(g1, "rkey: 0x1234", "rkey0x1234: 1", 1))); err == nil || !strings.Contains(err.Error(), "0x1234") {
		t.Fatalf("the sentence that quotes the file: %v", err)
	}
	if _, err := c.CreateGroup(ctx, []byte(g1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateGroup(ctx, []byte(g1)); err == nil {
		t.Fatal("a name was given twice")
	}
	var lines []string
	for _, line := range logs.FilterLevelExact(zap.WarnLevel).All() {
		lines = append(lines, fmt.Sprint(line.Message, line.ContextMap()))
	}
	// The line names a PID, which may have the same digits.
	if len(lines) != 2 || strings.Contains(lines[0], "0x1234") || !strings.Contains(lines[0], "line:8") || !strings.Contains(lines[1], "g1") {
		t.Errorf("%q", lines)
	}
}

// The user of this test has the rights of the daemon's own user.
func TestTheKernelsWordDecides(t *testing.T) {
	s, _ := newServer(t)
	c := s.onSocket(t)
	if g, err := c.CreateGroup(t.Context(), []byte(g1)); err != nil || g.Memory[0].RKey == nil {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestPerftestOverTheSocket(t *testing.T) {
	c, ctx := serve(t, root), t.Context()
	if up, err := c.PerftestUp(ctx, api.PerftestRequest{GroupIP: "127.0.0.211", Receivers: []string{"10.77.0.2"}, Port: 18597}); err != nil || up.GroupIP != "127.0.0.211" {
		t.Fatalf("%+v, %v", up, err)
	}
	if list, err := c.Perftests(ctx); err != nil || len(list.Perftests) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := c.PerftestDown(ctx, "127.0.0.211"); err != nil {
		t.Error(err)
	}
	if list, err := c.Perftests(ctx); err != nil || len(list.Perftests) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestRDMACMOverTheSocket(t *testing.T) {
	c, ctx := serve(t, root), t.Context()
	request := api.CMRequest{GroupIP: "127.0.0.212", Receivers: []string{"10.77.0.2"}, Port: 7174, Ack: "quorum 1"}
	if up, err := c.CMUp(ctx, request); err != nil || up.GroupIP != "127.0.0.212" || up.Ack != "quorum 1" {
		t.Fatalf("%+v, %v", up, err)
	}
	if list, err := c.CMs(ctx); err != nil || len(list.CMs) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := c.CMDown(ctx, "127.0.0.212"); err != nil {
		t.Error(err)
	}
	if list, err := c.CMs(ctx); err != nil || len(list.CMs) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A client that disconnects in the middle of a group file creates no group, although the first half
// of a file may be a valid file.
func TestAFileThatDoesNotArriveWholeIsRefused(t *testing.T) {
	c := serve(t, root)
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, post+g1, len(g1)+1)
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), " 400 ") || !strings.Contains(string(answer), "the group file did not arrive whole: unexpected EOF") {
		t.Errorf("%s, %v", answer, err)
	}
	if list, err := c.Groups(t.Context()); err != nil || len(list.Groups) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// faulty is a Control in which a part fails unexpectedly.
type faulty struct{ Control }

func (faulty) Remove(string) error { return errors.Join(errors.New("first"), errors.New("second")) }

func TestHeadersOfAnswers(t *testing.T) {
	s, _ := newServer(t)
	s.Control = faulty{s.Control}
	for _, c := range []struct {
		method, path string
		status       int
		allow, body  string
	}{
		{"GET", "/v1/groups", 200, "", `{"groups":[]}`},
		{"PUT", "/v1/groups", 405, "GET, POST", "error"},
		{"DELETE", "/v1/groups/g1", 500, "", `{"error":{"kind":"internal","message":"first; second"}}`},
	} {
		answer := httptest.NewRecorder()
		s.routes().ServeHTTP(answer, httptest.NewRequestWithContext(withPeer(t.Context(), root), c.method, c.path, nil))
		h := answer.Header()
		if answer.Code != c.status || h.Get("Allow") != c.allow || h.Get("Content-Type") != "application/json" || !strings.Contains(answer.Body.String(), c.body) {
			t.Errorf("%s %s: %d, %v, %s", c.method, c.path, answer.Code, h, answer.Body)
		}
	}
}

func TestTheHeaderOfARequestIsBounded(t *testing.T) {
	c := serve(t, root)
	for size, want := range map[int]int{10: 200, 16 << 10: 200, 21_000: 431, 1 << 20: 431} {
		request, err := http.NewRequest("GET", "http://rocastd/v1/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X", strings.Repeat("x", size))
		response, err := (&http.Client{Transport: c.transport()}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a header of %d bytes: %s, want %d", size, response.Status, want)
		}
	}
}

func TestRefusalsOfTheSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := Listen(path, os.Getegid(), false)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	go func() { // answers the check whether another daemon listens
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	files := testlab.OpenFiles(t)
	_, err = Listen(path, os.Getegid(), false)
	if opened := files.Since(t); len(opened) > 1 { // the other end, which closes when it has seen the end of this one
		t.Errorf("%q stay open", opened)
	}
	if want := "open the socket " + path + ": another daemon answers on it; stop that daemon, or set socket: in the config"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	l.Close()

	long := shortDir(t)
	long = filepath.Join(long, strings.Repeat("s", api.MaxSocketBytes-len(long)-1))
	if l, err := Listen(long, os.Getegid(), false); err != nil {
		t.Errorf("a path of %d bytes: %v", len(long), err)
	} else {
		l.Close()
	}

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Listen(file, os.Getegid(), false)
	if want := "open the socket " + file + ": a file that is not a socket has this name; remove it, or set socket: in the config"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

// refusalOf returns the error of Listen for a path, without the path.
func refusalOf(path string) string {
	l, err := Listen(path, os.Getegid(), false)
	if err == nil {
		l.Close()
		return ""
	}
	return strings.ReplaceAll(err.Error(), path, "PATH")
}

func TestPathsThatNoSocketCanHave(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "full.new", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "datagrams"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	for path, want := range map[string]string{
		"/proc/rocast/s":                             "open the socket PATH: mkdir /proc/rocast: ",
		filepath.Join(dir, "full"):                   "open the socket PATH: remove PATH.new: directory not empty",
		filepath.Join(dir, strings.Repeat("x", 300)): "open the socket PATH: lstat PATH: file name too long",
		filepath.Join(dir, strings.Repeat("x", 110)): "open the socket PATH: listen unix PATH.new: bind: invalid argument",
		filepath.Join(dir, "datagrams"):              "open the socket PATH: dial unix PATH: connect: protocol wrong type for socket",
	} {
		if got := refusalOf(path); got == "" || !strings.HasPrefix(got, want) {
			t.Errorf("\ngot  %s\nwant %s", got, want)
		}
	}
}

// The socket belongs to root and the group. Other users may list its directory, which has nothing
// else.
func TestWhoseTheSocketIs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file to another group; run it with sudo")
	}
	const group = 4711
	dir := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(dir, "s")
	if err := testlab.WithoutCapability(unix.CAP_CHOWN, func() error {
		l, err := Listen(path, group, false)
		if err == nil {
			l.Close()
			return errors.New("a socket that cannot be given to the group is opened")
		}
		if !errors.Is(err, unix.EPERM) {
			return err
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	if err := os.WriteFile(path+".new", nil, 0o600); err != nil { // as a crash may leave it
		t.Fatal(err)
	}
	l, err := Listen(path, group, false)
	if err != nil {
		t.Fatal(err)
	}
	var stat, dirStat unix.Stat_t
	if err := errors.Join(unix.Stat(path, &stat), unix.Stat(dir, &dirStat)); err != nil {
		t.Fatal(err)
	}
	if stat.Uid != 0 || stat.Gid != group || stat.Mode&0o777 != 0o660 || dirStat.Mode&0o777 != 0o755 {
		t.Errorf("uid %d, gid %d, mode %o; the directory's mode is %o", stat.Uid, stat.Gid, stat.Mode, dirStat.Mode)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("close a socket whose file is gone: %v", err)
	}
}

func TestAListenerSaysWhatItCannotRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path, os.Getegid(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); !errors.Is(err, unix.ENOTEMPTY) {
		t.Error(err)
	}
}

func TestASocketThatACrashLeftIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := Listen(path, os.Getegid(), false)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// A daemon that may not give the socket away says what is missing.
func TestASocketForAGroupWithoutTheDaemon(t *testing.T) {
	testlab.NeedRoot(t)
	path := filepath.Join(t.TempDir(), "s")
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread without the capability ends with this goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var has [2]unix.CapUserData
		err := unix.Capget(&header, &has[0])
		has[0].Effective &^= 1 << unix.CAP_CHOWN
		if err = errors.Join(err, unix.Capset(&header, &has[0])); err == nil {
			_, err = Listen(path, 54321, false)
		}
		failed <- err
	}()
	err := <-failed
	if err == nil || !strings.HasSuffix(err.Error(), "operation not permitted; the user of rocastd is not in the group that socketGroup: names: add SupplementaryGroups= to the unit") {
		t.Error(err)
	}
	if left, _ := filepath.Glob(path + "*"); left != nil {
		t.Errorf("%q are left", left)
	}
}

// An error that is not about a group file may be logged.
func TestAnErrorOfAnotherKindIsNoMistakeInAFile(t *testing.T) {
	if _, inFile := mistake(errors.New("the disk is full")); inFile {
		t.Error("it counts as one in a file")
	}
}

// The level of the log is shown to everybody, and changed by those who may change groups.
func TestTheLevelOfTheLog(t *testing.T) {
	for _, p := range []peer{root, {uid: 1000, change: true}, {uid: 1000}} {
		c := serve(t, p)
		if log, err := c.Log(t.Context()); err != nil || log.Level != "info" {
			t.Errorf("%v: %+v, %v", p, log, err)
		}
		want, log := "info", api.Log{}
		log, err := c.SetLog(t.Context(), api.Log{Level: "debug"})
		if p.change {
			want = "debug"
		}
		if (err == nil) != p.change || err == nil && log.Level != want {
			t.Errorf("%v: %+v, %v", p, log, err)
		}
		if log, err := c.Log(t.Context()); err != nil || log.Level != want {
			t.Errorf("%v: then %+v, %v", p, log, err)
		}
	}
	c := serve(t, root)
	_, err := c.SetLog(t.Context(), api.Log{Level: "loud"})
	if client.KindOf(err) != api.BadRequest {
		t.Error(err)
	}
}
