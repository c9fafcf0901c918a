package program

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/host/copying"
)

// nowhere is a transport without a box.
type nowhere struct{ asked Membership }

func (n *nowhere) Send(_ context.Context, m Membership) (Sending, error) {
	n.asked = m
	return nil, errors.New("the box does not answer")
}

func (n *nowhere) Receive(_ context.Context, m Membership) (Receiving, error) {
	n.asked = m
	return nil, errors.New("the box does not answer")
}

func execute(t *testing.T, line string) (status int, text string, asked Membership) {
	t.Helper()
	var out bytes.Buffer
	n := &nowhere{}
	env := &Environment{Transport: n, In: strings.NewReader(""), Out: &out, Err: &out, DNS: resolver(t, "", nil), Getenv: func(name string) string {
		if name == BoxVariable && !strings.Contains(line, "unset") {
			return "10.77.0.254:7472"
		}
		return ""
	}}
	status = env.Execute(t.Context(), env.Command("v1"), strings.Fields(strings.TrimSuffix(line, "unset")))
	return status, out.String(), n.asked
}

func TestArguments(t *testing.T) {
	for line, want := range map[string]struct {
		status int
		text   string
	}{
		"--help":                                    {exitOK, "Exit status"},
		"--version":                                 {exitOK, "v1"},
		"send":                                      {exitUsage, "at least 1 arg"},
		"send x --members 2":                        {exitUsage, "--group NAME"},
		"send x --group g":                          {exitUsage, "--members N"},
		"send x --group g --members 1":              {exitUsage, "at least 2"},
		"send x --group g --members 2unset":         {exitUsage, "--box ADDRESS:PORT"},
		"send - x --group g --members 2":            {exitUsage, "sent alone"},
		"send x --group g --members 2":              {exitError, "does not answer"},
		"send x --group g --members 2 --rate 5kM":   {exitUsage, "such as 800k, 50M or 1.5G"},
		"send x --group g --members 2 --rate 10k":   {exitUsage, "100k or more"},
		"recv --group g --members 2":                {exitUsage, "1 arg"},
		"recv - --group g --members 2":              {exitError, "does not answer"},
		"recv - --group g --members 2 --from-peers": {exitUsage, "needs a directory"},
		"recv /proc/x --group g --members 2":        {exitError, "/proc/x"},
	} {
		status, text, _ := execute(t, line)
		if status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %q", line, status, text)
		}
	}
	if _, _, m := execute(t, "recv - --group g --members 7 --box 10.0.0.1:1"); m.Box != "10.0.0.1:1" || m.Group != "g" || m.Members != 7 {
		t.Errorf("%+v", m)
	}
	if _, _, m := execute(t, "send x --group g --members 7"); m.Box != "10.77.0.254:7472" {
		t.Errorf("%+v", m)
	}
}

func TestHowASourceEnds(t *testing.T) {
	two := []string{"a", "b"}
	for text, c := range map[string]struct {
		sent   copying.Sent
		err    error
		status int
	}{
		"": {sent: copying.Sent{Complete: two}},
		"1 of 3 receivers do not have everything: c: full": {sent: copying.Sent{Complete: two, Gone: map[string]string{"c": "full"}}, status: exitLacking},
		"1 of 1 receivers do not have everything: c: full; nobody": {
			sent: copying.Sent{Gone: map[string]string{"c": "full"}}, err: errors.New("nobody"), status: exitLacking,
		},
		"1 files or directories were left out": {sent: copying.Sent{Complete: two, LeftOut: map[string]string{"f": "x"}}, status: exitLeftOut},
		"broken":                               {err: errors.New("broken"), status: exitError},
	} {
		err := outcome(c.sent, c.err)
		var s statusError
		if errors.As(err, &s); s.status != c.status || err != nil && !strings.HasPrefix(err.Error(), text) {
			t.Errorf("%q: %v, status %d", text, err, s.status)
		}
	}
}

// A terminal has one line of progress, which goes before another line comes.
func TestWhatIsPrinted(t *testing.T) {
	events := []copying.Event{
		{Event: copying.Joined, Host: "h"},
		{Event: copying.Progress, Bytes: 1 << 20, Total: 4 << 20, Rate: 1 << 20, Left: 3, Slowest: "h"},
		{Event: copying.LeftOut, Path: "a\nb", Reason: "why"},
		{Event: copying.Way, Reason: "x"}, {Event: copying.Gone, Host: "h", Reason: "y\x1b[2J"},
		{Event: copying.FromPeer, Host: "p", Bytes: 5, Files: 2}, {Event: copying.FromPeer, Host: "p", Reason: "z"},
		{Event: copying.Done, Bytes: 5, Total: 5, Files: 2}, {Event: copying.Done, Bytes: 5, Files: 2},
	}
	for name, c := range map[string]struct {
		terminal, json bool
		want           []string
	}{
		"terminal": {terminal: true, want: []string{
			"h is there\n\r[=====               ]  25 % of 4.0 MiB, 1.0 MiB/s, slowest h, 3s left\x1b[K\r\x1b[K\"a\\nb\" is left out: why\n",
			"2 receivers have all 5 B\n5 B in 2 files are here\n",
		}},
		"lines": {want: []string{"p has given 2 files, 5 B, that the source did not send\np gives no files any more: z\n", "h is there\n\"a\\nb\" is left out", "the others go on: y\ufffd[2J\n"}},
		"json":  {json: true, want: []string{`{"event":"joined","host":"h"}` + "\n" + `{"event":"progress","bytes":1048576,`}},
	} {
		var out bytes.Buffer
		p := (&Environment{Err: &out, Terminal: c.terminal}).printer(c.json, &out)
		for _, e := range events {
			p.print(e)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in %q", name, want, out.String())
			}
		}
	}
}

