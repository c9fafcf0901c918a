package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

func newLog(t *testing.T, format, level string) (*Log, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	l, err := New(format, level, &out)
	if err != nil {
		t.Fatal(err)
	}
	return l, &out
}

func TestTheLevelChangesWhileTheLogIsInUse(t *testing.T) {
	l, out := newLog(t, JSON, "info")
	child := l.With(zap.String("part", "x"))
	child.Debug("one")
	if err := l.SetLevel("debug"); err != nil || l.Level() != "debug" {
		t.Fatal(l.Level(), err)
	}
	child.Debug("two")
	for _, name := range []string{"loud", "", "panic"} {
		if err := l.SetLevel(name); err == nil || !strings.Contains(err.Error(), "write one of debug, info, warn, error") || l.Level() != "debug" {
			t.Errorf("%q: %v, then %s", name, err, l.Level())
		}
	}
	if err := l.SetLevel("error"); err != nil {
		t.Fatal(err)
	}
	child.Warn("three")
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"msg":"two"`) {
		t.Errorf("got %s", got)
	}
	if _, err := New(JSON, "loud", out); err == nil {
		t.Error("a log with that level")
	}
}

// The journal takes the priority away, and has it as PRIORITY=: journalctl -p warning works.
func TestFormats(t *testing.T) {
	for format, want := range map[string][]string{
		Journal: {`<7>{"level":"debug"`, `<6>{"level":"info"`, `<4>{"level":"warn"`, `<3>{"level":"error"`, `<2>{"level":"dpanic"`},
		JSON:    {`{"level":"debug"`, `{"level":"info"`, `{"level":"warn"`, `{"level":"error"`, `{"level":"dpanic"`},
		Console: {"debug\tx", "info\tx", "warn\tx", "error\tx", "dpanic\tx"},
		Auto:    {"debug\tx", "info\tx", "warn\tx", "error\tx", "dpanic\tx"}, // a buffer is no journal
	} {
		l, out := newLog(t, format, "debug")
		child := l.With(zap.String("group", "g1"))
		child.Debug("x")
		child.Info("x")
		child.Warn("x")
		child.Error("x")
		child.DPanic("x")
		got := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(got) != len(want) {
			t.Fatalf("%s: %q", format, got)
		}
		for i, line := range got {
			if begins := strings.HasPrefix(line, want[i]); format != Console && format != Auto && !begins || !strings.Contains(line, want[i]) || !strings.Contains(line, "g1") {
				t.Errorf("%s: %s, want %s", format, line, want[i])
			}
			if _, text, ok := strings.Cut(line, ">"); ok && !json.Valid([]byte(text)) {
				t.Errorf("%s is no JSON", text)
			}
		}
	}
}

// A program that inherits the variable and writes elsewhere does not write for the journal.
func TestTheJournalsStreamIsKnown(t *testing.T) {
	journal, err := os.Create(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	other, err := os.Create(filepath.Join(t.TempDir(), "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var is unix.Stat_t
	if err := unix.Fstat(int(journal.Fd()), &is); err != nil {
		t.Fatal(err)
	}
	stream := fmt.Sprintf("%d:%d", is.Dev, is.Ino)
	t.Setenv("JOURNAL_STREAM", stream)
	for file, want := range map[*os.File]string{journal: "<6>{", other: "20"} {
		l, err := New(Auto, "info", file)
		if err != nil {
			t.Fatal(err)
		}
		l.Info("x")
		if text, err := os.ReadFile(file.Name()); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: %s, %v", file.Name(), text, err)
		}
	}
	if isJournal(journal, "") || isJournal(new(bytes.Buffer), stream) || isJournal(journal, stream+"1") {
		t.Error("everything is a journal")
	}
}

// Lines that repeat are held back by their text, and one line says how many were.
func TestLinesThatRepeatAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newLog(t, JSON, "info")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Report(ctx) }()
		many := func(text string, n int) {
			for i := range n {
				l.Warn(text, zap.Int("packet", i))
			}
		}
		count := func(want ...string) {
			t.Helper()
			synctest.Wait()
			lines := strings.Count(out.String(), "\n")
			for _, w := range want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("no %s in\n%s", w, out)
				}
			}
			if want := len(want); want == 0 && strings.Contains(out.String(), "held back") {
				t.Errorf("got\n%s", out)
			}
			if lines > 2*MostASecond+1 {
				t.Errorf("%d lines", lines)
			}
			out.Reset()
		}
		many("a", MostASecond)
		<-time.After(2 * time.Second)
		many("a", MostASecond)
		<-time.After(ReportEvery)
		count()
		many("a", MostASecond+7)
		many("b", MostASecond+1)
		l.Debug("c") // nobody wants it
		<-time.After(ReportEvery)
		count(`"lines":8`, `"held":{"a":7,"b":1}`, `"msg":"lines of the log were held back`)
		<-time.After(ReportEvery)
		count()
		many("a", MostASecond+3)
		stop()
		<-done
		count(`"held":{"a":3}`)
	})
}

// Whoever reaches a TCP listener can make each connection fail, and so must not fill the journal.
func TestLinesOfHTTPServersAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newLog(t, JSON, "info")
		to := ForHTTP(l.Logger)
		for client := range 1000 {
			to.Printf("http: TLS handshake error from 10.0.0.1:%d: EOF", client)
		}
		l.report()
		if got := out.String(); strings.Count(got, "\n") != MostASecond+1 || !strings.Contains(got, `"error":"http: TLS handshake error from 10.0.0.1:7: EOF"`) ||
			!strings.Contains(got, fmt.Sprintf(`"lines":%d`, 1000-MostASecond)) {
			t.Errorf("got\n%s", got)
		}
	})
}
