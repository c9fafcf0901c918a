package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/roce"
)

// capturing is a command that runs while frames arrive at the daemon.
type capturing struct {
	stdout    io.Reader
	stderr    bytes.Buffer
	interrupt context.CancelFunc
	exit      chan int
}

// begin types a command and returns when its capture has begun.
func (d *daemon) begin(t *testing.T, args ...string) *capturing {
	t.Helper()
	began := make(chan struct{}, 1)
	d.sw.OnCapture = func() { began <- struct{}{} }
	ctx, interrupt := context.WithCancel(t.Context())
	out, in := io.Pipe()
	c := &capturing{stdout: out, interrupt: interrupt, exit: make(chan int, 1)}
	go func() {
		e := env{args: append(args, "--socket", d.socket), stdin: strings.NewReader(""), stdout: in, stderr: &c.stderr}
		c.exit <- e.run(ctx)
		in.Close()
	}()
	<-began
	return c
}

// ends returns what the command has written, and checks that it says so much at its end.
func (c *capturing) ends(t *testing.T, said string) (stdout string) {
	t.Helper()
	text, err := io.ReadAll(c.stdout)
	if exit := <-c.exit; err != nil || exit != exitOK || c.stderr.String() != said {
		t.Errorf("exit %d, %v, stderr %q, want %q", exit, err, c.stderr.String(), said)
	}
	return string(text)
}

// wire is what arrives in the tests: a WRITE, an ACK of each receiver, a damaged ACK, and a WRITE
// to a QPN that the group does not have.
func wire() (frames []ctltest.Packet) {
	write := ctltest.Packet{
		From: "10.77.0.1", To: "10.77.0.100", QPN: 1, PSN: 1000, RETH: &roce.RETH{VA: 0x10000, RKey: 0x77, DMABytes: 256},
		Payload: bytes.Repeat([]byte("secret! "), 32),
	}
	answer := func(from string, psn roce.PSN) ctltest.Packet {
		return ctltest.Packet{From: from, To: "10.77.0.100", QPN: 1, PSN: psn, AETH: &roce.AETH{Syndrome: roce.SyndromeUnlimited, MSN: 1}}
	}
	wrong := write
	wrong.QPN = 2
	return []ctltest.Packet{write, answer("10.77.0.2", 5), answer("10.77.0.3", 7), answer("10.77.0.2", 6), wrong}
}

// captured is how many frames a capture of wire has.
const captured = 8

// arrive lets the frames of wire arrive, and returns them and all that was sent.
func (d *daemon) arrive() (received [][]byte, sent [][]byte) {
	for i, p := range wire() {
		frame := p.Frame()
		if i == 3 {
			frame[len(frame)-1] ^= 1
		}
		received = append(received, frame)
		for _, byPort := range d.sw.Arrive(int(p.From[len(p.From)-1]-'1'), frame) {
			sent = append(sent, byPort...)
		}
	}
	return received, sent
}