func TestRates(t *testing.T) {
	for text, want := range map[string]rate{"0": 0, "100e3": 100e3, "100k": 100e3, "800k": 800e3, "50M": 50e6, "1.5G": 1.5e9, "1e3k": 1e6} {
		var r rate
		if err := r.Set(text); err != nil || r != want {
			t.Errorf("%s: %d, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "k", "1K", "1kM", "1MB", "-1", "0.5", "1", "99.9k", "NaN", "Inf", "1e30"} {
		if err := new(rate).Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// joins is a membership of a test.
type joins struct{ closed bool }

func (j *joins) Close() error {
	j.closed = true
	return nil
}

// A join that hears no context ends when its user interrupts the program: because the box hears
// that it leaves, or after withdrawTime because the box does not answer.
func TestAJoinIsInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		box   func(left chan struct{}) // when it is told
		join  error                    // how join ends then
		after time.Duration
	}{
		"the box ends the join":      {box: func(left chan struct{}) { close(left) }, join: errors.New("the box refuses")},
		"the join was just complete": {box: func(left chan struct{}) { close(left) }},
		"the box does not answer":    {box: func(chan struct{}) {}, after: withdrawTime},
		"the box answers in the next second": {
			box: func(left chan struct{}) { time.AfterFunc(time.Second, func() { close(left) }) }, join: errors.New("x"), after: time.Second,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, interrupt)
			left, over := make(chan struct{}), make(chan struct{})
			m := &joins{}
			begin := time.Now()
			_, err := Interruptible(ctx, func() (*joins, error) {
				select {
				case <-left:
				case <-over:
				}
				return m, c.join
			}, func(context.Context) error { c.box(left); return nil })
			if took := time.Since(begin); !errors.Is(err, context.Canceled) || took != time.Minute+c.after || m.closed != (c.join == nil && c.after == 0) {
				t.Errorf("%s: %v after %v, closed %v", name, err, took, m.closed)
			}
			close(over)
		})
	}
}

// Whoever is not interrupted hears what join says.
func TestAJoinThatEndsByItself(t *testing.T) {
	missing := errors.New("only these have come")
	withdraw := func(context.Context) error { t.Error("it leaves"); return nil }
	synctest.Test(t, func(t *testing.T) {
		_, err := Interruptible(t.Context(), func() (*joins, error) {
			<-time.After(time.Minute)
			return nil, missing
		}, withdraw)
		if !errors.Is(err, missing) {
			t.Error(err)
		}
		m := &joins{}
		if got, err := Interruptible(t.Context(), func() (*joins, error) { return m, nil }, withdraw); got != m || err != nil || m.closed {
			t.Error(got, err)
		}
	})
}

// The sentence of an interrupted program tells whether the copy had begun.
func TestAnInterruptedProgramSaysWhere(t *testing.T) {
	for _, line := range []string{"send x --group g --members 2", "recv - --group g --members 2"} {
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		var out bytes.Buffer
		env := &Environment{Transport: &nowhere{}, In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(string) string { return "10.77.0.254:7472" }}
		status := env.Execute(ctx, env.Command("v1"), strings.Fields(line))
		if want := "rocast-cp: interrupted while it waited for the other members\n"; status != exitError || out.String() != want {
			t.Errorf("%s: %d %q", line, status, out.String())
		}
	}
}

// stuck is a transport whose join takes longer than it may.
type stuck struct{ withdrawn chan struct{} }

func (s *stuck) Send(ctx context.Context, m Membership) (Sending, error) {
	_, err := s.join(ctx, m)
	return nil, err
}

func (s *stuck) Receive(ctx context.Context, m Membership) (Receiving, error) {
	_, err := s.join(ctx, m)
	return nil, err
}

func (s *stuck) join(ctx context.Context, m Membership) (*joins, error) {
	return Interruptible(ctx, func() (*joins, error) {
		select {
		case <-s.withdrawn:
		case <-time.After(m.Wait + time.Minute):
		}
		return nil, errors.New("the box does not answer")
	}, func(context.Context) error { close(s.withdrawn); return nil })
}

// A join may take longer than --wait, and its user can end it also then.
func TestAJoinIsInterruptedAfterItsTime(t *testing.T) {
	for _, line := range []string{"send x --group g --members 2 --wait 5s", "recv - --group g --members 2 --wait 5s"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Second, interrupt)
			var out bytes.Buffer
			env := &Environment{
				Transport: &stuck{make(chan struct{})}, In: strings.NewReader(""), Out: &out, Err: &out,
				Getenv: func(string) string { return "10.77.0.254:7472" },
			}
			begin := time.Now()
			status := env.Execute(ctx, env.Command("v1"), strings.Fields(line))
			if took := time.Since(begin); took != 10*time.Second || status != exitError || !strings.Contains(out.String(), "interrupted while it waited") {
				t.Errorf("%s: %v, %d %q", line, took, status, out.String())
			}
		})
	}
}
