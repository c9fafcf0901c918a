package sim

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rocast/rocast/roce"
)

// captured is the content of a capture.
type captured struct {
	interfaces []string
	perLink    map[int]uint64 // frames
	ends       []time.Duration
	frames     [][]byte
	comments   []string
}

func parse(t *testing.T, file io.Reader) (c captured) {
	t.Helper()
	c.perLink = map[int]uint64{}
	r, err := pcapgo.NewNgReader(file, pcapgo.NgReaderOptions{ErrorOnMismatchingLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		frame, info, options, err := r.ReadPacketDataWithOptions()
		if err == io.EOF {
			break
		}
		if err != nil || len(options.Comments) != 1 {
			t.Fatalf("frame %d: %v, comments %q", len(c.frames), err, options.Comments)
		}
		c.frames = append(c.frames, frame)
		c.perLink[info.InterfaceIndex]++
		c.ends = append(c.ends, time.Duration(info.Timestamp.UnixNano()))
		c.comments = append(c.comments, options.Comments[0])
	}
	for i := range r.NInterfaces() {
		about, err := r.Interface(i)
		if err != nil || about.LinkType != layers.LinkTypeEthernet {
			t.Fatal(err, about)
		}
		c.interfaces = append(c.interfaces, about.Name)
	}
	return c
}

// A replay writes every frame when it has arrived or was lost, with its fate as a comment.
func TestReplayCapturesEveryFrame(t *testing.T) {
	var file bytes.Buffer
	s := losing(1e-2)
	var r Runner
	result, story, err := r.Replay(s, AllLines, &file)
	if err != nil || result.Failure != nil {
		t.Fatal(err, result.Failure)
	}
	c := parse(t, &file)
	if got := strings.Join(c.interfaces, " "); got != "a>switch switch>a b>switch switch>b c>switch switch>c d>switch switch>d" {
		t.Errorf("interfaces %s", got)
	}
	for _, l := range r.links() {
		if n := c.perLink[l.index()]; n != l.delivered+l.lost {
			t.Errorf("%v: %d frames captured, %d came to an end", l, n, l.delivered+l.lost)
		}
	}
	var v roce.View
	for i, b := range c.frames {
		if err := v.Decode(b, len(b)); err != nil || !v.ICRCValid([][]byte{b}) {
			t.Fatalf("frame %d (%s): %v", i, c.comments[i], err)
		}
	}
	if !slices.IsSorted(c.ends) || c.ends[0] <= 0 || c.ends[len(c.ends)-1] > r.w.now {
		t.Errorf("frames from %v to %v of a run that took %v", c.ends[0], c.ends[len(c.ends)-1], r.w.now)
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

// A replay reports that its capture could not be written, even if only the last write fails.
func TestReplayReportsFullDisk(t *testing.T) {
	for _, room := range []int{0, 100, 10000} {
		if _, _, err := new(Runner).Replay(losing(1e-2), 1, &fullDisk{room}); !errors.Is(err, errFull) {
			t.Errorf("a disk with %d bytes left: %v", room, err)
		}
	}
}

var errFull = errors.New("no space left")

// fullDisk accepts this many bytes.
type fullDisk struct{ room int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.room -= len(b); d.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// links returns all links of the last run.
func (r *Runner) links() (all []*link) {
	for i := range r.w.hosts {
		all = append(all, &r.w.hosts[i].toSwitch, &r.w.hosts[i].toHost)
	}
	return all
}

// A story ends with the last thing that happened.
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
