package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

// pipes is a listener in memory, whose time a synctest bubble controls.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	ends   chan time.Time // the first time that the server closed a connection
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- timed{there, p.ends}
	return here
}

// post lets clients ask one after the other to create a group.
func (p *pipes) post(n int) (clients []net.Conn) {
	for range n {
		client := p.dial()
		fmt.Fprintf(client, post+"name: g1", 8)
		clients = append(clients, client)
		synctest.Wait()
	}
	return clients
}

// timed says when the server closes it.
type timed struct {
	net.Conn
	ends chan<- time.Time
}

func (c timed) Close() error {
	select {
	case c.ends <- time.Now():
	default:
	}
	return c.Conn.Close()
}

// slowControl takes a second to update a group; it creates groups until their request is given up.
type slowControl struct {
	Control
	begun, under atomic.Int32
}

func (c *slowControl) Create(ctx context.Context, _ []byte) (api.Group, error) {
	c.begun.Add(1)
	c.under.Add(1)
	defer c.under.Add(-1)
	<-ctx.Done()
	time.Sleep(time.Second) // some more, as a disk takes
	return api.Group{}, ctx.Err()
}

func (c *slowControl) Update(ctx context.Context, name string, _ []byte) (api.Group, error) {
	time.Sleep(time.Second)
	return api.Group{GroupSummary: api.GroupSummary{Name: name}}, ctx.Err()
}

// inMemory runs a server on pipes until stop, which returns how long stopping took.
func inMemory(t *testing.T, control Control) (p *pipes, stop func() time.Duration) {
	t.Helper()
	services, _ := control.(Services)
	s := New(Config{
		Control: control, Services: services, Log: zap.NewNop(), Metrics: http.NotFoundHandler(),
		Features: func() []api.Feature { return make([]api.Feature, 1000) },
	})
	s.access = func(net.Conn) peer { return root }
	p = &pipes{make(chan net.Conn), make(chan struct{}), make(chan time.Time, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, p) }()
	return p, func() time.Duration {
		synctest.Wait()
		began := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return time.Since(began)
	}
}

const post = "POST /v1/groups HTTP/1.1\r\nHost: rocastd\r\nContent-Length: %d\r\n\r\n"

// Whatever a client does or leaves undone, the daemon ends long before systemd kills it.
func TestNoClientHoldsUpAStop(t *testing.T) {
	for name, behave := range map[string]func(net.Conn){
		"connects and says nothing": func(net.Conn) {},
		"sends half a request line": func(c net.Conn) { io.WriteString(c, "GET /v1/gro") },
		"sends half a body":         func(c net.Conn) { fmt.Fprintf(c, post+"name:", 100) },
		"reads no answer":           func(c net.Conn) { io.WriteString(c, "GET /v1/features HTTP/1.1\r\nHost: rocastd\r\n\r\n") },
		"waits for a group":         func(c net.Conn) { fmt.Fprintf(c, post+"name: g1", 8) },
		"waits for a group and sends on": func(c net.Conn) {
			fmt.Fprintf(c, post+"name: g1", 8)
			io.WriteString(c, "GET")
		},
		"has its answer and is idle": func(c net.Conn) {
			io.WriteString(c, "GET /v1/version HTTP/1.1\r\nHost: rocastd\r\n\r\n")
			readAnswer(c)
		},
		"goes on with other requests": func(c net.Conn) {
			io.WriteString(c, strings.Repeat("GET /v1/version HTTP/1.1\r\nHost: rocastd\r\n\r\n", 2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				control := &slowControl{}
				p, stop := inMemory(t, control)
				client := p.dial()
				go behave(client)
				if took := stop(); took > 3*time.Second { // the server's 2 s, and one of a handler's own
					t.Errorf("the stop took %v", took)
				}
				if n := control.under.Load(); n > 0 {
					t.Errorf("%d requests are still under way after the stop", n)
				}
				client.Close()
			})
		})
	}
}

func readAnswer(c net.Conn) {
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		io.Copy(io.Discard, answer.Body)
	}
}

// A request that ends in time is answered, although the daemon is stopping.
func TestAStopLetsARequestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := inMemory(t, &slowControl{})
		client := p.dial()
		answered := make(chan error, 1)
		go func() {
			fmt.Fprintf(client, "PUT /v1/groups/g1 HTTP/1.1\r\nHost: rocastd\r\nContent-Length: 8\r\n\r\nname: g1")
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err == nil && answer.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %s", answer.Status)
			}
			answered <- err
		}()
		stop()
		if err := <-answered; err != nil {
			t.Error(err)
		}
		client.Close()
	})
}