func startCaptured(t *testing.T) *daemon {
	t.Helper()
	d := startDaemon(t)
	text, err := os.ReadFile("testdata/g1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "g1.yaml")
	off := append(text, "repair: off\n"...) // else the box may send again before the test answers
	if err := os.WriteFile(file, off, 0o600); err != nil {
		t.Fatal(err)
	}
	d.must(t, "group", "create", "-f", file)
	return d
}

var clock = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{6}  `)

// A capture shows a line for each frame, and ends when it has as many as were asked for.
func TestCapture(t *testing.T) {
	d := startCaptured(t)
	c := d.begin(t, "capture", "--group", "g1", "--count", fmt.Sprint(captured))
	d.arrive()
	golden(t, "capture.txt", clock.ReplaceAllString(c.ends(t, "captured 8, lost 0\n"), "TIME  "))

	c = d.begin(t, "capture", "--kind", "drop", "--count", "2")
	d.arrive()
	if got := c.ends(t, "captured 2, lost 0\n"); strings.Count(got, "drop") != 2 || strings.Count(got, "\n") != 2 {
		t.Errorf("of the kind drop: %s", got)
	}
}

// With --json each frame is a document on a line of its own, with its bytes.
func TestCaptureAsJSON(t *testing.T) {
	d := startCaptured(t)
	c := d.begin(t, "capture", "--json", "--snap", "0", "--count", fmt.Sprint(captured))
	received, sent := d.arrive()
	events := map[uint64]int{}
	decoder := json.NewDecoder(strings.NewReader(c.ends(t, "")))
	decoder.DisallowUnknownFields()
	for n := 0; ; n++ {
		var line api.CaptureLine
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Progress != nil {
			if n != captured || *line.Progress != (api.CaptureProgress{Captured: captured}) || decoder.More() {
				t.Errorf("behind %d frames: %+v", n, line.Progress)
			}
			break
		}
		f := line.Frame
		events[f.Event]++
		from := &received
		if f.Direction == api.Out {
			from = &sent
		}
		want := (*from)[0]
		*from = (*from)[1:]
		if !bytes.Equal(f.Bytes, want) || f.Length != len(want) || f.ICRC == nil || f.Engine != "afxdp" {
			t.Errorf("frame %d: %+v\nwant %x", n, f, want)
		}
	}
	if len(received)+len(sent) > 0 || len(events) != len(wire()) {
		t.Errorf("%d and %d frames are missing; events %v", len(received), len(sent), events)
	}
}

// comments are the comments of a capture file, each behind its interface.
func comments(t *testing.T, file io.Reader) (all []string) {
	t.Helper()
	r, err := pcapgo.NewNgReader(file, pcapgo.NgReaderOptions{ErrorOnMismatchingLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		frame, info, options, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil || len(options.Comments) != 1 || options.Flags == nil {
			t.Fatalf("frame %d: %v, %+v", len(all), err, options)
		}
		about, err := r.Interface(info.InterfaceIndex)
		if err != nil || info.CaptureLength != min(info.Length, api.SnapDefault) || len(frame) != info.CaptureLength {
			t.Errorf("frame %d: %v, %+v", len(all), err, info)
		}
		way := map[pcapgo.NgEpbFlag]string{pcapgo.NgEpbFlagDirectionInbound: "in", pcapgo.NgEpbFlagDirectionOutbound: "out"}
		all = append(all, about.Name+" "+way[options.Flags.Direction]+": "+options.Comments[0])
	}
}

var eventNumber = regexp.MustCompile(`event \d+`)

var wantComments = []string{
	"eth1 in: group g1, member 10.77.0.1, verdict forward, reason forwarded, engine afxdp, event N",
	"eth2 out: group g1, member 10.77.0.2, verdict send, reason copy, engine afxdp, event N",
	"eth3 out: group g1, member 10.77.0.3, verdict send, reason copy, engine afxdp, event N",
	"eth2 in: group g1, member 10.77.0.2, verdict absorb, reason absorbed, engine afxdp, event N",
	"eth3 in: group g1, member 10.77.0.3, verdict forward, reason merged, engine afxdp, event N",
	"eth1 out: group g1, member 10.77.0.1, verdict send, reason reply, engine afxdp, event N",
	"eth2 in: group g1, member 10.77.0.2, verdict drop, reason bad-icrc, engine afxdp, event N",
	"eth1 in: member 10.77.0.1, verdict drop, reason unknown-qpn, engine afxdp, event N",
}

// A capture file has each frame with its interface, direction and comment, and no more payload than
// was asked for.
func TestCaptureIntoAFile(t *testing.T) {
	d := startCaptured(t)
	path := filepath.Join(t.TempDir(), "g1.pcapng")
	c := d.begin(t, "capture", "-w", path, "--count", fmt.Sprint(captured), "--snap", fmt.Sprint(api.SnapDefault))
	d.arrive()
	if got := c.ends(t, "captured 8, lost 0\n"); got != "" {
		t.Errorf("printed %q", got)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := comments(t, bytes.NewReader(file))
	for i := range got {
		got[i] = eventNumber.ReplaceAllString(got[i], "event N")
	}
	if diff := cmp.Diff(wantComments, got); diff != "" {
		t.Error(diff)
	}
	if about, err := os.Stat(path); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("others may read R_Keys: %v, %v", about.Mode(), err)
	}
	d.tsharkReads(t, path)
}

// A port that comes while the capture runs is an interface of its own.
func TestAPortComesWhileItIsCaptured(t *testing.T) {
	var out bytes.Buffer
	file := newFrameFile(&out, func() error { return nil }, []string{"eth1"})
	for _, port := range []string{"eth1", "eth9", "", "eth9"} {
		f := api.CapturedFrame{Port: port, Direction: api.Out, Verdict: "send", Reason: "copy", Bytes: []byte{1, 2}, Length: 2}
		if err := file.frame(&f); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.end(); err != nil {
		t.Fatal(err)
	}
	const comment = " out: verdict send, reason copy, event 0"
	if diff := cmp.Diff([]string{"eth1" + comment, "eth9" + comment, noPort + comment, "eth9" + comment}, comments(t, &out)); diff != "" {
		t.Error(diff)
	}
}

// tsharkReads checks that Wireshark understands the file.
func (d *daemon) tsharkReads(t *testing.T, path string) {
	t.Helper()
	t.Run("tshark", func(t *testing.T) {
		if _, err := exec.LookPath("tshark"); err != nil {
			t.Skip("tshark is not installed (Debian: tshark), so Wireshark's own reader was not asked")
		}
		fields := []string{"frame.interface_name", "infiniband.bth.opcode", "infiniband.bth.psn", "frame.comment"}
		args := []string{"-r", path, "-T", "fields", "-E", "separator=|"}
		for _, f := range fields {
			args = append(args, "-e", f)
		}
		out, err := exec.Command("tshark", args...).Output()
		if err != nil {
			t.Fatalf("tshark: %v", err)
		}
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		want := []string{
			"eth1|10|1000|", "eth2|10|5|", "eth3|10|7|", "eth2|17|5|", "eth3|17|7|", "eth1|17|1000|", "eth2|17|6|", "eth1|10|1000|",
		}
		if len(got) != len(want) {
			t.Fatalf("tshark has %d frames:\n%s", len(got), out)
		}
		for i := range want {
			_, comment, _ := strings.Cut(wantComments[i], ": ")
			if line := eventNumber.ReplaceAllString(got[i], "event N"); line != want[i]+comment {
				t.Errorf("tshark shows %q, want %q", line, want[i]+comment)
			}
		}
	})
}

// With -w - whatever reads the capture has each frame at once and whole, and an interrupt ends the
// capture as it should.
func TestCaptureIntoAPipe(t *testing.T) {
	d := startCaptured(t)
	c := d.begin(t, "capture", "-w", "-")
	r, err := pcapgo.NewNgReader(c.stdout, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for range 3 { // the group's source sends the same packet again
		received, sent := d.arrive()
		for n := range len(received) + len(sent) {
			frame, _, _, err := r.ReadPacketDataWithOptions()
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 && !bytes.Equal(frame, received[0]) {
				t.Errorf("the first frame is %x", frame)
			}
			total++
		}
	}
	c.interrupt()
	c.ends(t, fmt.Sprintf("captured %d, lost 0\n", total))
}

// The group is removed while it is captured.
func TestTheCapturedGroupIsRemoved(t *testing.T) {
	d := startCaptured(t)
	c := d.begin(t, "capture", "--group", "g1")
	d.must(t, "group", "rm", "g1")
	if got := c.ends(t, "captured 0, lost 0: the group was removed\n"); got != "" {
		t.Errorf("printed %q", got)
	}
}

func TestWhatCannotBeCaptured(t *testing.T) {
	d := startCaptured(t)
	d.refused(t, exitRefused, api.NotFound, `there is no group "g2"; rocast group ls lists the groups`, "capture", "--group", "g2")
	d.refused(t, exitRefused, api.NotFound, `there is no group "0"; rocast group ls lists the groups`, "capture", "--group", "0")
	d.refused(t, exitRefused, api.BadRequest, `there is no kind of frames "acks"; write data, feedback or drop`, "capture", "--kind", "data,acks")
	d.refused(t, exitRefused, api.BadRequest, `snap is 100; write a number of bytes from 128 to 4608`, "capture", "--snap", "100")
	d.refused(t, exitRefused, api.BadRequest, `sample is "1048577"; write a whole number up to 1048576`, "capture", "--sample", "1048577")
	exit, _, stderr := d.run("capture", "-w", "/nowhere/x.pcapng")
	if want := "rocast: open /nowhere/x.pcapng: no such file or directory; see rocast capture --help\n"; exit != exitUsage || stderr != want {
		t.Errorf("exit %d: %s", exit, stderr)
	}
	if exit, stdout, _ := d.run("capture", "-w", "-", "--json"); exit != exitUsage || !strings.Contains(stdout, "leave one of them out") {
		t.Errorf("exit %d: %s", exit, stdout)
	}
	exit, _, stderr = d.run("capture", "--count", "1", "-w", "/dev/full")
	if exit != exitRefused || stderr != "rocast: write the capture: write /dev/full: no space left on device\n" {
		t.Errorf("exit %d: %s", exit, stderr)
	}
	kept := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(kept, []byte("an earlier capture"), 0o600); err != nil {
		t.Fatal(err)
	}
	if exit, _, _ = d.run("capture", "--group", "g2", "-w", kept); exit != exitRefused {
		t.Errorf("exit %d", exit)
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "an earlier capture" {
		t.Errorf("a capture that was refused has overwritten the file: %q, %v", text, err)
	}
}
