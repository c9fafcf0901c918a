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
	files := fileSet{"three", 3, 5000}
	b := &bench{bin: programs(t)}
	packageOf := map[string][2]string{
		wayRsync: {"rsync", "rsync"}, wayChain: {"nc", "netcat-openbsd"}, wayUFTP: {"uftp", "uftp"}, wayUDP: {"udp-sender", "udpcast"},
	}
	err := b.inCopyLab(t.Context(), copyLayout{receivers: 2, rate: 100_000_000}, func(l *copyLab) error {
		testlab.Must(t, l.lose(1000))
		for _, w := range copyWays() {
			t.Run(w.name, func(t *testing.T) {
				if p := packageOf[w.name]; p[0] != "" {
					if _, err := exec.LookPath(p[0]); err != nil {
						t.Skipf("needs the package %s: %v", p[1], err)
					}
				}
				r, err := l.copy(t.Context(), &w, files)
				copies := float64(r.sent) / float64(files.total())
				switch {
				case err != nil:
					t.Error(err)
				case r.seconds <= 0 || r.hosts <= 0 || copies < 1:
					t.Errorf("%+v", r)
				case w.name == wayRsync && copies < 2:
					t.Errorf("it sends %.1f bytes for each byte to two hosts", copies)
				}
			})
		}
		source := filepath.Join(l.home(0), copiedName)
		testlab.Must(t, (fileSet{"another", 1, 5000}).write(filepath.Join(l.home(2), copiedName, "more")))
		if err := l.compare(source); err == nil || !strings.Contains(err.Error(), "host 2") {
			t.Errorf("host 2 has more than the source: %v", err)
		}
		return nil
	})
	testlab.Permitted(t, err)
}

// A program that does not begin is named, and nobody waits until it listens.
func TestAProgramThatIsMissing(t *testing.T) {
	missing := errors.New("it is not installed")
	run := &copyRun{copyLab: &copyLab{copyLayout: copyLayout{receivers: 1}}, begun: missing}
	run.listens(t.Context(), 1, copyPort)
	if err := run.wait(); !errors.Is(err, missing) {
		t.Error(err)
	}
}

// The table has medians, names who is faster than rocast-cp from three receivers on, and says of
// whoever failed why: that another program fails is nothing in which rocast-cp is behind.
func TestTheTableOfCopies(t *testing.T) {
	of := func(seconds ...float64) (all []copied) {
		for _, s := range seconds {
			all = append(all, copied{s, 2000, time.Second, time.Second / 4})
		}
		return all
	}
	took := map[string][]copied{wayRocast: of(2, 9, 1), wayRsync: of(6), wayChain: of(1), wayUDP: of(2)}
	failed := map[string]string{wayUFTP: "no receiver"}
	with := func(receivers int) *copyCase {
		return &copyCase{copyLayout{receivers, 20_000_000, 3, 1}, 0, fileSet{"ten", 10, 100}, took, failed}
	}
	ours := with(3)
	ours.took, ours.failed = map[string][]copied{wayRsync: of(6)}, map[string]string{wayRocast: "it broke", wayChain: "it hung", wayUFTP: "no receiver", wayUDP: "it hung"}
	slow := with(3)
	slow.lost, slow.took = 100, map[string][]copied{wayRocast: of(4), wayChain: of(1), wayUDP: of(3)}
	sec := copiesTable([]*copyCase{with(1), with(3), ours, slow})
	want := [][]string{
		{"3", "nothing", "ten", wayRocast, "2.00", "1.00", "2.00", "1.00", "0.25"},
		{"3", "nothing", "ten", wayRsync, "6.00", "3.00", "2.00", "1.00", "0.25"},
		{"3", "nothing", "ten", wayChain, "1.00", "0.50", "2.00", "1.00", "0.25"},
		{"3", "nothing", "ten", wayUFTP, "fails", "", "", "", ""},
		{"3", "nothing", "ten", wayUDP, "2.00", "1.00", "2.00", "1.00", "0.25"},
		{"3", "nothing", "ten", wayRocast, "fails", "", "", "", ""},
		{"3", "nothing", "ten", wayRsync, "6.00", "", "2.00", "1.00", "0.25"},
	}
	if got := sec.Rows[5:12]; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q", got)
	}
	behind := []string{
		wayChain + " takes 0.25 to 0.50 of the time of rocast-cp in 2 of 2 settings with three receivers or more.",
		wayUDP + " takes 0.75 of the time of rocast-cp in 1 of 2 settings with three receivers or more.",
	}
	if !slices.Equal(sec.Behind, behind) {
		t.Errorf("%q", sec.Behind)
	}
	if why := sec.Notes[len(notesCopies):]; len(why) != 7 || !strings.Contains(why[0], "no receiver") {
		t.Errorf("%q", why)
	}
	if !strings.Contains(sec.Text, "20 Mb/s to 1, 20 Mb/s to 3 receivers") {
		t.Error(sec.Text)
	}
}
