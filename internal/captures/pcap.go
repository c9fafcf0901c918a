package captures

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// What libpcap's format fixes, in the one variant our captures have: little-endian, microseconds, Ethernet.
const (
	pcapMagic       = 0xA1B2C3D4
	pcapHeaderBytes = 24
	recordBytes     = 16
	linkEthernet    = 1
	// maxFrameBytes is far above the 4200-byte frames of path MTU 4096: more means that the file is damaged.
	maxFrameBytes = 1 << 16
)

func readPcap(r io.Reader) ([]Frame, error) {
	var header [pcapHeaderBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	magic, link := binary.LittleEndian.Uint32(header[:]), binary.LittleEndian.Uint32(header[20:])
	if magic != pcapMagic || link != linkEthernet {
		return nil, fmt.Errorf("magic %#x, link type %d: not a little-endian microsecond Ethernet pcap", magic, link)
	}
	var frames []Frame
	for {
		f, err := readFrame(r)
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return nil, fmt.Errorf("frame %d: %w", len(frames), err)
		}
		frames = append(frames, f)
	}
}

// readFrame returns io.EOF only between two frames.
func readFrame(r io.Reader) (Frame, error) {
	var record [recordBytes]byte
	if _, err := io.ReadFull(r, record[:]); err != nil {
		return Frame{}, err
	}
	seconds, micros := binary.LittleEndian.Uint32(record[:]), binary.LittleEndian.Uint32(record[4:])
	captured, whole := binary.LittleEndian.Uint32(record[8:]), binary.LittleEndian.Uint32(record[12:])
	if captured != whole || whole > maxFrameBytes {
		return Frame{}, fmt.Errorf("%d of %d bytes captured", captured, whole)
	}
	data := make([]byte, whole)
	if _, err := io.ReadFull(r, data); err != nil {
		return Frame{}, io.ErrUnexpectedEOF
	}
	return Frame{At: time.Unix(int64(seconds), int64(micros)*1000).UTC(), Data: data}, nil
}
