package sim

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/rocast/rocast/roce"
)

// captured is what a reader gets out of a capture.
type captured struct {
	interfaces []string
	frames     [][]byte
	comments   []string
}

// parse walks the blocks of a capture, strictly.
func parse(t *testing.T, b []byte) (c captured) {
	t.Helper()
	le := binary.LittleEndian
	for first := true; len(b) > 0; first = false {
		kind, n := le.Uint32(b), le.Uint32(b[4:])
		if n%4 != 0 || int(n) > len(b) || le.Uint32(b[n-4:]) != n || first != (kind == blockSection) {
			t.Fatalf("block %#x of %d bytes, %d left", kind, n, len(b))
		}
		body := b[8 : n-4]
		switch kind {
		case blockInterface:
			c.interfaces = append(c.interfaces, option(t, body[8:], optionName))
		case blockPacket:
			if iface := le.Uint32(body); int(iface) >= len(c.interfaces) {
				t.Fatalf("a packet of interface %d", iface)
			}
			frameBytes := le.Uint32(body[12:])
			c.frames = append(c.frames, body[20:20+frameBytes])
			c.comments = append(c.comments, option(t, body[20+(frameBytes+3)&^3:], optionComment))
		}
		b = b[n:]
	}
	return c
}

func option(t *testing.T, b []byte, code uint16) string {
	t.Helper()
	for len(b) >= 4 {
		n := binary.LittleEndian.Uint16(b[2:])
		if binary.LittleEndian.Uint16(b) == code {
			return string(b[4 : 4+n])
		}
		b = b[4+(n+3)&^3:]
	}
	t.Fatalf("no option %d", code)
	return ""
}

// A replay writes every frame at the end of its way, and what became of it.
func TestReplayCapturesEveryFrame(t *testing.T) {
	var file bytes.Buffer
	s := losing(1e-2)
	var r Runner
	result, story, err := r.Replay(s, AllLines, &file)
	if err != nil || result.Failure != nil {
		t.Fatal(err, result.Failure)
	}
	c := parse(t, file.Bytes())
	if got := strings.Join(c.interfaces, " "); got != "a>switch switch>a b>switch switch>b c>switch switch>c d>switch switch>d" {
		t.Errorf("interfaces %s", got)
	}
	ends := uint64(0)
	for _, l := range r.links() {
		ends += l.delivered + l.lost
	}
	if uint64(len(c.frames)) != ends {
		t.Errorf("%d frames captured, %d came to an end", len(c.frames), ends)
	}
	var v roce.View
	for i, b := range c.frames {
		if err := v.Decode(b, len(b)); err != nil || !v.ICRCValid([][]byte{b}) {
			t.Fatalf("frame %d (%s): %v", i, c.comments[i], err)
		}
	}
	text := strings.Join(c.comments, "\n")
	for _, want := range []string{
		"WRITE_FIRST 0: forwarded", "ACK unlimited 255 msn 64: merged", ": lost", ": resent", "NAK sequence", ": executed", ": absorbed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no frame is %q", want)
		}
	}
	if last := story[len(story)-1]; len(story) < len(c.frames) || !strings.Contains(strings.Join(story, "\n"), "wr 63 send-imm: success") {
		t.Errorf("a story of %d lines, the last: %s", len(story), last)
	}
}

// links are all links of the run that was last.
func (r *Runner) links() (all []*link) {
	for i := range r.w.hosts {
		all = append(all, &r.w.hosts[i].toSwitch, &r.w.hosts[i].toHost)
	}
	return all
}

// A story ends with what happened last.
func TestStoryIsTheEnd(t *testing.T) {
	var r Runner
	_, all, err := r.Replay(calm(), AllLines, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, some, err := r.Replay(calm(), 7, nil)
	if err != nil || len(some) != 7 || strings.Join(some, "\n") != strings.Join(all[len(all)-7:], "\n") {
		t.Errorf("%v\n%s", err, strings.Join(some, "\n"))
	}
}
