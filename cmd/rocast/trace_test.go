package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rocast/rocast/ctl/api"
)

// A trace of a frame says the verdict and every copy, and changes nothing.
func TestTraceInject(t *testing.T) {
	d := startCaptured(t)
	before := d.must(t, "group", "show", "g1") + d.must(t, "stats")
	var text strings.Builder
	for i, p := range wire() {
		frame := p.Frame()
		if i == 3 {
			frame[len(frame)-1] ^= 1
		}
		text.WriteString(d.must(t, "trace", "inject", hex.EncodeToString(frame), "--port", "eth"+p.From[len(p.From)-1:]))
	}
	strange := wire()[0]
	strange.To = "10.77.0.9"
	text.WriteString(d.must(t, "trace", "inject", fmt.Sprintf("% x", strange.Frame()), "--port", "eth1"))
	strange.From = "10.77.0.100"
	text.WriteString(d.must(t, "trace", "inject", hex.EncodeToString(strange.Frame()), "--port", "eth1"))
	golden(t, "trace_inject.txt", text.String())
	if after := d.must(t, "group", "show", "g1") + d.must(t, "stats"); after != before {
		t.Errorf("before:\n%s\nafterwards:\n%s", before, after)
	}

	var got traces
	d.mustJSON(t, &got, "trace", "inject", hex.EncodeToString(wire()[0].Frame()), "--port", "eth1")
	sent := d.sw.Arrive(0, wire()[0].Frame())
	if len(got.Traces) != 1 || len(got.Traces[0].Frames) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, f := range got.Traces[0].Frames[1:] {
		if want := sent[i+1][0]; !bytes.Equal(f.Bytes, want) || f.Port != fmt.Sprintf("eth%d", i+2) {
			t.Errorf("copy %d by %s: %x\nwhat is sent: %x", i, f.Port, f.Bytes, want)
		}
	}
}

// Frames are read from files of both kinds: each is traced by itself.
func TestTraceInjectOfFiles(t *testing.T) {
	d := startCaptured(t)
	dir := t.TempDir()
	ng, cut := filepath.Join(dir, "a.pcapng"), filepath.Join(dir, "cut.pcapng")
	for path, snap := range map[string][]string{ng: nil, cut: {"--snap", "128"}} {
		c := d.begin(t, append([]string{"capture", "--kind", "drop", "-w", path, "--count", "1"}, snap...)...)
		strange := wire()[4].Frame()
		d.sw.Arrive(0, strange)
		c.ends(t, "captured 1, lost 0\n")
	}
	classic := func(link layers.LinkType, frames int) []byte {
		var file bytes.Buffer
		w := pcapgo.NewWriter(&file)
		if err := w.WriteFileHeader(65536, link); err != nil {
			t.Fatal(err)
		}
		for range frames {
			b := wire()[4].Frame()
			if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b), Length: len(b)}, b); err != nil {
				t.Fatal(err)
			}
		}
		return file.Bytes()
	}
	any := func(path string) string { // as of tcpdump -i any
		var file bytes.Buffer
		w, err := pcapgo.NewNgWriter(&file, layers.LinkTypeLinuxSLL)
		if err != nil {
			t.Fatal(err)
		}
		b := wire()[4].Frame()
		if err := errors.Join(w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b), Length: len(b)}, b), w.Flush(), os.WriteFile(path, file.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}(filepath.Join(dir, "any.pcapng"))
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, want := range map[string]int{ng: 1, write("a.pcap", classic(layers.LinkTypeEthernet, 2)): 2, write("all.pcap", classic(layers.LinkTypeEthernet, tracedFrames)): tracedFrames} {
		if got := d.must(t, "trace", "inject", path, "--port", "eth1"); strings.Count(got, "drop (unknown-qpn): ") != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	many := write("many.pcap", classic(layers.LinkTypeEthernet, tracedFrames+1))
	if _, out, told := d.run("trace", "inject", many, "--port", "eth1"); strings.Count(out, "drop (unknown-qpn): ") != tracedFrames || told != "only the first 100 frames of the file are traced\n" {
		t.Errorf("%s%s", told, out)
	}
	seeHelp := "; see rocast trace inject --help"
	const otherLink = ": frame 1: it has link type Linux SLL, and a port gets Ethernet frames; capture at one interface, not at any"
	for arg, want := range map[string]string{
		cut: "read the frames of " + cut + ": frame 1: only 128 of its 330 bytes are there; capture whole frames (rocast capture -w without --snap)",
		any: "read the frames of " + any + otherLink,
		write("z", classic(layers.LinkTypeLinuxSLL, 1)): "read the frames of " + filepath.Join(dir, "z") + otherLink,
		write("x", []byte("hello")):                     "read the frames of " + filepath.Join(dir, "x") + ": it is neither pcap nor pcapng",
		write("y", classic(layers.LinkTypeEthernet, 0)): "read the frames of " + filepath.Join(dir, "y") + ": there is none",
		"0200zz":                `"0200zz" is neither a file nor a frame in hexadecimal digits`,
		filepath.Join(cut, "x"): "open " + filepath.Join(cut, "x") + ": not a directory",
		"020":                   `"020" is neither a file nor a frame in hexadecimal digits`,
	} {
		d.refused(t, exitUsage, api.Usage, want+seeHelp, "trace", "inject", arg, "--port", "eth1")
	}
	d.refused(t, exitUsage, api.Usage, "--port NAME is missing"+seeHelp, "trace", "inject", "00")
	d.refused(t, exitRefused, api.NotFound, `there is no port "eth9"; rocast port ls lists the ports`, "trace", "inject", "00", "--port", "eth9")
	long := strings.Repeat("00", api.SnapMost+1)
	d.refused(t, exitRefused, api.TooLarge, "the frame has 4609 bytes, and no frame of a group has more than 4608", "trace", "inject", long, "--port", "eth1")
}

// A trace of a group shows each frame with what is sent because of it, and ends by itself.
func TestTraceGroup(t *testing.T) {
	d := startCaptured(t)
	c := d.begin(t, "trace", "group", "g1", "--count", "4")
	d.arrive()
	text, err := io.ReadAll(c.stdout)
	if exit := <-c.exit; err != nil || exit != exitOK || !strings.HasSuffix(c.stderr.String(), ", lost 0\n") {
		t.Errorf("exit %d, %v: %s", exit, err, c.stderr.String())
	}
	golden(t, "trace_group.txt", string(text))

	c = d.begin(t, "trace", "group", "g1", "--count", "1", "--json")
	d.arrive()
	var first api.Trace
	if err := json.NewDecoder(c.stdout).Decode(&first); err != nil || first.Group != "g1" || first.Frames[0].Reason != "filtered" {
		t.Errorf("%v: %+v", err, first)
	}
	if _, err := io.Copy(io.Discard, c.stdout); err != nil || <-c.exit != exitOK {
		t.Error(err)
	}
	d.refused(t, exitUsage, api.Usage, "--count is 0; write a number of frames; see rocast trace group --help", "trace", "group", "g1", "--count", "0")
	d.refused(t, exitRefused, api.NotFound, `there is no group "g2"; rocast group ls lists the groups`, "trace", "group", "g2")
	d.refused(t, exitRefused, api.NotFound, `there is no group "0"; rocast group ls lists the groups`, "trace", "group", "0")
}
