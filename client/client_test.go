package client

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// onSocket answers requests with handle on a Unix socket.
func onSocket(t testing.TB, handle http.HandlerFunc) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // short: the path of a socket has its limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handle}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return socket
}

// inMemory answers requests with handle, or refuses connections while handle is nil.
func inMemory(t *testing.T, handle func() http.HandlerFunc) *Client {
	t.Helper()
	return Over("/s", func(context.Context) (net.Conn, error) {
		h := handle()
		if h == nil {
			return nil, errors.New("connection refused")
		}
		here, there := net.Pipe()
		go func() {
			s := &http.Server{Handler: h}
			_ = s.Serve(&once{conn: there})
		}()
		return here, nil
	})
}

// once is a listener with one connection.
type once struct{ conn net.Conn }

func (l *once) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	c := l.conn
	l.conn = nil
	return c, nil
}
func (l *once) Close() error   { return nil }
func (l *once) Addr() net.Addr { return &net.UnixAddr{} }

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func refuse(w http.ResponseWriter, e *api.Error) {
	w.WriteHeader(e.Status())
	answer(w, api.ErrorBody{Error: e})
}

// What is sent is what package api says.
func TestRequestsAreThoseOfTheAPI(t *testing.T) {
	var asked []string
	c := New(onSocket(t, func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 200)
		n, _ := r.Body.Read(body)
		asked = append(asked, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+string(body[:n])))
		answer(w, struct{}{})
	}))
	ctx, psn := t.Context(), uint32(0)
	_, e1 := c.CreateGroup(ctx, []byte("name: g1"))
	_, e2 := c.UpdateGroup(ctx, "g 1", []byte("name: g1"))
	_, e3 := c.RemoveGroup(ctx, "g1")
	_, e4 := c.Confirm(ctx, "g1", Confirmation{IP: "10.0.0.1", QPN: 7, State: "RTR", PSN: &psn})
	_, e5 := c.EventsAfter(ctx, Cursor{Run: "r&", Seq: 9}, "g1", 90*time.Second)
	_, e6 := c.EventsAfter(ctx, Cursor{}, "", 1500*time.Millisecond)
	_, e7 := c.ChangeRegions(ctx, "g 1", RegionChange{
		Add:    []NewRegion{{VA: 0x20000, Length: 4096, RKey: 7, At: []RegionAt{{IP: "10.0.0.2", VA: 1, RKey: 2}}}},
		Remove: []RegionStart{{VA: 3, RKey: 4}},
	})
	_, e8 := c.Traffic(ctx, "")
	_, e9 := c.Traffic(ctx, "g 1")
	if err := errors.Join(e1, e2, e3, e4, e5, e6, e7, e8, e9); err != nil {
		t.Fatal(err)
	}
	want := []string{"POST /v1/groups name: g1", "PUT /v1/groups/g%201 name: g1", "DELETE /v1/groups/g1",
		`POST /v1/groups/g1/ready {"ip":"10.0.0.1","qpn":7,"state":"RTR","psn":0}`,
		"GET /v1/events?group=g1&run=r%26&seq=9&wait=20", "GET /v1/events?group=&run=&seq=0&wait=1",
		`POST /v1/groups/g%201/regions {"add":[{"va":"0x20000","length":4096,"rkey":"0x7","at":[{"ip":"10.0.0.2","va":"0x1","rkey":"0x2"}]}],"remove":[{"va":"0x3","rkey":"0x4"}]}`, "GET /v1/traffic", "GET /v1/traffic/g%201"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}

// A daemon that goes away and comes back ends no stream of events.
func TestEventsGoOnWhenTheDaemonComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var places []string
		step := 0
		c := inMemory(t, func() http.HandlerFunc {
			if step++; step == 2 || step == 3 {
				return nil
			}
			at := step
			return func(w http.ResponseWriter, r *http.Request) {
				places = append(places, r.URL.Query().Get("run")+r.URL.Query().Get("seq"))
				switch at {
				case 1:
					answer(w, Events{Events: []Event{{Seq: 1}}, Cursor: Cursor{Run: "a", Seq: 1}})
				case 4:
					answer(w, Events{Missed: true, Cursor: Cursor{Run: "b"}})
				case 5:
					answer(w, Events{Cursor: Cursor{Run: "b", Seq: 5}}) // nothing for this group
				default:
					refuse(w, api.Errorf(api.Forbidden, "no"))
				}
			}
		})
		var got []string
		began := time.Now()
		for events, err := range c.Follow(t.Context(), Cursor{Run: "z", Seq: 8}, "g1") {
			word := string(KindOf(err)) + " " + events.Cursor.Run
			if events.Missed {
				word += " missed"
			}
			got = append(got, word)
		}
		if want := []string{" a", "unreachable a", " b missed", "forbidden b"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if want := []string{"z8", "a1", "b0", "b5"}; !slices.Equal(places, want) {
			t.Errorf("asked for %q, want %q", places, want)
		}
		if took := time.Since(began); took != 2*askAgainAfter {
			t.Errorf("it took %v", took)
		}
	})
}

