package wire

import (
	"encoding/binary"
	"io"
	"sync"
	"time"
)

// The classic pcap format with nanoseconds (draft-ietf-opsawg-pcap), little endian.
const (
	pcapMagicNanoseconds = 0xA1B23C4D
	pcapMajor, pcapMinor = 2, 4
	linkTypeEthernet     = 1
)

// capture writes the frames of both directions in the order in which they passed.
type capture struct {
	mu     sync.Mutex
	out    io.Writer
	record []byte
	err    error
	ended  bool
}

// Capture writes all frames that pass from now on to out, as pcap, until stop is called. stop
// returns the first error. Dropped frames are not captured.
func (w *Wire) Capture(out io.Writer) (stop func() error, err error) {
	if _, err := out.Write(appendPcapHeader(nil)); err != nil {
		return nil, err
	}
	c := &capture{out: out}
	w.capture.Store(c)
	return func() error {
		w.capture.CompareAndSwap(c, nil)
		return c.end()
	}, nil
}

func (w *Wire) record(frame []byte) {
	if c := w.capture.Load(); c != nil {
		c.write(time.Now(), frame)
	}
}

func (c *capture) write(now time.Time, frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.err != nil {
		return
	}
	c.record = append(appendPcapRecord(c.record[:0], now, len(frame)), frame...)
	_, c.err = c.out.Write(c.record)
}

func (c *capture) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.err
}

func appendPcapHeader(b []byte) []byte {
	const timeZone, accuracy = 0, 0
	b = binary.LittleEndian.AppendUint32(b, pcapMagicNanoseconds)
	b = binary.LittleEndian.AppendUint16(b, pcapMajor)
	b = binary.LittleEndian.AppendUint16(b, pcapMinor)
	b = binary.LittleEndian.AppendUint32(b, timeZone)
	b = binary.LittleEndian.AppendUint32(b, accuracy)
	b = binary.LittleEndian.AppendUint32(b, maxFrameBytes)
	return binary.LittleEndian.AppendUint32(b, linkTypeEthernet)
}

func appendPcapRecord(b []byte, now time.Time, frameBytes int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(now.Unix()))
	b = binary.LittleEndian.AppendUint32(b, uint32(now.Nanosecond()))
	b = binary.LittleEndian.AppendUint32(b, uint32(frameBytes)) // captured
	return binary.LittleEndian.AppendUint32(b, uint32(frameBytes))
}
