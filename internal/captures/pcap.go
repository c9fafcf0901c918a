package captures

import (
	"errors"
	"fmt"
	"io"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// readPcap reads all frames of an Ethernet capture, gzipped or not. A capture whose frames are not
// whole is refused: the tests compute ICRCs over them.
func readPcap(r io.Reader) ([]Frame, error) {
	reader, err := pcapgo.NewReader(r)
	if err != nil {
		return nil, err
	}
	if t := reader.LinkType(); t != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("link type %v is not Ethernet", t)
	}
	var frames []Frame
	for {
		data, info, err := reader.ReadPacketData()
		switch {
		case errors.Is(err, io.EOF) && info.CaptureLength == 0: // a record without its frame ends in EOF too
			return frames, nil
		case err != nil:
			return nil, fmt.Errorf("frame %d: %w", len(frames), err)
		case info.CaptureLength != info.Length:
			return nil, fmt.Errorf("frame %d: %d of %d bytes captured", len(frames), info.CaptureLength, info.Length)
		}
		frames = append(frames, Frame{At: info.Timestamp, Data: data})
	}
}
