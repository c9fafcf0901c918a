package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

func TestEventsOverTheSocket(t *testing.T) {
	c := serve(t, root)
	if _, err := c.CreateGroup(t.Context(), []byte(g1)); err != nil {
		t.Fatal(err)
	}
	first, err := c.EventsAfter(t.Context(), api.Cursor{}, "", 0)
	if err != nil || len(first.Events) != 1 || first.Events[0].Kind != api.GroupCreated || first.Events[0].Group != "g1" || first.Missed {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := c.EventsAfter(t.Context(), first.Cursor, "", 0); err != nil || len(again.Events) != 0 || again.Cursor != first.Cursor {
		t.Errorf("%+v, %v", again, err)
	}
	if other, err := c.EventsAfter(t.Context(), api.Cursor{}, "g2", 0); err != nil || len(other.Events) != 0 || other.Cursor != first.Cursor {
		t.Errorf("%+v, %v", other, err)
	}
	if other, err := c.EventsAfter(t.Context(), api.Cursor{Run: "before", Seq: 7}, "g2", time.Hour); err != nil || !other.Missed {
		t.Errorf("%+v, %v", other, err)
	}
	told := make(chan api.Events)
	go func() {
		for events, err := range c.Follow(t.Context(), first.Cursor, "g1") {
			if err != nil {
				t.Error(err)
			}
			told <- events
		}
	}()
	if _, err := c.RemoveGroup(t.Context(), "g1"); err != nil {
		t.Fatal(err)
	}
	if got := <-told; len(got.Events) != 1 || got.Events[0].Kind != api.GroupRemoved {
		t.Errorf("%+v", got)
	}
}

func TestWhatAQuestionForEventsMayNotHave(t *testing.T) {
	c := serve(t, root)
	for query, want := range map[string]string{
		"?seq=-1":  `{"error":{"kind":"bad-request","message":"seq is \"-1\"; write a whole number up to 9223372036854775808"}}`,
		"?wait=21": `{"error":{"kind":"bad-request","message":"wait is \"21\"; write a whole number up to 20"}}`,
		"?wait=x":  `{"error":{"kind":"bad-request","message":"wait is \"x\"; write a whole number up to 20"}}`,

		"?wait=08":   `{"error":{"kind":"bad-request","message":"wait is \"08\", which has a leading zero; write a whole number up to 20 without one"}}`,
		"?wait=00":   `{"error":{"kind":"bad-request","message":"wait is \"00\", which has a leading zero; write a whole number up to 20 without one"}}`,
		"?wait=0x1":  `{"error":{"kind":"bad-request","message":"wait is \"0x1\"; write a whole number up to 20"}}`,
		"?wait=%2B5": `{"error":{"kind":"bad-request","message":"wait is \"+5\"; write a whole number up to 20"}}`,
		"?wait=+5":   `{"error":{"kind":"bad-request","message":"wait is \" 5\"; write a whole number up to 20"}}`,
		"?wait=1_0":  `{"error":{"kind":"bad-request","message":"wait is \"1_0\"; write a whole number up to 20"}}`,
		"?wait=":     `{"error":{"kind":"bad-request","message":"wait is \"\"; write a whole number up to 20"}}`,
	} {
		if status, answer := c.call(t, "GET", api.EventsPath+query, ""); status != http.StatusBadRequest || answer != want+"\n" {
			t.Errorf("%s: %d %s", query, status, answer)
		}
	}
}

// waitingControl has no events.
type waitingControl struct{ Control }

func (waitingControl) Events(ctx context.Context, at api.Cursor, _ string) api.Events {
	<-ctx.Done()
	return api.Events{Cursor: api.Cursor{Run: "r", Seq: at.Seq}}
}

// Programs that wait are answered in time, do not hold up the end of the daemon, and are bounded.
func TestWaitingForEventsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := inMemory(t, waitingControl{})
		ask := func(wait time.Duration) error {
			events, err := client.Over("/s", func(context.Context) (net.Conn, error) { return p.dial(), nil }).
				EventsAfter(t.Context(), api.Cursor{Seq: 3}, "", wait)
			if err == nil && events.Cursor.Seq != 3 {
				t.Errorf("%+v", events)
			}
			return err
		}
		began := time.Now()
		if err := ask(7 * time.Second); err != nil || time.Since(began) != 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		if err := ask(0); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		conn := p.dial() // a question that says nothing does not wait either
		began = time.Now()
		if _, err := io.WriteString(conn, "GET "+api.EventsPath+" HTTP/1.1\r\nHost: rocastd\r\n\r\n"); err != nil {
			t.Error(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		conn.Close()
		done := make(chan error, maxWaiting)
		for range maxWaiting {
			go func() { done <- ask(api.MaxEventWait) }()
		}
		synctest.Wait()
		want := "256 programs wait for events already; let some of them end"
		if err := ask(time.Second); err == nil || err.Error() != want || client.KindOf(err) != api.Unavailable {
			t.Errorf("got %v, want %s", err, want)
		}
		if err := ask(0); err != nil {
			t.Error(err)
		}
		began = time.Now()
		stop()
		if took := time.Since(began); took >= stopWithin {
			t.Errorf("the stop took %v", took)
		}
		for range maxWaiting {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// The log says who has asked.
func TestAPeerIsNamedInTheLog(t *testing.T) {
	for want, p := range map[string]peer{"the program monitor": {uid: nobody, name: "monitor"}, "uid 5 pid 6": {uid: 5, pid: 6}} {
		if got := p.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAConfirmationForNoGroupIsRefused(t *testing.T) {
	psn := uint32(7)
	_, err := serve(t, root).Confirm(t.Context(), "g1", api.Confirmation{IP: "10.77.0.2", QPN: 18, State: "RTS", PSN: &psn})
	if client.KindOf(err) != api.NotFound {
		t.Error(err)
	}
}