func TestAReaderThatStopsIsNotAskedAgain(t *testing.T) {
	c := New(onSocket(t, func(w http.ResponseWriter, r *http.Request) {
		answer(w, Events{Events: []Event{{Seq: 1}}})
	}))
	for range c.Follow(t.Context(), Cursor{}, "") {
		break
	}
	for range New("/nowhere/s").Follow(t.Context(), Cursor{}, "") {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for events, err := range c.Follow(ctx, Cursor{}, "") {
		t.Errorf("%+v, %v", events, err)
	}
}

func TestWaitingUntilAGroupIsClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var groups []any // the answers, one for each question
		c := inMemory(t, func() http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == api.EventsPath {
					if r.URL.Query().Get("wait") != "0" {
						<-time.After(time.Second)
					}
					answer(w, Events{})
					return
				}
				now := groups[0]
				if len(groups) > 1 {
					groups = groups[1:]
				}
				if e, ok := now.(*api.Error); ok {
					refuse(w, e)
				} else {
					answer(w, now)
				}
			}
		})
		state := func(s GroupSummary, members ...Member) Group { return Group{GroupSummary: s, Members: members} }
		clear := state(GroupSummary{Name: "g1", State: api.Degraded, ClearToSend: true})
		waits := state(GroupSummary{State: api.Waiting}, Member{IP: "a", Reach: api.Reach{State: api.Ready}},
			Member{IP: "b", Reach: api.Reach{State: api.Waiting, Reason: "no route"}})

		groups = []any{api.Errorf(api.NotFound, "none"), waits, clear}
		began := time.Now()
		if g, err := c.WaitClear(t.Context(), "g1"); err != nil || g.Name != "g1" || time.Since(began) != 2*time.Second {
			t.Errorf("%+v, %v", g, err)
		}
		groups = []any{waits, state(GroupSummary{State: api.Failed, Reason: "the file is bad"})}
		if _, err := c.WaitClear(t.Context(), "g1"); err == nil || err.Error() != "group g1 has failed: the file is bad" {
			t.Error(err)
		}
		groups = []any{api.Errorf(api.Forbidden, "not you")}
		if _, err := c.WaitClear(t.Context(), "g1"); err == nil || err.Error() != "not you" {
			t.Error(err)
		}
		for _, c1 := range []struct {
			answer any
			want   string
		}{
			{waits, "group g1 is not clear to send (context deadline exceeded): b: no route"},
			{api.Errorf(api.NotFound, "none"), "group g1 is not clear to send (context deadline exceeded)"},
		} {
			groups = []any{c1.answer}
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			if _, err := c.WaitClear(ctx, "g1"); err == nil || err.Error() != c1.want {
				t.Errorf("got %v, want %s", err, c1.want)
			}
			cancel()
			<-time.After(time.Second) // the server's handler ends
		}
	})
}

func TestProgressGoesOnUntilTheGroupIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := uint32(0)
		c := inMemory(t, func() http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				if n++; n == 4 {
					refuse(w, api.Errorf(api.NotFound, "there is no group g1"))
					return
				}
				answer(w, Group{Progress: &api.Progress{Merged: n}})
			}
		})
		began, got := time.Now(), []uint32{}
		var last error
		for g, err := range c.Progress(t.Context(), "g1", time.Minute) {
			if last = err; err == nil {
				got = append(got, g.Progress.Merged)
			}
		}
		if !slices.Equal(got, []uint32{1, 2, 3}) || KindOf(last) != api.NotFound || time.Since(began) != 3*time.Minute {
			t.Errorf("%v, %v after %v", got, last, time.Since(began))
		}
	})
}

func TestKinds(t *testing.T) {
	if KindOf(nil) != "" || KindOf(errors.New("x")) != "" || KindOf(api.Errorf(api.Stale, "x")) != api.Stale {
		t.Error("the kind of an error is another one")
	}
}
