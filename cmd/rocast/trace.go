package main

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

// tracedFrames bounds how many frames of a file are traced.
const tracedFrames = 100

func (a *app) traceInject() *cobra.Command {
	var port string
	cmd := &cobra.Command{
		Use:   "inject FILE|HEX",
		Short: "Show what would happen with a frame, and change nothing",
		Long: fmt.Sprintf(`Show what would happen with a frame if it came by a port now: what the classifier decides, the verdict with its reason,
and every copy and answer that would be sent, with its PSN and ICRC. Nothing is sent, and no state and no counter changes.

The frame is in a file of pcap or pcapng, or is written in hexadecimal digits, which may have spaces between them; it goes from the Ethernet
header to the ICRC. Of a file with several frames each is traced by itself, as if it came now, up to %d of them.`, tracedFrames),
		Args: takes("FILE|HEX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if port == "" {
				return usage(cmd, "--port NAME is missing")
			}
			frames, more, err := framesOf(args[0])
			if err != nil {
				return usage(cmd, "%v", err)
			}
			if more {
				fmt.Fprintf(a.stderr, "only the first %d frames of the file are traced\n", tracedFrames)
			}
			var all traces
			for _, frame := range frames {
				t, err := a.client().Trace(cmd.Context(), api.TraceRequest{Port: port, Frame: frame})
				if err != nil {
					return err
				}
				all.Traces = append(all.Traces, t)
			}
			return a.print(all, func(w io.Writer) {
				for _, t := range all.Traces {
					printTrace(w, t, port)
				}
			})
		},
	}
	cmd.Flags().StringVar(&port, "port", "", "the port by which the frame comes: its `NAME`")
	completeFlag(cmd, "port", completed(a.portNames))
	return cmd
}

// traces is the answer of rocast trace inject: one for each frame.
type traces struct {
	Traces []api.Trace `json:"traces"`
}

// framesOf returns the frames of a file, or the frame that is written in hexadecimal digits. more
// says that the file has others.
func framesOf(arg string) (frames [][]byte, more bool, err error) {
	digits := strings.Join(strings.Fields(arg), "")
	if frame, err := hex.DecodeString(digits); err == nil && len(frame) > 0 {
		return [][]byte{frame}, false, nil
	}
	f, err := os.Open(arg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("%.40q is neither a file nor a frame in hexadecimal digits", arg)
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if frames, more, err = readFrames(f); err != nil {
		return nil, false, fmt.Errorf("read the frames of %s: %v", arg, err)
	}
	return frames, more, nil
}

func readFrames(f *os.File) (frames [][]byte, more bool, err error) {
	var next func() ([]byte, error)
	if r, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{WantMixedLinkType: true}); err == nil {
		next = func() ([]byte, error) {
			b, info, err := r.ReadPacketData()
			if err != nil {
				return nil, err
			}
			of, err := r.Interface(info.InterfaceIndex)
			if err != nil {
				return nil, err
			}
			return whole(b, info.Length, of.LinkType)
		}
	} else {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, false, err
		}
		r, err := pcapgo.NewReader(f)
		if err != nil {
			return nil, false, errors.New("it is neither pcap nor pcapng")
		}
		next = func() ([]byte, error) {
			b, info, err := r.ReadPacketData()
			if err != nil {
				return nil, err
			}
			return whole(b, info.Length, r.LinkType())
		}
	}
	for {
		b, err := next()
		switch {
		case errors.Is(err, io.EOF) && len(frames) > 0:
			return frames, false, nil
		case errors.Is(err, io.EOF):
			return nil, false, errors.New("there is none")
		case len(frames) == tracedFrames:
			return frames, true, nil
		case err != nil:
			return nil, false, fmt.Errorf("frame %d: %v", len(frames)+1, err)
		}
		frames = append(frames, b)
	}
}

// whole refuses what is no whole Ethernet frame: without its end a frame has no ICRC.
func whole(b []byte, length int, link layers.LinkType) ([]byte, error) {
	switch {
	case link != layers.LinkTypeEthernet:
		return nil, fmt.Errorf("it has link type %v, and a port gets Ethernet frames; capture at one interface, not at any", link)
	case len(b) < length:
		return nil, fmt.Errorf("only %d of its %d bytes are there; capture whole frames (rocast capture -w without --snap)", len(b), length)
	}
	return b, nil
}