// Clients that neither read nor write lose their connection by themselves after half a minute.
func TestAStuckClientIsDropped(t *testing.T) {
	for name, request := range map[string]string{
		"silent":          "",
		"half a header":   "GET /v1/gro",
		"half a body":     fmt.Sprintf(post, 100),
		"reads no answer": "GET /v1/features HTTP/1.1\r\nHost: rocastd\r\n\r\n",
		"idle":            "GET /v1/version HTTP/1.1\r\nHost: rocastd\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, stop := inMemory(t, &slowControl{})
				client, began := p.dial(), time.Now()
				io.WriteString(client, request)
				if name == "idle" {
					readAnswer(client)
				}
				if name != "reads no answer" {
					go io.Copy(io.Discard, client)
				}
				select {
				case end := <-p.ends:
					if took := end.Sub(began); took != 30*time.Second {
						t.Errorf("the connection ends after %v", took)
					}
				case <-time.After(time.Minute):
					t.Error("a minute later the connection is still there")
				}
				client.Close()
				stop()
			})
		})
	}
}

// lateControl carries every change out, but one second later than the server can answer it.
type lateControl struct {
	Control
	Services
}

func (lateControl) Create(context.Context, []byte) (api.Group, error) {
	time.Sleep(answerWithin + time.Second)
	return api.Group{}, nil
}

func (lateControl) PerftestUp(context.Context, []byte) (api.Perftest, error) {
	time.Sleep(answerWithin + time.Second)
	return api.Perftest{}, nil
}

// The error of a change that was sent and not answered does not sound as if nothing had happened.
func TestAnAnswerThatComesTooLateLeavesTheOutcomeOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := inMemory(t, lateControl{})
		client := client.Over("/s", func(context.Context) (net.Conn, error) { return p.dial(), nil })
		_, createErr := client.CreateGroup(t.Context(), []byte("name: g1"))
		_, upErr := client.PerftestUp(t.Context(), api.PerftestRequest{})
		for list, err := range map[string]error{"group": createErr, "perftest": upErr} {
			want := "the daemon on /s did not answer (EOF); it may still carry out the request: rocast " + list + " ls shows whether it did"
			if e := (*api.Error)(nil); !errors.As(err, &e) || e.Kind != api.Unreachable || e.Message != want {
				t.Errorf("\ngot  %v\nwant %s", err, want)
			}
		}
		stop()
	})
}

// A client that stalls in the middle of a body takes no turn from the others.
func TestClientsThatStallHinderNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := &slowControl{}
		p, stop := inMemory(t, control)
		var clients []net.Conn
		for range 2 * maxChanges {
			client := p.dial()
			fmt.Fprintf(client, post+"name:", 100)
			clients = append(clients, client)
		}
		synctest.Wait()
		client := p.dial()
		fmt.Fprintf(client, post+"name: g1", 8)
		synctest.Wait()
		if n := control.under.Load(); n != 1 {
			t.Errorf("%d requests are under way beside %d stalled ones, want 1", n, len(clients))
		}
		stop()
		for _, client := range append(clients, client) {
			client.Close()
		}
	})
}

// No more than 64 bodies are in memory at a time, whether their requests run, wait or stall. A body
// that is not read yet stays with its client.
func TestBodiesInMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := inMemory(t, &slowControl{})
		var clients []net.Conn
		var sent atomic.Int32
		for range 64 + 3 {
			client := p.dial()
			clients = append(clients, client)
			go func() {
				const size = 100 << 10 // more than the server's buffer
				if _, err := fmt.Fprintf(client, post+strings.Repeat("#", size), size); err == nil {
					sent.Add(1)
				}
			}()
		}
		synctest.Wait()
		if n := sent.Load(); n != 64 {
			t.Errorf("%d bodies were read, want 64", n)
		}
		clients[0].Close()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := sent.Load(); n != 65 {
			t.Errorf("%d bodies were read after one client went, want 65", n)
		}
		stop()
		for _, client := range clients {
			client.Close()
		}
	})
}

// No more than 16 requests with a body work at a time.
func TestRequestsWithABodyWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := &slowControl{}
		p, stop := inMemory(t, control)
		clients := p.post(16 + 3)
		if n := control.under.Load(); n != 16 {
			t.Errorf("%d requests are under way, want 16", n)
		}
		for _, client := range clients[:5] {
			client.Close()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := control.under.Load(); n != 14 {
			t.Errorf("%d requests are under way after five of %d went, want 14", n, len(clients))
		}
		stop()
		for _, client := range clients {
			client.Close()
		}
	})
}

// A request is not carried out if its client leaves while it waits for its turn.
func TestAClientThatLeavesBeforeItsTurnChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := &slowControl{}
		p, stop := inMemory(t, control)
		clients := p.post(maxChanges + 3)
		for _, client := range clients[maxChanges:] {
			client.Close()
		}
		synctest.Wait()
		for _, client := range clients[:maxChanges] {
			client.Close()
		}
		stop()
		if n := control.begun.Load(); n != maxChanges {
			t.Errorf("%d requests were carried out, want %d", n, maxChanges)
		}
	})
}

// broken is a listener that cannot accept.
type broken struct{ *pipes }

func (broken) Accept() (net.Conn, error) { return nil, errBroken }

var errBroken = errors.New("broken")

func TestAListenerThatBreaksEndsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: zap.NewNop(), Metrics: http.NotFoundHandler()})
		if err := s.Serve(t.Context(), broken{&pipes{closed: make(chan struct{})}}); !errors.Is(err, errBroken) {
			t.Error(err)
		}
	})
}
