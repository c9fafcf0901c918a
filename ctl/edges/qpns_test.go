package edges

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rocast/rocast/roce"
)

// kept is a Keeper in memory.
type kept struct {
	n    uint32
	fail error
}

func (k *kept) LegQPN() (uint32, error) {
	if k.n == 0 {
		return 0, cmp.Or(k.fail, fs.ErrNotExist)
	}
	return k.n, k.fail
}

func (k *kept) PutLegQPN(n uint32) error {
	if k.fail == nil {
		k.n = n
	}
	return k.fail
}

// An edge may map a generation of long ago, so no QPN is drawn twice, whenever the box has crashed.
func TestNoQPNIsDrawnTwice(t *testing.T) {
	for _, begin := range []uint32{firstQPN, lastQPN, lastQPN - 3*keptAhead} {
		k, drawn := &kept{n: begin}, map[roce.QPN]bool{}
		for life := range 20 {
			q := NewQPNs(k)
			for range 1 + life*keptAhead/7 {
				qpn, err := q.Draw()
				if err != nil || drawn[qpn] || qpn < firstQPN || qpn > lastQPN {
					t.Fatalf("life %d from %d: QPN %d, %v; drawn before: %v", life, begin, qpn, err, drawn[qpn])
				}
				drawn[qpn] = true
			}
		}
	}
}

// What cannot be stored is not drawn: a restart would draw it again.
func TestAQPNThatCannotBeStoredIsNotDrawn(t *testing.T) {
	k := &kept{n: firstQPN}
	q := NewQPNs(k)
	first, _ := q.Draw()
	for range keptAhead - 1 {
		if _, err := q.Draw(); err != nil {
			t.Fatal(err)
		}
	}
	k.fail = errors.New("the disk is full")
	if qpn, err := q.Draw(); err == nil {
		t.Errorf("%d was drawn", qpn)
	}
	k.fail = nil
	if qpn, err := q.Draw(); err != nil || qpn != first+keptAhead {
		t.Errorf("QPN %d, %v", qpn, err)
	}
}

// Boxes that have stored nothing begin at different numbers.
func TestQPNsBeginAnywhere(t *testing.T) {
	seen := map[roce.QPN]bool{}
	for _, n := range []uint32{0, 0, 0, 1, lastQPN + 1} {
		qpn, err := NewQPNs(&kept{n: n}).Draw()
		if err != nil || qpn < firstQPN || qpn > lastQPN {
			t.Errorf("QPN %d, %v", qpn, err)
		}
		seen[qpn] = true
	}
	if len(seen) < 4 {
		t.Errorf("they begin at %v", seen)
	}
}

// What is stored and cannot be read may be any number, also the one that another would be. So none
// is drawn until it can be read.
func TestNoQPNIsDrawnWhileTheStoredOneCannotBeRead(t *testing.T) {
	k := &kept{fail: errors.New("the file is damaged")}
	q := NewQPNs(k)
	if qpn, err := q.Draw(); err == nil || k.n != 0 {
		t.Errorf("%d was drawn: %v", qpn, err)
	}
	k.n, k.fail = firstQPN+7, nil
	if qpn, err := q.Draw(); err != nil || qpn != firstQPN+7 {
		t.Errorf("QPN %d, %v", qpn, err)
	}
}

// slow is a Keeper whose disk is slow: it stores when it is let.
type slow struct {
	kept
	let chan struct{}
}

func (k *slow) PutLegQPN(n uint32) error {
	<-k.let
	return k.kept.PutLegQPN(n)
}

// Whoever draws has locked the groups, so nobody waits for the disk: more numbers are stored while
// there are some.
func TestNobodyWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &slow{kept{n: lastQPN - keptAhead/2}, make(chan struct{})}
		q, drawn := NewQPNs(k), map[roce.QPN]bool{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- q.KeepUp(ctx, func(err error) { t.Error(err) }) }()
		for range 5 {
			k.let <- struct{}{}
			synctest.Wait()
			for range keptAhead {
				qpn, err := q.Draw() // it would wait for ever
				if err != nil || drawn[qpn] {
					t.Fatalf("QPN %d, %v; drawn before: %v", qpn, err, drawn[qpn])
				}
				drawn[qpn] = true
			}
			synctest.Wait()
		}
		k.let <- struct{}{}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A file that cannot be read is reported when the daemon starts, and not only when copies are to be
// shared; once, whoever draws meanwhile.
func TestADamagedNumberIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{fail: errors.New("the file is damaged")}
		q := NewQPNs(k)
		ctx, cancel := context.WithCancel(t.Context())
		ended, warned := make(chan error, 1), make(chan error, 10)
		go func() { ended <- q.KeepUp(ctx, func(err error) { warned <- err }) }()
		synctest.Wait()
		for range 3 {
			q.low <- struct{}{} // somebody has drawn
			synctest.Wait()
		}
		if len(warned) != 1 || !strings.Contains((<-warned).Error(), "remove the file legs") {
			t.Errorf("%d warnings", len(warned))
		}
		k.n, k.fail = firstQPN, nil
		q.low <- struct{}{}
		synctest.Wait()
		k.fail = errors.New("the disk is full")
		for range keptAhead - 1 { // the last one is not drawn: its number is to be stored first
			if _, err := q.Draw(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(warned) != 1 || !strings.Contains((<-warned).Error(), "the disk is full") {
			t.Errorf("%d warnings, when the disk is full", len(warned))
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
