package testlab

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// recorder is a test that records its failure.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper()           {}
func (r *recorder) Fatal(args ...any) { r.failure = args[0].(string); panic(r) }

func TestEventuallyReturnsWhenItIsDone(t *testing.T) {
	calls := 0
	Eventually(t, time.Minute, "the third call", func() bool { calls++; return calls == 3 }, nil)
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}

func TestEventuallyFailsInTime(t *testing.T) {
	for state, want := range map[string]string{"": "rain: not within 1ns", "the sun shines": "rain: not within 1ns; the sun shines"} {
		r := &recorder{TB: t}
		describe := func() string { return state }
		if state == "" {
			describe = nil
		}
		func() {
			defer func() { _ = recover() }()
			Eventually(r, time.Nanosecond, "rain", func() bool { return false }, describe)
		}()
		if r.failure != want {
			t.Errorf("it failed with %q, want %q", r.failure, want)
		}
	}
}

func TestASettingIsWhatTheEnvironmentSays(t *testing.T) {
	if n := Setting(t, "ROCAST_NOBODY_SETS_THIS", 7); n != 7 {
		t.Errorf("%d", n)
	}
	t.Setenv("ROCAST_TRIES", "12")
	if n := Setting(t, "ROCAST_TRIES", 7); n != 12 {
		t.Errorf("%d", n)
	}
}

// A file that is closed meanwhile hides none that was opened.
func TestFilesSince(t *testing.T) {
	open := func() *os.File {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	old := open()
	before := OpenFiles(t)
	f := open()
	old.Close()
	if files := before.Since(t); !slices.Equal(files, []string{fmt.Sprintf("%d %s", f.Fd(), os.DevNull)}) {
		t.Errorf("opened: %q", files)
	}
	f.Close()
	if files := before.Since(t); len(files) != 0 {
		t.Errorf("after all are closed: %q", files)
	}
}

func TestWithoutCapability(t *testing.T) {
	effective := func() string {
		status, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(string(status), "CapEff:")
		line, _, _ = strings.Cut(line, "\n")
		return line
	}
	outside := effective()
	want := errors.New("inside")
	err := WithoutCapability(unix.CAP_NET_ADMIN, func() error {
		if effective() == outside && os.Geteuid() == 0 {
			t.Error("the thread still has all capabilities")
		}
		return want
	})
	if !errors.Is(err, want) {
		t.Errorf("returned %v", err)
	}
	if now := effective(); now != outside {
		t.Errorf("the capabilities were %s and are %s", outside, now)
	}
}
