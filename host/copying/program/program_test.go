package program

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

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
	env := &Environment{Transport: n, In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(name string) string {
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
		"--help":                             {exitOK, "Exit status"},
		"--version":                          {exitOK, "v1"},
		"send":                               {exitUsage, "at least 1 arg"},
		"send x --members 2":                 {exitUsage, "--group NAME"},
		"send x --group g":                   {exitUsage, "--members N"},
		"send x --group g --members 1":       {exitUsage, "at least 2"},
		"send x --group g --members 2unset":  {exitUsage, "--box ADDRESS:PORT"},
		"send - x --group g --members 2":     {exitUsage, "sent alone"},
		"send x --group g --members 2":       {exitError, "does not answer"},
		"recv --group g --members 2":         {exitUsage, "1 arg"},
		"recv - --group g --members 2":       {exitError, "does not answer"},
		"recv /proc/x --group g --members 2": {exitError, "/proc/x"},
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
		"lines": {want: []string{"h is there\n\"a\\nb\" is left out", "the others go on: y\ufffd[2J\n"}},
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
