package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/pcapng"
)

func (a *app) capture() *cobra.Command {
	var q api.CaptureQuery
	var count int
	var file string
	cmd := &cobra.Command{
		Use:   "capture",
		Short: "Show frames of groups as they pass, and what becomes of each",
		Long: fmt.Sprintf(`Show frames of groups as they pass, and what becomes of each, until interrupted: frames received, copies and
answers sent, and what was refused or lost. tcpdump on the box sees none of them, because they do not pass through the kernel.

Each line has the time, the group unless --group names it, port and host; from: received, to: sent; the opcode, PSN, destination
QPN and length of the packet, and for an acknowledge packet its syndrome instead of the opcode; the verdict, and its reason, which
rocast stats --explain explains. With -w the frames are written as pcapng, and each has the same as a comment:
rocast capture -w - | wireshark -k -i -

Lines show the first %d bytes of each frame, which are all headers; a file has whole frames, and so R_Keys and payload. While a capture runs the kernel
engine carries none of its groups, so they take more CPU time; it gets them again afterwards. The last line says how many
frames were lost because the reader was too slow. Only root may capture. With --json each line is a document.`, api.SnapDefault),
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case count < 0 || q.Sample < 0 || q.Snap < 0:
				return usage(cmd, "a number below 0 means nothing here")
			case file != "" && a.json:
				return usage(cmd, "-w writes pcapng, and --json writes JSON; leave one of them out")
			}
			if q.Snap == 0 || file != "" && !cmd.Flags().Changed("snap") {
				q.Snap = api.SnapMost
			}
			return a.watchCapture(cmd, q, count, func() (shown, error) { return a.showing(cmd, q.Group, file) })
		},
	}
	f := cmd.Flags()
	a.groupFlag(cmd, &q.Group, "only frames of the group `NAME`, and frames to its address for which there is no group")
	f.StringSliceVar(&q.Kinds, "kind", nil, "only these `kinds`, separated by commas: data (with its copies), feedback (answers and\nCNPs, from receivers and to the source), drop (refused or lost)")
	f.IntVar(&count, "count", 0, "end after so many `frames`; 0: go on")
	f.IntVar(&q.Sample, "sample", 0, "about one in so many received `frames`, with all that is sent because of it; 0: all")
	f.IntVar(&q.Snap, "snap", api.SnapDefault, "keep so many `bytes` of each frame; 0: all of them, as with -w by default")
	f.StringVarP(&file, "write", "w", "", "write pcapng to `FILE`, - for standard output")
	completeFlag(cmd, "kind", words(api.CaptureData, api.CaptureFeedback, api.CaptureDrop))
	return cmd
}

// shown is where captured frames go.
type shown interface {
	frame(*api.CapturedFrame) error
	// flush follows frames that belong together.
	flush() error
	// end is the last call.
	end() error
}

func (a *app) showing(cmd *cobra.Command, group, file string) (shown, error) {
	if file == "" {
		return &frameLines{app: a, group: group}, nil
	}
	ports, err := a.client().Ports(cmd.Context())
	if err != nil {
		return nil, err
	}
	out := io.Writer(a.stdout)
	closeFile := func() error { return nil }
	if file != "-" {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, usage(cmd, "%v", err)
		}
		out, closeFile = f, f.Close
	}
	return newFrameFile(out, closeFile, of(ports.Ports, func(p api.Port) string { return p.Name })), nil
}

