package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
)

// Every program that is installed brings all files to two hosts, over links that lose packets. A
// byte that differs at one host is noticed.
func TestEveryProgramBringsAllFiles(t *testing.T) {
	testlab.NeedRoot(t)
	c := cargo{"three", 3, 5000}
	b := &bench{bin: programs(t)}
	programOf := map[string]string{wayRsync: "rsync", wayChain: "nc", wayUFTP: "uftp", wayUDP: "udp-sender"}
	err := b.inYard(t.Context(), copySite{receivers: 2, rate: 100_000_000}, func(y *yard) error {
		testlab.Must(t, y.lose(1000))
		for _, w := range copyWays() {
			if p := programOf[w.name]; p != "" {
				if _, err := exec.LookPath(p); err != nil {
					t.Logf("%s is left out: %v", w.name, err)
					continue
				}
			}
			r, err := y.copy(t.Context(), &w, c)
			copies := float64(r.sent) / float64(c.total())
			switch {
			case err != nil:
				t.Errorf("%s: %v", w.name, err)
			case r.seconds <= 0 || r.hosts <= 0 || copies < 1:
				t.Errorf("%s: %+v", w.name, r)
			case w.name == wayRsync && copies < 2:
				t.Errorf("%s sends %.1f bytes for each byte to two hosts", w.name, copies)
			}
		}
		source := filepath.Join(y.home(0), cargoName)
		testlab.Must(t, (cargo{"another", 1, 5000}).write(filepath.Join(y.home(2), cargoName, "more")))
		if err := y.compare(source); err == nil || !strings.Contains(err.Error(), "host 2") {
			t.Errorf("host 2 has more than the source: %v", err)
		}
		return nil
	})
	testlab.Permitted(t, err)
}

// A program that does not begin is named, and nobody waits until it listens.
func TestAProgramThatIsMissing(t *testing.T) {
	missing := errors.New("it is not installed")
	run := &copyRun{yard: &yard{copySite: copySite{receivers: 1}}, begun: missing}
	if err := run.await(t.Context(), copyPort); !errors.Is(err, missing) {
		t.Error(err)
	}
}

// The table has medians, names who is faster than rocast-cp from three receivers on, and says of
// whoever failed why.
func TestTheTableOfCopies(t *testing.T) {
	c := cargo{"ten", 10, 100}
	key := copyKey{copySite{3, 20_000_000, 3, 1}, 0, c.name}
	single := key
	single.receivers = 1
	of := func(seconds ...float64) (all []copied) {
		for _, s := range seconds {
			all = append(all, copied{s, 2000, time.Second, time.Second / 4})
		}
		return all
	}
	took := map[string][]copied{wayRocast: of(2, 9, 1), wayRsync: of(6), wayChain: of(1), wayUDP: of(2)}
	failed := map[string]string{wayUFTP: errors.New("no receiver").Error()}
	sec := copiesTable([]cargo{c}, []copyKey{single, key},
		map[copyKey]map[string][]copied{key: took, single: took}, map[copyKey]map[string]string{key: failed, single: failed})
	want := [][]string{
		{"3", "nothing", "ten", wayRocast, "2.00", "1.00", "2.00", "1.00", "0.25"},
		{"3", "nothing", "ten", wayRsync, "6.00", "3.00", "2.00", "1.00", "0.25"},
		{"3", "nothing", "ten", wayChain, "1.00", "0.50", "2.00", "1.00", "0.25"},
		{"3", "nothing", "ten", wayUFTP, "fails", "", "", "", ""},
		{"3", "nothing", "ten", wayUDP, "2.00", "1.00", "2.00", "1.00", "0.25"},
	}
	if got := sec.Rows[len(want):]; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q", got)
	}
	faster := slices.DeleteFunc(slices.Clone(sec.Behind), func(s string) bool { return !strings.Contains(s, "of the time") })
	if len(faster) != 1 || !strings.Contains(faster[0], "3 receivers") || !strings.Contains(faster[0], wayChain) || len(sec.Behind) != 3 {
		t.Errorf("%q", sec.Behind)
	}
	if !strings.Contains(sec.Text, "20 Mb/s with 1 receivers, 20 Mb/s with 3 receivers") {
		t.Error(sec.Text)
	}
}
