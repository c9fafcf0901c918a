//go:build softroce

package softroce

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/roce"
)

// TestVLAN runs rocast between hosts of which two are in the VLAN of the source, one is in another
// one, and one has no tags. The kernel carries the group, and then AF_XDP.
func TestVLAN(t *testing.T) {
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	for _, kernel := range boxKernels {
		t.Run(kernel, func(t *testing.T) {
			nics := []nicModel{virtioNet, virtioNet, virtioNet, virtioNet}
			l := openLab(t, Config{Kernel: kernel, Guests: len(nics), MTU: MTU1024, BoxNICs: nics, Tags: []Tag{{7, 3}, {7, 5}, {8, 5}, {}}})
			site := inGuest{l.Box.(*BoxGuest)}
			must(t, site.install(testContext(t, time.Minute), bin))
			s := &stage{Lab: l, judge: newJudge(l), rocast: &rocast{site: site}}
			for _, engine := range []string{"auto", "afxdp"} {
				t.Run(engine, func(t *testing.T) {
					ctx := testContext(t, 10*time.Minute)
					must(t, s.configure(ctx, l, "engine: "+engine+"\n"))
					must(t, s.Start(ctx))
					t.Cleanup(func() {
						if err := s.Stop(); err != nil {
							t.Error(err)
						}
					})
					s.carried = 0
					for _, story := range append([]story{{name: "tags", run: storyTags}}, stories...) {
						if story.name == "tags" || slices.Contains(taggedStories, story.name) {
							t.Log(s.play(t, kernel, story))
						}
					}
					if (s.carried > 0) != (engine == "auto") {
						t.Errorf("the kernel carried %d packets", s.carried)
					}
				})
			}
		})
	}
}

// taggedStories are the other stories that tagged hosts play.
var taggedStories = []string{"IPv6", "loss on a leg", "repair, legs and ACKs", "source switch"}

// storyTags looks at the tags of every packet of a transfer on the wires, and again when the VLAN
// device towards one receiver has a map.
func storyTags(t *testing.T, ctx context.Context, s *stage) string {
	box := s.Box.(*BoxGuest)
	g := s.addGroup(t, ctx, ordinary())
	seen := s.tagsOf(t, ctx, g)
	want := map[string]string{
		"1 to box": "3@7", "1 to guest": "5@7", "2 to box": "5@7", "2 to guest": "3@7", "3 to box": "5@8", "3 to guest": "3@8",
		"4 to box": "none", "4 to guest": "none",
	}
	if !maps.Equal(seen, want) {
		t.Errorf("the tags are\n%v, want\n%v", seen, want)
	}
	mapped := func(to string) {
		t.Helper()
		_, err := box.Run(ctx, "ip", "link", "set", bridgeName+".8", "type", "vlan", "egress-qos-map", "0:"+to)
		must(t, err)
	}
	mapped("6")
	defer mapped("0")
	want["3 to guest"] = "6@8"
	for !maps.Equal(seen, want) { // the box follows the map
		if ctx.Err() != nil {
			t.Fatalf("with a map the tags are\n%v, want\n%v", seen, want)
		}
		seen = s.tagsOf(t, ctx, g)
	}
	sent, _ := s.tally(g)
	return fmt.Sprintf("%d packets: each with the right VLAN and priority, hashes equal, QPs live", sent)
}

// TestVLANOffload has a box of whose NICs some take tags out of frames. rocast says so before a
// frame has come, and the command that it says mends it, in mid-transfer.
func TestVLANOffload(t *testing.T) {
	const kernel = "6.12"
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	l := openLab(t, Config{Kernel: kernel, Guests: len(mixedNICs), MTU: MTU1024, BoxNICs: mixedNICs, Tags: []Tag{{7, 0}, {7, 0}, {7, 0}, {7, 0}}})
	site := inGuest{l.Box.(*BoxGuest)}
	must(t, site.install(testContext(t, time.Minute), bin))
	s := &stage{Lab: l, judge: newJudge(l), rocast: &rocast{site: site}}
	ctx := testContext(t, 10*time.Minute)
	must(t, s.configure(ctx, l, ""))
	out, err := site.run(ctx, "rocastd", "--check", "--config", site.path("rocastd.yaml"))
	must(t, err)
	if got := offloads(out); !slices.Equal(got, []string{"rcp3", "rcp4"}) {
		t.Errorf("rocastd --check names the ports %v:\n%s", got, out)
	}
	must(t, s.Start(ctx))
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Log(s.playWithin(t, 5*time.Minute, kernel, story{name: "tags taken out", run: storyTagsTaken}))
}