// watchCapture shows frames until there are count of them; 0: until it is interrupted. It calls
// open when the capture has begun: a capture that is refused overwrites no file.
func (a *app) watchCapture(cmd *cobra.Command, q api.CaptureQuery, count int, open func() (shown, error)) (err error) {
	var show shown
	at := api.CaptureProgress{}
	n := 0
	for line, failed := range a.client().Capture(cmd.Context(), q) {
		if err = failed; err == nil && show == nil {
			show, err = open()
		}
		if err != nil {
			break
		}
		if line.Frame != nil {
			n++
			err = show.frame(line.Frame)
		}
		if line.Progress != nil {
			at = *line.Progress
			err = cmp.Or(err, show.flush())
		}
		if err != nil || count > 0 && n == count {
			break
		}
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	if show != nil {
		err = cmp.Or(err, show.end())
	}
	if err != nil {
		return err
	}
	at.Captured = uint64(n)
	return a.summary(at)
}

// summary ends what a capture shows.
func (a *app) summary(at api.CaptureProgress) error {
	if a.json {
		return json.NewEncoder(a.stdout).Encode(api.CaptureLine{Progress: &at})
	}
	text := fmt.Sprintf("captured %d, lost %d", at.Captured, at.Lost)
	if at.Ended != "" {
		text += ": " + at.Ended
	}
	_, err := fmt.Fprintln(a.stderr, text)
	return err
}

// frameLines shows each frame as a line of text, or as a line of JSON.
type frameLines struct {
	*app
	group string // the lines of this group do not name it
}

func (l *frameLines) frame(f *api.CapturedFrame) error {
	if l.json {
		return json.NewEncoder(l.stdout).Encode(api.CaptureLine{Frame: f})
	}
	return l.show(func(w io.Writer) { fmt.Fprintln(w, frameLine(f, l.group)) })
}

func (l *frameLines) flush() error { return nil }
func (l *frameLines) end() error   { return nil }

// frameLine describes a frame. It names the group if that is not the one that is known.
func frameLine(f *api.CapturedFrame, known string) string {
	way := map[string]string{api.In: "from", api.Out: "to"}[f.Direction]
	at := f.Time.Local().Format("15:04:05.000000")
	if known == "" || f.Group != known {
		at += "  " + cmp.Or(f.Group, "-")
	}
	return fmt.Sprintf("%s  %s  %-4s %s  %s  %s (%s)", at, cmp.Or(f.Port, "-"), way, cmp.Or(f.Member, "-"), packetText(f), f.Verdict, f.Reason)
}

// packetText says what kind of packet a frame is.
func packetText(f *api.CapturedFrame) string {
	if f.Opcode == "" {
		return fmt.Sprintf("no RoCE packet, %d B", f.Length)
	}
	return fmt.Sprintf("%s %d QPN %d, %d B", cmp.Or(f.Syndrome, f.Opcode), f.PSN, f.QPN, f.Length)
}

// frameFile writes each frame as pcapng.
type frameFile struct {
	out       *pcapng.Writer
	closeFile func() error
	ports     map[string]int
}

// noPort is the interface of a copy that has no way to its receiver.
const noPort = "no port"

func newFrameFile(out io.Writer, closeFile func() error, ports []string) *frameFile {
	names := append(ports[:len(ports):len(ports)], noPort)
	f := &frameFile{out: pcapng.New(out, "rocast", names), closeFile: closeFile, ports: map[string]int{"": len(ports)}}
	for i, name := range ports {
		f.ports[name] = i
	}
	return f
}

func (p *frameFile) frame(f *api.CapturedFrame) error {
	way := map[string]pcapng.Direction{api.In: pcapng.Inbound, api.Out: pcapng.Outbound}[f.Direction]
	index, known := p.ports[f.Port]
	if !known { // the port is new
		index = p.out.AddInterface(f.Port)
		p.ports[f.Port] = index
	}
	p.out.Add(pcapng.Packet{
		Interface: index, Direction: way, At: f.Time, Frame: f.Bytes, Length: f.Length, Comment: frameComment(f),
	})
	return nil // flush returns the error
}

// frameComment describes what a dissector does not see.
func frameComment(f *api.CapturedFrame) string {
	var parts []string
	for _, part := range [][2]string{
		{"group", f.Group}, {"member", f.Member}, {"verdict", f.Verdict}, {"reason", f.Reason}, {"engine", f.Engine}, {"event", fmt.Sprint(f.Event)},
	} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+part[1])
		}
	}
	return strings.Join(parts, ", ")
}

func (p *frameFile) flush() error {
	if err := p.out.Flush(); err != nil {
		return api.Errorf(api.Internal, "write the capture: %v", err)
	}
	return nil
}

func (p *frameFile) end() error {
	err := p.flush()
	if closed := p.closeFile(); closed != nil && err == nil {
		err = api.Errorf(api.Internal, "write the capture: %v", closed)
	}
	return err
}
