package sim

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/rocast/rocast/ctl/pcapng"
	"github.com/rocast/rocast/roce"
)

// recorder records a run for people: its story, and all its frames as pcapng. Runs by the thousand
// have none; a seed that failed is run again with one.
type recorder struct {
	w     *world
	keep  int // so many of the last lines; AllLines: every line
	lines []string
	out   *pcapng.Writer // nil: no frames are wanted
}

// AllLines asks Replay for the whole story.
const AllLines = 1 << 30

func (r *recorder) note(now time.Duration, format string, args ...any) {
	if len(r.lines) >= 2*r.keep {
		r.lines = append(r.lines[:0], r.story()...)
	}
	r.lines = append(r.lines, fmt.Sprintf("%12v  %s", now, fmt.Sprintf(format, args...)))
}

// story returns the lines that are kept.
func (r *recorder) story() []string { return r.lines[max(0, len(r.lines)-r.keep):] }

// lostTo are the fates of frames that a fault ended.
var lostTo = [numFaults]string{
	Loss: "lost", QueueFull: "lost: queue full", Burst: "lost: burst", Cut: "lost: cut",
	ReceiverCrash: "lost: host crashed", SwitchCrash: "lost: switch down", Join: "lost: queue pair not ready",
}

// record records what became of a frame at the end of link l, if there is a recorder.
func (w *world) record(l *link, f *frame, fate string) {
	if w.recorder != nil {
		w.recorder.frame(l, f, fate)
	}
}

// frame records what became of a frame at the end of link l.
func (r *recorder) frame(l *link, f *frame, fate string) {
	text := r.describe(l, f)
	r.note(r.w.now, "%v  %s: %s", l, text, fate)
	if r.out != nil {
		r.out.Add(pcapng.Packet{
			Interface: l.index(), At: time.Unix(0, int64(r.w.now)), Frame: f.data(), Length: len(f.data()), Comment: text + ": " + fate,
		})
	}
}

// describe names a frame by the number of its packet, as the host at the link counts: a source
// counts what it sent, a receiver what its queue pair got.
func (r *recorder) describe(l *link, f *frame) string {
	b := f.data()
	var v roce.View
	if err := v.Decode(b, len(b)); err != nil {
		return "damaged beyond recognition"
	}
	if l.host >= len(r.w.s.Hosts) { // between two boxes
		return fmt.Sprintf("%v with PSN %d, packet %d", v.Opcode, v.PSN(b), f.packet)
	}
	h := &r.w.s.Hosts[l.host]
	first := h.SendPSN // at the link of a source
	if (f.stream == noStream) == l.toSwitch {
		first = h.RecvPSN
	}
	if v.Opcode == roce.OpCNP {
		return "CNP"
	}
	text := fmt.Sprintf("%v %d", v.Opcode, v.PSN(b).Sub(first))
	if v.Opcode.Headers().Has(roce.HasAETH) {
		a := v.AETH(b)
		text = fmt.Sprintf("%v %d msn %d", a.Syndrome, v.PSN(b).Sub(first), a.MSN)
	} else if v.AckReq(b) {
		text += "!"
	}
	if v.ECN(b) == congestionExperienced {
		text += " (marked)"
	}
	if f.damaged {
		text += " (damaged)"
	}
	return text
}

// String returns the name of the link in a story.
func (l *link) String() string {
	if l.toSwitch {
		return hostName(l.host) + ">switch"
	}
	return "switch>" + hostName(l.host)
}

// index returns the number of the link in the run.
func (l *link) index() int {
	if l.toSwitch {
		return 2 * l.host
	}
	return 2*l.host + 1
}

// Replay is Run that also returns the last lines of the story, and writes every frame to capture
// (pcapng; nil: not wanted), with what became of the frame as its comment.
func (r *Runner) Replay(s Scenario, lines int, capture io.Writer) (Result, []string, error) {
	rec := &recorder{w: &r.w, keep: lines}
	if capture != nil {
		rec.out = pcapng.New(capture, "rocsim", s.linkNames())
	}
	r.w.recorder = rec
	defer func() { r.w.recorder = nil }()
	result, err := r.Run(s)
	if rec.out != nil {
		err = cmp.Or(err, rec.out.Flush())
	}
	return result, rec.story(), err
}

// linkNames returns the names of the links of a run, by index.
func (s *Scenario) linkNames() (names []string) {
	for host := range s.Hosts {
		for _, toSwitch := range []bool{true, false} {
			names = append(names, (&link{host: host, toSwitch: toSwitch}).String())
		}
	}
	return names
}
