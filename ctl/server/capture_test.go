package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

// tickingControl captures a frame every 10 s, and notes how captures end.
type tickingControl struct {
	Control
	query chan api.CaptureQuery
	ends  chan error
}

func newTicking() tickingControl {
	return tickingControl{query: make(chan api.CaptureQuery, 10), ends: make(chan error, 10)}
}

func (c tickingControl) Capture(ctx context.Context, q api.CaptureQuery, tell func(api.CaptureLine) error) (err error) {
	defer func() { c.ends <- err }()
	if q.Group == "g2" {
		return api.Errorf(api.NotFound, "there is no group g2")
	}
	c.query <- q
	at := api.CaptureProgress{}
	for err = tell(api.CaptureLine{Progress: &at}); err == nil && at.Ended == ""; {
		select {
		case <-ctx.Done():
			at.Ended = context.Cause(ctx).Error()
		case <-time.After(10 * time.Second):
			at.Captured++
			err = tell(api.CaptureLine{Frame: &api.CapturedFrame{Event: at.Captured, Bytes: make([]byte, q.Snap)}})
		}
		if err == nil {
			err = tell(api.CaptureLine{Progress: &at})
		}
	}
	return err
}

func over(t *testing.T, p *pipes) *client.Client {
	t.Helper()
	return client.Over("/s", func(context.Context) (net.Conn, error) { return p.dial(), nil })
}

// A capture goes on for as long as its client wants, beyond the limits of other requests, and the
// last line says that the daemon stops.
func TestACaptureGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := newTicking()
		p, stop := inMemory(t, control)
		asked := api.CaptureQuery{Group: "g 1", Kinds: []string{"data", "drop"}, Sample: 7, Snap: 200}
		frames, last := make(chan uint64, 1000), make(chan api.CaptureProgress, 1)
		go func() {
			at := api.CaptureProgress{}
			for line, err := range over(t, p).Capture(t.Context(), asked) {
				if err != nil {
					t.Error(err)
				}
				if line.Frame != nil {
					frames <- line.Frame.Event
				} else if line.Progress != nil {
					at = *line.Progress
				}
			}
			last <- at
		}()
		if got := <-control.query; !cmp.Equal(got, asked) {
			t.Errorf("asked for %+v", got)
		}
		for n := uint64(1); n <= 20; n++ {
			if got := <-frames; got != n {
				t.Errorf("frame %d is number %d", n, got)
			}
		}
		if took := stop(); took >= stopWithin {
			t.Errorf("the stop took %v", took)
		}
		if got := <-last; got != (api.CaptureProgress{Captured: 20, Ended: errStops.Error()}) {
			t.Errorf("the last line is %+v", got)
		}
		if err := <-control.ends; err != nil {
			t.Error(err)
		}
	})
}

// A capture ends with its client: when the client leaves, and soon after it takes nothing any more.
func TestACaptureEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := newTicking()
		p, stop := inMemory(t, control)
		for range over(t, p).Capture(t.Context(), api.CaptureQuery{}) {
			break
		}
		<-control.query
		<-control.ends

		conn := p.dial()
		if _, err := io.WriteString(conn, "GET "+api.CapturePath+"?snap=4608 HTTP/1.1\r\nHost: rocastd\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := <-control.ends; err == nil || time.Since(began) > 2*sendWithin {
			t.Errorf("a client that takes nothing: %v after %v", err, time.Since(began))
		}
		conn.Close()
		stop()
	})
}

// A capture that cannot begin is answered with the reason, as JSON.
func TestACaptureThatCannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := inMemory(t, newTicking())
		lines := 0
		for _, err := range over(t, p).Capture(t.Context(), api.CaptureQuery{Group: "g2"}) {
			if lines++; client.KindOf(err) != api.NotFound {
				t.Error(err)
			}
		}
		if lines != 1 {
			t.Errorf("%d lines", lines)
		}
		stop()
	})
	c := serve(t, root)
	for _, q := range []string{"sample=x", "snap=4609", "snap=127", "sample=-1", "kind=,data", "group=", "group"} {
		if status, answer := c.call(t, "GET", api.CapturePath+"?"+q, ""); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", q, status, answer)
		}
	}
}

// Payload and R_Keys are for those who may see R_Keys.
func TestACaptureIsForRoot(t *testing.T) {
	for _, p := range []peer{{}, {change: true}} {
		c := serve(t, p)
		if _, err := c.Trace(t.Context(), api.TraceRequest{Port: "eth1"}); client.KindOf(err) != api.Forbidden {
			t.Errorf("%+v: %v", p, err)
		}
		for _, err := range c.Capture(t.Context(), api.CaptureQuery{}) {
			if want := "a capture shows payload and R_Keys; run as root, on the box itself"; client.KindOf(err) != api.Forbidden || err.Error() != want {
				t.Errorf("%+v: %v", p, err)
			}
		}
	}
}

// A request that is no request for a trace is refused.
func TestARequestForATraceIsChecked(t *testing.T) {
	c := serve(t, root)
	for body, want := range map[string]int{"{": http.StatusBadRequest, `{"port":"eth1","frame":"!"}`: http.StatusBadRequest, `{}`: http.StatusNotFound} {
		if status, answer := c.call(t, "POST", api.TracePath, body); status != want {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
}

// A fifth capture waits for none of the others.
func TestCapturesAreBounded(t *testing.T) {
	c := serve(t, root)
	ctx, cancel := context.WithCancel(t.Context())
	began, ended := make(chan bool), make(chan bool)
	for range 4 {
		go func() {
			for _, err := range c.Capture(ctx, api.CaptureQuery{}) {
				if err != nil {
					t.Error(err)
				}
				began <- true
			}
			ended <- true
		}()
	}
	for range 4 {
		<-began
	}
	var got []string
	for _, err := range c.Capture(t.Context(), api.CaptureQuery{}) {
		got = append(got, fmt.Sprint(client.KindOf(err), ": ", err))
	}
	if want := []string{"unavailable: 4 captures run already; end one of them"}; !slices.Equal(got, want) {
		t.Errorf("a fifth capture: %q", got)
	}
	cancel()
	for range 4 {
		<-ended
	}
}