// printTrace shows what would happen with a frame.
func printTrace(w io.Writer, t api.Trace, port string) {
	switch t.Class {
	case api.ToKernel:
		fmt.Fprintf(w, "%s  the classifier leaves the frame to the kernel: it belongs to no group\n", port)
	case api.OwnSource:
		fmt.Fprintf(w, "%s  the classifier drops the frame: it comes from an address that only this box sends from\n", port)
	}
	printEvent(w, t.Frames)
	switch {
	case t.Carried:
		fmt.Fprintln(w, "  the kernel engine has the group, and sends these copies by itself")
	case t.GivesBack != "":
		fmt.Fprintf(w, "  the kernel engine has the group, and leaves the packet to AF_XDP (%s): %s\n", t.GivesBack, meanings()[t.GivesBack])
	}
	for _, n := range t.Notes {
		fmt.Fprintf(w, "  the operator hears of %s: %s\n", n.Member, n.What)
	}
}

// printEvent shows a received frame with its verdict, and everything that is sent because of it.
func printEvent(w io.Writer, frames []api.CapturedFrame) {
	for i := range frames {
		f := &frames[i]
		if f.Direction == api.In {
			fmt.Fprintf(w, "%s  from %s  %s\n", cmp.Or(f.Port, "-"), cmp.Or(f.Member, "-"), packetText(f))
			fmt.Fprintf(w, "  %s (%s): %s\n", f.Verdict, f.Reason, meanings()[f.Reason])
			continue
		}
		icrc := ""
		if f.ICRC != nil {
			icrc = fmt.Sprintf(", ICRC 0x%08x", uint64(*f.ICRC))
		}
		fmt.Fprintf(w, "  %s %s  %s  to %s  %s%s\n", f.Verdict, f.Reason, cmp.Or(f.Port, "-"), cmp.Or(f.Member, "-"), packetText(f), icrc)
	}
}

func (a *app) traceGroup() *cobra.Command {
	var count int
	cmd := &cobra.Command{
		Use:   "group NAME",
		Short: "Show what does happen with the next frames of a group",
		Long: `Show what does happen with the next frames of a group: each frame that is received, its verdict with the reason, and every
copy and answer that is sent because of it. It is a capture (rocast capture) in another form: the kernel engine leaves the group to AF_XDP
meanwhile, and only root may do it. With --json each frame is a document on a line of its own, and the last line says how far the capture was.`,
		Args:              takes("NAME"),
		ValidArgsFunction: completed(a.groupNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 1 {
				return usage(cmd, "--count is %d; write a number of frames", count)
			}
			show := &eventLines{app: a, left: count}
			return a.watchCapture(cmd, api.CaptureQuery{Group: args[0]}, 0, func() (shown, error) { return show, nil })
		},
	}
	cmd.Flags().IntVar(&count, "count", 10, "end after so many received `frames`")
	return cmd
}

// errEnough ends a capture that has shown as many frames as were wanted.
var errEnough = errors.New("enough")

// eventLines shows captured frames by event.
type eventLines struct {
	*app
	left   int // received frames that are still wanted
	events []uint64
	frames map[uint64][]api.CapturedFrame
}

func (l *eventLines) frame(f *api.CapturedFrame) error {
	if l.frames == nil {
		l.frames = map[uint64][]api.CapturedFrame{}
	}
	if l.frames[f.Event] == nil {
		l.events = append(l.events, f.Event)
	}
	l.frames[f.Event] = append(l.frames[f.Event], *f)
	return nil
}

func (l *eventLines) flush() error {
	for _, event := range l.events {
		frames := l.frames[event]
		if frames[0].Direction == api.In {
			if l.left == 0 {
				return errEnough
			}
			l.left--
		}
		if err := l.event(frames); err != nil {
			return err
		}
	}
	l.events, l.frames = nil, nil
	if l.left == 0 {
		return errEnough
	}
	return nil
}

func (l *eventLines) event(frames []api.CapturedFrame) error {
	if l.json {
		return json.NewEncoder(l.stdout).Encode(api.Trace{Class: api.ToGroup, Group: frames[0].Group, Frames: frames})
	}
	return l.show(func(w io.Writer) {
		if frames[0].Direction == api.Out {
			fmt.Fprintln(w, "as time passes")
		}
		printEvent(w, frames)
	})
}

func (l *eventLines) end() error { return nil }
