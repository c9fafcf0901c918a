package ctl

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

// Settling takes a second, and asking for the IP some tenths of one: who wrote a name twice hears of it at once.
func TestANameThatIsTakenIsToldBeforeAnybodyIsAsked(t *testing.T) {
	w := newWorld(t)
	w.create(t, g1)
	settled, asked := w.hops.Settled(), w.addresses.Asked()
	_, err := w.Create(t.Context(), []byte(strings.Replace(g1, "10.77.0.100", "10.77.0.101", 1)))
	if err == nil || err.Error() != "line 1: group g1 exists; remove it first with rocast group rm g1, or write another name" {
		t.Errorf("%v", err)
	}
	if w.hops.Settled() != settled || w.addresses.Asked() != asked {
		t.Errorf("hosts were waited for %d times and asked %d times", w.hops.Settled()-settled, w.addresses.Asked()-asked)
	}
	w.expect(t, withG1)
}

// Of two requests for one name that are under way together one is refused.
func TestANameThatIsTakenMeanwhileIsRefused(t *testing.T) {
	w := newWorld(t)
	w.hops.Meanwhile = func() { w.create(t, g1) }
	_, err := w.Create(t.Context(), []byte(strings.Replace(g1, "10.77.0.100", "10.77.0.101", 1)))
	if err == nil || !strings.HasPrefix(err.Error(), "line 1: group g1 exists;") {
		t.Errorf("%v", err)
	}
	w.expect(t, withG1)
}

// A client that has gone does not find a group later of which it was never told.
func TestARequestWhoseClientHasGoneChangesNothing(t *testing.T) {
	w := newWorld(t)
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 20 { // whether its text is still parsed is a matter of chance
		if _, err := w.Create(gone, []byte(g1)); err == nil || !strings.HasSuffix(err.Error(), "nothing has changed") {
			t.Errorf("create: %v", err)
		}
	}
	w.expect(t, nothing)
	was := w.create(t, g1)
	without := strings.Join(strings.Split(g1, "\n")[:8], "\n") + "\n"
	for range 20 {
		if _, err := w.Update(gone, "g1", []byte(without)); err == nil || !strings.HasSuffix(err.Error(), "nothing has changed") {
			t.Errorf("update: %v", err)
		}
	}
	if is, err := w.Group("g1"); err != nil || len(is.Members) != len(was.Members) {
		t.Errorf("%+v, %v", is, err)
	}
}

// A text of a megabyte takes much more while it is parsed.
func TestOneTextIsParsedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.parsing <- struct{}{} // as another request does
		results := make(chan error, 3)
		go func() { _, err := w.Create(t.Context(), []byte(g1)); results <- err }()
		go func() { _, err := w.Update(t.Context(), "g2", []byte("?")); results <- err }()
		go func() { _, err := w.PerftestUp(t.Context(), []byte("?")); results <- err }()
		synctest.Wait()
		if len(results) > 0 {
			t.Errorf("%d texts were parsed beside another one", len(results))
		}
		<-w.parsing
		for range 3 {
			<-results
		}
		w.expect(t, withG1)
	})
}