func storyTagsTaken(t *testing.T, ctx context.Context, s *stage) string {
	s.allowed = []string{"wrong-vlan"} // ACKs without their tags
	both := []string{"rcp3", "rcp4"}
	if out, err := s.text(ctx, "port", "ls"); err != nil || !slices.Equal(offloads(out), both) {
		t.Errorf("port ls: %v\n%s", err, out)
	}
	g := s.addGroup(t, ctx, ordinary())
	shown := func() (shown api.Group) {
		t.Helper()
		out, err := s.ask(ctx, "group", "show", g.name)
		must(t, err)
		must(t, json.Unmarshal(out, &shown))
		return shown
	}
	if notes := strings.Join(shown().Notes, "\n"); !slices.Equal(offloads(notes), both) {
		t.Errorf("the notes of the group name other ports:\n%s", notes)
	}
	transfer := g.transfer("write", messageBytes, g.bytes/messageBytes)
	must(t, g.from.StartTransfer(transfer))
	for !strings.Contains(shown().Reason, "ethtool -K rcp") {
		if ctx.Err() != nil {
			t.Fatalf("the group is %+v", shown().GroupSummary)
		}
	}
	for _, port := range both {
		_, err := s.Box.(*BoxGuest).Run(ctx, "ethtool", "-K", port, "rxvlan", "off", "txvlan", "off")
		must(t, err)
	}
	g.await(t, ctx, transfer)
	g.delivered(t, ctx, g.bytes)
	for len(shown().Notes) > 0 {
		if ctx.Err() != nil {
			t.Fatalf("the notes of the group are %v", shown().Notes)
		}
	}
	if out, err := s.text(ctx, "port", "ls"); err != nil || len(offloads(out)) > 0 {
		t.Errorf("port ls: %v\n%s", err, out)
	}
	return "what takes tags out is named, and after the command that was named all messages are done"
}

// offloads returns the ports of which a text says how to let them leave tags where they are.
func offloads(text string) (ports []string) {
	words := strings.Fields(text)
	for i, word := range words {
		if i+3 < len(words) && word == "-K" && words[i+2] == "rxvlan" {
			ports = append(ports, words[i+1])
		}
	}
	return ports
}

// tagsOf runs a transfer, and returns the tags of its packets by guest and direction: "3@7" is
// priority 3 in VLAN 7.
func (s *stage) tagsOf(t *testing.T, ctx context.Context, g *group) map[string]string {
	t.Helper()
	captures, stops := make([]bytes.Buffer, len(s.Guests)), []func() error{}
	for i, guest := range s.Guests {
		stop, err := guest.Wire.Capture(&captures[i])
		must(t, err)
		stops = append(stops, stop)
	}
	must(t, g.from.Fill(ctx, 5))
	g.run(t, ctx, g.transfer("write", messageBytes, g.bytes/messageBytes))
	g.delivered(t, ctx, g.bytes)
	seen := map[string]string{}
	for i, guest := range s.Guests {
		must(t, stops[i]())
		words := map[string][]string{}
		for _, frame := range pcapFrames(captures[i].Bytes()) {
			var v roce.View
			if v.Decode(frame, len(frame)) != nil {
				continue
			}
			direction := " to guest"
			if bytes.Equal(frame[6:12], guest.MAC) {
				direction = " to box"
			}
			word := fmt.Sprint(guest.Number) + direction
			if tag := tagText(frame, v.VLANs); !slices.Contains(words[word], tag) {
				words[word] = append(words[word], tag)
			}
		}
		for word, tags := range words {
			seen[word] = strings.Join(tags, " and ")
		}
	}
	return seen
}

func tagText(frame []byte, tags uint8) string {
	switch tags {
	case 0:
		return "none"
	case 1:
		tci := binary.BigEndian.Uint16(frame[14:])
		return fmt.Sprintf("%d@%d", tci>>13, tci&0xFFF)
	}
	return fmt.Sprintf("%d tags", tags)
}

// pcapFrames returns the frames of a capture of a wire.
func pcapFrames(pcap []byte) (frames [][]byte) {
	const header, recordHeader, length = 24, 16, 8
	for pcap = pcap[header:]; len(pcap) > 0; {
		n := int(binary.LittleEndian.Uint32(pcap[length:]))
		frames, pcap = append(frames, pcap[recordHeader:recordHeader+n]), pcap[recordHeader+n:]
	}
	return frames
}
